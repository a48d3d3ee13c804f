"""Ended runs that wait for a lock: tried in turn, a few at a time."""

from __future__ import annotations

import time

import pytest

from queuectl.errors import Locked, StoreUnavailable
from queuectl.jobs.lifecycle import COMPLETED
from queuectl.jobs.model import Report
from queuectl.worker import pending_settles
from queuectl.worker.log import Log
from queuectl.worker.pending_settles import Ended, Unsettled
from tests.unit.conftest import a_claim

NEVER = float("inf")


def ended(*seqs: int) -> list[Ended]:
    return [(a_claim(seq=seq, run=1), COMPLETED, Report()) for seq in seqs]


class Rows:
    """What a settle meets: the rows that are locked, and those it was tried for."""

    def __init__(self, *locked: int) -> None:
        self.locked = set(locked)
        self.tried: list[int] = []

    def __call__(self, run: Ended) -> None:
        self.tried.append(run[0].seq)
        if run[0].seq in self.locked:
            raise Locked("others were in the way", "try again")


@pytest.fixture
def waiting() -> Unsettled:
    return Unsettled(Log("worker", chatty=False))


def test_what_is_not_locked_is_settled_at_once_and_the_rest_again_later(waiting: Unsettled) -> None:
    assert (len(waiting), waiting.due_at) == (0, NEVER)
    waiting.add(ended(1, 2, 3))
    assert waiting.due_at <= time.monotonic()
    rows = Rows(2)
    waiting.retry(rows)
    assert (rows.tried, waiting.runs) == ([1, 2, 3], {(2, 1)})
    assert time.monotonic() < waiting.due_at < NEVER
    rows.locked.clear()
    waiting.retry(rows)
    assert (rows.tried, len(waiting), waiting.due_at) == ([1, 2, 3, 2], 0, NEVER)


def test_a_round_meets_few_locks_and_each_has_its_turn(waiting: Unsettled) -> None:
    rows = Rows(*range(12))
    waiting.add(ended(*range(12)))
    for _ in range(3):
        before = len(rows.tried)
        waiting.retry(rows)
        assert len(rows.tried) - before == pending_settles.TRIES_A_ROUND
    assert {*rows.tried} == rows.locked


def test_another_error_ends_the_round_and_loses_nothing(waiting: Unsettled) -> None:
    def away(run: Ended) -> None:
        raise StoreUnavailable("the server is away")

    waiting.add(ended(1, 2))
    with pytest.raises(StoreUnavailable):
        waiting.retry(away)
    assert waiting.runs == {(1, 1), (2, 1)}
    assert time.monotonic() < waiting.due_at < NEVER


def test_each_is_told_of_once(waiting: Unsettled, capfd: pytest.CaptureFixture[str]) -> None:
    waiting.add(ended(1))
    for _ in range(3):
        waiting.retry(Rows(1))
    assert capfd.readouterr().err.count("locked by others") == 1
