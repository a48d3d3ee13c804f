"""What speed rests on, counted instead of timed: statements a tick, plans that stay, writes a job, syncs a burst."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Claim, Report
from queuectl.metrics.run_stats import Tally
from queuectl.settings import effective
from queuectl.store import Store, open_store, write_queries
from queuectl.store.sqlite import SqliteEngine
from tests.e2e.conftest import Cli, on_sqlite, q  # noqa: F401  (a fixture)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(str(tmp_path / "queue.db"), durable=False)
    store.enqueue([NewJob("true")] * 100)
    store.register("w1", 1, "here", 1, (), 4)
    yield store
    store.close()


def connection(store: Store) -> apsw.Connection:
    assert isinstance(store.engine, SqliteEngine)
    return store.engine._db


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    seen: list[str] = []

    def trace(cursor: object, sql: str, bindings: object) -> bool:
        seen.append(sql)
        return True

    connection(store).exec_trace = trace
    yield seen
    connection(store).exec_trace = None


def exchange(store: Store, held: list[Claim], slots: int) -> list[Claim]:
    ended = [(claim, after_run(claim, Exited(0), effective([]), 0), Report(1)) for claim in held]
    return store.tick("w1", ended, slots).claims


def test_a_tick_takes_few_statements_and_two_for_each_job(store: Store) -> None:
    with counted(store) as nothing_to_do:
        store.tick("w1")
    held = exchange(store, [], 4)
    with counted(store) as busy:
        exchange(store, held, 4)
    assert len(nothing_to_do) <= 4
    assert len(busy) <= 7 + 4 * 2, busy


def test_a_tally_takes_few_statements_and_only_the_tick_that_brings_it(store: Store) -> None:
    tally = Tally()
    for _ in range(100):
        tally.add("default", "completed", 3, 3)
    with counted(store) as bringing_it:
        assert store.tick("w1", tally=tally).tallied
    assert len(bringing_it) <= 4 + 2 * 3 + 2, bringing_it  # for runs and waits in each span; what is old goes
    with counted(store) as next_one:
        store.tick("w1", tally=Tally())
    assert len(next_one) <= 4


def test_a_claim_knows_nothing_of_departures(store: Store) -> None:
    """The trigger is no part of its program; that of a settle only looks at one column."""
    assert isinstance(store.engine, SqliteEngine)
    for statement, concerned in ((write_queries.CLAIM, False), (write_queries.RETRY_DEAD, True)):
        text, _ = store.engine.text(statement)
        names = set(re.findall(r":([a-z_]+)", text))
        program = connection(store).execute("EXPLAIN " + text, dict.fromkeys(names)).fetchall()
        assert any("jobs_departed" in str(step) for step in program) is concerned


def test_a_hook_costs_those_whom_it_does_not_concern_one_statement_a_tick(store: Store) -> None:
    held = exchange(store, [], 4)
    with counted(store) as without:
        held = exchange(store, held, 4)
    store.hooks.add("pager", ["dead"], command="true")
    with counted(store) as with_hook:
        held = exchange(store, held, 4)
    with counted(store) as idle:
        store.tick("w1")
    assert len(with_hook) == len(without) + 1
    assert len(idle) <= 4


def test_a_plan_is_not_made_anew_for_another_value(store: Store) -> None:
    assert connection(store).config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


def test_a_claimed_and_settled_job_dirties_few_pages(store: Store) -> None:
    held = exchange(store, [], 1)
    connection(store).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for _ in range(20):
        held = exchange(store, held, 1)
    frames = os.path.getsize(f"{store.engine.url}-wal") / (4096 + 24)
    assert frames / 20 <= 11


@on_sqlite
def test_running_a_job_takes_few_writes(q: Cli) -> None:  # noqa: F811
    """Counted by the kernel: the frames of the database's log, the board, and the signal of its end."""
    q.ok("worker", "start", "--concurrency", "4")
    [worker] = q.workers()
    before = writes(worker["pid"])
    q.ok("enqueue", "--lines", "-", stdin="true\n" * 200)
    q.ok("wait", "--all")
    assert (writes(worker["pid"]) - before) / 200 < 30


def writes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscw"))
