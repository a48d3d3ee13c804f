"""A kill storm: thousands of jobs, and somebody who kills workers, managers and everything at random."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.model import Worker
from queuectl.store import open_store
from tests.chaos.conftest import send
from tests.chaos.ledger import SCRIPT, Verdict, check
from tests.conftest import eventually
from tests.e2e.conftest import QUEUECTL as QUEUECTL
from tests.e2e.conftest import Cli

WORKERS = ["worker", "start", "--count", "4", "--concurrency", "2"]


class Storm:
    """One storm on one queue."""

    def __init__(self, q: Cli, seed: int) -> None:
        self.folder = q.folder
        self.ledger = q.folder / "ledger"
        self.acknowledged: list[str] = []
        self.kills = 0
        self._random = random.Random(seed)
        self._env = {**q.env, "LEDGER": str(self.ledger)}
        (q.folder / "job.sh").write_text(SCRIPT)
        self.store = open_store(q.url)

    def rage(self, jobs: int, seconds: float, pause: tuple[float, float] = (0.05, 0.5)) -> Verdict:
        """Kill for so many seconds while the jobs run, then let the queue finish, and judge."""
        self.store.set_config("crash_limit", "1000000")
        self._enqueue(jobs // 2)
        self._queuectl(*WORKERS)
        half, end = time.monotonic() + seconds / 2, time.monotonic() + seconds
        while time.monotonic() < end:
            if len(self.acknowledged) < jobs and time.monotonic() >= half:
                self._enqueue(jobs - len(self.acknowledged))
            time.sleep(self._random.uniform(*pause))
            self._kill()
        self._enqueue(jobs - len(self.acknowledged))
        self._queuectl(*WORKERS)
        try:
            eventually(self._all_done, "the queue to be empty", deadline=300)
        finally:
            self._queuectl("worker", "stop", "--timeout", "5")
        verdict = check(self.store, self.ledger, self.acknowledged)
        self.store.close()
        return verdict

    def _enqueue(self, count: int) -> None:
        stray = {"STRAY": "1"}
        for start in range(0, count, 50):
            batch = [
                NewJob(f". {self.folder}/job.sh", env=stray if self._random.random() < 0.3 else None)
                for _ in range(start, min(count, start + 50))
            ]
            self.acknowledged += self.store.enqueue(batch)

    def _kill(self) -> None:
        alive = [worker for worker in self.store.views.workers() if worker.alive]
        if not alive:
            self._queuectl(*WORKERS)
            return
        victim, dice = self._random.choice(alive), self._random.random()
        self.kills += 1
        if dice < 0.6:
            send(victim.pid, signal.SIGKILL)
        elif dice < 0.8:
            with _stopped(victim):
                time.sleep(self._random.uniform(0.05, 0.3))
        elif dice < 0.9:
            send(victim.manager_pid, signal.SIGKILL)
        else:
            for pid in {worker.manager_pid for worker in alive} | {worker.pid for worker in alive}:
                send(pid, signal.SIGKILL)

    def _all_done(self) -> bool:
        counts = self.store.views.counts()
        if not any(worker.alive for worker in self.store.views.workers()):
            self._queuectl(*WORKERS)
        return counts["completed"] + counts["dead"] == sum(counts.values())

    def _queuectl(self, *args: str) -> None:
        subprocess.run([QUEUECTL, *args], env=self._env, capture_output=True, timeout=120)


@contextmanager
def _stopped(worker: Worker) -> Iterator[None]:
    send(worker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        send(worker.pid, signal.SIGCONT)
