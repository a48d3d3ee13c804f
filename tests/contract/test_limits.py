"""How many jobs of a queue or with a key run at once, and how many start in a span of time; on every engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from queuectl.errors import InvalidInput
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Interrupted
from queuectl.jobs.model import Rules
from queuectl.store import Store
from queuectl.store.engine import Engine
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, Hire, enqueue


def fill(store: Store, count: int, **fields: object) -> list[str]:
    return store.enqueue([NewJob("true", **fields) for _ in range(count)])  # type: ignore[arg-type]


# -- pausing ---------------------------------------------------------------------------------------------


def test_no_job_of_a_paused_queue_is_claimed(store: Store, hire: Hire) -> None:
    fill(store, 3, queue="mail")
    [other] = fill(store, 1)
    store.change_queue("mail", paused=True)
    worker = hire()
    assert [claim.id for claim in worker.claim(9)] == [other]
    assert hire("bound", queues=("mail",)).claim(9) == []
    worker.hears()
    store.change_queue("mail", paused=False)
    assert worker.hears(), "resuming wakes the workers"
    assert len(worker.claim(9)) == 3


def test_what_is_said_of_a_queue_no_longer_costs_when_it_is_taken_back(store: Store) -> None:
    store.change_queue("mail", paused=True, at_once=3)
    assert store.change_queue("mail", paused=False) == Rules("mail", at_once=3)
    store.change_queue("mail", at_once=None)
    assert store.views.queues() == []


# -- at once ---------------------------------------------------------------------------------------------


def test_a_queue_runs_no_more_than_its_limit_whoever_claims(store: Store, hire: Hire) -> None:
    fill(store, 9, queue="mail")
    [other] = fill(store, 1)
    store.change_queue("mail", at_once=3)
    first, second = hire("w1"), hire("w2")
    held = first.claim(2)
    assert [claim.queue for claim in held].count("mail") == 2
    assert sorted(claim.queue for claim in second.claim(9)) == ["default", "mail"]
    assert second.claim(9) == []
    assert first.settle(held[0])
    assert [claim.queue for claim in second.claim(9)] == ["mail"]
    assert store.views.job(other).state == "processing"


def test_room_that_a_worker_makes_and_does_not_use_is_announced(store: Store, hire: Hire) -> None:
    store.change_queue("mail", at_once=1)
    fill(store, 2, queue="mail")
    busy, idle = hire("w1"), hire("w2")
    claim = busy.claim_one()
    idle.hears()
    busy.settle(claim)
    assert idle.hears()


def test_a_lost_worker_makes_room(store: Store, hire: Hire) -> None:
    store.change_queue("mail", at_once=1)
    fill(store, 2, queue="mail")
    doomed, other = hire("w1"), hire("w2")
    doomed.claim_one()
    doomed.die()
    assert other.claim(1) == []
    store.recover("w1")
    assert len(other.claim(2)) == 1


def test_a_limit_can_be_changed_while_jobs_run(store: Store, hire: Hire) -> None:
    fill(store, 9, queue="mail")
    worker = hire()
    store.change_queue("mail", at_once=2)
    assert len(worker.claim(9)) == 2
    store.change_queue("mail", at_once=5)
    assert len(worker.claim(9)) == 3
    store.change_queue("mail", at_once=1)
    assert worker.claim(9) == []
    store.change_queue("mail", at_once=None)
    assert len(worker.claim(9)) == 4


# -- rates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", ["rate", "rate_ms"])
def test_half_a_rate_is_refused(store: Store, half: str) -> None:
    with pytest.raises(InvalidInput, match="a rate needs a number and a time"):
        store.change_queue("mail", paused=True, **{half: 3})
    assert store.views.queues() == []
    said = store.change_queue("mail", rate=3, rate_ms=10_000)
    with pytest.raises(InvalidInput):
        store.change_queue("mail", **{half: None})
    assert [queue.rules for queue in store.views.queues()] == [said]


def test_no_window_has_more_starts_than_the_rate(store: Store, hire: Hire, clock: Clock) -> None:
    store.change_queue("mail", rate=3, rate_ms=10_000)
    fill(store, 60, queue="mail")
    worker = hire()
    starts: list[int] = []
    while len(starts) < 60:
        claims = worker.claim(2)
        starts += [clock.now] * len(claims)
        for claim in claims:
            worker.settle(claim, Exited(0) if len(starts) % 2 else Interrupted())
        clock.advance(0.7)
    for start in starts:
        assert sum(start <= other < start + 10_000 for other in starts) <= 3
    gaps = [later - earlier for earlier, later in zip(starts, starts[3:], strict=False)]
    assert max(gaps) < 12_000, "no slower than it must"


def test_a_start_is_allowed_in_the_very_moment_in_which_the_window_is_over(
    store: Store, hire: Hire, clock: Clock
) -> None:
    store.change_queue("mail", rate=1, rate_ms=10_000)
    fill(store, 3, queue="mail")
    worker = hire()
    assert len(worker.claim(9)) == 1
    clock.advance(9.999)
    tick = store.tick(worker.id, slots=1)
    assert (tick.claims, tick.due_in) == ([], 0.001)
    clock.advance(0.001)
    assert len(worker.claim(9)) == 1


def test_a_worker_that_used_up_a_rate_knows_when_to_come_back(store: Store, hire: Hire, clock: Clock) -> None:
    store.change_queue("mail", rate=3, rate_ms=10_000)
    fill(store, 9, queue="mail")
    worker = hire()
    tick = store.tick(worker.id, slots=1)
    assert (len(tick.claims), tick.due_in) == (1, None)
    clock.advance(4)
    tick = store.tick(worker.id, slots=9)
    assert (len(tick.claims), tick.due_in) == (2, 6)
    clock.advance(6)
    assert len(store.tick(worker.id, slots=9).claims) == 1


def test_a_high_rate_is_kept_with_few_records(store: Store, hire: Hire, clock: Clock) -> None:
    store.change_queue("mail", rate=2000, rate_ms=60_000)
    fill(store, 4500, queue="mail")
    worker, starts = hire(), list[int]()
    while len(starts) < 4500:
        starts += [clock.now] * len(worker.claim(70))
        clock.advance(0.25)
    for start in sorted(set(starts)):
        assert sum(start <= other < start + 60_000 for other in starts) <= 2000
    assert starts[4000] - starts[0] < 121_000
    with store.engine.read() as tx:
        [(records,)] = tx.rows("SELECT count(*) FROM starts")
    assert records <= 1001


def test_a_rate_outlives_its_jobs_and_its_workers(store: Store, hire: Hire, clock: Clock) -> None:
    store.change_queue("mail", rate=1, rate_ms=10_000)
    fill(store, 2, queue="mail")
    doomed = hire("w1")
    doomed.claim_one()
    doomed.die()
    store.recover("w1")
    assert hire("w2").claim(9) == []
    clock.advance(10)
    assert len(hire("w3").claim(9)) == 1


def test_a_transaction_that_began_earlier_is_not_misled_by_starts_deleted_since(
    store: Store, hire: Hire, clock: Clock
) -> None:
    store.change_queue("mail", rate=2, rate_ms=10_000)
    fill(store, 6, queue="mail")
    early, late = hire("early"), hire("late")
    assert len(early.claim(9)) == 2
    clock.advance(10.5)
    fill(store, 1, priority=9)
    assert [claim.queue for claim in late.claim(1)] == ["default"], "deletes the two old starts, and adds none"
    clock.advance(-1)  # `early` began before `late`, and gets the lock of the queue after it
    assert early.claim(9) == [], "the two starts are only 9.5 s old for this one"
    clock.advance(1)
    assert len(early.claim(9)) == 2


def test_a_clock_that_was_set_back_does_not_stop_a_queue_for_long(store: Store, hire: Hire, clock: Clock) -> None:
    store.change_queue("mail", rate=1, rate_ms=10_000)
    fill(store, 3, queue="mail")
    worker = hire()
    worker.claim_one()
    clock.advance(-3600)
    assert len(worker.claim(9)) == 1


def test_a_full_queue_does_not_keep_others_waiting(store: Store, hire: Hire) -> None:
    store.change_queue("mail", rate=1, rate_ms=3_600_000)
    store.change_queue("sms", at_once=1)
    store.change_queue("fax", paused=True)
    for queue in ("fax", "mail", "sms"):
        fill(store, 50, queue=queue, priority=9)
    fill(store, 5)
    claims = hire().claim(9)
    assert Counter(claim.queue for claim in claims) == {"mail": 1, "sms": 1, "default": 5}


# -- keys ------------------------------------------------------------------------------------------------


def test_of_jobs_with_the_same_key_one_runs_at_once(store: Store, hire: Hire) -> None:
    ids = fill(store, 3, key="customer-7")
    [other] = fill(store, 1, key="customer-8")
    first, second = hire("w1"), hire("w2")
    [a, b] = first.claim(9)
    assert [a.id, b.id] == [ids[0], other]
    assert second.claim(9) == []
    first.settle(a)
    [c] = second.claim(9)
    assert c.id == ids[1]


def test_a_key_holds_in_all_queues(store: Store, hire: Hire) -> None:
    fill(store, 1, key="k", queue="a")
    fill(store, 1, key="k", queue="b")
    assert len(hire().claim(9)) == 1


@pytest.mark.parametrize("outcome", [Exited(0), Exited(1), Interrupted()], ids=["done", "failed", "put back"])
def test_whatever_ends_a_run_lets_the_next_one_with_its_key_go(store: Store, hire: Hire, outcome: object) -> None:
    fill(store, 2, key="k", max_retries=1)
    worker, idle = hire("w1"), hire("w2")
    claim = worker.claim_one()
    assert idle.claim(1) == []
    idle.hears()
    worker.settle(claim, outcome)  # type: ignore[arg-type]
    assert idle.hears()
    assert len(idle.claim(2)) == 1


def test_a_lost_run_lets_the_next_one_with_its_key_go(store: Store, hire: Hire) -> None:
    fill(store, 2, key="k")
    doomed, other = hire("w1"), hire("w2")
    doomed.claim_one()
    assert other.claim(1) == []
    doomed.die()
    store.recover("w1")
    assert len(other.claim(2)) == 1


def test_a_job_that_was_about_to_run_and_is_cancelled_lets_the_next_one_go(store: Store, hire: Hire) -> None:
    ids = fill(store, 3, key="k")
    worker = hire()
    claim = worker.claim_one()
    assert worker.claim(9) == []  # the others are put aside now
    worker.settle(claim)  # and the second is let go
    store.cancel([ids[1]])
    assert [claim.id for claim in worker.claim(9)] == [ids[2]]


def test_one_that_is_replaced_lets_the_next_one_go(store: Store, hire: Hire) -> None:
    enqueue(store, key="k", id="a")
    enqueue(store, key="k", id="b", unique_key="u")
    enqueue(store, key="k", id="c")
    worker = hire()
    claim = worker.claim_one()
    assert worker.claim(9) == []
    worker.settle(claim)
    enqueue(store, id="d", unique_key="u", on_duplicate="replace", run_at=2**45)
    assert [claim.id for claim in worker.claim(9)] == ["c"]


def test_a_batch_that_is_cancelled_lets_others_with_its_keys_go(store: Store, hire: Hire) -> None:
    enqueue(store, id="dies", batch="b", max_fails=1, max_retries=1)
    enqueue(store, id="first", key="k")
    worker = hire()
    dies, first = worker.claim(2)
    enqueue(store, id="in-batch", key="k", batch="b")
    enqueue(store, id="other", key="k")
    assert worker.claim(9) == []
    worker.settle(first)  # and the second with this key is let go
    worker.settle(dies, Exited(1))
    assert store.views.job("in-batch").state == "cancelled"
    assert [claim.id for claim in worker.claim(9)] == ["other"]


def test_a_held_job_that_is_cancelled_is_cancelled(store: Store, hire: Hire) -> None:
    ids = fill(store, 3, key="k")
    worker = hire()
    claim = worker.claim_one()
    assert worker.claim(9) == []
    store.cancel([ids[1]])
    worker.settle(claim)
    assert [claim.id for claim in worker.claim(9)] == [ids[2]]
    assert store.views.job(ids[1]).state == "cancelled"


def test_how_many_may_run_is_said_by_the_job_or_by_its_queue(store: Store, hire: Hire) -> None:
    fill(store, 9, key="mine", key_limit=4)
    fill(store, 9, key="theirs", queue="mail")
    worker = hire()
    assert Counter(claim.key for claim in worker.claim(99)) == {"mine": 4, "theirs": 1}
    store.change_queue("mail", per_key=3)
    assert Counter(claim.key for claim in worker.claim(99)) == {"theirs": 2}
    store.change_queue("mail", per_key=None)
    assert worker.claim(99) == []


def test_a_failed_job_waits_for_its_next_try_without_its_key(store: Store, hire: Hire, clock: Clock) -> None:
    first, second = fill(store, 2, key="k")
    worker = hire()
    worker.settle(worker.claim_one(), Exited(1))
    claim = worker.claim_one()
    assert claim.id == second
    clock.advance(60)
    assert worker.claim(9) == []
    worker.settle(claim)
    assert worker.claim_one().id == first


def test_jobs_of_a_busy_key_are_put_aside_once_and_in_bulk(store: Store, hire: Hire) -> None:
    fill(store, 12_000, key="k")
    last = enqueue(store, id="last")
    worker = hire()
    worker.claim_one()
    ticks = 0
    while (tick := store.tick(worker.id, slots=1)).claims == []:
        assert tick.due_in == 0, "there is more to look at"
        ticks += 1
    assert ticks <= 5
    assert tick.claims[0].id == last
    assert store.tick(worker.id, slots=1).due_in is None, "nothing is looked at again"


def test_a_key_is_not_kept_by_a_queue_that_rests(store: Store, hire: Hire) -> None:
    """The first that waits for a key may be in a queue that is paused, or that nobody serves."""
    enqueue(store, key="k", id="first", queue="rests")
    worker = hire()
    claim = worker.claim_one()
    enqueue(store, key="k", id="stays", queue="rests", priority=9)
    enqueue(store, key="k", id="goes", queue="works")
    assert worker.claim(9) == []
    store.change_queue("rests", paused=True)
    worker.settle(claim)
    assert [claim.id for claim in worker.claim(9)] == ["goes"]


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_very_many_keys_at_once_do_not_fill_the_servers_table_of_locks(store: Store) -> None:
    ids = store.enqueue([NewJob("true", key=f"k{n}", batch="b") for n in range(10_000)])
    store.cancel(ids)
    assert store.views.counts()["cancelled"] == 10_000


def test_priority_decides_which_of_a_key_goes_next(store: Store, hire: Hire) -> None:
    enqueue(store, key="k", id="first")
    worker = hire()
    claim = worker.claim_one()
    enqueue(store, key="k", id="late")
    enqueue(store, key="k", id="urgent", priority=5)
    assert worker.claim(9) == []
    worker.settle(claim)
    assert worker.claim_one().id == "urgent"


def test_as_many_go_on_as_may_when_limits_differ(store: Store, hire: Hire) -> None:
    enqueue(store, key="k", key_limit=1)
    worker = hire()
    first = worker.claim_one()
    fill(store, 40, key="k", key_limit=40)
    enqueue(store, key="k", key_limit=1, priority=1)
    for _ in range(3):
        worker.claim(1)  # comes upon the urgent one, and puts all aside
    assert store.views.jobs(limit=1)[0].parked
    worker.settle(first)
    assert len(worker.claim(99)) == 40


# -- two at the same moment ------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_who_comes_second_to_a_limited_queue_neither_waits_nor_overlooks_it(
    store: Store, hire: Hire, open_engine: Callable[[], Engine]
) -> None:
    store.change_queue("mail", at_once=1)
    fill(store, 2, queue="mail")
    fill(store, 1, key="k")
    fill(store, 1)
    other = Store(open_engine())
    with other.engine.write() as tx:  # in the middle of its claim
        assert tx.alone_with(["queue mail", "key k"]) == {"queue mail", "key k"}
        [claim] = store.tick(hire().id, slots=1).claims
        assert (claim.queue, claim.key) == ("default", None), "the one with the key is passed over"
        tick = store.tick("w1", slots=9)
        assert tick.claims == []
        assert tick.due_in == 0.01
    assert len(store.tick("w1", slots=9).claims) == 2
    other.close()


# -- retries ---------------------------------------------------------------------------------------------


def test_a_queue_says_which_ends_are_worth_another_try(store: Store, hire: Hire) -> None:
    store.change_queue("mail", no_retry_on="2")
    enqueue(store, id="a", queue="mail")
    enqueue(store, id="own", queue="mail", no_retry_on=["3"])
    enqueue(store, id="other-way", queue="mail", retry_on=["2"])
    worker: FakeWorker = hire()
    for _ in range(3):
        claim = worker.claim_one()
        worker.settle(claim, Exited(2))
    assert store.views.job("a").state == "dead"
    assert store.views.job("own").state == "failed"
    assert store.views.job("other-way").state == "failed"
