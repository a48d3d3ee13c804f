"""What happens to a worker's settles while others hold locks on the rows that they write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from queuectl.errors import Locked
from queuectl.jobs import job_spec
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Settlement, after_run
from queuectl.jobs.model import Claim, Report
from queuectl.store import Store
from queuectl.store.engine import Engine, Transaction
from queuectl.store.postgres import PostgresEngine
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, Hire, snapshot

pytestmark = pytest.mark.parametrize("engine_name", ["postgres"])  # on SQLite there is one lock

# What others have locked, and in what the end of the job "a" then meets that.
LOCKS: dict[str, Callable[[Transaction], object]] = {
    "its row": lambda tx: tx.rows("SELECT 1 FROM jobs WHERE id = 'a' FOR UPDATE"),
    "its row, shared": lambda tx: tx.rows("SELECT 1 FROM jobs WHERE id = 'a' FOR SHARE"),
    "a job that waits for it": lambda tx: tx.rows("SELECT 1 FROM jobs WHERE id = 'child' FOR UPDATE"),
    "its dependency": lambda tx: tx.rows("SELECT 1 FROM dependencies FOR UPDATE"),
    "its batch": lambda tx: tx.rows("SELECT 1 FROM batches FOR UPDATE"),
    "another job of its batch": lambda tx: tx.rows("SELECT 1 FROM jobs WHERE id = 'rest' FOR UPDATE"),
    "a job that waits for its key": lambda tx: tx.rows("SELECT 1 FROM jobs WHERE id = 'parked' FOR UPDATE"),
    "its key": lambda tx: tx.alone_with(["key k"]),
    "all jobs": lambda tx: tx.run("LOCK TABLE jobs IN SHARE MODE"),
}


@pytest.fixture
def open_engine(url: str, clock: Clock) -> Callable[[], Engine]:
    """As workers do."""
    return lambda: PostgresEngine(url, clock=clock, patience=1.0, lock_patience=0.25)


@pytest.fixture
def worker(store: Store, hire: Hire) -> FakeWorker:
    """One that runs "a", which has a child, a batch that bears no dead job and another job that waits for its key;
    and "b", which has nothing to do with it."""
    store.set_config("crash_limit", "1")
    store.enqueue(
        [
            NewJob("false", id="a", priority=2, max_retries=1, batch="x", max_fails=1, key="k"),
            NewJob("true", id="b", priority=2),
            NewJob("true", id="child", depends_on=[{"id": "a", "condition": "any"}]),
            NewJob("true", id="rest", batch="x", run_at=1_900_000_000_000),
            NewJob("true", id="parked", key="k"),
        ]
    )
    return hire(job_spec.new_id())  # a name of its own: a worker waits for another of its name, on all of the server


@pytest.fixture
def claims(worker: FakeWorker) -> list[Claim]:
    claims = worker.claim(4)
    assert [claim.id for claim in claims] == ["a", "b"]
    return claims


def failed(store: Store, claims: list[Claim]) -> list[tuple[Claim, Settlement, Report]]:
    return [(claim, after_run(claim, Exited(1), store.config(), 0), Report()) for claim in claims]


@pytest.fixture(params=LOCKS)
def held(request: pytest.FixtureRequest, claims: list[Claim], other_store: Store) -> Iterator[Callable[[], None]]:
    """A lock, and how to end it."""
    tx = other_store.engine.write()
    tx.__enter__()
    LOCKS[request.param](tx)
    released: list[bool] = []

    def release() -> None:
        if not released:
            tx.__exit__(None, None, None)
            released.append(True)

    yield release
    release()


def test_a_settle_that_meets_a_lock_says_so_soon_and_changes_nothing(
    store: Store, worker: FakeWorker, claims: list[Claim], held: Callable[[], None]
) -> None:
    before, ends, began = snapshot(store), failed(store, claims), time.monotonic()
    for at_once in (False, True):
        with pytest.raises(Locked):
            store.tick(worker.id, ends, slots=2, at_once=at_once)
    assert time.monotonic() - began < 5
    assert snapshot(store) == before
    assert store.heartbeat(worker.id) is not None
    held()
    store.tick(worker.id, ends)
    states = {job.id: job.state for job in store.views.jobs()}
    assert states == {"a": "dead", "b": "failed", "child": "pending", "rest": "cancelled", "parked": "pending"}
    assert [claim.id for claim in store.tick(worker.id, slots=9).claims] == ["child", "parked"]


def test_a_recovery_that_meets_a_lock_puts_back_the_other_jobs(
    store: Store, worker: FakeWorker, claims: list[Claim], held: Callable[[], None]
) -> None:
    a, b = claims
    worker.die()
    for only in (None, a):
        with pytest.raises(Locked):
            store.recover(worker.id, only)
    try:
        store.recover(worker.id, only=b)
        assert store.lost_workers() == {worker.id: [a]}
    except Locked:  # all jobs are
        assert store.lost_workers() == {worker.id: [a, b]}
    held()
    for claim in store.lost_workers()[worker.id]:
        store.recover(worker.id, only=claim)
    assert store.lost_workers() == {}
    assert [(job.state, job.crashes) for job in store.views.jobs() if job.id in "ab"] == [("dead", 1)] * 2
