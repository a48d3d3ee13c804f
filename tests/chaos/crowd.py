"""Many slots that all want jobs of one queue, of which only few may run: never one too many."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from threading import Event, Thread

from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store, open_store
from tests.conftest import eventually
from tests.e2e.conftest import Cli

MANAGERS, WORKERS, SLOTS = 2, 4, 2  # 16 slots
STEP = 'echo "S $QUEUECTL_JOB_ID" >> "$LEDGER"; sleep 0.01; echo "E $QUEUECTL_JOB_ID" >> "$LEDGER"'


def crowd(q: Cli, jobs: int, limit: int, how: str, kills: int = 0, seed: int = 1) -> list[str]:
    """What was wrong. `how`: the limit is the queue's ("at_once") or a key's ("key"). Workers may be killed."""
    ledger = q.folder / "ledger"
    store = open_store(q.url)
    if how == "at_once":
        store.change_queue("crowded", at_once=limit)
    key = {"key": "crowd", "key_limit": limit} if how == "key" else {}
    job = {"queue": "crowded", "cwd": str(q.folder), "env": {"LEDGER": str(ledger)}, **key}
    ids = store.enqueue([NewJob(STEP, **job) for _ in range(jobs)])  # type: ignore[arg-type]
    store.enqueue([NewJob("true", queue="other") for _ in range(jobs)])
    watch = Watch(q.url)
    watch.start()
    for _ in range(MANAGERS):
        q.ok("worker", "start", "--count", str(WORKERS), "--concurrency", str(SLOTS))
    luck = random.Random(seed)
    for _ in range(kills):
        time.sleep(luck.uniform(0.05, 0.3))
        os.kill(luck.choice(eventually(q.workers))["pid"], signal.SIGKILL)
    store.views.wait(store.views.unfinished())
    q.ok("worker", "stop")
    most = watch.end()
    problems = [f"{most} were claimed at once, {limit} may"] if most > limit else []
    problems += [] if most else ["nobody watched"]
    problems += [f"{id} is {state}" for id, state in store.views.states(ids).items() if state != "completed"]
    if not kills:  # a killed run leaves no word of its end
        problems += _by_ledger(ledger, jobs, limit)
    store.close()
    return problems


def pace(q: Cli, jobs: int, rate: int, per_ms: int) -> list[str]:
    """The same for a rate: windows that have too many starts."""
    store = open_store(q.url)
    store.change_queue("paced", rate=rate, rate_ms=per_ms)
    ids = store.enqueue([NewJob("true", queue="paced", cwd=str(q.folder)) for _ in range(jobs)])
    for _ in range(MANAGERS):
        q.ok("worker", "start", "--count", str(WORKERS), "--concurrency", str(SLOTS))
    store.views.wait(ids)
    q.ok("worker", "stop")
    starts = sorted(start for id in ids for start in _starts(store, id))
    store.close()
    full = [(start, sum(start <= other < start + per_ms for other in starts)) for start in starts]
    return [f"{n} starts within {per_ms} ms of {start}" for start, n in full if n > rate]


def _by_ledger(ledger: Path, jobs: int, limit: int) -> list[str]:
    """The order of the lines is the order of what happened."""
    running: set[str] = set()
    lines, most = ledger.read_text().splitlines(), 0
    for line in lines:
        kind, id = line.split()
        (running.add if kind == "S" else running.discard)(id)
        most = max(most, len(running))
    found = [f"{most} ran at once, {limit} may"] if most > limit else []
    return found + ([f"{len(lines)} lines of {jobs} runs"] if len(lines) != 2 * jobs else [])


class Watch(Thread):
    """Looks all the time how many jobs of the queue are claimed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._over = Event()
        self.most = 0

    def run(self) -> None:
        store = open_store(self._url)
        while not self._over.is_set():
            [queue] = [queue for queue in store.views.queues() if queue.name == "crowded"]
            self.most = max(self.most, queue.jobs["processing"])
        store.close()

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.most


def _starts(store: Store, id: str) -> list[int]:
    return [event.at for event in store.views.history(id) if event.reason == "started"]
