"""A job's log as people should see it: with marks for the runs that printed nothing and left no trace in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from queuectl.jobs import log_files
from queuectl.jobs.lifecycle import State, outcome_label
from queuectl.jobs.model import Event
from queuectl.system.times import iso

_START = re.compile(rb"^--- START (\S+) attempt=", re.MULTILINE)


def transcript(history: Sequence[Event], printed: bytes) -> bytes:
    """All runs in their order; `printed` is the whole log file."""
    return b"".join(part for _, part in parts(history, printed))


def before_this_run(history: Sequence[Event]) -> Sequence[Event]:
    """Return the history without the run in progress, whose marks are still to come.

    Decided by the history alone: the job may have been read before that run was claimed, or before it ended.
    """
    for event in reversed(history):
        if event.state != State.PROCESSING:
            break
        if event.kind == "started":
            return [other for other in history if other.run != event.run]
    return history


def parts(history: Sequence[Event], printed: bytes) -> list[tuple[bool, bytes]]:
    """The same, part by part: of a run that printed nothing, or as it stands in the file?"""
    silent = dict(_marks(history))
    # A job may print what looks like a mark; only the first of each of its runs is one.
    starts = [match for match in _START.finditer(printed) if silent.pop(match[1].decode("ascii", "replace"), None)]
    found = {"": printed[: starts[0].start()] if starts else printed}
    for match, after in zip(starts, [*starts[1:], None], strict=True) if starts else ():
        found[match[1].decode()] = printed[match.start() : after.start() if after else None]
    return [(moment in silent, part) for moment, part in sorted((found | silent).items())]


def _marks(history: Sequence[Event]) -> Iterator[tuple[str, bytes]]:
    """The moment each run started, and what its log would hold if it printed nothing."""
    attempt = 1
    started: Event | None = None
    for event in history:
        if event.kind == "started":
            if started:
                yield _mark(started, attempt, None)
            started = event
        elif started and event.run == started.run and event.duration_ms is not None:
            yield _mark(started, attempt, event)
            attempt += event.state in (State.FAILED, State.DEAD)
            started = None
        elif event.kind == "retried":
            attempt = 1
    if started:
        yield _mark(started, attempt, None)


def _mark(start: Event, attempt: int, end: Event | None) -> tuple[str, bytes]:
    marks = log_files.start_mark(start.at, attempt, start.worker_id or "?")
    if end is not None:
        label = outcome_label(end.outcome, end.exit_code, end.signal)
        marks += log_files.end_mark(end.at, label, end.duration_ms or 0)
    return iso(start.at) or "", marks
