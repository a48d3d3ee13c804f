"""The numbered scripts: complete, in order, and known to the program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from queuectl.errors import StoreUnavailable
from queuectl.store import migrate

NAMES = sorted(os.listdir(migrate.FOLDER))


def test_the_newest_version_is_that_of_the_newest_script() -> None:
    assert max(int(name[:4]) for name in NAMES) == migrate.NEWEST


def test_the_scripts_are_numbered_without_a_gap() -> None:
    assert {int(name[:4]) for name in NAMES} == set(range(1, migrate.NEWEST + 1))


def test_every_script_is_run_once_in_the_order_of_its_number() -> None:
    numbers = [number for number, _ in migrate.scripts_after(0, "sqlite")]
    assert numbers == sorted(numbers)
    assert len(numbers) == len([name for name in NAMES if name.split(".")[1] in ("sql", "sqlite")])


def test_nothing_is_left_to_run_on_the_newest_version() -> None:
    assert list(migrate.scripts_after(migrate.NEWEST, "sqlite")) == []


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_an_engines_own_script_follows_the_common_one_of_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    for name in ("0001_core", "0002_more"):
        for kind in ("", ".sqlite", ".postgres"):
            (tmp_path / f"{name}{kind}.sql").write_text(f"{name}{kind}")
    monkeypatch.setattr(migrate, "FOLDER", str(tmp_path))
    assert [script for _, script in migrate.scripts_after(0, engine)] == [
        "0001_core",
        f"0001_core.{engine}",
        "0002_more",
        f"0002_more.{engine}",
    ]


def test_only_a_newer_schema_is_refused() -> None:
    for version in range(migrate.NEWEST + 1):
        migrate.check(version, "queue.db")
    with pytest.raises(StoreUnavailable) as refused:
        migrate.check(migrate.NEWEST + 1, "queue.db")
    assert "upgrade" in refused.value.hint
