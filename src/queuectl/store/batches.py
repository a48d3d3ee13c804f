"""Jobs that belong together: when too many of a batch have died, the rest of it is not tried."""

from __future__ import annotations

from queuectl.store import dependencies, limits
from queuectl.store import statements as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from queuectl.newjob import NewJob
    from queuectl.store.engine import Transaction


def limit(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    """Keep how many dead jobs the batches of these bear; the last one who says it is right."""
    limits = {job.batch: job.max_fails for job in jobs if job.batch and job.max_fails}
    tx.each(sql.LIMIT_BATCH, [{"batch": name, "max_fails": most} for name, most in sorted(limits.items())])


def follow(tx: Transaction, dead: Sequence[int]) -> bool:
    """These jobs have just died: if that is too many for their batches, cancel what still waits in them. What runs
    may end. A batch is locked while its dead are counted, so that no two deaths overlook each other. May any other
    job run now?"""
    released = False
    for name, most in tx.rows(sql.LOCK_BATCHES_OF, {"seqs": list(dead)}) if dead else ():
        [(died,)] = tx.rows(sql.COUNT_DEAD_IN, {"batch": name})
        if died < most:
            continue
        error = f'its batch "{name}" has {died} dead, the limit is {most}'
        rest = tx.rows(sql.LOCK_WAITING_IN, {"batch": name})
        seqs = [seq for seq, _ in rest]
        tx.each(sql.CANCEL_REST, [{"seq": seq, "now": tx.now, "error": error} for seq in seqs])
        reason = f"cancelled: {error}"
        tx.each(sql.RECORD_TURNS, [{"seq": seq, "now": tx.now, "reason": reason} for seq in seqs])
        released |= dependencies.cancelled(tx, seqs)
        released |= limits.follow(tx, [key for _, key in rest])
    return released
