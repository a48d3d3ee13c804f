"""What a schedule is, and which of its firings are to happen. Pure; the store applies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs import job_spec
from queuectl.schedules.cron import Every, Plan, between, firings, known_zone, parse
from queuectl.system.times import LONGEST_DELAY, iso

OVERLAP_WORDS = {
    "skip": "no new job while the last one has not finished",
    "queue": "a new job, whatever has become of the last one",
}
MISSED_WORDS = {
    "latest": "if no worker ran, only the last firing is made up for",
    "all": "if no worker ran, all firings are made up for",
    "skip": "if no worker ran, nothing is made up for",
}
OVERLAPS = tuple(OVERLAP_WORDS)
MISSED = tuple(MISSED_WORDS)
LATE = 60_000  # milliseconds: what is no later than this was not missed, it only waited for a worker
MADE_UP_AT_ONCE = 100
LONGEST_NAME = 100  # with a moment behind it, it is the id of a job
SHORTEST = 1000
NOT_FOR_A_SCHEDULE = ("id", "run_at", "depends_on", "max_fails")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A command that is enqueued again and again."""

    name: str
    cron: str | None  # either this
    every_ms: int | None  # or this
    zone: str
    job: Mapping[str, Any]  # the fields of its jobs
    overlap: str
    missed: str
    paused: bool
    created_at: int
    next_at: int | None

    @property
    def plan(self) -> Plan:
        if self.cron is not None:
            return parse(self.cron, self.zone)
        assert self.every_ms is not None
        return Every(self.created_at, self.every_ms)

    def coming(self, count: int) -> list[int]:
        """Its next firings."""
        return [] if self.paused or self.next_at is None else firings(self.plan, self.next_at - 1, count)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "cron": self.cron,
            "every_seconds": None if self.every_ms is None else self.every_ms / 1000,
            "zone": self.zone,
            "job": dict(self.job),
            "overlap": self.overlap,
            "missed": self.missed,
            "paused": self.paused,
            "created_at": iso(self.created_at),
            "next_at": iso(self.next_at),
        }


class Firing(NamedTuple):
    """What became of one."""

    moment: int
    at: int
    outcome: str
    job: str | None
    reason: str | None
    job_state: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "moment": iso(self.moment), "at": iso(self.at)}


class Due(NamedTuple):
    """Which firings of a schedule happen now."""

    moments: list[int]
    dropped: int | None  # the first of those that were missed and are given up
    next_at: int | None


def make(
    name: str,
    when: str | None,
    every: float | None,
    zone: str,
    fields: Mapping[str, Any],
    now: int,
    overlap: str | None = None,
    missed: str | None = None,
) -> Schedule:
    """A valid schedule that begins now."""
    if (when is None) == (every is None):
        raise InvalidInput("say when, or how often", "give a cron expression in quotes, or --every 10m")
    if every is not None and not SHORTEST <= every * 1000 <= LONGEST_DELAY * 1000:
        raise InvalidInput("an interval is at least a second and at most 100 years", 'write "10s", "5m" or "1h"')
    known_zone(zone)
    if len(job_spec.name("schedule", name)) > LONGEST_NAME:
        raise InvalidInput(f'"{name[:20]}…" is too long for a schedule', f"use {LONGEST_NAME} characters at most")
    for field in NOT_FOR_A_SCHEDULE:
        if fields.get(field) is not None:
            raise InvalidInput(f'a schedule\'s jobs cannot have "{field}"', "leave it out")
    job_spec.from_fields(fields)
    missed = _one_of("missed", "latest" if missed is None else missed, MISSED)
    schedule = Schedule(
        name=name,
        cron=when,
        every_ms=None if every is None else round(every * 1000),
        zone=zone,
        job=dict(fields),
        overlap=_one_of(
            "overlap", ("queue" if missed == "all" else "skip") if overlap is None else overlap, OVERLAPS
        ),
        missed=missed,
        paused=False,
        created_at=now,
        next_at=now,
    )
    return with_next(schedule, now)


def in_place_of(old: Schedule, new: Schedule) -> Schedule:
    """The new one, going on where the old one was: it stays paused, and if its moments are the same keeps count."""
    same = (old.cron, old.every_ms, old.zone) == (new.cron, new.every_ms, new.zone)
    kept = old if same else new
    return replace(new, paused=old.paused, created_at=kept.created_at, next_at=kept.next_at)


def with_next(schedule: Schedule, now: int) -> Schedule:
    """The same, with its next firing after this moment; never one before what it had in mind."""
    meant = schedule.created_at if schedule.next_at is None else schedule.next_at - 1
    return replace(schedule, next_at=schedule.plan.after(max(now, meant)))


def _one_of(what: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidInput(f'"{value}" is no choice for "{what}"', did_you_mean(value, list(choices)))
    return value


def due(schedule: Schedule, now: int) -> Due:
    """Which firings happen, of those that have come since the last time somebody looked."""
    first = schedule.next_at
    if first is None or first > now:
        return Due([], None, first)
    plan = schedule.plan
    if schedule.missed == "all":
        moments = between(plan, first - 1, now, MADE_UP_AT_ONCE)
        return Due(moments, None, plan.after(moments[-1]) if moments else plan.after(now))
    moments = between(plan, max(first, now - LATE) - 1, now, MADE_UP_AT_ONCE)
    if schedule.missed == "latest" and not moments:
        moments = [_latest(plan, first, now)]
    given_up = first < now - LATE and first not in moments
    return Due(moments, first if given_up else None, plan.after(max([now, *moments])))


def _latest(plan: Plan, first: int, now: int) -> int:
    """The last firing until now; there is one, the first."""
    found, low, high = first, first, now
    while low < high:  # there is none after `high`
        middle = (low + high + 1) // 2
        firing = plan.after(middle - 1)
        if firing is not None and firing <= now:
            found = low = firing
        else:
            high = middle - 1
    return found


def job_id(name: str, moment: int) -> str:
    """`nightly:20261115T013000Z`: nobody can enqueue the same firing twice, whatever he believes."""
    return f"{name}:{(iso(moment) or '')[:19].replace('-', '').replace(':', '')}Z"


def fields_of(schedule: Schedule, moment: int) -> dict[str, Any]:
    """The fields of the job for one firing, which can read what it is for."""
    env = {**(schedule.job.get("env") or {}), "QUEUECTL_SCHEDULE": schedule.name, "QUEUECTL_MOMENT": iso(moment)}
    return {**schedule.job, "env": env}
