"""Every test here runs on every engine, each on a queue of its own."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Outcome, Settlement, after_run
from queuectl.jobs.model import Claim, Job, Report
from queuectl.queues.selection import Turns
from queuectl.store import Store
from queuectl.store.engine import Engine
from queuectl.store.postgres import PostgresEngine
from queuectl.store.sqlite import SqliteEngine
from queuectl.system.wakeup import Bell
from tests.conftest import Clock
from tests.postgres import Queues
from tests.postgres import postgres as postgres
from tests.postgres import postgres_queues as postgres_queues

ENGINES = ("sqlite", "postgres")
DONE, NOTHING = Exited(0), Report()


@pytest.fixture(params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(
    engine_name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of a queue with nothing in it."""
    if engine_name == "sqlite":
        yield str(tmp_path / "queue.db")
        return
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    queues: Queues = request.getfixturevalue("postgres_queues")
    with queues.lend() as url:
        yield url


@pytest.fixture
def open_engine(engine_name: str, url: str, clock: Clock) -> Callable[[], Engine]:
    """Open another connection to the same queue."""
    if engine_name == "sqlite":
        return lambda: SqliteEngine(url, clock=clock)
    return lambda: PostgresEngine(url, clock=clock)


@pytest.fixture
def store(open_engine: Callable[[], Engine]) -> Iterator[Store]:
    store = Store(open_engine())
    yield store
    store.close()


@pytest.fixture
def other_store(store: Store, open_engine: Callable[[], Engine]) -> Iterator[Store]:
    """The same queue through a second connection."""
    other = Store(open_engine())
    yield other
    other.close()


def settle(store: Store, worker: str, claim: Claim, end: Settlement, report: Report = NOTHING) -> bool:
    """End a run. False if it was refused, because the job has moved on."""
    return not store.tick(worker, [(claim, end, report)]).refused


class FakeWorker:
    """A registered worker whose bell this test process holds: alive until `die`."""

    def __init__(self, store: Store, id: str, queues: tuple[str, ...] = ()) -> None:
        self.id = id
        self._store = store
        self._turns = Turns.parse(queues)
        self._bell = Bell(store.engine.run_dir, id)
        self.alive = True
        store.register(id, pid=os.getpid(), host="here", manager_pid=1, queues=queues, concurrency=100)

    def claim(self, slots: int = 1) -> list[Claim]:
        return self._store.tick(self.id, slots=slots, turns=self._turns).claims

    def claim_one(self) -> Claim:
        [claim] = self.claim(1)
        return claim

    def settle(self, claim: Claim, outcome: Outcome = DONE, report: Report = NOTHING) -> bool:
        """End a run as its worker would; the outcome decides what becomes of the job."""
        return settle(self._store, self.id, claim, after_run(claim, outcome, self._store.config(), 0), report)

    def work_off(self, outcome: Outcome = DONE) -> str:
        """Claim the next due job and end its run like this; the job's id."""
        claim = self.claim_one()
        assert self.settle(claim, outcome)
        return claim.id

    def hears(self) -> bool:
        """Has its bell been rung since this was last asked?"""
        rung = bool(select.select([self._bell], [], [], 0)[0])
        self._bell.clear()
        return rung

    def die(self) -> None:
        """As kill -9 would have it: the bell falls silent, the pipe and the row stay."""
        os.link(self._bell.path, self._bell.path + "~")
        self.leave()
        os.rename(self._bell.path + "~", self._bell.path)

    def leave(self) -> None:
        if self.alive:
            self._bell.close()
            self.alive = False


Hire = Callable[..., FakeWorker]


@pytest.fixture
def hire(store: Store) -> Iterator[Hire]:
    workers: list[FakeWorker] = []

    def hire(id: str = "w1", queues: tuple[str, ...] = ()) -> FakeWorker:
        workers.append(FakeWorker(store, id, queues))
        return workers[-1]

    yield hire
    for worker in workers:
        worker.leave()


def snapshot(store: Store) -> list[tuple[Job, list[object]]]:
    """All there is to know of every job: to see that nothing has changed."""
    return [(job, [*store.views.history(job.id)]) for job in store.views.jobs(limit=-1)]


def enqueue(store: Store, command: str = "true", **fields: object) -> str:
    [id] = store.enqueue([NewJob(command, **fields)])  # type: ignore[arg-type]
    return id
