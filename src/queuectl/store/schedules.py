"""Schedules in the store. They need no leader: any worker fires what is due, and a firing is a row that only one of
them can write, in the transaction that enqueues its job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from queuectl import newjob, schedule
from queuectl.errors import Conflict, Duplicate, InvalidInput, NotFound, QueuectlError, did_you_mean
from queuectl.schedule import Firing, Schedule
from queuectl.store import statements as sql

if TYPE_CHECKING:
    from queuectl.store.engine import Row, Transaction
    from queuectl.store.store import Store

AT_ONCE = 100  # schedules that one transaction fires
KEPT = 100  # firings of a schedule that are remembered


class Schedules:
    """All that happens to schedules, and what there is to know of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._engine = store.engine

    # -- the worker's side -------------------------------------------------------------------------------

    def fire(self) -> bool:
        """Enqueue what schedules want by now; did any fire? What another worker is firing just now is left to it."""
        fired = False
        with self._engine.write() as tx:
            for row in tx.rows(sql.LOCK_DUE, {"now": tx.now, "limit": AT_ONCE}):
                self._fire(tx, _schedule(row))
                fired = True
        if fired:
            self._engine.announce()
        return fired

    def _fire(self, tx: Transaction, due: Schedule) -> None:
        try:
            now = schedule.due(due, tx.now)
        except InvalidInput as error:  # a zone that this machine does not know: do not try again at once
            self._record(tx, due.name, Firing(tx.now, tx.now, "skipped", None, str(error)))
            tx.run(sql.SET_NEXT, {"name": due.name, "next_at": tx.now + schedule.LATE})
            return
        if now.dropped is not None:
            self._record(tx, due.name, Firing(now.dropped, tx.now, "missed", None, "no worker was running then"))
        for moment in now.moments:
            self._record(tx, due.name, self._enqueue(tx, due, moment))
        tx.run(sql.SET_NEXT, {"name": due.name, "next_at": now.next_at})
        tx.run(sql.FORGET_FIRINGS, {"name": due.name, "kept": KEPT})

    def _enqueue(self, tx: Transaction, due: Schedule, moment: int) -> Firing:
        id = schedule.job_id(due.name, moment)
        running = tx.rows(sql.UNFINISHED_FIRING, {"name": due.name}) if due.overlap == "skip" else []
        if running:
            [(earlier, state)] = running
            return Firing(moment, tx.now, "skipped", None, f'its job "{earlier}" is still {state}')
        if tx.rows(sql.STATES_OF, {"ids": [id]}):
            return Firing(moment, tx.now, "skipped", None, f'there is a job "{id}" already')
        try:
            left_out = self._store.insert(tx, [newjob.from_fields(schedule.fields_of(due, moment))], [id])
        except Duplicate:  # somebody took its key in this very moment
            raise
        except (InvalidInput, Conflict) as error:  # a key that another job has, say; nothing was written yet
            return Firing(moment, tx.now, "skipped", None, str(error))
        if left_out:
            return Firing(moment, tx.now, "skipped", None, f'job "{left_out[0]}" has its key')
        return Firing(moment, tx.now, "enqueued", id, None)

    def _record(self, tx: Transaction, name: str, firing: Firing) -> None:
        row = firing._asdict()
        del row["job_state"]
        tx.run(sql.RECORD_FIRING, {"schedule": name, **row})

    # -- the operator's side -----------------------------------------------------------------------------

    def add(self, new: Schedule, replace_it: bool = False) -> Schedule:
        """Keep a schedule; refused if there is one of this name, unless it is to be replaced."""
        with self._engine.write() as tx:
            if replace_it:
                tx.run(sql.REMOVE_SCHEDULE, {"name": new.name})
            if not tx.run(sql.ADD_SCHEDULE, _row(new)):
                hint = "choose another name, or give --replace"
                raise Conflict(f'there is a schedule "{new.name}" already', hint)
        self._engine.announce()
        return new

    def make(self, name: str, when: str | None, every: float | None, zone: str, **rest: Any) -> Schedule:
        """A new schedule, which begins now by the database's clock."""
        with self._engine.read() as tx:
            return schedule.make(name, when, every, zone, now=tx.now, **rest)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these schedules; their jobs stay."""
        with self._engine.write() as tx:
            for name in names:
                self._locked(tx, name)
                tx.run(sql.REMOVE_SCHEDULE, {"name": name})
        self._engine.announce()

    def pause(self, names: Sequence[str], paused: bool) -> list[Schedule]:
        """Let these schedules rest, or go on: with their next firing, not with those that came meanwhile."""
        changed = []
        with self._engine.write() as tx:
            for name in names:
                found = self._locked(tx, name)
                if found.paused != paused:
                    found = replace(schedule.with_next(found, tx.now), paused=paused)
                    tx.run(sql.PAUSE_SCHEDULE, {"name": name, "paused": paused, "next_at": found.next_at})
                changed.append(found)
        self._engine.announce()
        return changed

    def trigger(self, name: str) -> str:
        """Enqueue a schedule's job now, whatever the time and whatever runs; the job's id."""
        with self._engine.write() as tx:
            found = self._locked(tx, name)
            [(taken,)] = tx.rows(sql.LAST_MOMENT, {"name": name, "now": tx.now})
            moment = tx.now if taken is None else taken + 1
            id = newjob.new_id()
            left_out = self._store.insert(tx, [newjob.from_fields(schedule.fields_of(found, moment))], [id])
            if left_out:
                raise Conflict(
                    f'job "{left_out[0]}" has the key of its jobs', f"wait for it: queuectl wait {left_out[0]}"
                )
            self._record(tx, name, Firing(moment, tx.now, "triggered", id, None))
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
