"""An exception that comes from outside in the middle of a call of the Python API: from a signal handler (an alarm,
Ctrl-C), or from another thread. The lock is free, the queue usable, and what was stored is not told as a failure."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import psycopg
import pytest

import queuectl
from queuectl import Queue
from queuectl.client.queue import Local
from queuectl.errors import Conflict, OutcomeUnknown
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Report
from queuectl.store import Store, insert_jobs
from queuectl.store import write_queries as sql
from queuectl.store.engine import Engine, Transaction
from queuectl.store.postgres import PostgresEngine
from queuectl.store.sqlite import SqliteEngine
from tests.contract.conftest import Hire, enqueue
from tests.interrupts import Interrupt, Interrupter

CODE = [os.path.dirname(module.__file__ or "") for module in (queuectl, psycopg)]
ALARMS = int(os.environ.get("ALARMS", "100"))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that comes while an object is finalised is printed by Python, and has no other effect."""
    monkeypatch.setattr(sys, "unraisablehook", deque[object](maxlen=0).append)


@pytest.fixture
def open_engine(engine_name: str, url: str) -> Callable[[], Engine]:
    """Whoever needs the lock that an interrupted call has kept is told soon."""
    return lambda: SqliteEngine(url, patience=5) if engine_name == "sqlite" else PostgresEngine(url, patience=5)


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url) as queue:
        yield queue


def state_without_locks(store: Store, job: str) -> str | None:
    """The state of this job, once nobody else is in the middle of a change."""
    with store.engine.write() as tx:
        tx.alone(["jobs", "config"])
        return next((str(state) for _, state in tx.rows(sql.STATES_OF, {"ids": [job]})), None)


# -- at every moment -------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A call: what it needs, what it does to a job, and which state shows that this has happened."""

    prepare: Callable[[Store, Sequence[str]], object]
    act: Callable[[Queue, str], object]
    state: str | None = None


def nothing(store: Store, jobs: Sequence[str]) -> None: ...


def pending(store: Store, jobs: Sequence[str]) -> None:
    store.enqueue([NewJob("true", id=job, max_retries=1) for job in jobs])


def dead(store: Store, jobs: Sequence[str]) -> None:
    pending(store, jobs)
    claims = store.tick("w1", slots=10_000).claims
    config = store.config()
    store.tick("w1", [(claim, after_run(claim, Exited(1), config, 0), Report()) for claim in claims])


def enqueue_two(queue: Queue, job: str) -> None:
    queue.enqueue_many([{"command": "true", "id": job, "tags": ["x"], "depends_on": ["first"]}, "true"])


CASES = {
    "enqueue": Case(nothing, lambda queue, job: queue.enqueue("true", id=job), "pending"),
    "enqueue_many": Case(nothing, enqueue_two, "blocked"),
    "cancel": Case(pending, lambda queue, job: queue.cancel(job), "cancelled"),
    "retry": Case(dead, lambda queue, job: queue.retry(job), "pending"),
    "get": Case(nothing, lambda queue, job: queue.get("first")),
    "jobs": Case(nothing, lambda queue, job: list(queue.jobs(limit=2))),
    "wait": Case(nothing, lambda queue, job: queue.wait("ended", timeout=60)),
    "stats": Case(nothing, lambda queue, job: queue.stats()),
}


@pytest.fixture
def filled(store: Store, hire: Hire) -> None:
    worker = hire("w1")
    enqueue(store, id="ended")
    worker.work_off()
    enqueue(store, id="first", queue="other")


def phase_of(queue: Queue) -> object:
    """How far a call has come, as the database sees it."""
    assert isinstance(queue._there, Local)
    engine = queue._there._shared._connection
    assert isinstance(engine, PostgresEngine)
    assert engine._db is not None
    return engine._db.pgconn.transaction_status, engine.commits


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("name", CASES)
def test_a_call_that_is_interrupted_at_any_moment_keeps_no_lock_and_hides_nothing(
    store: Store, queue: Queue, engine_name: str, name: str
) -> None:
    case, interrupter = CASES[name], Interrupter(*CODE)
    warm = [f"{name}-warm-{number}" for number in range(8)]
    case.prepare(store, warm)
    for job in warm[1:]:  # a connection prepares a statement that it has seen often enough
        case.act(queue, job)
    phase = partial(phase_of, queue) if engine_name == "postgres" else None
    moments = interrupter.moments(partial(case.act, queue, warm[0]), phase)
    case.prepare(store, [f"{name}-{moment}" for moment in moments])
    told: Counter[str] = Counter()
    for moment in moments:
        job, kept = f"{name}-{moment}", []  # what an exception holds is not given back by chance
        try:
            interrupter.interrupt(partial(case.act, queue, job), moment)
            outcome = "returned"
        except (Interrupt, OutcomeUnknown) as error:
            kept.append(error)
            outcome = "unknown" if isinstance(error, OutcomeUnknown) else "interrupted"
        happened = state_without_locks(store, job) == case.state
        assert outcome == "unknown" or happened is (outcome == "returned" or not case.state), moment
        assert all(isinstance(error.__cause__, Interrupt) for error in kept if isinstance(error, OutcomeUnknown))
        told[outcome] += 1
    assert told["interrupted"] > 20, told
    assert (told["unknown"] > 0) is bool(case.state), told


