"""What runs write of themselves, on its way to the store: when it is looked at, what is new, what is left alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from queuectl.errors import StoreUnavailable
from queuectl.jobs import run_report
from queuectl.jobs.model import Claim
from queuectl.jobs.run_report import LARGEST
from queuectl.store import Store
from queuectl.system import wakeup
from queuectl.system.wakeup import Bell
from queuectl.worker import progress
from queuectl.worker.log import Log
from queuectl.worker.process import Run
from queuectl.worker.progress import LOOK_EVERY, NEVER, Reports
from tests.unit.conftest import a_claim

LONG_AGO = -1000.0


class FakeRun:
    def __init__(self, folder: Path, seq: int = 7, began: float = LONG_AGO) -> None:
        self.claim = a_claim(seq=seq)
        self.began = began
        self.result_path = progress.path_of(str(folder), "w1", self.claim)

    @property
    def file(self) -> Path:
        return Path(self.result_path)


class FakeStore:
    """Remembers what it was told; may be away."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Any]] = []
        self.transactions = 0
        self.away = False

    def report(self, worker: str, said: list[tuple[Claim, str]]) -> set[int]:
        assert worker == "w1"
        if self.away:
            raise StoreUnavailable("away", "wait")
        self.transactions += 1
        self.told += [(claim.seq, json.loads(report)) for claim, report in said]
        return {claim.seq for claim, _ in said}

    def news(self) -> list[tuple[int, Any]]:
        told, self.told = self.told, []
        return told


