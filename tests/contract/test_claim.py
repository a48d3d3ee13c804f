"""Handing out jobs: the right ones, in the right order, each to one worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Interrupted
from queuectl.jobs.model import Report
from queuectl.queues.selection import Turns
from queuectl.store import Store
from queuectl.store.engine import Engine
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, Hire, enqueue

LATER = 60_000


def order(worker: FakeWorker, slots: int = 1) -> list[str]:
    """The ids as they are handed out, until there are no more."""
    ids: list[str] = []
    while claims := worker.claim(slots):
        ids += [claim.id for claim in claims]
    return ids


@pytest.mark.parametrize("slots", [1, 3, 100])
def test_the_highest_priority_goes_first_and_then_the_oldest(store: Store, hire: Hire, slots: int) -> None:
    for id, priority in (("low1", -1), ("mid1", 0), ("high1", 5), ("mid2", 0), ("high2", 5), ("low2", -1)):
        enqueue(store, id=id, priority=priority)
    assert order(hire(), slots) == ["high1", "high2", "mid1", "mid2", "low1", "low2"]


@pytest.mark.parametrize("slots", [1, 2, 100])
def test_queues_are_served_together_by_priority_and_age(store: Store, hire: Hire, slots: int) -> None:
    for id, queue, priority in (("a1", "a", 0), ("b1", "b", 0), ("c1", "c", 9), ("a2", "a", 9), ("b2", "b", 0)):
        enqueue(store, id=id, queue=queue, priority=priority)
    assert order(hire(), slots) == ["c1", "a2", "a1", "b1", "b2"]


def test_a_bound_worker_takes_from_its_queues_only(store: Store, hire: Hire) -> None:
    for id, queue in (("a1", "a"), ("b1", "b"), ("c1", "c"), ("a2", "a"), ("d1", "default")):
        enqueue(store, id=id, queue=queue)
    assert order(hire("bound", queues=("c", "a", "none"))) == ["a1", "c1", "a2"]
    assert order(hire("free")) == ["b1", "d1"]


def test_no_more_are_handed_out_than_there_are_slots(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true")] * 10)
    worker = hire()
    assert worker.claim(0) == []
    assert len(worker.claim(3)) == 3
    assert len(worker.claim(100)) == 7
    assert worker.claim(100) == []


def test_a_claim_tells_all_that_running_it_takes(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, "echo hi", id="a", queue="mail", cwd="/tmp", env={"A": "1"}, timeout_seconds=5, max_retries=4)
    clock.advance(10)
    claim = hire().claim_one()
    assert (claim.id, claim.run, claim.command, claim.queue) == ("a", 1, "echo hi", "mail")
    assert (claim.attempts, claim.crashes, claim.max_retries, claim.backoff_base) == (0, 0, 4, 2)
    assert (claim.timeout_seconds, claim.cwd, claim.env, claim.started_at) == (5, "/tmp", '{"A": "1"}', clock.now)


def test_a_claimed_job_is_processing_and_says_by_whom(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store)
    clock.advance(10)
    hire("w7").claim_one()
    job = store.views.job(id)
    assert (job.state, job.worker_id, job.run, job.attempts) == ("processing", "w7", 1, 0)
    assert job.started_at == job.updated_at == clock.now
    event = store.views.history(id)[-1]
    assert (event.state, event.run, event.worker_id, event.reason, event.at) == (
        "processing", 1, "w7", "started", clock.now,
    )  # fmt: skip


def test_a_new_run_forgets_how_the_last_one_ended(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store)
    worker = hire()
    worker.settle(worker.claim_one(), Exited(3), Report(500, "out", "err", 1, 1))
    clock.advance(60)
    claim = worker.claim_one()
    job = store.views.job(id)
    assert (claim.run, claim.attempts) == (2, 1)
    assert (job.duration_ms, job.exit_code, job.signal, job.error, job.stdout, job.stderr) == (None,) * 6


def test_a_job_for_later_is_not_handed_out_before_its_time(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, id="later", priority=100, run_at=clock.now + LATER)
    enqueue(store, id="now")
    worker = hire()
    assert order(worker) == ["now"]
    clock.now += LATER - 1
    assert order(worker) == []
    clock.now += 1
    assert order(worker) == ["later"]


def test_a_job_that_has_become_due_takes_its_place_by_priority_and_age(
    store: Store, hire: Hire, clock: Clock
) -> None:
    enqueue(store, id="old", run_at=clock.now + LATER)
    enqueue(store, id="young")
    enqueue(store, id="urgent", priority=1, run_at=clock.now + LATER)
    clock.now += LATER
    assert order(hire()) == ["urgent", "old", "young"]


def test_a_retried_job_keeps_its_age(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, id="failing")
    worker = hire()
    worker.work_off(Exited(1))
    enqueue(store, id="young")
    clock.advance(60)
    assert order(worker) == ["failing", "young"]


def test_a_failed_job_waits_for_its_delay(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, backoff_base=10)
    worker = hire()
    worker.work_off(Exited(1))
    clock.advance(9.999)
    assert worker.claim() == []
    clock.advance(0.001)
    assert worker.claim()


def test_a_job_put_back_is_due_at_once(store: Store, hire: Hire) -> None:
    enqueue(store)
    worker = hire()
    worker.work_off(Interrupted())
    assert worker.claim_one().run == 2


def test_thousands_that_become_due_together_are_all_handed_out(store: Store, hire: Hire, clock: Clock) -> None:
    ids = store.enqueue([NewJob("true", run_at=clock.now + LATER, queue=f"q{n % 3}") for n in range(2500)])
    worker = hire()
    assert worker.claim(5000) == []
    clock.now += LATER
    assert sorted(order(worker, slots=5000)) == sorted(ids)


def test_a_bound_worker_is_not_cut_off_by_a_flood_in_other_queues(store: Store, hire: Hire, clock: Clock) -> None:
    store.enqueue([NewJob("true", run_at=clock.now + 1, queue="flood") for _ in range(2500)])
    enqueue(store, id="mine", queue="mail", run_at=clock.now + 2)
    worker = hire(queues=("mail",))
    clock.now += 2
    for _ in range(10):
        tick = store.tick(worker.id, slots=1, turns=Turns.parse(["mail"]))
        if tick.claims:
            break
        assert tick.due_in == 0  # so that it asks again at once
    assert [claim.id for claim in tick.claims] == ["mine"]


def test_a_clock_that_jumps_loses_no_job_and_repeats_none(store: Store, hire: Hire, clock: Clock) -> None:
    ids = [enqueue(store), enqueue(store, run_at=clock.now + LATER)]
    worker = hire()
    clock.advance(-3600)
    assert order(worker) == ids[:1]
    clock.advance(7200)
    assert order(worker) == ids[1:]
    clock.advance(-7200)
    assert order(worker) == []


@pytest.mark.parametrize("slots", [1, 4])
def test_two_connections_never_get_the_same_job(store: Store, other_store: Store, hire: Hire, slots: int) -> None:
    ids = store.enqueue([NewJob("true", priority=n % 3) for n in range(40)])
    hire("w1")
    hire("w2")
    taken: list[str] = []
    while claims := store.tick("w1", slots=slots).claims + other_store.tick("w2", slots=slots).claims:
        taken += [claim.id for claim in claims]
    assert sorted(taken) == sorted(ids)
    assert {job.run for job in store.views.jobs(limit=-1)} == {1}


CLAIM_ALL = """
import sys
from queuectl.store import open_store
store = open_store(sys.argv[1])
sys.stdin.readline()
while claims := store.tick(sys.argv[2], slots=2).claims:
    for claim in claims:
        print(claim.id)
