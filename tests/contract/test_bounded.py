"""No operation holds a lock for long, however many jobs it is about: counted, not timed. Each of its transactions
changes or locks a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Outcome, after_run
from queuectl.jobs.model import Report
from queuectl.store import Store
from queuectl.store.engine import Transaction
from queuectl.store.sqlite import SqliteEngine
from tests.conftest import Clock

MANY = 2500  # jobs
VERY_MANY = 5000  # of what is only a row
MOST = 4200  # rows in one transaction: a job brings its event, its tags and its counts along
MOST_STATEMENTS = 300
FAILED, DONE = Exited(1), Exited(0)

CHANGED = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables"


class Counted:
    """A transaction that says how many rows it has changed and locked."""

    def __init__(self, store: Store, inner: Transaction, tell: Callable[[int, int], None]) -> None:
        self._store = store
        self._inner = inner
        self._tell = tell
        self._locked = 0
        self._statements = 0

    def __getattr__(self, name: str) -> Any:
        self._statements += name in ("run", "each", "missed")
        return getattr(self._inner, name)

    def rows(self, sql: str, params: Any = {}) -> Any:
        self._statements += 1
        found = self._inner.rows(sql, params)
        if "{for_update}" in sql or "{skip_locked}" in sql:
            self._locked += len(found)
        return found

    def __enter__(self) -> Counted:
        self._inner.__enter__()
        self._before = self._changes()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self._tell(max(self._changes() - self._before, self._locked), self._statements)
        self._inner.__exit__(kind, error, trace)

    def _changes(self) -> int:
        if isinstance(self._store.engine, SqliteEngine):
            return self._store.engine._db.total_changes()
        return int(self._inner.rows(CHANGED)[0][0] or 0)


@contextmanager
def counted(store: Store) -> Iterator[list[tuple[int, int]]]:
    """How many rows each transaction from now on changes or locks, and how many statements it takes."""
    seen: list[tuple[int, int]] = []
    write = store.engine.write

    def counting(*args: Any, **options: Any) -> Any:
        return Counted(store, write(*args, **options), lambda *both: seen.append(both))

    store.engine.write = counting  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        store.engine.write = write  # type: ignore[method-assign]


def sql(store: Store, text: str) -> None:
    with store.engine.write() as tx:
        tx.run(text, {"now": tx.now})


# -- schedules -------------------------------------------------------------------------------------------


def missed(store: Store, clock: Clock) -> None:
    """A schedule that nobody has fired for very many moments."""
    store.schedules.add("s", None, 1, "UTC", {"command": "true"}, missed="all")
    clock.advance(VERY_MANY)


def fire_all(store: Store) -> None:
    while store.schedules.fire()[0]:
        pass


def fired(store: Store, clock: Clock) -> None:
    """A schedule with very many firings whose jobs have not finished: none of them is forgotten."""
    missed(store, clock)
    fire_all(store)
    assert len(store.schedules.firings("s", limit=10**6)) == VERY_MANY


# -- jobs ------------------------------------------------------------------------------------------------


def fill(store: Store, **fields: Any) -> list[str]:
    return store.enqueue([NewJob("true", **fields)] * MANY)


def dead(store: Store, clock: Clock) -> None:
    fill(store, tags=["a"])
    sql(store, "UPDATE jobs SET state = 'dead', ready = FALSE, finished_at = :now")


def fan(store: Store, clock: Clock, condition: str = "ok") -> None:
    """A job with very many children."""
    store.enqueue([NewJob("true", id="parent", max_retries=1, priority=9)])
    fill(store, depends_on=[{"id": "parent", "condition": condition}])


def chain(store: Store, clock: Clock) -> None:
    """Jobs of which each waits for the one before."""
    jobs = [NewJob("true", id="j1", max_retries=1)]
    jobs += [NewJob("true", id=f"j{n}", depends_on=[f"j{n - 1}"]) for n in range(2, MANY // 4)]
    store.enqueue(jobs)


def run(store: Store, outcome: Outcome, runs: int = 1) -> None:
    """Let the next jobs end like this, as their worker would say, and have done what follows from it."""
    store.register("w1", 0, "here", 1, (), runs)
    claims = store.tick("w1", slots=runs).claims
    store.tick("w1", [(claim, after_run(claim, outcome, store.config(), 0), Report()) for claim in claims])
    work_off(store)


def work_off(store: Store) -> int:
    done = 0
    while store.work_off():
        done += 1
    return done


def dead_fan(store: Store, clock: Clock) -> None:
    fan(store, clock)
    run(store, FAILED)


def batch(store: Store, clock: Clock) -> None:
    store.enqueue([NewJob("true", batch="b", max_fails=1, max_retries=1, priority=9)])
    fill(store, batch="b")


def finished(store: Store, clock: Clock) -> None:
    fill(store, tags=["a", "b"])
    sql(store, "UPDATE jobs SET state = 'completed', ready = FALSE, finished_at = :now")
    for n in (1, 2):
        sql(store, EVENTS.replace(":n", str(n)) + " FROM jobs")


def prune(store: Store) -> None:
    while store.prune(["completed"], 0):
        pass


EVENTS = "INSERT INTO events (job, n, at, state, run, reason) SELECT seq, :n, 1, 'completed', 1, ''"
NUMBERS = f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {VERY_MANY}) "


def long_history(store: Store, clock: Clock) -> None:
    store.enqueue([NewJob("true", id="j")])
    sql(store, "UPDATE jobs SET state = 'completed', ready = FALSE, finished_at = :now")
    sql(store, NUMBERS + EVENTS.replace(":n", "numbers.n") + " FROM jobs, numbers")


def parked(store: Store, clock: Clock) -> None:
    store.enqueue([NewJob("true", key="k")] * VERY_MANY)
    sql(store, "UPDATE jobs SET ready = FALSE, parked = TRUE")


def parked_keys(store: Store, clock: Clock) -> None:
    store.enqueue([NewJob("true", key=f"k{n}") for n in range(VERY_MANY)])
    sql(store, "UPDATE jobs SET ready = FALSE, parked = TRUE")


def keys(store: Store, clock: Clock) -> None:
    for n in range(4):
        store.enqueue([NewJob("true", key=f"k{n}", priority=n)] * (MANY // 2))


def claim(store: Store) -> None:
    store.register("w1", 0, "here", 1, (), 9)
    while (tick := store.tick("w1", slots=9)).claims or tick.due_in == 0:
        pass


def submissions(store: Store, clock: Clock) -> None:
    old = "INSERT INTO submissions (key, fingerprint, ids, at) SELECT CAST(n AS TEXT), '', '', n FROM numbers"
    sql(store, NUMBERS + old)


def submit(store: Store) -> None:
    for n in range(VERY_MANY // 50):
        store.enqueue([NewJob("true")], submission=(f"key {n}", "fingerprint"))


def piled(store: Store, clock: Clock) -> None:
    pile = "INSERT INTO counts (queue, state, n) SELECT 'q', 'pending', 1 FROM numbers"
    sql(store, NUMBERS + pile)
    sql(store, NUMBERS + "INSERT INTO departed (queue, state, job, n) SELECT 'q', 'dead', n, 1 FROM numbers")


def held(store: Store, clock: Clock) -> None:
    """Very many runs of a dead worker, and a hook that wants to hear of each."""
    store.hooks.add("h", ["dead"], command="true")
    store.set_config("crash_limit", "1")
    fill(store)
    store.register("w1", 0, "here", 1, (), MANY)
    store.tick("w1", slots=MANY)
    sql(store, "UPDATE workers SET place = ''")
    clock.advance(3600)


def recover(store: Store) -> None:
    while (found := store.recover("w1")) and found[1]:
        pass


Prepare = Callable[[Store, Clock], object]
Act = Callable[[Store], object]
OPERATIONS: dict[str, tuple[Prepare, Act]] = {
    "pause of a schedule": (missed, lambda store: store.schedules.pause(["s"], True)),
    "firing of a schedule": (missed, fire_all),
    "removal of a schedule": (fired, lambda store: store.schedules.remove(["s"])),
    "retry of all": (dead, lambda store: store.retry()),
    "retry of many": (dead, lambda store: store.retry(ids(store))),
    "retry of a parent": (dead_fan, lambda store: [store.retry(["parent"]), work_off(store)]),
    "purge of all": (dead, lambda store: store.purge_dead()),
    "purge of many": (dead, lambda store: store.purge_dead(ids(store))),
    "delete of many": (dead, lambda store: store.delete(ids(store))),
    "delete of a long history": (long_history, lambda store: store.delete(["j"])),
    "prune of a long history": (long_history, prune),
    "cancel of many": (lambda store, _: fill(store), lambda store: store.cancel(ids(store))),
    "cancel of a parent": (fan, lambda store: [store.cancel(["parent"]), work_off(store)]),
    "cancel of a chain": (chain, lambda store: [store.cancel(["j1"]), work_off(store)]),
    "end of a parent": (fan, lambda store: run(store, DONE)),
    "death of a parent": (fan, lambda store: run(store, FAILED)),
    "too many deaths in a batch": (batch, lambda store: run(store, FAILED)),
    "prune": (finished, prune),
    "reset": (finished, lambda store: store.reset()),
    "another limit for a key": (parked, lambda store: store.change_queue("default", per_key=MANY)),
    "another limit for many keys": (parked_keys, lambda store: store.change_queue("default", per_key=2)),
    "claims of busy keys": (keys, claim),
    "idempotency keys": (submissions, submit),
    "recovery": (held, recover),
}
FEW = {"another limit for a key"}  # as many as one step takes are let go at once: their ends let go of the others


def ids(store: Store) -> list[str]:
    return [job.id for job in reversed(store.views.jobs(limit=-1))]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_very_many_jobs_locks_few_at_a_time(store: Store, clock: Clock, name: str) -> None:
    check(store, clock, *OPERATIONS[name], few=name in FEW)


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_upkeep_adds_up_few_counts_at_a_time(store: Store, clock: Clock) -> None:
    """SQLite keeps sums."""
    check(store, clock, piled, lambda store: store.engine.tidy())


def check(store: Store, clock: Clock, prepare: Prepare, act: Act, few: bool = False) -> None:
    prepare(store, clock)
    with counted(store) as transactions:
        act(store)
    rows, statements = zip(*transactions, strict=True)
    assert sum(rows) >= (200 if few else MANY), "it was not about many rows"
    assert max(rows) <= MOST, rows
    assert max(statements) <= MOST_STATEMENTS, statements


# -- and does all of it ----------------------------------------------------------------------------------


def test_a_schedule_is_paused_after_all_that_it_wants_by_then(store: Store, clock: Clock) -> None:
    missed(store, clock)
    [one] = store.schedules.pause(["s"], True)
    assert one.paused
    assert store.views.counts()["pending"] == VERY_MANY
    assert store.schedules.get("s") == one
    assert not store.schedules.fire()[0]


def test_what_a_killed_removal_leaves_the_next_one_takes(store: Store, clock: Clock) -> None:
    fired(store, clock)
    sql(store, "DELETE FROM schedules")
    store.schedules.add("t", None, 1, "UTC", {"command": "true"})
    store.schedules.remove(["t"])
    assert store.schedules.firings("s") == []
