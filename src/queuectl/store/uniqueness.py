"""At most one unfinished job for each key, and what becomes of the second one.

The database itself refuses a second one; here is decided what the user wanted then. Two that come at the same moment
meet in the index: one of them fails there, tries again, and finds the other.
"""

from __future__ import annotations

from queuectl.errors import Conflict
from queuectl.jobs.states import WAITING
from queuectl.store import dependencies, limits
from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from queuectl.jobs.job_spec import NewJob
    from queuectl.store.engine import Transaction


class Keyholder:
    """The unfinished job that has a key."""

    def __init__(self, key: str, id: str, seq: int, state: str, run: int, limited_by: str | None) -> None:
        self.key = key
        self.id = id
        self.seq = seq
        self.state = state
        self.run = run
        self.limited_by = limited_by


def decide(tx: Transaction, jobs: Sequence[NewJob], ids: Sequence[str]) -> dict[int, str]:
    """Which of the new jobs are left out, and the ids of those that are there in their stead. What is to be replaced
    is cancelled."""
    keys = {index: job.unique_key for index, job in enumerate(jobs) if job.unique_key}
    if not keys:
        return {}
    wanted = {"keys": sorted(set(keys.values()))}
    if any(job.on_duplicate == "replace" for job in jobs):
        limits.lock_keys(tx, (key for (key,) in tx.rows(sql.KEYS_OF_HOLDERS, wanted)))
    held = {row[0]: Keyholder(*row) for row in tx.rows(sql.LOCK_KEYS, wanted)}
    left_out: dict[int, str] = {}
    mine: dict[str, str] = {}
    for index, key in keys.items():
        job = jobs[index]
        if key in mine:
            if job.on_duplicate != "skip":
                raise Conflict(
                    f'the key "{key}" is used twice in this batch', "keep one, or let duplicates skip", index
                )
            left_out[index] = mine[key]
        elif key not in held:
            mine[key] = ids[index]
        elif job.on_duplicate == "skip":
            left_out[index] = mine[key] = held[key].id
        else:
            if job.on_duplicate == "refuse":
                hint = f"look at it: queuectl show {held[key].id}; or choose --on-duplicate skip or replace"
                raise Conflict(f'job "{held[key].id}" ({held[key].state}) has the key "{key}" already', hint, index)
            _replace(tx, held[key], ids[index], index)
            mine[key] = ids[index]
    return left_out


def _replace(tx: Transaction, held: Keyholder, id: str, index: int) -> None:
    if held.state not in (*WAITING, "blocked"):
        what = f'job "{held.id}", which has the key "{held.key}", is {held.state}'
        raise Conflict(what, "only a job that waits can be replaced", index)
    fence = {"seq": held.seq, "run": held.run, "now": tx.now}
    tx.each(sql.CANCEL_WAITING, [fence])
    reason = f'cancelled: replaced by "{id}"'
    tx.each(sql.RECORD_NOTE, [{**fence, "worker": None, "kind": "replaced", "reason": reason}])
    dependencies.cancelled(tx, [held.seq])
    limits.follow(tx, [held.limited_by])


def refuse_second(tx: Transaction, seqs: Sequence[int]) -> None:
    """Raise if one of these jobs, which are about to live again, would be the second with its key."""
    first: dict[str, str] = {}
    for id, key in tx.rows(sql.UNIQUE_KEYS_OF, {"seqs": list(seqs)}):
        if first.setdefault(key, id) != id:
            raise Conflict(f'job "{first[key]}" has the key "{key}" of "{id}", too', "retry one of them")
    for key, other in tx.rows(sql.KEYS_TAKEN, {"keys": sorted(first)}) if first else ():
        hint = f"wait for it: queuectl wait {other}"
        raise Conflict(f'job "{other}" has the key "{key}" of "{first[key]}" now', hint)
