"""Jobs that belong together: when too many of a batch have died, the rest of it is not tried."""

from __future__ import annotations

from queuectl.store import dependencies, limits, steps
from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from queuectl.jobs.job_spec import NewJob
    from queuectl.store.engine import Row, Transaction


def begin(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    """Jobs of these batches are about to be stored. One of which no job is left begins anew: what has died in it
    before counts no longer."""
    for name in sorted({job.batch for job in jobs if job.batch}):
        tx.run(sql.BEGIN_BATCH_ANEW, {"batch": name})


def limit(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    """Keep how many dead jobs the batches of these bear; the last one who says it is right."""
    limits = {job.batch: job.max_fails for job in jobs if job.batch and job.max_fails}
    tx.each(sql.LIMIT_BATCH, [{"batch": name, "max_fails": most} for name, most in sorted(limits.items())])


def lock(tx: Transaction, dead: Sequence[int]) -> None:
    """Before any other job is locked for the end of these: whoever cancels a batch locks it first, too."""
    if dead:
        tx.rows(sql.LOCK_BATCHES_OF, {"seqs": list(dead)})


def follow(tx: Transaction, dead: Sequence[int]) -> bool:
    """These jobs have just died: if that is too many for their batches, cancel what still waits in them. What runs
    may end. A batch is locked while its dead are counted, so that no two deaths overlook each other. May any other
    job run now, or is some of it left to workers?"""
    news = False
    for name, most, deleted in tx.rows(sql.LOCK_BATCHES_OF, {"seqs": list(dead)}) if dead else ():
        [(died,)] = tx.rows(sql.COUNT_DEAD_IN, {"batch": name})
        died += deleted
        [(last,)] = tx.rows(sql.LAST_UNFINISHED_IN, {"batch": name})
        if died >= most and last is not None:
            tx.run(sql.CANCEL_BATCH, {"batch": name, "up_to": last, "died": died})
            news |= _cancel_some(tx, name, most, died, last)
    return news


def work_off(tx: Transaction) -> bool:
    """Cancel some of what was left to workers. False: there is nothing, or others are at it."""
    for name, most, died, last in tx.rows(sql.LOCK_CANCELLED_BATCH):
        _cancel_some(tx, name, most, died, last)
        return True
    return False


def _cancel_some(tx: Transaction, name: str, most: int, died: int, last: int) -> bool:
    rest = tx.rows(sql.LOCK_WAITING_IN, {"batch": name, "up_to": last, "limit": steps.AT_ONCE})
    if len(rest) < steps.AT_ONCE:
        tx.run(sql.BATCH_CANCELLED, {"batch": name})
    seqs = [seq for seq, _ in rest]
    error = f'its batch "{name}" has {died} dead, the limit is {most}'
    tx.each(sql.CANCEL_REST, [{"seq": seq, "now": tx.now, "error": error} for seq in seqs])
    reason = f"cancelled: {error}"
    tx.each(
        sql.RECORD_TURNS, [{"seq": seq, "now": tx.now, "kind": "batch_cancelled", "reason": reason} for seq in seqs]
    )
    news = dependencies.cancelled(tx, seqs)
    return limits.follow(tx, [key for _, key in rest]) or news or len(rest) == steps.AT_ONCE


def without_cancelled(tx: Transaction, picked: Sequence[Row]) -> list[Row]:
    """Those of these due jobs that are in no batch which is being cancelled."""
    doomed = {seq for (seq,) in tx.rows(sql.IN_CANCELLED_BATCH, {"seqs": [row[1] for row in picked]})}
    return [row for row in picked if row[1] not in doomed]
