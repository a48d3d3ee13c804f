"""What `enqueue` said yes to survives a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Report
from queuectl.store import Store
from queuectl.store.sqlite import SqliteEngine
from tests.chaos.conftest import need
from tests.chaos.powercut import after_power_cut, lost_by_power_cut
from tests.conftest import eventually
from tests.e2e.conftest import Cli


def test_acknowledged_jobs_survive_a_power_cut(tmp_path: Path) -> None:
    assert lost_by_power_cut(tmp_path, need, durable=True) == (0, True)


def test_the_power_cut_is_real_because_without_a_sync_jobs_are_lost(tmp_path: Path) -> None:
    lost, sound = lost_by_power_cut(tmp_path, need, durable=False)
    assert lost > 0
    assert sound


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "not flushed"])
def test_what_was_settled_and_flushed_survives_a_power_cut(tmp_path: Path, flushed: bool) -> None:
    """Without the flush it does not: the run would be repeated."""

    kept = []

    def run_one(path: str) -> list[str]:
        [id] = Store(SqliteEngine(path)).enqueue([NewJob("true")])
        kept.append(worker := Store(SqliteEngine(path, durable=False)))
        worker.register("w1", 1, "here", 1, (), 1)
        [claim] = worker.tick("w1", (), 1).claims
        worker.tick("w1", [(claim, after_run(claim, Exited(0), worker.config(), 0), Report(1))])
        if flushed:
            worker.engine.flush()
        return [id]

    [id], states, sound = after_power_cut(tmp_path, need, run_one)
    assert states == {id: "completed" if flushed else "pending"}
    assert sound


def test_what_a_schedule_has_enqueued_survives_a_power_cut(tmp_path: Path) -> None:
    """Else its firing would be one that was missed, although people had seen its job."""
    worker: list[Cli] = []

    def fire(path: str) -> list[str]:
        worker.append(q := Cli(tmp_path, path))
        q.ok("schedule", "add", "s", "--every", "1s", "--overlap", "queue", "--", "true")
        q.ok("worker", "start", "--queue", "other")  # so that nothing runs, and nothing else is put on disk
        fired = eventually(lambda: [job["id"] for job in q.json("list")][1:], "two firings")
        return [*reversed(fired)]

    try:
        fired, states, sound = after_power_cut(tmp_path, need, fire)
    finally:
        for q in worker:
            q.end_all()
    assert sound
    assert [states.get(id) for id in fired] == ["pending"] * len(fired)
