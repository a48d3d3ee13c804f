"""Which ends of a run are worth another try."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.jobs.lifecycle import Exited, NotStarted, Outcome, Signalled, TimedOut
from queuectl.store import Store
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue

LATER = Exited(75)


@pytest.mark.parametrize(
    ("fields", "outcome", "state"),
    [
        ({"retry_on": [2]}, Exited(2), "failed"),
        ({"retry_on": [2]}, Exited(3), "dead"),
        ({"retry_on": [2]}, Signalled(9), "dead"),
        ({"retry_on": [2, "KILL"]}, Signalled(9), "failed"),
        ({"retry_on": ["timeout"]}, TimedOut(1), "failed"),
        ({"retry_on": [2]}, TimedOut(1), "dead"),
        ({"retry_on": [2]}, NotStarted("no folder"), "failed"),
        ({"no_retry_on": [2]}, Exited(2), "dead"),
        ({"no_retry_on": [2]}, Exited(3), "failed"),
        ({"no_retry_on": ["SIGSEGV"]}, Signalled(11), "dead"),
        ({"retry_on": [2, 3], "no_retry_on": [3]}, Exited(3), "dead"),
        ({"retry_on": [1]}, LATER, "dead"),
        ({"no_retry_on": [75]}, LATER, "dead"),
    ],
)
def test_only_what_is_worth_it_is_tried_again(
    store: Store, hire: Hire, fields: dict[str, Any], outcome: Outcome, state: str
) -> None:
    id = enqueue(store, **fields)
    hire().work_off(outcome)
    job = store.views.job(id)
    assert (job.state, job.attempts) == (state, 1)
    if state == "dead":
        assert store.views.history(id)[-1].reason.endswith("; not to be tried again")


def test_exit_code_75_puts_a_job_off_without_spending_an_attempt(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store, max_retries=1)
    worker = hire()
    for times, delay in ((1, 2), (2, 4), (3, 8)):
        worker.work_off(LATER)
        job = store.views.job(id)
        assert (job.state, job.attempts, job.snoozes, job.exit_code) == ("pending", 0, times, 75)
        assert job.run_at == clock.now + delay * 1000
        assert worker.claim() == []
        clock.advance(delay)
    worker.work_off()
    assert store.views.job(id).state == "completed"
    assert store.views.history(id)[2].reason == "exit code 75: put off for the 1. time of 20, next in 2 s"


def test_it_cannot_be_put_off_for_ever(store: Store, hire: Hire, clock: Clock) -> None:
    store.set_config("snooze_limit", "2")
    id = enqueue(store, max_retries=1)
    worker = hire()
    for _ in range(2):
        worker.work_off(LATER)
        clock.advance(60)
    worker.work_off(LATER)
    assert (store.views.job(id).state, store.views.job(id).attempts) == ("dead", 1)
    store.retry([id])
    assert store.views.job(id).snoozes == 0


def test_a_limit_of_none_makes_75_a_code_like_any_other(store: Store, hire: Hire) -> None:
    store.set_config("snooze_limit", "0")
    id = enqueue(store)
    hire().work_off(LATER)
    assert (store.views.job(id).state, store.views.job(id).attempts) == ("failed", 1)
