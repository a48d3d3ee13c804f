"""Cancelling and retrying: by an operator, all that were named or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.errors import Conflict, NotFound
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import (
    Cancelled,
    Exited,
    Interrupted,
    NoResources,
    NotStarted,
    Outcome,
    Signalled,
    TimedOut,
)
from queuectl.store import Store
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, Hire, enqueue, snapshot


def job_in(state: str, store: Store, worker: FakeWorker) -> str:
    """A job that has come to this state."""
    id = enqueue(store, state, max_retries=1 if state == "dead" else 3)
    if state in ("completed", "failed", "dead"):
        assert worker.work_off(Exited(0 if state == "completed" else 1)) == id
    elif state == "cancelled":
        store.cancel([id])
    elif state == "processing":
        worker.claim_one()
    assert store.views.job(id).state == state
    return id


# -- cancel ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_a_waiting_job_is_cancelled_at_once(store: Store, hire: Hire, clock: Clock, state: str) -> None:
    worker = hire()
    id = job_in(state, store, worker)
    before = store.views.job(id)
    clock.advance(1)
    assert store.cancel([id]) == {id: "cancelled"}
    assert store.views.job(id) == replace(
        before, state="cancelled", updated_at=clock.now, finished_at=clock.now, error="cancelled"
    )
    assert store.views.history(id)[-1].reason == "cancelled"
    clock.advance(3600)
    assert worker.claim() == []


def test_a_job_for_later_can_be_cancelled(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store, run_at=clock.now + 60_000)
    store.cancel([id])
    clock.advance(3600)
    assert hire().claim() == []
    assert store.views.job(id).state == "cancelled"


def test_a_running_job_is_asked_to_end_and_its_worker_hears_of_it(store: Store, hire: Hire) -> None:
    worker, other = hire("w1"), hire("w2")
    id = enqueue(store)
    claim = worker.claim_one()
    worker.hears()
    assert store.cancel([id]) == {id: "processing"}
    assert worker.hears()
    assert store.tick(worker.id).cancels == {(claim.seq, claim.run)}
    assert store.tick(other.id).cancels == set()
    assert store.views.job(id).cancel_requested
    assert store.views.history(id)[-1].reason == "cancel requested"


def test_a_running_job_is_cancelled_when_its_worker_has_ended_it(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    id = enqueue(store)
    claim = worker.claim_one()
    store.cancel([id])
    assert worker.settle(claim, Cancelled(15))
    job = store.views.job(id)
    assert (job.state, job.cancel_requested, job.signal, job.attempts) == ("cancelled", False, 15, 0)
    assert job.finished_at == clock.now
    assert store.tick(worker.id).cancels == set()


def test_a_run_that_completes_before_it_can_be_cancelled_is_completed(store: Store, hire: Hire) -> None:
    worker = hire()
    id = enqueue(store)
    claim = worker.claim_one()
    store.cancel([id])
    worker.settle(claim, Exited(0))
    job = store.views.job(id)
    assert (job.state, job.cancel_requested) == ("completed", False)


@pytest.mark.parametrize(
    "outcome",
    [Exited(1), Signalled(9), TimedOut(5), NotStarted("no folder"), Interrupted(), NoResources("no memory")],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_job_whose_cancellation_was_accepted_never_runs_again(
    store: Store, hire: Hire, clock: Clock, outcome: Outcome
) -> None:
    """However its run ended in the meantime: a failure or a shutdown would else bring it back."""
    worker = hire()
    id = enqueue(store)
    claim = worker.claim_one()
    store.cancel([id])
    worker.settle(claim, outcome)
    clock.advance(3600)
    assert worker.claim() == []
    assert store.views.job(id).state == "cancelled"


def test_asking_twice_is_asking_once(store: Store, hire: Hire) -> None:
    worker = hire()
    id = enqueue(store)
    claim = worker.claim_one()
    assert store.cancel([id]) == store.cancel([id]) == {id: "processing"}
    assert store.tick(worker.id).cancels == {(claim.seq, claim.run)}


@pytest.mark.parametrize("state", ["completed", "dead", "cancelled"])
def test_a_finished_job_cannot_be_cancelled_and_neither_are_the_others(store: Store, hire: Hire, state: str) -> None:
    worker = hire()
    finished = job_in(state, store, worker)
    running, waiting = job_in("processing", store, worker), enqueue(store)
    before = store.views.jobs()
    with pytest.raises(Conflict, match=f'"{finished}" is already {state}'):
        store.cancel([waiting, running, finished])
    assert store.views.jobs() == before


def test_a_job_that_is_not_there_cannot_be_cancelled_and_neither_are_the_others(store: Store) -> None:
    waiting = enqueue(store)
    before = snapshot(store)
    with pytest.raises(NotFound):
        store.cancel([waiting, "nobody"])
    assert snapshot(store) == before


def test_many_are_cancelled_together(store: Store, hire: Hire) -> None:
    worker = hire()
    states = {job_in(state, store, worker): state for state in ("failed", "processing", "pending")}
    assert store.cancel(list(states)) == {
        id: "processing" if state == "processing" else "cancelled" for id, state in states.items()
    }


# -- retry -----------------------------------------------------------------------------------------------


def test_a_dead_job_gets_a_new_life_due_now_with_nothing_spent(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    id = job_in("dead", store, worker)
    worker.hears()
    clock.advance(60)
    assert store.retry([id]) == [id]
    job = store.views.job(id)
    assert (job.state, job.attempts, job.crashes, job.run_at) == ("pending", 0, 0, clock.now)
    assert (job.finished_at, job.error, job.updated_at, job.run) == (None, None, clock.now, 1)
    assert worker.hears()
    claim = worker.claim_one()
    assert (claim.id, claim.run, claim.attempts) == (id, 2, 0)


def test_the_history_of_a_retried_job_goes_on(store: Store, hire: Hire) -> None:
    id = job_in("dead", store, hire())
    store.retry([id])
    assert [event.state for event in store.views.history(id)] == ["pending", "processing", "dead", "pending"]
    assert store.views.history(id)[-1].reason == "retried from the dead letter queue"


def test_all_dead_jobs_are_retried_and_no_others(store: Store, hire: Hire) -> None:
    worker = hire()
    dead = [job_in("dead", store, worker) for _ in range(3)]
    others = [job_in(state, store, worker) for state in ("completed", "cancelled", "failed")]
    before = [store.views.job(id) for id in others]
    assert store.retry() == dead
    assert [store.views.job(id) for id in others] == before
    assert store.retry() == []


@pytest.mark.parametrize("state", ["pending", "processing", "completed", "failed", "cancelled"])
def test_only_dead_jobs_can_be_retried_and_else_none_is(store: Store, hire: Hire, state: str) -> None:
    worker = hire()
    dead, other = job_in("dead", store, worker), job_in(state, store, worker)
    before = snapshot(store)
    with pytest.raises(Conflict, match=f'"{other}" is {state}, not dead'):
        store.retry([dead, other])
    assert snapshot(store) == before


def test_a_job_that_is_not_there_cannot_be_retried(store: Store) -> None:
    with pytest.raises(NotFound):
        store.retry(["nobody"])


def test_an_old_claim_cannot_settle_the_new_life(store: Store, hire: Hire) -> None:
    worker = hire()
    store.enqueue([NewJob("true", id="a", max_retries=1)])
    old = worker.claim_one()
    worker.settle(old, Exited(1))
    store.retry(["a"])
    assert worker.settle(old) is False
    worker.claim_one()
    assert worker.settle(old) is False
    assert store.views.job("a").state == "processing"
