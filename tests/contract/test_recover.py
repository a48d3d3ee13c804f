"""Runs lost with their worker: put back by whoever notices, and never taken from the living."""

from __future__ import annotations

import os
import resource
from dataclasses import replace

import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Settlement
from queuectl.jobs.model import Claim
from queuectl.store import Store
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, Hire, enqueue, snapshot


def recovered(store: Store, worker: str) -> list[tuple[Claim, Settlement]]:
    found = store.recover(worker)
    assert found is not None
    return [(claim, end) for claim, end, _ in found[1]]


def recover_all(store: Store) -> list[str]:
    """What a new worker does first; the ids of the jobs it put back."""
    return [claim.id for worker in store.lost_workers() for claim, _ in recovered(store, worker)]


def crash(store: Store, worker: FakeWorker) -> None:
    worker.claim_one()
    worker.die()
    recover_all(store)


def test_a_lost_run_is_put_back_due_at_once_and_counts_as_a_crash(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store)
    first = hire("first")
    first.claim_one()
    running = store.views.job(id)
    clock.advance(7)
    first.die()
    assert recover_all(store) == [id]
    error = "worker lost: first died while running it"
    assert store.views.job(id) == replace(
        running,
        state="pending",
        crashes=1,
        run_at=clock.now,
        updated_at=clock.now,
        error=error,
        duration_ms=7000,
        outcome="lost",
    )
    assert store.views.history(id)[-1].reason == f"{error}; put back"
    assert hire("second").claim_one().run == 2


def test_the_lost_worker_is_struck_off_and_what_it_held_is_told(store: Store, hire: Hire) -> None:
    ids = store.enqueue([NewJob("true")] * 3)
    worker = hire()
    claims = worker.claim(2)
    assert store.lost_workers() == {}
    worker.die()
    assert store.lost_workers() == {"w1": claims}
    assert recover_all(store) == ids[:2]
    assert store.lost_workers() == {}
    assert store.views.workers() == []


def test_an_idle_worker_that_died_is_struck_off_too(store: Store, hire: Hire) -> None:
    hire().die()
    assert store.lost_workers() == {"w1": []}
    assert store.recover("w1") == (None, [])
    assert store.views.workers() == []


def test_a_worker_that_left_in_good_order_is_not_lost(store: Store, hire: Hire) -> None:
    worker = hire()
    worker.leave()
    store.unregister(worker.id)
    assert store.lost_workers() == {}


def test_at_the_crash_limit_the_job_is_dead_with_a_clear_reason(store: Store, hire: Hire) -> None:
    store.set_config("crash_limit", "2")
    id = enqueue(store)
    crash(store, hire("a"))
    crash(store, hire("b"))
    job = store.views.job(id)
    assert (job.state, job.crashes, job.attempts) == ("dead", 2, 0)
    assert store.views.history(id)[-1].reason == "worker lost: b died while running it; lost 2 times, the limit"


def test_crashes_and_attempts_are_budgets_of_their_own(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store, max_retries=2)
    crash(store, hire("a"))
    crash(store, hire("b"))
    hire("c").work_off(Exited(1))
    clock.advance(60)
    assert (store.views.job(id).attempts, store.views.job(id).crashes) == (1, 2)
    hire("d").work_off(Exited(0))
    assert store.views.job(id).state == "completed"


def test_a_job_whose_cancellation_was_asked_for_is_cancelled_and_not_run_again(store: Store, hire: Hire) -> None:
    id = enqueue(store)
    worker = hire()
    worker.claim_one()
    store.cancel([id])
    worker.die()
    recover_all(store)
    job = store.views.job(id)
    assert (job.state, job.crashes, job.cancel_requested) == ("cancelled", 0, False)
    assert hire("second").claim() == []


@pytest.mark.parametrize("hours", [0, 3, 24 * 365])
def test_a_living_workers_job_is_never_taken_however_long_it_runs(
    store: Store, hire: Hire, clock: Clock, hours: int
) -> None:
    id = enqueue(store)
    worker = hire()
    claim = worker.claim_one()
    clock.advance(hours * 3600)
    assert store.lost_workers() == {}
    assert recover_all(store) == []
    assert store.views.job(id).state == "processing"
    assert worker.settle(claim)


def test_the_dead_do_not_drag_the_living_along(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true", id="a"), NewJob("true", id="b")])
    living, dead = hire("living"), hire("dead")
    living.claim_one()
    dead.claim_one()
    dead.die()
    assert recover_all(store) == ["b"]
    assert store.views.job("a").state == "processing"


def test_a_living_worker_whose_bell_somebody_removed_keeps_its_job(store: Store, hire: Hire) -> None:
    enqueue(store)
    worker = hire()
    claim = worker.claim_one()
    os.unlink(os.path.join(store.engine.run_dir, worker.id))
    assert store.lost_workers() == {}
    assert store.views.workers()[0].alive
    assert worker.settle(claim)


def test_a_process_without_descriptors_takes_nobody_for_dead(store: Store, hire: Hire) -> None:
    enqueue(store)
    hire().claim_one()
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        lost = store.lost_workers()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
    assert lost == {}


def test_a_run_of_a_worker_that_never_came_to_register_is_put_back(store: Store, hire: Hire) -> None:
    id = enqueue(store)
    worker = hire("ghost")
    worker.claim_one()
    store.unregister("ghost")
    worker.die()
    assert list(store.lost_workers()) == ["ghost"]
    assert recover_all(store) == [id]


def test_one_that_has_shown_itself_is_left_alone(store: Store, hire: Hire) -> None:
    enqueue(store)
    hire().claim_one()
    before = snapshot(store)
    assert store.recover("w1") is None
    assert snapshot(store) == before


def test_recovering_twice_changes_nothing_more(store: Store, hire: Hire) -> None:
    enqueue(store)
    worker = hire()
    worker.claim_one()
    worker.die()
    recover_all(store)
    before = snapshot(store)
    assert store.recover("w1") == (None, [])
    assert snapshot(store) == before


def test_two_that_notice_at_once_put_it_back_once(store: Store, other_store: Store, hire: Hire) -> None:
    id = enqueue(store)
    worker = hire()
    worker.claim_one()
    worker.die()
    seen_by_both = (store.lost_workers(), other_store.lost_workers())
    assert len(recovered(store, "w1")) == 1
    hire("w2").claim_one()
    assert seen_by_both[1].keys() == {"w1"}
    assert other_store.recover("w1") == (None, [])  # acting on what it saw before
    job = store.views.job(id)
    assert (job.state, job.worker_id, job.crashes) == ("processing", "w2", 1)


def test_a_worker_that_was_given_up_learns_it_and_cannot_settle(store: Store, hire: Hire) -> None:
    enqueue(store)
    worker = hire()
    claim = worker.claim_one()
    worker.die()
    store.recover("w1")
    assert store.heartbeat("w1") is None
    tick = store.tick("w1", slots=1)
    assert (tick.given_up, tick.stop, tick.claims) == (True, "now", [])
    assert worker.settle(claim) is False


def test_a_clock_that_jumped_back_makes_no_negative_duration(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store)
    worker = hire()
    worker.claim_one()
    worker.die()
    clock.advance(-3600)
    recover_all(store)
    assert store.views.job(id).duration_ms == 0
