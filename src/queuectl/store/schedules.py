"""Schedules in the store. They need no leader: any worker fires what is due, and a firing is a row that only one of
them can write, in the transaction that enqueues its job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from queuectl import newjob, schedule, times
from queuectl.errors import Conflict, Duplicate, InvalidInput, NotFound, QueuectlError, did_you_mean
from queuectl.schedule import Firing, Schedule
from queuectl.store import intake
from queuectl.store import statements as sql

if TYPE_CHECKING:
    from queuectl.store.engine import Row, Transaction
    from queuectl.store.store import Store

AT_ONCE = 200  # firings in one transaction, or hardly more
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
        fired, problems = 0, []
        with self._engine.write() as tx:
            for row in tx.rows(sql.LOCK_DUE, {"now": tx.now, "limit": AT_ONCE}):
                one = _schedule(row)
                try:
                    due = schedule.due(one, tx.now)
                except InvalidInput as error:  # a zone that only this machine does not know: others may
                    problems.append(f"schedule {one.name}: {error}")
                    continue
                self._fire(tx, one, due)
                fired += 1 + len(due.moments)
                if fired >= AT_ONCE:
                    break
        if fired:
            self._engine.announce()
        return fired > 0, problems

    def _fire(self, tx: Transaction, one: Schedule, due: schedule.Due) -> None:
        if due.dropped is not None and self._take(tx, one, due.dropped):
            self._record(tx, one, due.dropped, "missed", reason="nobody was there to fire it in time")
        for moment in due.moments:
            if self._take(tx, one, moment):
                self._enqueue(tx, one, moment)
        tx.run(sql.SET_NEXT, {"name": one.name, "next_at": due.next_at})
        tx.run(sql.FORGET_FIRINGS, {"name": one.name, "kept": KEPT})

    def _fired(self, tx: Transaction, one: Schedule) -> Schedule:
        """The schedule, after all that it wants by now."""
        while one.next_at is not None and one.next_at <= tx.now:
            due = schedule.due(one, tx.now)
            self._fire(tx, one, due)
            one = replace(one, next_at=due.next_at)
        return one

    def _take(self, tx: Transaction, one: Schedule, moment: int, n: int = 0) -> bool:
        """Whoever has written its row has the firing."""
        return bool(tx.run(sql.TAKE_FIRING, {"schedule": one.name, "moment": moment, "n": n, "now": tx.now}))

    def _enqueue(self, tx: Transaction, one: Schedule, moment: int) -> None:
        id = schedule.job_id(one.name, moment)
        running = tx.rows(sql.UNFINISHED_FIRING, {"name": one.name}) if one.overlap == "skip" else []
        if running:
            [(earlier, state)] = running
            return self._record(tx, one, moment, "skipped", reason=f'its job "{earlier}" is still {state}')
        if tx.rows(sql.STATES_OF, {"ids": [id]}):
            return self._record(tx, one, moment, "skipped", reason=f'there is a job "{id}" already')
        try:
            left_out = intake.insert(tx, self._engine, [newjob.from_fields(schedule.fields_of(one, moment))], [id])
        except Duplicate:  # somebody took its unique key in this very moment: all of it again
            raise
        except (InvalidInput, Conflict) as error:  # nothing was written yet
            return self._record(tx, one, moment, "skipped", reason=str(error))
        if left_out:
            return self._record(tx, one, moment, "skipped", reason=f'job "{left_out[0]}" has its unique key')
        late = tx.now - moment
        reason = f"made up for, {times.span(late / 1000)} late" if late > schedule.LATE else None
        return self._record(tx, one, moment, "enqueued", job=id, reason=reason)

    def _record(
        self,
        tx: Transaction,
        one: Schedule,
        moment: int,
        outcome: str,
        job: str | None = None,
        reason: str | None = None,
        n: int = 0,
    ) -> None:
        row = {"schedule": one.name, "moment": moment, "n": n, "outcome": outcome, "job": job, "reason": reason}
        tx.run(sql.RECORD_FIRING, row)

    # -- the operator's side -----------------------------------------------------------------------------

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
        self._engine.announce()
        return new

    def remove(self, names: Sequence[str]) -> None:
        """Forget all of these schedules or none; their jobs stay."""
        with self._engine.write() as tx:
            for name in sorted(set(names)):
                self._locked(tx, name)
            for name in set(names):
                tx.run(sql.REMOVE_SCHEDULE, {"name": name})
            self._store.audit(tx, "schedule", sorted(set(names)), "removed")
        self._engine.announce()

    def pause(self, names: Sequence[str], paused: bool) -> list[Schedule]:
        """Let these schedules rest, or go on: with their next firing, not with those that came meanwhile."""
        changed = []
        with self._engine.write() as tx:
            for name in sorted(set(names)):  # in one order, so that nobody waits for somebody who waits for him
                found = self._locked(tx, name)
                if found.paused != paused:
                    found = self._fired(tx, found) if paused else schedule.with_next(found, tx.now)
                    found = replace(found, paused=paused)
                    tx.run(sql.PAUSE_SCHEDULE, {"name": name, "paused": paused, "next_at": found.next_at})
                changed.append(found)
            self._store.audit(tx, "schedule", sorted(set(names)), "paused" if paused else "resumed")
        self._engine.announce()
        return changed

    def trigger(self, name: str) -> str:
        """Enqueue a schedule's job now, whatever the time and whatever runs; the job's id."""
        with self._engine.write() as tx:
            found = self._locked(tx, name)
            [(last,)] = tx.rows(sql.LAST_TRIGGER, {"name": name, "now": tx.now})
            id = newjob.new_id()
            left_out = intake.insert(tx, self._engine, [newjob.from_fields(schedule.fields_of(found, tx.now))], [id])
            if left_out:
                hint = f"wait for it: queuectl wait {left_out[0]}"
                raise Conflict(f'job "{left_out[0]}" has the unique key of its jobs', hint)
            self._take(tx, found, tx.now, last + 1)
            self._record(tx, found, tx.now, "triggered", id, n=last + 1)
            self._store.audit(tx, "schedule", [name], f"triggered: {id}")
        self._engine.announce()
        return id

    def _locked(self, tx: Transaction, name: str) -> Schedule:
        rows = tx.rows(sql.LOCK_SCHEDULE, {"name": newjob.text("schedule", name)})
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
            return [(one, next(iter(self._firings(tx, one.name, 1)), None)) for one in found]

    def get(self, name: str) -> Schedule:
        with self._engine.read() as tx:
            rows = tx.rows(sql.GET_SCHEDULE, {"name": newjob.text("schedule", name)})
            if not rows:
                raise self._unknown(tx, name)
        return _schedule(rows[0])

    def firings(self, name: str, limit: int = KEPT) -> list[Firing]:
        """Its last firings, the newest first."""
        with self._engine.read() as tx:
            return self._firings(tx, name, limit)

    def _firings(self, tx: Transaction, name: str, limit: int) -> list[Firing]:
        return [Firing(*row) for row in tx.rows(sql.LAST_FIRINGS, {"name": name, "limit": limit})]


def _schedule(row: Row) -> Schedule:
    name, cron, every_ms, zone, job, overlap, missed, paused, created_at, next_at = row
    return Schedule(name, cron, every_ms, zone, json.loads(job), overlap, missed, bool(paused), created_at, next_at)


def _row(new: Schedule) -> dict[str, Any]:
    return {name: getattr(new, name) for name in sql.SCHEDULE_FIELDS} | {"job": json.dumps(new.job)}
