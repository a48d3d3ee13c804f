"""Copying a whole queue into another database, of the same kind or the other."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable

from queuectl.errors import Conflict, QueuectlError
from queuectl.jobs.job_spec import quote
from queuectl.store import steps
from queuectl.store import write_queries as sql
from queuectl.store.engine import Params, Row, Transaction
from queuectl.store.store import Store, refuse_left_running

AT_ONCE = 1000
NAMES = {"config": "settings", "departed": "figures", "tallies": "figures", "submissions": "idempotency keys"}

Counts = dict[str, int]
"""How many rows of each table."""


def size(store: Store) -> int:
    """How many rows there are to copy."""
    with store.engine.read() as tx:
        return sum(_counts(tx).values())


@steps.repeat_on_deadlock
def copy(
    source: Store, target: Store, progress: Callable[[int], None] = lambda rows: None, batch: int = AT_ONCE
) -> Counts:
    """Fill an empty queue with all that another holds at one moment: all of it or nothing. Logs stay behind.

    Refused while workers live on either, and if dead workers have left jobs that count as running.
    """
    if source.engine.identity == target.engine.identity:
        raise Conflict(f"{target.engine.name} is this very queue", "name another to copy it to")
    with source.engine.read() as src:
        _refuse_workers(source, src, "queuectl")
        wanted, jobs = _counts(src), _tally(src.rows(sql.JOBS_BY_STATE))
        refuse_left_running(src, "copy")
        try:
            with target.engine.write() as dst:
                dst.alone(["workers", *sql.COPIED])
                program = f"queuectl --db {quote([target.engine.name])}"
                _refuse_workers(target, dst, program)
                _refuse_filled(target, dst, program)
                _pour(src, dst, _logs_of(source) if target.engine.leased else None, progress, batch)
                _refuse_difference(wanted, _counts(dst))
                _refuse_difference(jobs, _tally(dst.rows(sql.COUNTS)))
        except _Unreadable as failed:
            raise failed.cause from None
    target.engine.tidy()
    return wanted


def _counts(tx: Transaction) -> Counts:
    return dict(zip(sql.COPIED, tx.rows(sql.COPIED_ROWS)[0], strict=True))


def _tally(rows: Iterable[Row]) -> Counts:
    """How many jobs of each queue are in each state, from rows that may have to be added up."""
    tally: Counter[str] = Counter()
    for queue, state, n in rows:
        tally[f"{queue} {state}"] += int(n)
    return {kind: n for kind, n in tally.items() if n}


# -- copying ---------------------------------------------------------------------------------------------


class _Unreadable(Exception):
    """An error of the source on its way through the target's transaction, which would take it for its own."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def _logs_of(source: Store) -> str:
    """Where the logs stay, for readers on other machines."""
    return source.engine.log_place or f"{os.uname().nodename}:{source.engine.log_dir}"


def _pour(src: Transaction, dst: Transaction, logs: str | None, progress: Callable[[int], None], batch: int) -> None:
    """In batches, not in one stream: at the end of each its rows are checked, which must not take too long."""
    done = 0
    for table, (start, rest) in sql.COPIED.items():
        after: Params = start
        while rows := _batch(src, table, after, batch):
            copies = [dict(zip((*start, *rest), row, strict=True)) for row in rows]
            if table == "dependencies":  # a parent that was deleted keeps its number: no new job may get that one
                dst.number_after(max(link["parent"] for link in copies))
            if table == "jobs":
                copies = [{**job, "log_place": job["log_place"] or (logs if job["run"] else None)} for job in copies]
            dst.load(table, copies)
            after = dict(zip(start, rows[-1], strict=False))
            done += len(rows)
            progress(done)


def _batch(src: Transaction, table: str, after: Params, limit: int) -> list[Row]:
    try:
        return src.rows(sql.BATCH[table], {**after, "limit": limit})
    except Exception as error:
        raise _Unreadable(error) from error


# -- refusing --------------------------------------------------------------------------------------------


def _refuse_workers(store: Store, tx: Transaction, program: str) -> None:
    alive = sum(store.holders(tx).values())
    if alive:
        hint = f"stop them first: {program} worker stop"
        raise Conflict(f"workers are running on {store.engine.name}: {alive}", hint)


def _refuse_filled(target: Store, dst: Transaction, program: str) -> None:
    for table, (start, _) in sql.COPIED.items():
        if dst.rows(sql.BATCH[table], {**start, "limit": 1}):
            what = NAMES.get(table, table)
            hint = f"name another, or empty it: {program} reset"
            raise Conflict(f"{target.engine.name} is not empty: it has {what}", hint)


def _refuse_difference(wanted: Counts, found: Counts) -> None:
    for kind in wanted.keys() | found.keys():
        if wanted.get(kind, 0) != found.get(kind, 0):
            raise QueuectlError(
                f"the copy came out wrong ({kind}: {found.get(kind, 0)} instead of {wanted.get(kind, 0)})",
                "nothing was copied; this should never happen, please report it",
            )
