"""Sorting dead jobs: which of them died of the same thing, and which are meant by a condition. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs.lifecycle import NotStarted, signal_label
from queuectl.jobs.model import Job
from queuectl.system import times

# What differs from job to job though the cause is the same: numbers, addresses, ids.
_VARIABLE = re.compile(r"0x[0-9a-f]+|\b(?=[0-9a-f-]*\d)[0-9a-f]{8}[0-9a-f-]*\b|\d+", re.IGNORECASE)
_LONGEST = 160
GROUPED = 2_000  # of the newest, for who looks from afar: there may be millions
EXAMPLE = "for example --where exit=1 --where queue=mail"


@dataclass(frozen=True, slots=True)
class Group:
    """Dead jobs that died of the same thing."""

    name: str
    cause: str
    jobs: tuple[Job, ...]  # the newest first

    def as_json(self) -> dict[str, object]:
        moments = [job.finished_at or 0 for job in self.jobs]
        return {
            "group": self.name,
            "cause": self.cause,
            "count": len(self.jobs),
            "example": self.jobs[0].id,
            "oldest": times.iso(min(moments)),
            "newest": times.iso(max(moments)),
        }


def cause_of(job: Job) -> str:
    """Why it died, without what is its own: its error, and the last line it printed to standard error."""
    last = _last_line(job)
    return f"{job.error or 'no error'}{f': {last}' if last else ''}"[:_LONGEST]


def _last_line(job: Job) -> str:
    lines = [line.strip() for line in (job.stderr or "").splitlines() if line.strip()]
    return _VARIABLE.sub("#", lines[-1].replace(job.id, "#")) if lines else ""


def name_of(job: Job) -> str:
    """A short name for its cause, the same wherever and whenever it is asked for."""
    # Why it could not be started is known by the system's message alone.
    detail = job.error if job.outcome == NotStarted.kind else ""
    cause = f"{job.outcome} {job.exit_code} {job.signal} {detail} {_last_line(job)[:_LONGEST]}"
    return hashlib.sha256(cause.encode()).hexdigest()[:8]


def groups(jobs: Iterable[Job]) -> list[Group]:
    """The largest first."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(name_of(job), []).append(job)
    sorted_ones = sorted(found.items(), key=lambda item: -len(item[1]))
    return [Group(name, cause_of(members[0]), tuple(members)) for name, members in sorted_ones]


def matching(conditions: Sequence[str], now: int) -> Callable[[Job], bool]:
    """Does a job fit all of these `key=value` conditions?"""
    tests = [_condition(text, now) for text in conditions]
    return lambda job: all(test(job) for test in tests)


def _condition(text: str, now: int) -> Callable[[Job], bool]:
    key, equals, value = text.partition("=")
    if not equals or not value:
        raise InvalidInput(f'"{text}" is no condition', EXAMPLE)
    match key:
        case "queue":
            return lambda job: job.queue == value
        case "tag":
            return lambda job: value in job.tags
        case "group":
            return lambda job: name_of(job) == value
        case "exit":
            return lambda job: str(job.exit_code) == value
        case "signal":
            names = {value, value.upper(), f"SIG{value.upper()}"}
            return lambda job: (
                job.signal is not None and not names.isdisjoint({str(job.signal), signal_label(job.signal)})
            )
        case "error":
            return lambda job: value.lower() in f"{job.error}\n{job.stderr}".lower()
        case "command":
            return lambda job: value in job.command
        case "since":
            earliest = now - round(times.parse_duration(value) * 1000)
            return lambda job: (job.finished_at or 0) >= earliest
    keys = ["queue", "tag", "group", "exit", "signal", "error", "command", "since"]
    raise InvalidInput(f'there is no condition "{key}"', did_you_mean(key, keys))


def spacing(rate: str) -> float:
    """Seconds between two starts, from `10/1m`: so many in so long."""
    count, slash, span = rate.partition("/")
    if not slash or not count.isascii() or not count.isdigit() or int(count[:9]) < 1:
        raise InvalidInput(f'"{rate}" is no rate', "write how many in how long, for example 10/1m")
    seconds = times.parse_duration(f"1{span}" if span.isalpha() else span)
    if not seconds:
        raise InvalidInput(f'"{rate}" is no rate: so many in no time', "for example 10/1m")
    return seconds / int(count)
