"""The time zone of this machine, as it is set in one of the usual ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuectl.schedules import local_timezone
from queuectl.schedules.local_timezone import local_zone


@pytest.fixture(autouse=True)
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An /etc of our own, with nothing in it, and no TZ."""
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(local_timezone, "LOCALTIME", str(tmp_path / "localtime"))
    monkeypatch.setattr(local_timezone, "TIMEZONE", str(tmp_path / "timezone"))
    return tmp_path


def link(etc: Path, target: str | Path) -> None:
    (etc / "localtime").symlink_to(target)


def test_a_machine_that_does_not_say_is_in_utc() -> None:
    assert local_zone() == "UTC"


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        (":/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/America/Argentina/Salta", "America/Argentina/Salta"),
        ("UTC", "UTC"),
        ("", "UTC"),
    ],
)
def test_the_variable_comes_first(etc: Path, monkeypatch: pytest.MonkeyPatch, variable: str, name: str) -> None:
    link(etc, "/usr/share/zoneinfo/Asia/Tokyo")
    monkeypatch.setenv("TZ", variable)
    assert local_zone() == name


@pytest.mark.parametrize(
    "variable", ["CET-1CEST,M3.5.0,M10.5.0/3", ":/etc/localtime", ":", "Nowhere/Land", "../../etc/passwd"]
)
def test_a_variable_that_names_no_zone_is_passed_over(
    etc: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    link(etc, "/usr/share/zoneinfo/Asia/Tokyo")
    monkeypatch.setenv("TZ", variable)
    assert local_zone() == "Asia/Tokyo"


@pytest.mark.parametrize(
    "target",
    ["/usr/share/zoneinfo/Asia/Tokyo", "/var/db/timezone/zoneinfo/Asia/Tokyo", "../share/zoneinfo/Asia/Tokyo"],
)
def test_then_comes_where_localtime_leads(etc: Path, target: str) -> None:
    link(etc, target)
    (etc / "timezone").write_text("Europe/Berlin\n")
    assert local_zone() == "Asia/Tokyo"


def test_localtime_may_lead_there_over_another_link(etc: Path) -> None:
    (etc / "clock").symlink_to("/nowhere/zoneinfo/Asia/Tokyo")
    link(etc, "clock")
    assert local_zone() == "Asia/Tokyo"


def test_a_zone_that_is_a_link_to_another_keeps_its_name(etc: Path) -> None:
    folder = etc / "zoneinfo" / "Europe"
    folder.mkdir(parents=True)
    (folder / "Berlin").touch()
    (folder / "Oslo").symlink_to("Berlin")
    link(etc, folder / "Oslo")
    assert local_zone() == "Europe/Oslo"


@pytest.mark.parametrize(
    "target", ["/somewhere/else", "/nowhere/zoneinfo/No/Such", "/nowhere/zoneinfo/localtime", None]
)
def test_then_comes_the_file_of_its_name(etc: Path, target: str | None) -> None:
    if target:
        link(etc, target)
    else:
        (etc / "localtime").write_bytes(b"TZif")  # a copy, as some images have it
    (etc / "timezone").write_text("Europe/Berlin\n")
    assert local_zone() == "Europe/Berlin"


@pytest.mark.parametrize("content", [b"", b"\n", b"Nowhere/Land\n", b"\xff\0\n", b"../../etc/passwd"])
def test_a_file_that_names_no_zone_is_passed_over(etc: Path, content: bytes) -> None:
    (etc / "timezone").write_bytes(content)
    assert local_zone() == "UTC"


def test_a_folder_in_its_place_is_passed_over(etc: Path) -> None:
    (etc / "timezone").mkdir()
    (etc / "localtime").mkdir()
    assert local_zone() == "UTC"