class Desk:
    def __init__(self) -> None:
        self.store = FakeStore()
        self.reports = Reports(cast(Store, self.store), "w1", Log("test", chatty=False))

    def look(self, *runs: FakeRun) -> list[tuple[int, Any]]:
        """What the store learns from one look at these."""
        self.reports.pass_on(cast(list[Run], runs))
        return self.store.news()

    def last(self, run: FakeRun) -> Any:
        report = self.reports.last(cast(Run, run))
        assert not os.path.lexists(run.result_path)
        return None if report is None else json.loads(report)

    def due(self, *runs: FakeRun) -> float:
        return self.reports.due({run.claim.seq: cast(Run, run) for run in runs})


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened from now on."""
    files: list[str] = []
    real = progress._read

    def noted(path: str) -> tuple[run_report.Said, str]:
        files.append(path)
        return real(path)

    monkeypatch.setattr(progress, "_read", noted)
    return files


def aged(file: Path) -> None:
    """As if it had been written a while ago."""
    os.utime(file, (time.time() - 100, time.time() - 100))


# -- while it runs ---------------------------------------------------------------------------------------


def test_nobody_looks_unless_a_run_is_old_enough(desk: Desk, tmp_path: Path) -> None:
    assert desk.due() == NEVER
    now = time.monotonic()
    old, young = FakeRun(tmp_path, began=now - 50), FakeRun(tmp_path, 8, began=now + 50)
    assert desk.due(old, young) <= now
    assert desk.due(young) == young.began + LOOK_EVERY
    young.file.write_text('{"progress": 5}')
    old.file.write_text('{"progress": 6}')
    assert desk.look(old, young) == [(7, {"progress": 6})]
    assert desk.due(old, young) >= now + LOOK_EVERY


def test_what_is_new_is_told_once_and_for_all_runs_together(desk: Desk, tmp_path: Path) -> None:
    runs = [FakeRun(tmp_path, seq) for seq in (1, 2, 3)]
    assert desk.look(*runs) == []
    runs[0].file.write_text('{"progress": 5}')
    runs[2].file.write_text("[1]")
    assert desk.look(*runs) == [(1, {"progress": 5}), (3, {"result": [1]})]
    assert desk.look(*runs) == []
    assert desk.store.transactions == 1
    runs[0].file.write_text('{"progress": 6}')
    assert desk.look(*runs) == [(1, {"progress": 6})]


def test_what_has_not_changed_is_not_read_again(desk: Desk, run: FakeRun, opened: list[str]) -> None:
    run.file.write_text('{"progress": 5}')
    aged(run.file)
    desk.look(run)
    desk.look(run)
    assert len(opened) == 1
    replacement = run.file.with_suffix(".new")
    replacement.write_text('{"progress": 6}')
    replacement.rename(run.file)  # as long as before, and as old
    aged(run.file)
    assert desk.look(run) == [(7, {"progress": 6})]


def test_what_is_written_in_the_moment_of_a_look_is_seen_by_the_next(desk: Desk, run: FakeRun) -> None:
    """A time stamp is coarse."""
    run.file.write_text('{"progress": 5}')
    desk.look(run)
    before = os.stat(run.file)
    run.file.write_text('{"progress": 6}')
    os.utime(run.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert desk.look(run) == [(7, {"progress": 6})]


def test_a_store_that_is_away_is_told_later(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}')
    aged(run.file)
    desk.store.away = True
    with pytest.raises(StoreUnavailable):
        desk.look(run)
    assert desk.due(run) > time.monotonic() - LOOK_EVERY
    desk.store.away = False
    run.file.write_text('{"progress": 6}')
    assert desk.look(run) == [(7, {"progress": 6})]


def test_what_could_not_be_told_is_told_later_though_nothing_has_changed(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}')
    aged(run.file)
    desk.store.away = True
    with pytest.raises(StoreUnavailable):
        desk.look(run)
    desk.store.away = False
    assert desk.look(run) == [(7, {"progress": 5})]


@pytest.mark.parametrize("half", ["", '{"progress": 6', "[", "hello", '{"progress": 600}'])
def test_what_is_half_written_or_wrong_changes_nothing_yet(desk: Desk, run: FakeRun, half: str) -> None:
    run.file.write_text(half)
    assert desk.look(run) == []
    run.file.write_text('{"progress": 5}')
    desk.look(run)
    run.file.write_text(half)
    assert desk.look(run) == []


def test_whole_lines_before_a_half_one_count(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}\n{"progress": 6, "mess')
    assert desk.look(run) == [(7, {"progress": 5})]


# -- at its end ------------------------------------------------------------------------------------------


def test_a_run_that_says_nothing_leaves_nothing(desk: Desk, run: FakeRun) -> None:
    assert desk.last(run) is None


def test_the_last_word_is_taken_and_the_file_is_gone(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}')
    desk.look(run)
    run.file.write_text('{"progress": 100, "result": 1}')
    assert desk.last(run) == {"progress": 100, "result": 1}


def test_a_last_word_that_was_told_before_is_not_told_again(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}')
    desk.look(run)
    assert desk.last(run) is None


def test_a_last_word_that_could_not_be_told_is(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}')
    desk.store.away = True
    with pytest.raises(StoreUnavailable):
        desk.look(run)
    assert desk.last(run) == {"progress": 5}


def test_a_word_that_could_not_be_told_is_told_though_its_file_was_taken_away(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}')
    desk.store.away = True
    with pytest.raises(StoreUnavailable):
        desk.look(run)
    run.file.unlink()
    assert desk.last(run) == {"progress": 5}


def test_the_next_run_of_the_job_starts_afresh(desk: Desk, run: FakeRun) -> None:
    run.file.write_text('{"progress": 5}')
    desk.look(run)
    desk.last(run)
    run.file.write_text('{"progress": 5}')
    assert desk.look(run) == [(7, {"progress": 5})]


def test_a_job_that_appends_for_long_is_read_to_its_end(desk: Desk, run: FakeRun) -> None:
    run.file.write_text("".join(f'{{"message": "{"x" * 50} {n}"}}\n' for n in range(3000)))
    assert run.file.stat().st_size > 2 * LARGEST
    assert desk.last(run)["message"].endswith(" 2999")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"progress": 6', "line 1 is not valid JSON"),
        ("hello", "line 1 is not valid JSON"),
        ('"' + "x" * LARGEST, "larger than 64 KiB"),
        ("\0" * 10 * LARGEST, "larger than 64 KiB"),
    ],
)
def test_what_is_wrong_at_the_end_is_told_and_what_was_said_before_stays(
    desk: Desk, run: FakeRun, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run.file.write_text('{"progress": 5, "message": "a"}')
    desk.look(run)
    run.file.write_text(text)
    said = desk.last(run)
    assert said["progress"] == 5
    assert said["message"].startswith("its result could not be read: ")
    assert why in said["message"]
    assert "result not read job=job1" in capsys.readouterr().err


# -- what the dead leave ---------------------------------------------------------------------------------


def test_what_is_written_after_the_end_is_swept_away_when_the_worker_is_gone(run: FakeRun) -> None:
    """By a process that the job has left behind."""
    owner = Bell(str(run.file.parent), "w1")
    run.file.write_text("1")
    aged(run.file)
    wakeup.sweep(str(run.file.parent))
    assert run.file.exists()
    owner.close()
    wakeup.sweep(str(run.file.parent))
    assert not run.file.exists()


# -- what is planted in its place ------------------------------------------------------------------------


def link(path: Path) -> None:
    secret = path.parent / "secret"
    secret.write_text('"sesame"')
    path.symlink_to(secret)


@pytest.mark.parametrize("plant", [link, lambda path: os.mkfifo(path)], ids=["link", "pipe"])
def test_only_a_file_is_read(desk: Desk, run: FakeRun, plant: Callable[[Path], None]) -> None:
    plant(run.file)
    assert desk.look(run) == []
    assert desk.last(run) == {"message": "its result could not be read: it is not a regular file"}
    assert [path.read_text() for path in run.file.parent.iterdir()] in ([], ['"sesame"'])


def test_a_folder_in_its_place_stays_and_is_told(desk: Desk, run: FakeRun) -> None:
    run.file.mkdir()
    assert desk.look(run) == []
    report = desk.reports.last(cast(Run, run))
    assert report
    assert "not a regular file" in report


def test_a_file_that_may_not_be_read_is_told(desk: Desk, run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    run.file.write_text("1")
    monkeypatch.setattr(progress, "_read", denied)
    assert desk.look(run) == []
    assert desk.last(run) == {"message": "its result could not be read: permission denied"}
