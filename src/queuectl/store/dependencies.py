"""What happens between jobs that wait for each other.

A job counts its open dependencies (`unmet`) and is blocked until there are none. Whoever ends a job has its row
locked, and so has whoever makes another job wait for it: a dependency is either counted before the end, and then
settled by it, or the end is seen by the one who counts. Children are locked, in order, before they are looked at.

A job may have very many children, and they may have children: one transaction tells some of them, and leaves a note
(`cascades`) of those jobs whose children have not all been told. Any worker works that off. It goes by the state that
the parent has then, under its lock, so that it does not matter what has happened to the parent in between.
"""

from __future__ import annotations

from queuectl.errors import Conflict, InvalidInput
from queuectl.jobs import dependency_rules
from queuectl.jobs.states import FINISHED
from queuectl.store import steps
from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from queuectl.jobs.job_spec import NewJob
    from queuectl.store.engine import Params, Row, Transaction

LEVELS_AT_ONCE = 20  # from a job to its children, to theirs, and so on: each takes some statements
TRIED_AT_ONCE = 20  # parents with children to be told, of which others may have locked some


def plan(tx: Transaction, new: Sequence[tuple[int, str, NewJob]]) -> tuple[list[Params], dict[str, int]]:
    """The dependencies of new jobs (with their place in the batch), as rows with ids instead of numbers, and how many
    are open for those that have some. Their parents are locked."""
    waiting = {id: job for _, id, job in new if job.depends_on}
    if not waiting:
        return [], {}
    names = {id for _, id, _ in new}
    cycle = dependency_rules.find_cycle({id: [parent for parent, _ in job.depends_on] for id, job in waiting.items()})
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
    outcome = dependency_rules.outcome_of(condition, state)
    if outcome == "broken":
        hint = f"retry that one first: queuectl dlq retry {parent}" if state == "dead" else "leave it out"
        raise Conflict(f'it can never run: "{parent}", which it should wait for, is {state}', hint, index)
    return outcome


def follow(tx: Transaction, ended: Sequence[int]) -> bool:
    """Tell the children of jobs that have just finished: those that wait for nothing else may run now, and those
    that can no longer run are cancelled, with all that wait for them. May any run now, or is some of it left to
    workers?"""
    if not ended or not tx.rows(sql.ANY_OPEN):  # most queues have no dependencies at all
        return False
    cascade = Cascade(tx)
    cascade.follow(ended)
    return cascade.leave()


def cancelled(tx: Transaction, seqs: Sequence[int]) -> bool:
    """These were cancelled for good, and so is all that waits for them. May any run now that waited for their end, or
    is some of it left to workers?"""
    if not seqs:
        return False
    tx.run(sql.VOID_DEPENDENCIES, {"children": list(seqs)})
    return follow(tx, seqs)


def revive(tx: Transaction, retried: Mapping[int, str]) -> bool:
    """Let those wait again that were cancelled because one of these (seq: id), which now runs again, had failed. Is
    some of it left to workers?"""
    cascade = Cascade(tx)
    cascade.revive(retried, dependency_rules.CONDITIONS)
    return cascade.leave()


def work_off(tx: Transaction) -> bool:
    """Tell some children that were left to workers. False: there are none, or others are at it."""
    for (seq,) in tx.rows(sql.CASCADES, {"limit": TRIED_AT_ONCE}):
        for id, state in tx.rows(sql.LOCK_FREE_JOB, {"seq": seq}):
            cascade = Cascade(tx)
            if state in FINISHED:
                cascade.follow([seq])
            not_broken = [
                word for word in dependency_rules.CONDITIONS if dependency_rules.outcome_of(word, state) != "broken"
            ]
            cascade.revive({seq: id}, not_broken)
            if not cascade.told:
                tx.run(sql.CASCADE_DONE, {"seq": seq})
            cascade.leave()
            return True
    return False


