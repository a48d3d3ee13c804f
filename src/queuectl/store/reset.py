"""Delete all that a queue holds, in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuectl.errors import Conflict, StoreUnavailable
from queuectl.jobs import log_files
from queuectl.store import steps
from queuectl.store import write_queries as sql
from queuectl.store.audit import Entry
from queuectl.store.bulk_changes import within_reach
from queuectl.store.store import refuse_left_running

if TYPE_CHECKING:
    from queuectl.store.engine import Transaction
    from queuectl.store.store import Store

ROWS_AT_ONCE = 2000
JOBS_AT_ONCE = 1000
LEVELS_AT_ONCE = 50  # of jobs that wait for each other


def wipe(store: Store) -> int:
    """How many jobs there were. A small queue goes in one transaction, a large one in steps: jobs with all that is
    theirs first, none before those that wait for it, and settings last. Each step makes sure again that nothing runs;
    if one is refused, or killed, the jobs that are left are whole."""
    entry = Entry(store.actor, "reset")
    store.engine.tidy()  # counts that have piled up go as a few sums
    total, done = 0, False
    while not done:
        try:
            ids, done, entry = _wipe_some(store, entry, total)
        except StoreUnavailable as error:
            raise type(error)(error.message + _so_far(total), error.hint) from error
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
    so_far = _so_far(deleted)
    alive = sum(store.holders(tx).values())
    if alive:
        raise Conflict(f"workers are running: {alive}{so_far}", "stop them first: queuectl worker stop")
    refuse_left_running(tx, "reset", so_far)


def _so_far(deleted: int) -> str:
    return f"; {deleted:,} jobs were deleted before that" if deleted else ""


def _some(tx: Transaction) -> tuple[list[str], bool]:
    """Delete as much as one transaction can take; the ids of the jobs among it, and whether that was all."""
    ids: list[str] = []
    for _ in range(LEVELS_AT_ONCE):
        if len(ids) >= JOBS_AT_ONCE:
            return ids, False
        leaves: dict[int, str] = dict(tx.rows(sql.LEAVES, {"limit": JOBS_AT_ONCE - len(ids)}))
        if not leaves:
            break
        chosen, more = within_reach(tx, list(leaves))
        tx.run(sql.WIPE_CASCADES, {"seqs": chosen})
        tx.run(sql.WIPE_JOBS, {"seqs": chosen})
        ids += [leaves[seq] for seq in chosen]
        if more:
            return ids, False
    else:
        return ids, False
    left = ROWS_AT_ONCE
    for table in sql.WIPED:
        left -= tx.run(sql.WIPE[table], {"limit": left})
        if left <= 0:
            return ids, False
    return ids, True
