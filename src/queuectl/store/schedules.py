"""Schedules in the store. They need no leader: any worker fires what is due, and a firing is a row that only one of
them can write, in the transaction that enqueues its job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from queuectl.errors import (
    Conflict,
    Duplicate,
    InvalidInput,
    NotFound,
    QueuectlError,
    StoreUnavailable,
    did_you_mean,
)
from queuectl.jobs import job_spec
from queuectl.schedules import schedule
from queuectl.schedules.schedule import Firing, Schedule
from queuectl.store import insert_jobs, steps
from queuectl.store import write_queries as sql
from queuectl.system import times

if TYPE_CHECKING:
    from queuectl.jobs.model import Job
    from queuectl.store.engine import Row, Transaction
    from queuectl.store.store import BeforeCommit, Store

AT_ONCE = 100  # schedules that are looked at together, and firings in one transaction or hardly more
KEPT = 100  # firings of a schedule that are remembered


class Schedules:
    """All that happens to schedules, and what there is to know of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._engine = store.engine

    # -- the worker's side -------------------------------------------------------------------------------

    def fire(self) -> tuple[bool, list[str]]:
        """Enqueue what schedules want by now; did any fire, and what is wrong with those that cannot? What another
        worker is firing just now is left to it, and what is too much for one transaction to the next."""
        fired = 0
        due, problems = self._due()
        if not due:
            return False, problems
        with self._engine.write() as tx:
            free = {row[0]: row for row in tx.rows(sql.LOCK_FREE_SCHEDULES, {"names": [row[0] for row, _ in due]})}
            for row, wanted in due:
                if fired and fired + len(wanted.moments) > AT_ONCE:
                    break
                if free.get(row[0]) == row:  # else somebody else is at it, or was
                    self._fire(tx, _schedule(row), wanted)
                    fired += 1 + len(wanted.moments)
        if fired:
            self._engine.announce()
        if fired > AT_ONCE:  # there may be more
            steps.pause()
        return fired > 0, problems

    def _due(self) -> tuple[list[tuple[Row, schedule.Due]], list[str]]:
        """What is due, and what is wrong with the others. To find the last of many missed firings takes a while: no
        lock is held meanwhile."""
        found, problems = [], []
        with self._engine.read() as tx:
            rows, now = tx.rows(sql.DUE_SCHEDULES, {"now": tx.now, "limit": AT_ONCE}), tx.now
        for row in rows:
            try:
                found.append((row, schedule.due(_schedule(row), now)))
            except InvalidInput as error:  # a zone that only this machine does not know: others may
                problems.append(f"schedule {row[0]}: {error}")
        return found, problems

    def _fire(self, tx: Transaction, one: Schedule, due: schedule.Due) -> None:
        moments = due.moments if due.dropped is None else [due.dropped, *due.moments]
        taken = {moment for (moment,) in tx.rows(sql.TAKEN_FIRINGS, {"name": one.name, "moments": moments})}
        if due.dropped is not None and due.dropped not in taken:
            self._record(tx, one, [Taken(due.dropped, "missed", reason="nobody was there to fire it in time")])
        self._enqueue(tx, one, [moment for moment in due.moments if moment not in taken])
        tx.run(sql.SET_NEXT, {"name": one.name, "next_at": due.next_at})
        tx.run(sql.FORGET_FIRINGS, {"name": one.name, "kept": KEPT, "limit": 2 * AT_ONCE})

    def _enqueue(self, tx: Transaction, one: Schedule, moments: Sequence[int]) -> None:
        """Enqueue the jobs of these firings: all at once, if none of them can be in the way of another."""
        together = one.overlap == "queue" and one.job.get("unique_key") is None
        for part in [moments] if together else [[moment] for moment in moments]:
            self._record(tx, one, self._enqueued(tx, one, part))

    def _enqueued(self, tx: Transaction, one: Schedule, moments: Sequence[int]) -> list[Taken]:
        ids = {moment: schedule.job_id(one.name, moment) for moment in moments}
        running = tx.rows(sql.UNFINISHED_FIRING, {"name": one.name}) if one.overlap == "skip" else []
        if running:
            [(earlier, state)] = running
            return [Taken(moment, "skipped", reason=f'its job "{earlier}" is still {state}') for moment in moments]
        there = {id for id, _ in tx.rows(sql.STATES_OF, {"ids": list(ids.values())})} if ids else set()
        skipped = {moment: f'there is a job "{id}" already' for moment, id in ids.items() if id in there}
        new = [moment for moment in moments if moment not in skipped]
        try:
            jobs = [job_spec.from_fields(schedule.fields_of(one, moment)) for moment in new]
            left_out = insert_jobs.insert(tx, self._engine, jobs, [ids[moment] for moment in new])
        except Duplicate:  # somebody took its unique key in this very moment: all of it again
            raise
        except (InvalidInput, Conflict) as error:  # nothing was written yet
            return [Taken(moment, "skipped", reason=skipped.get(moment, str(error))) for moment in moments]
        skipped |= {new[index]: f'job "{other}" has its unique key' for index, other in left_out.items()}
        return [
            Taken(moment, "skipped", reason=skipped[moment])
            if moment in skipped
            else Taken(moment, "enqueued", ids[moment], _lateness(tx.now - moment))
            for moment in moments
        ]

    def _record(self, tx: Transaction, one: Schedule, firings: Sequence[Taken]) -> None:
        """Take these firings: nobody else can."""
        tx.each(sql.TAKE_FIRING, [{"schedule": one.name, "now": tx.now, **each._asdict()} for each in firings])

    # -- the operator's side -----------------------------------------------------------------------------

    @steps.repeat_on_deadlock
    def add(
        self,
        name: str,
        when: str | None,
        every: float | None,
        zone: str,
        fields: Mapping[str, Any],
        overlap: str | None = None,
        missed: str | None = None,
        replace_it: bool = False,
        before_commit: BeforeCommit | None = None,
    ) -> Schedule:
        """Make a schedule that begins now; refused if there is one of this name, unless it is to be replaced."""
        with self._engine.write() as tx:
            new = schedule.make(name, when, every, zone, fields, tx.now, overlap, missed)
            there = tx.rows(sql.LOCK_SCHEDULE, {"name": name})
            if there and not replace_it:
                raise Conflict(f'there is a schedule "{name}" already', "choose another name, or give --replace")
            if there:
                new = schedule.in_place_of(_schedule(there[0]), new)
            if not tx.run(sql.REPLACE_SCHEDULE if there else sql.ADD_SCHEDULE, _row(new)):
                raise Conflict(f'a schedule "{name}" was made in this very moment', "try again")
            self._store.audit(tx, "schedule", [name], "replaced" if there else "added")
            if before_commit:
                before_commit(tx, [name])
        self._engine.announce()
        return new

    @steps.repeat_on_deadlock
    def remove(self, names: Sequence[str]) -> None:
        """Forget all of these schedules or none; their jobs stay."""
        with self._engine.write() as tx:
            for name in sorted(set(names)):
                self._locked(tx, name)
            for name in set(names):
                tx.run(sql.REMOVE_SCHEDULE, {"name": name})
            self._store.audit(tx, "schedule", sorted(set(names)), "removed")
        self._engine.announce()
        self._forget_removed()

    def _forget_removed(self) -> None:
        """Delete the firings of schedules that are gone, step by step. What cannot be deleted now, the next removal
        will: that of the schedules has happened."""
        try:
            with self._engine.read() as tx:
                names = [name for (name,) in tx.rows(sql.REMOVED_SCHEDULES)]
            for name in names:
                while self._forget_some(name) == steps.AT_ONCE:
                    steps.pause()
        except StoreUnavailable:
            pass

    def _forget_some(self, name: str) -> int:
        with self._engine.write() as tx:
            return tx.run(sql.FORGET_ALL_FIRINGS, {"name": name, "limit": steps.AT_ONCE})

    @steps.repeat_on_deadlock
    def pause(self, names: Sequence[str], paused: bool, before_commit: BeforeCommit | None = None) -> list[Schedule]:
        """Let these schedules rest, after all that they want by now; or go on with their next firing, not with those
        that came meanwhile."""
        while True:
            with self._engine.write() as tx:
                # In one order, so that no two wait for each other.
                found = [self._locked(tx, name) for name in sorted(set(names))]
                if not (paused and self._fire_some(tx, found)):
                    changed = [self._paused(tx, one, paused) for one in found]
                    self._store.audit(tx, "schedule", [one.name for one in found], "paused" if paused else "resumed")
                    if before_commit:
                        before_commit(tx, names)
                    break
            steps.pause()
        self._engine.announce()
        return changed

    def _fire_some(self, tx: Transaction, found: Sequence[Schedule]) -> bool:
        """Fire what these want by now, as far as one transaction goes. False if there was nothing."""
        fired = 0
        for one in found:
            if not one.paused and one.next_at is not None and one.next_at <= tx.now and fired < AT_ONCE:
                due = schedule.due(one, tx.now)
                self._fire(tx, one, due)
                fired += 1 + len(due.moments)
        return fired > 0

    def _paused(self, tx: Transaction, one: Schedule, paused: bool) -> Schedule:
        if one.paused == paused:
            return one
        changed = replace(one if paused else schedule.with_next(one, tx.now), paused=paused)
        tx.run(sql.PAUSE_SCHEDULE, {"name": one.name, "paused": paused, "next_at": changed.next_at})
        return changed

    @steps.repeat_on_deadlock
    def trigger(self, name: str) -> Job:
        """Enqueue a schedule's job now, whatever the time and whatever runs; the job."""
        made = self._store.views.reader()
        with self._engine.write() as tx:
            found = self._locked(tx, name)
            [(last,)] = tx.rows(sql.LAST_TRIGGER, {"name": name, "now": tx.now})
            id = job_spec.new_id()
            left_out = insert_jobs.insert(
                tx, self._engine, [job_spec.from_fields(schedule.fields_of(found, tx.now))], [id]
            )
            if left_out:
                hint = f"wait for it: queuectl wait {left_out[0]}"
                raise Conflict(f'job "{left_out[0]}" has the unique key of its jobs', hint)
            self._record(tx, found, [Taken(tx.now, "triggered", id, n=last + 1)])
            self._store.audit(tx, "schedule", [name], f"triggered: {id}")
            made(tx, [id])
        self._engine.announce()
        return made.job()

    def _locked(self, tx: Transaction, name: str) -> Schedule:
        rows = tx.rows(sql.LOCK_SCHEDULE, {"name": job_spec.text("schedule", name)})
        if not rows:
            raise self._unknown(tx, name)
        return _schedule(rows[0])

    def _unknown(self, tx: Transaction, name: str) -> QueuectlError:
        names = [row[0] for row in tx.rows(sql.SCHEDULES)]
        hint = did_you_mean(name, names) if names else "make one: queuectl schedule add"
        return NotFound(f'there is no schedule "{name}"', hint)

    # -- views -------------------------------------------------------------------------------------------

    def all(self) -> list[tuple[Schedule, Firing | None]]:
        """Every schedule with its last firing, in the order of their names."""
        with self._engine.read() as tx:
            found = [_schedule(row) for row in tx.rows(sql.SCHEDULES)]
            return [(one, next(iter(_firings(tx, one.name, 1)), None)) for one in found]

    def get(self, name: str) -> Schedule:
        with self._engine.read() as tx:
            rows = tx.rows(sql.GET_SCHEDULE, {"name": job_spec.text("schedule", name)})
            if not rows:
                raise self._unknown(tx, name)
        return _schedule(rows[0])

    def firings(self, name: str, limit: int = KEPT) -> list[Firing]:
        """Its last firings, the newest first."""
        with self._engine.read() as tx:
            return _firings(tx, name, limit)


class Taken(NamedTuple):
    """A firing that is being recorded, and what became of it."""

    moment: int
    outcome: str
    job: str | None = None
    reason: str | None = None
    n: int = 0


def _lateness(late: int) -> str | None:
    return f"made up for, {times.span(late / 1000)} late" if late > schedule.LATE else None


class FiringReader:
    """Reads the last firings of a schedule in the transaction that changes it. What is answered then depends on no
    query after the commit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.last: list[Firing] = []

    def __call__(self, tx: Transaction, names: Sequence[str]) -> None:
        self.last = _firings(tx, names[0], self._limit)


def _firings(tx: Transaction, name: str, limit: int) -> list[Firing]:
    return [Firing(*row) for row in tx.rows(sql.LAST_FIRINGS, {"name": name, "limit": limit})]


def _schedule(row: Row) -> Schedule:
    name, cron, every_ms, zone, job, overlap, missed, paused, created_at, next_at = row
    return Schedule(name, cron, every_ms, zone, json.loads(job), overlap, missed, bool(paused), created_at, next_at)


def _row(new: Schedule) -> dict[str, Any]:
    return {name: getattr(new, name) for name in sql.SCHEDULE_FIELDS} | {"job": json.dumps(new.job)}