class Cascade:
    """What the ends and the retries of jobs mean for those that wait for them, as far as one transaction goes. All
    parents are locked."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._later: set[int] = set()  # jobs that may have more children to be told
        self._released = False
        self._levels = 0
        self.told = 0  # dependencies so far

    def leave(self) -> bool:
        """Note what is left. Is it anything, or may any job run now?"""
        self._tx.each(sql.NOTE_CASCADE, [{"seq": seq} for seq in sorted(self._later)])
        return self._released or bool(self._later)

    @property
    def _room(self) -> int:
        return steps.AT_ONCE - self.told if self._levels < LEVELS_AT_ONCE else 0

    def _take(self, statement: str, parents: Sequence[int], **params: object) -> list[Row]:
        """The next dependencies on these parents, if there is room; they are noted if there may be more."""
        rows: list[Row] = []
        room = self._room
        if room > 0:
            rows = self._tx.rows(statement, {"parents": list(parents), "limit": room, **params})
            self.told += len(rows)
            self._levels += 1
        if len(rows) == room:
            self._later.update(parents)
        if rows:
            self._tx.rows(sql.LOCK_SEQS, {"seqs": sorted({child for child, *_ in rows})})
        return rows

    def follow(self, ended: Sequence[int]) -> None:
        """Tell the children of these jobs, which have finished."""
        while ended:
            ended = self._end(self._take(sql.OPEN_DEPENDENCIES, ended))

    def _end(self, rows: Sequence[Row]) -> list[int]:
        """End these dependencies; the children that are cancelled for it."""
        tx = self._tx
        edges: list[Params] = []
        met: dict[int, int] = {}
        broken: dict[int, str] = {}
        for child, parent, condition, parent_id, parent_state in rows:
            state = dependency_rules.outcome_of(condition, parent_state)
            edges.append({"parent": parent, "child": child, "state": state})
            if state == "met":
                met[child] = met.get(child, 0) + 1
            else:
                broken.setdefault(child, dependency_rules.why_broken(parent_id, condition, parent_state))
        tx.each(sql.END_DEPENDENCY, edges)
        tx.each(sql.MEET, [{"seq": seq, "met": n, "now": tx.now} for seq, n in met.items()])
        free = [seq for (seq,) in tx.rows(sql.RELEASED, {"seqs": list(met)})] if met else []
        lost: list[Params] = [{"seq": seq, "now": tx.now, "error": why} for seq, why in broken.items()]
        missed = {row["seq"] for row in tx.missed(sql.CANCEL_BLOCKED, lost)}
        ended = [seq for seq in broken if seq not in missed]
        self._record("dependencies_met", dict.fromkeys(free, dependency_rules.RELEASED))
        self._record("dependency_broken", {seq: f"cancelled: {broken[seq]}" for seq in ended})
        self._released |= bool(free)
        return ended

    def revive(self, parents: Mapping[int, str], conditions: Sequence[str]) -> None:
        """Let those wait again that were cancelled because of these jobs (seq: id), though on this condition they
        need not be; and those that were cancelled because of them."""
        while parents and conditions:
            rows = self._take(sql.BROKEN_DEPENDENCIES, list(parents), conditions=list(conditions))
            parents, conditions = self._reopen(rows, parents), dependency_rules.CONDITIONS

    def _reopen(self, rows: Sequence[Row], parents: Mapping[int, str]) -> dict[int, str]:
        """Open these dependencies again; the children that wait again."""
        tx = self._tx
        tx.each(
            sql.END_DEPENDENCY, [{"parent": parent, "child": child, "state": "open"} for child, parent, _, _ in rows]
        )
        found = {child: (parents[parent], id, key) for child, parent, id, key in rows}
        plain = [{"seq": child, "now": tx.now} for child, (_, _, key) in found.items() if key is None]
        missed = {row["seq"] for row in tx.missed(sql.REVIVE, plain)}
        for child, (_, _, key) in found.items():
            # One by one: of several with the same key the first takes it.
            if key is not None and tx.missed(sql.REVIVE, [{"seq": child, "now": tx.now}]):
                missed.add(child)
        revived = {child: f'revived: its dependency "{parent}" runs again' for child, (parent, _, _) in found.items()}
        gone: dict[int, str] = dict(tx.rows(sql.BROKEN_BY_DELETION, {"children": sorted(missed)})) if missed else {}
        self._record("revived", {child: why for child, why in revived.items() if child not in missed})
        self._record("not_revived", {child: dependency_rules.why_not_revived(id) for child, id in gone.items()})
        return {child: id for child, (_, id, _) in found.items() if child not in missed}

    def _record(self, kind: str, reasons: dict[int, str]) -> None:
        row = {"kind": kind, "now": self._tx.now}
        self._tx.each(sql.RECORD_TURNS, [{"seq": seq, "reason": reason, **row} for seq, reason in reasons.items()])
