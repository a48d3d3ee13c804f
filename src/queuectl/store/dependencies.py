"""What happens between jobs that wait for each other.

A job counts its open dependencies (`unmet`) and is blocked until there are none. Whoever ends a job has its row
locked, and so has whoever makes another job wait for it: a dependency is either counted before the end, and then
settled by it, or the end is seen by the one who counts. Children are locked, in order, before they are looked at.
"""

from __future__ import annotations

from queuectl import graph
from queuectl.errors import Conflict, InvalidInput
from queuectl.store import statements as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from queuectl.newjob import NewJob
    from queuectl.store.engine import Params, Transaction


def plan(tx: Transaction, new: Sequence[tuple[int, str, NewJob]]) -> tuple[list[Params], dict[str, int]]:
    """The dependencies of new jobs (with their place in the batch), as rows with ids instead of numbers, and how many
    are open for those that have some. Their parents are locked."""
    waiting = {id: job for _, id, job in new if job.depends_on}
    if not waiting:
        return [], {}
    names = {id for _, id, _ in new}
    cycle = graph.find_cycle({id: [parent for parent, _ in job.depends_on] for id, job in waiting.items()})
    if cycle:
        raise InvalidInput(f"these jobs wait for each other: {' → '.join(cycle)}", "break the circle")
    wanted = sorted({parent for job in waiting.values() for parent, _ in job.depends_on} - names)
    states = {id: state for id, _, state, *_ in tx.rows(sql.LOCK_JOBS, {"ids": wanted})} if wanted else {}
    rows: list[Params] = []
    unmet: dict[str, int] = {}
    for index, id, job in new:
        for parent, condition in job.depends_on:
            state = "open" if parent in names else _state(parent, condition, states.get(parent), index)
            rows.append({"parent_id": parent, "child_id": id, "condition": condition, "state": state})
            if state == "open":
                unmet[id] = unmet.get(id, 0) + 1
    return rows, unmet


def _state(parent: str, condition: str, state: str | None, index: int) -> str:
    if state is None:
        raise Conflict(f'it should wait for "{parent}", but there is no such job', "enqueue that one first", index)
    outcome = graph.outcome_of(condition, state)
    if outcome == "broken":
        hint = f"retry that one first: queuectl dlq retry {parent}" if state == "dead" else "leave it out"
        raise Conflict(f'it can never run: "{parent}", which it should wait for, is {state}', hint, index)
    return outcome


def follow(tx: Transaction, ended: Sequence[int]) -> bool:
    """Tell the children of jobs that have just finished: those that wait for nothing else may run now, and those that
    can no longer run are cancelled, with all that wait for them. May any run now?"""
    released = False
    if not ended or not tx.rows(sql.ANY_OPEN):  # most queues have no dependencies at all
        return False
    while ended:
        open_ones = tx.rows(sql.OPEN_DEPENDENCIES, {"parents": list(ended)})
        if not open_ones:
            break
        tx.rows(sql.LOCK_SEQS, {"seqs": sorted({child for child, *_ in open_ones})})
        edges: list[Params] = []
        met: dict[int, int] = {}
        broken: dict[int, str] = {}
        for child, parent, condition, parent_id, parent_state in open_ones:
            state = graph.outcome_of(condition, parent_state)
            edges.append({"parent": parent, "child": child, "state": state})
            if state == "met":
                met[child] = met.get(child, 0) + 1
            else:
                broken.setdefault(child, graph.why_broken(parent_id, condition, parent_state))
        tx.each(sql.END_DEPENDENCY, edges)
        tx.each(sql.MEET, [{"seq": seq, "met": n, "now": tx.now} for seq, n in met.items()])
        free = [seq for (seq,) in tx.rows(sql.RELEASED, {"seqs": list(met)})] if met else []
        lost: list[Params] = [{"seq": seq, "now": tx.now, "error": why} for seq, why in broken.items()]
        missed = {row["seq"] for row in tx.missed(sql.CANCEL_BLOCKED, lost)}
        ended = [seq for seq in broken if seq not in missed]
        _record(tx, {**dict.fromkeys(free, graph.RELEASED), **{seq: f"cancelled: {broken[seq]}" for seq in ended}})
        released |= bool(free)
    return released


def cancelled(tx: Transaction, seqs: Sequence[int]) -> bool:
    """These were cancelled for good, and so is all that waits for them. May any run now that waited for their end?"""
    if not seqs:
        return False
    tx.run(sql.VOID_DEPENDENCIES, {"children": list(seqs)})
    return follow(tx, seqs)


def revive(tx: Transaction, retried: Sequence[tuple[int, str]]) -> None:
    """Let those wait again that were cancelled because one of these (seq, id), which now runs again, had failed."""
    parents = list(retried)
    while parents:
        names = dict(parents)
        broken = tx.rows(sql.BROKEN_DEPENDENCIES, {"parents": list(names)})
        if not broken:
            return
        tx.rows(sql.LOCK_SEQS, {"seqs": sorted({child for child, *_ in broken})})
        tx.each(
            sql.END_DEPENDENCY, [{"parent": parent, "child": child, "state": "open"} for child, parent, _ in broken]
        )
        parents, reasons = [], {}
        for child, parent, id in broken:
            if tx.run(sql.REVIVE, {"seq": child, "now": tx.now}):
                reasons[child] = f'revived: its dependency "{names[parent]}" runs again'
                parents.append((child, id))
        _record(tx, reasons)


def _record(tx: Transaction, reasons: dict[int, str]) -> None:
    tx.each(sql.RECORD_TURNS, [{"seq": seq, "reason": reason, "now": tx.now} for seq, reason in reasons.items()])