def test_a_queue_whose_opening_is_interrupted_keeps_no_lock(store: Store, url: str) -> None:
    interrupter = Interrupter(*CODE)
    opened: list[object] = []
    moments = interrupter.moments(lambda: opened.append(Queue(url)), phase=lambda: None)
    for moment in moments:
        try:
            interrupter.interrupt(lambda: opened.append(Queue(url)), moment)
        except Interrupt as error:
            opened[:] = [error]
        state_without_locks(store, "any")
    assert len(moments) > 20


def test_a_queue_whose_making_is_interrupted_keeps_no_lock(tmp_path: Path) -> None:
    interrupter = Interrupter(*CODE)
    kept: list[object] = []
    moments = interrupter.moments(lambda: Queue(str(tmp_path / "whole.db")).close(), phase=lambda: None)
    for moment in moments:
        path = str(tmp_path / f"{moment}.db")
        try:
            interrupter.interrupt(lambda path=path: Queue(path).close(), moment)  # type: ignore[misc]
        except Interrupt as error:
            kept[:] = [error]
        engine = SqliteEngine(path, patience=5)
        state_without_locks(Store(engine), "any")
        engine.close()
    assert len(moments) > 20


# -- signals ---------------------------------------------------------------------------------------------


class Alarms:
    """Signals whose handler raises, in the middle of a call."""

    def __init__(self) -> None:
        self._in_call = False

    def __enter__(self) -> Alarms:
        self._before = signal.signal(signal.SIGALRM, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._in_call:
            raise Interrupt

    def interrupt(self, act: Callable[[], object], first: float, then: float = 0.0) -> None:
        """Carry out, with a signal after so many seconds, and then again and again."""
        try:
            try:
                self._in_call = True
                signal.setitimer(signal.ITIMER_REAL, first, then)
                act()
            finally:
                self._in_call = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("again", [False, True])
def test_a_storm_of_alarms_keeps_no_lock_and_hides_nothing(
    store: Store, queue: Queue, engine_name: str, again: bool
) -> None:
    step = 20e-6 if engine_name == "sqlite" else 100e-6
    told: Counter[str] = Counter()
    with Alarms() as alarms:
        for number in range(ALARMS):
            job = f"job-{number}"
            try:
                # A function, not a partial: the return from that is a moment, too, when the call is over.
                act = lambda job=job: queue.enqueue("true", id=job)  # noqa: E731
                alarms.interrupt(act, step * (1 + number % 75), 50e-6 if again else 0)
                outcome = "returned"
            except (Interrupt, OutcomeUnknown) as error:
                outcome = "unknown" if isinstance(error, OutcomeUnknown) else "interrupted"
            stored = state_without_locks(store, job) is not None
            # (What is raised while the first exception is on its way can hide that.)
            assert again or outcome == "unknown" or stored is (outcome == "returned"), (number, outcome)
            told[outcome] += 1
    assert told["interrupted"] + told["unknown"] > 10, told


def test_a_signal_handler_cannot_use_the_queue_that_it_interrupts(
    queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Conflict] = []

    def handle(number: int, frame: FrameType | None) -> None:
        for use in (lambda: queue.enqueue("true", id="inner"), queue.close):
            with pytest.raises(Conflict, match="in use") as error:
                use()
            refused.append(error.value)

    def interrupted(tx: Transaction, *rest: object) -> dict[int, str]:
        if not refused:
            signal.raise_signal(signal.SIGUSR1)
        return insert(tx, *rest)  # type: ignore[arg-type]

    insert = insert_jobs.insert
    monkeypatch.setattr(insert_jobs, "insert", interrupted)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        queue.enqueue("true", id="outer")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 2
    assert list(store.views.states(["inner", "outer"])) == ["outer"]
