"""A run that is no longer its worker's cannot touch the job."""

from __future__ import annotations

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Cancelled, Exited, after_run
from queuectl.jobs.model import Claim
from queuectl.store import Store
from tests.contract.conftest import FakeWorker, Hire, enqueue, settle, snapshot


def settled(store: Store, worker: FakeWorker, claim: Claim) -> bool:
    return settle(store, worker.id, claim, after_run(claim, Exited(0), store.config(), 0))


def test_a_worker_that_lost_its_claim_cannot_settle(store: Store, hire: Hire) -> None:
    [id] = store.enqueue([NewJob("true")])
    first, second = hire("first"), hire("second")
    late = first.claim_one()
    first.die()
    store.recover("first")
    second.claim_one()
    assert settled(store, first, late) is False
    assert store.views.job(id).state == "processing"
    assert "late result of run 1 refused" in store.views.history(id)[-1].reason


def test_a_late_settle_of_a_cancelled_run_is_not_taken_for_a_repetition_of_its_recovery(
    store: Store, hire: Hire
) -> None:
    id = enqueue(store)
    worker = hire("first")
    late = worker.claim_one()
    store.cancel([id])
    worker.die()
    store.recover("first")
    assert settle(store, "first", late, after_run(late, Cancelled(), store.config(), 0)) is False
    assert "late result of run 1 refused" in store.views.history(id)[-1].reason


def test_a_claim_settles_once_however_often_it_is_said(store: Store, hire: Hire) -> None:
    """The answer to a commit may be lost on its way: a worker then says the same again."""
    [id] = store.enqueue([NewJob("true")])
    owner = hire()
    claim = owner.claim_one()
    assert settled(store, owner, claim) is True
    before = snapshot(store)
    assert settled(store, owner, claim) is True
    assert snapshot(store) == before
    assert [event.reason for event in store.views.history(id)] == ["enqueued", "started", "exit code 0"]


def test_a_claim_does_not_settle_twice_in_different_ways(store: Store, hire: Hire) -> None:
    enqueue(store)
    owner = hire()
    claim = owner.claim_one()
    assert owner.settle(claim) is True
    assert owner.settle(claim, Exited(1)) is False
    assert store.views.job(claim.id).state == "completed"
