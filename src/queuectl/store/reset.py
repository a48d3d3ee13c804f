"""Delete all that a queue holds, in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuectl.errors import Conflict
from queuectl.jobs import log_files
from queuectl.store import steps
from queuectl.store import write_queries as sql
from queuectl.store.audit import Entry
from queuectl.store.store import refuse_left_running

if TYPE_CHECKING:
    from queuectl.store.engine import Transaction
    from queuectl.store.store import Store

ROWS_AT_ONCE = 2000
JOBS_AT_ONCE = 1000


def wipe(store: Store) -> int:
    """How many jobs there were. A small queue goes in one transaction. A large one goes in steps: jobs first, while
    all that holds them back still stands, settings last; each step makes sure again that nothing runs."""
    entry = Entry(store.actor, "reset")
    store.engine.tidy()  # counts that have piled up go as a few sums
    total, done = 0, False
    while not done:
        ids, done, entry = _wipe_some(store, entry, total)
        log_files.remove(store.engine.log_dir, ids)
        total += len(ids)
        if not done:
            steps.pause()
    store.engine.compact()
    return total


@steps.repeat_on_deadlock
def _wipe_some(store: Store, entry: Entry, total: int) -> tuple[list[str], bool, Entry]:
    with store.engine.write() as tx:
        tx.alone([*sql.COPIED, "counts", "workers"])
        _refuse_workers(store, tx, total)
        ids, done = _some(tx)
        entry = entry.add(tx, ids if total + len(ids) else ["everything"] if done else [])
    return ids, done, entry


def _refuse_workers(store: Store, tx: Transaction, deleted: int) -> None:
    so_far = f"; {deleted:,} jobs were deleted before that" if deleted else ""
    alive = sum(store.holders(tx).values())
    if alive:
        raise Conflict(f"workers are running: {alive}{so_far}", "stop them first: queuectl worker stop")
    refuse_left_running(tx, "reset")


def _some(tx: Transaction) -> tuple[list[str], bool]:
    """Delete as much as one transaction can take; the ids of the jobs among it, and whether that was all."""
    left = ROWS_AT_ONCE
    ids: list[str] = []
    for table in sql.WIPED:
        if table == "jobs":
            rows = tx.rows(sql.FIRST_JOBS, {"limit": min(left, JOBS_AT_ONCE)})
            seqs = [seq for seq, _ in rows]
            tx.run(sql.WIPE_CASCADES, {"seqs": seqs})
            tx.run(sql.WIPE_JOBS, {"seqs": seqs})
            ids = [id for _, id in rows]
            if len(ids) == JOBS_AT_ONCE:
                return ids, False
            left -= len(ids)
        else:
            left -= tx.run(sql.WIPE[table], {"limit": left})
        if left <= 0:
            return ids, False
    return ids, True