"""


def test_processes_that_claim_at_the_same_time_share_the_jobs(store: Store, hire: Hire) -> None:
    ids = store.enqueue([NewJob("true") for _ in range(200)])
    workers = [hire(f"w{n}") for n in range(4)]
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM_ALL, store.engine.url, worker.id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for worker in workers
    ]
    for claimer in claimers:
        assert claimer.stdin
        claimer.stdin.write("go\n")
        claimer.stdin.flush()
    taken = [id for claimer in claimers for id in claimer.communicate(timeout=60)[0].split()]
    assert sorted(taken) == sorted(ids)


# -- what else a worker learns ---------------------------------------------------------------------------


def test_a_worker_learns_when_the_next_job_becomes_due(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    assert store.tick(worker.id, slots=1).due_in is None
    enqueue(store, run_at=clock.now + LATER)
    enqueue(store, run_at=clock.now + 2 * LATER)
    assert store.tick(worker.id, slots=1).due_in == LATER / 1000
    clock.now += LATER // 2
    assert store.tick(worker.id, slots=1).due_in == LATER / 2000


def test_a_worker_whose_slots_are_full_need_not_know_when_the_next_is_due(
    store: Store, hire: Hire, clock: Clock
) -> None:
    worker = hire()
    enqueue(store)
    enqueue(store, run_at=clock.now + LATER)
    tick = store.tick(worker.id, slots=1)
    assert len(tick.claims) == 1
    assert tick.due_in is None
    assert store.tick(worker.id, slots=0).due_in is None


def test_a_worker_sees_new_settings_with_its_next_tick(store: Store, other_store: Store, hire: Hire) -> None:
    worker = hire()
    other_store.set_config("kill_grace", "0.5")
    assert store.tick(worker.id).config["kill_grace"] == 0.5


def test_a_worker_nobody_knows_any_more_is_told_to_stop_and_gets_nothing(store: Store) -> None:
    enqueue(store)
    tick = store.tick("stranger", slots=1)
    assert tick.stop == "now"
    assert tick.claims == []


def test_a_reader_in_the_middle_of_its_work_does_not_hold_up_a_claim(
    store: Store, hire: Hire, open_engine: Callable[[], Engine]
) -> None:
    id = enqueue(store)
    worker = hire()
    reader = open_engine()
    with reader.read() as tx:
        before = tx.rows("SELECT state FROM jobs")
        assert worker.claim_one().id == id
        assert tx.rows("SELECT state FROM jobs") == before == [("pending",)]
    with reader.read() as tx:
        assert tx.rows("SELECT state FROM jobs") == [("processing",)]
    reader.close()
