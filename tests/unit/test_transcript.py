"""A job's log with marks for its silent runs: nothing that was printed is lost, moved or made up."""

from __future__ import annotations

from itertools import compress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.jobs import log_files
from queuectl.jobs.full_log import before_this_run, transcript
from queuectl.jobs.model import Event

NOW = 1_800_000_000_000


def event(at: int, state: str, run: int, reason: str, code: int | None = None, took: int | None = None) -> Event:
    kind = "run_ended" if took else reason.partition(" from")[0].replace(" ", "_")
    worker = None if state == "pending" else "w1"
    return Event(at, state, run, worker, kind, reason, "exited" if took else None, code, None, took)


def history(runs: int, unfinished: bool = False) -> list[Event]:
    """A job that was enqueued and ran so often, a second each; all but the last run failed."""
    events = [event(NOW, "pending", 0, "enqueued")]
    for run in range(1, runs + 1):
        events.append(event(NOW + run * 1000, "processing", run, "started"))
        last = run == runs
        if last and unfinished:
            break
        state, code = ("completed", 0) if last else ("failed", 1)
        events.append(event(NOW + run * 1000 + 500, state, run, f"exit code {code}", code, 500))
    return events


def marks(run: int, runs: int, printed: bytes = b"") -> bytes:
    """One run's part of the log."""
    start = log_files.start_mark(NOW + run * 1000, run, "w1")
    return start + printed + log_files.end_mark(NOW + run * 1000 + 500, "0" if run == runs else "1", 500)


def test_a_job_that_never_ran_has_no_log() -> None:
    assert transcript(history(0), b"") == b""


def test_a_silent_run_has_its_marks_all_the_same() -> None:
    assert transcript(history(2), b"") == marks(1, 2) + marks(2, 2)


def test_a_silent_run_that_goes_on_has_begun() -> None:
    assert transcript(history(1, unfinished=True), b"") == log_files.start_mark(NOW + 1000, 1, "w1")


def test_whoever_follows_a_log_gets_the_marks_of_the_run_in_progress_from_the_file() -> None:
    events = history(2, unfinished=True)
    requested = event(NOW + 2100, "processing", 2, "cancel requested")
    assert before_this_run(events) == before_this_run([*events, requested]) == events[:-1]
    assert before_this_run(history(2)) == history(2)


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=5))
def test_silent_and_talking_runs_stand_in_their_order(talks: list[bool]) -> None:
    runs = len(talks)
    parts = [marks(run, runs, b"hello\n" if talk else b"") for run, talk in enumerate(talks, start=1)]
    assert transcript(history(runs), b"".join(compress(parts, talks))) == b"".join(parts)


def test_attempts_count_from_one_again_after_a_retry_from_the_dead_letter_queue() -> None:
    events = [
        *history(1)[:-1],
        event(NOW + 1500, "dead", 1, "exit code 1; attempt 1 of 1 was the last", 1, 500),
        event(NOW + 1600, "pending", 1, "retried from the dead letter queue"),
        event(NOW + 2000, "processing", 2, "started"),
    ]
    assert transcript(events, b"").count(b" attempt=1 ") == 2


@pytest.mark.parametrize(
    "copied",
    [
        marks(1, 2, b"hello\n"),  # its own log so far
        b"--- START 2020-01-01T00:00:00.000Z attempt=1 worker=other ---\nfrom another job's log\n",
        b"--- START nonsense attempt=",
    ],
    ids=["its own log", "another job's log", "nonsense"],
)
def test_output_that_looks_like_a_mark_is_neither_lost_nor_moved(copied: bytes) -> None:
    printed = marks(1, 2, b"before\n" + copied + b"\nafter\n") + marks(2, 2, b"second\n")
    assert transcript(history(2), printed) == printed
