"""kill -9 at every single step of a job's life: each SQL statement of each process, and each step between them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store, open_store
from tests.chaos.ledger import SCRIPT, check
from tests.chaos.storm import QUEUECTL
from tests.conftest import eventually

PYTHONPATH = f"{Path(__file__).parent / 'crash'}:{os.environ.get('PYTHONPATH', '')}"


class Stage:
    """A queue, and commands that are killed at a chosen step, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "queue.db"
        self.env = {**os.environ, "QUEUECTL_DB": str(self.db), "LEDGER": str(folder / "ledger")}
        (folder / "job.sh").write_text(SCRIPT)

    def run(self, *args: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
        crash = {"CRASH_AT": crash_at, "CRASH_ONCE": str(self.folder / "crashed"), "PYTHONPATH": PYTHONPATH}
        return subprocess.run(
            [QUEUECTL, *args], env={**self.env, **crash}, capture_output=True, text=True, timeout=120
        )

    @property
    def crashed(self) -> bool:
        return (self.folder / "crashed").exists()

    def store(self) -> Store:
        return open_store(str(self.db))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_enqueue_killed_at_any_statement_is_stored_whole_or_not_at_all(stage: Stage) -> None:
    survived, step = False, 0
    while not survived:
        step += 1
        (stage.folder / "crashed").unlink(missing_ok=True)
        done = stage.run("enqueue", "--id", f"job-{step}", "--quiet", "true", crash_at=f"sql:{step}")
        survived = done.returncode == 0
        store = stage.store()
        stored = bool(store.views.states([f"job-{step}"]))
        assert stored or not done.stdout, "an id that was printed is stored"
        assert all(finding.ok for finding in store.engine.checkup() if finding.check == "integrity")
        store.close()
        again = stage.run("enqueue", "--id", f"job-{step}", "true")
        assert again.returncode == (4 if stored else 0), "repeating it never makes two"
    assert step > 5, "it was killed at several steps before it survived"


def test_a_batch_killed_at_any_statement_is_stored_whole_or_not_at_all(stage: Stage) -> None:
    jobs = stage.folder / "jobs.txt"
    jobs.write_text("true\n" * 3)
    survived, step, stored = False, 0, 0
    stage.run("status")
    while not survived:
        step += 1
        (stage.folder / "crashed").unlink(missing_ok=True)
        survived = stage.run("enqueue", "--lines", "-f", str(jobs), crash_at=f"sql:{step}").returncode == 0
        store = stage.store()
        now = store.views.counts()["pending"]
        store.close()
        assert now - stored in ((3,) if survived else (0, 3))
        stored = now


def test_a_cancel_killed_between_its_steps_is_finished_by_the_next_worker(stage: Stage) -> None:
    """The parent is cancelled, and most of its children still wait for it."""
    store = stage.store()
    store.enqueue([NewJob("true", id="parent", run_at=2**45)])
    store.enqueue([NewJob("touch ran", depends_on=["parent"])] * 1000)
    assert stage.run("cancel", "parent", crash_at="before:queuectl.store.steps:pause").returncode == -signal.SIGKILL
    assert store.views.job("parent").state == "cancelled"
    assert store.views.counts()["blocked"] > 400
    try:
        assert stage.run("worker", "start").returncode == 0
        eventually(lambda: store.views.counts()["cancelled"] == 1001, "the worker to cancel the rest")
    finally:
        stage.run("worker", "stop", "--now")
        store.close()
    assert not (stage.folder / "ran").exists()


def test_a_migration_killed_at_any_statement_leaves_nothing_half_made(tmp_path: Path) -> None:
    survived, step = False, 0
    while not survived:
        step += 1
        folder = tmp_path / str(step)
        folder.mkdir()
        stage = Stage(folder)
        survived = stage.run("status", crash_at=f"sql:{step}").returncode == 0
        assert stage.run("enqueue", "true").returncode == 0, f"after a crash at statement {step}"
        doctor = stage.run("doctor")
        assert doctor.returncode == 1  # all well, but for the missing worker
        assert [line[:3] for line in doctor.stdout.splitlines()].count("BAD") == 1
    assert step > 15


STEPS = [
    *(f"sql:{number}" for number in range(1, 46)),
    "before:queuectl.worker.process:Run._start",
    "after:queuectl.worker.process:Run._start",
    "after:queuectl.worker.process:Run.reaped",
    "before:queuectl.worker.process:Run.finish",
    "after:queuectl.worker.process:Run.finish",
    "before:queuectl.store.claim_settle:settle",
    "after:queuectl.store.claim_settle:settle",
    "after:queuectl.store.store:Store.tick",
    "before:queuectl.store.sqlite:SqliteEngine.flush",
    "before:queuectl.store.store:Store.unregister",
    "after:queuectl.store.store:Store.unregister",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_at_any_step_loses_nothing_and_overlaps_nothing(stage: Stage, step: str) -> None:
    id = stage.run("enqueue", "--quiet", f"STRAY=1; . {stage.folder}/job.sh").stdout.strip()
    finish(stage, id, stage.run("worker", "start", crash_at=step))
    assert stage.crashed or step.startswith("sql:")  # a worker's life has about forty statements, not always as many


RECOVERY = [
    *(f"sql:{number}" for number in range(4, 30)),
    "before:queuectl.worker.recovery:kill_survivors",
    "after:queuectl.worker.recovery:kill_survivors",
    "before:queuectl.store.store:Store.recover",
    "after:queuectl.store.store:Store.recover",
    "after:queuectl.worker.recovery:Recovery._mark_lost",
]


@pytest.mark.parametrize("step", RECOVERY)
def test_a_recovery_killed_at_any_step_is_taken_up_by_the_next(stage: Stage, step: str) -> None:
    id = stage.run("enqueue", "--quiet", f"STRAY=1; . {stage.folder}/job.sh").stdout.strip()
    stage.run("worker", "start")
    store = stage.store()
    eventually(lambda: (stage.folder / "ledger").exists(), "the job to start")
    for worker in store.views.workers():
        os.kill(worker.manager_pid, 9)
        os.kill(worker.pid, 9)
    store.close()
    finish(stage, id, stage.run("worker", "start", crash_at=step))
    assert stage.crashed


def finish(stage: Stage, id: str, start: subprocess.CompletedProcess[str]) -> None:
    """Let the job come to its end, stop the workers, and judge."""
    # Not: if no worker lives. One that was killed just now may still look alive, and then nobody would do the job.
    if start.returncode:  # the starting command itself was hit
        assert stage.run("worker", "start").returncode == 0
    store = stage.store()
    try:
        eventually(lambda: store.views.job(id).finished, f"{id} to finish")
        stage.run("worker", "stop")
        assert check(store, stage.folder / "ledger", [id]).problems == []
    finally:
        stage.run("worker", "stop", "--now")
        store.close()
