"""Reading a queue: finding jobs, listing, waiting, history and numbers."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from queuectl.errors import InvalidInput, NotFound, TimedOut
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Signalled
from queuectl.jobs.model import Queue, Report, Rules
from queuectl.store import Store
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, Hire, enqueue

# -- finding a job ---------------------------------------------------------------------------------------


@pytest.fixture
def named(store: Store) -> Store:
    for id in ("build-1", "build-10", "build-2", "test", "TEST", "tazz", "ab", "z9"):
        enqueue(store, id=id)
    return store


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("build-2", "build-2"),
        ("build-1", "build-1"),  # exact, although it begins another
        ("build-10", "build-10"),
        ("tes", "test"),
        ("TES", "TEST"),
        ("taz", "tazz"),
        ("ab", "ab"),  # short, but exact
        ("@last", "z9"),
    ],
)
def test_a_job_is_found_by_its_id_or_the_beginning_of_it(named: Store, text: str, id: str) -> None:
    assert named.views.resolve(text) == id
    assert named.views.job(text).id == id


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "z",
        "bu",
        "",
        "build-3",
        "uild-2",
        "Build-2",
        "tesx",
        "%",
        "bui%",
        "bui_d-2",
        "test ",
        "é",
        "a\0b",
        "@first",
    ],
)
def test_what_names_no_job_is_not_found(named: Store, text: str) -> None:
    with pytest.raises(NotFound) as refused:
        named.views.job(text)
    assert refused.value.hint


def test_bytes_that_are_no_text_name_no_job(named: Store) -> None:
    """As Python hands over an argument that is not valid UTF-8."""
    for view in (named.views.resolve, named.views.job, named.views.history):
        with pytest.raises((NotFound, InvalidInput)):
            view("\udcff\udcfe\udcfd")
    for filter in ("queue", "tag"):
        with suppress(InvalidInput):
            assert named.views.jobs(**{filter: "\udcff"}) == []  # type: ignore[arg-type]


def test_a_beginning_of_several_ids_is_refused_with_two_of_them(named: Store) -> None:
    with pytest.raises(InvalidInput, match='"build" could be build-1 or build-10'):
        named.views.resolve("build")


def test_an_empty_queue_has_no_last_job(store: Store) -> None:
    with pytest.raises(NotFound):
        store.views.job("@last")


# -- lists -----------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(store: Store, hire: Hire) -> Store:
    """Jobs 1 to 6, of two queues, with tags, in several states."""
    worker = hire()
    for n in range(1, 7):
        tags = ("even",) if n % 2 == 0 else ("odd", "prime")
        enqueue(store, id=f"job{n}", queue="mail" if n > 3 else "default", tags=tags, max_retries=1)
    assert worker.work_off(Exited(0)) == "job1"
    assert worker.work_off(Exited(1)) == "job2"
    worker.claim_one()
    store.cancel(["job6"])
    return store


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, "654321"),
        ({"limit": 2}, "65"),
        ({"limit": -1}, "654321"),
        ({"limit": 0}, ""),
        ({"queue": "mail"}, "654"),
        ({"queue": "nothing"}, ""),
        ({"tag": "even"}, "642"),
        ({"tag": "prime", "limit": 2}, "53"),
        ({"tag": "eve"}, ""),
        ({"state": "pending"}, "54"),
        ({"state": "processing"}, "3"),
        ({"state": "completed"}, "1"),
        ({"state": "dead"}, "2"),
        ({"state": "cancelled"}, "6"),
        ({"state": "failed"}, ""),
        ({"state": "blocked"}, ""),
        ({"state": "pending", "queue": "mail", "tag": "even"}, "4"),
        ({"state": "pending", "limit": 1}, "5"),
    ],
)
def test_a_list_is_newest_first_and_filtered(mixed: Store, filters: dict[str, object], found: str) -> None:
    jobs = mixed.views.jobs(**filters)  # type: ignore[arg-type]
    assert "".join(job.id.removeprefix("job") for job in jobs) == found


def test_an_unknown_state_is_refused_with_those_there_are(store: Store) -> None:
    with pytest.raises(InvalidInput) as refused:
        store.views.jobs(state="running")
    assert "pending, processing, completed" in refused.value.hint


def test_counts_have_every_state(mixed: Store) -> None:
    assert mixed.views.counts() == {
        "pending": 2, "processing": 1, "completed": 1, "failed": 0, "dead": 1, "cancelled": 1, "blocked": 0,
    }  # fmt: skip


def test_the_unfinished_are_those_that_may_still_change(mixed: Store) -> None:
    assert mixed.views.unfinished() == ["job3", "job4", "job5"]


def test_states_of_those_that_are_there(mixed: Store) -> None:
    assert mixed.views.states(["job1", "job3", "nobody"]) == {"job1": "completed", "job3": "processing"}
    assert mixed.views.states([]) == {}


def test_a_list_of_thousands_of_ids_is_no_problem(store: Store) -> None:
    ids = store.enqueue([NewJob("true")] * 3000)
    assert len(store.views.states(ids)) == 3000


def test_the_jobs_ahead_are_those_due_before_it_in_its_queue(store: Store, clock: Clock) -> None:
    enqueue(store, id="first")
    enqueue(store, id="urgent", priority=5)
    enqueue(store, id="elsewhere", queue="mail", priority=9)
    enqueue(store, id="later", priority=9, run_at=clock.now + 60_000)
    enqueue(store, id="mine")
    enqueue(store, id="younger")
    ahead = {id: store.views.ahead_of(store.views.job(id)) for id in ("urgent", "first", "mine", "elsewhere")}
    assert ahead == {"urgent": 0, "first": 1, "mine": 2, "elsewhere": 0}


def test_what_runs_is_told_the_longest_first(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    for id, priority in (("low", 1), ("high", 9), ("middle", 5)):
        enqueue(store, id=id, priority=priority)
    for _ in range(3):
        worker.claim_one()
        clock.advance(1)
    assert [job.id for job in store.views.running(10)] == ["high", "middle", "low"]
    assert [job.id for job in store.views.running(2)] == ["high", "middle"]


def test_what_will_run_is_told_in_the_order_of_its_claims(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, id="in-an-hour", run_at=clock.now + 3_600_000)
    enqueue(store, id="in-a-minute", priority=9, run_at=clock.now + 60_000)
    for id, queue, priority in (("a", "mail", 0), ("b", "default", 5), ("c", "mail", 5), ("d", "default", 0)):
        enqueue(store, id=id, queue=queue, priority=priority)
    enqueue(store, id="after-a", depends_on=["a"])
    enqueue(store, id="after-b", depends_on=["b"])
    due = ["b", "c", "a", "d"]
    everything = [*due, "in-a-minute", "in-an-hour", "after-a", "after-b"]
    for limit in (0, 1, 3, 5, 7, 100):
        assert [job.id for job in store.views.upcoming(limit)] == everything[:limit]
    assert [claim.id for claim in hire().claim(10)] == due


def test_what_has_finished_is_told_the_latest_first(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    for id in ("a", "b", "c"):
        enqueue(store, id=id, max_retries=1)
    for outcome in (Exited(0), Exited(1)):
        worker.work_off(outcome)
        clock.advance(1)
    store.cancel(["c"])
    assert [(job.id, job.state) for job in store.views.finished(9)] == [
        ("c", "cancelled"),
        ("b", "dead"),
        ("a", "completed"),
    ]
    assert [job.id for job in store.views.finished(1)] == ["c"]


def test_queues_have_their_own_counts(mixed: Store) -> None:
    none = dict.fromkeys(mixed.views.counts(), 0)
    assert mixed.views.queues() == [
        Queue("default", none | {"completed": 1, "dead": 1, "processing": 1}, Rules("default")),
        Queue("mail", none | {"pending": 2, "cancelled": 1}, Rules("mail")),
    ]


def test_the_clock_is_that_of_the_transactions(store: Store, clock: Clock) -> None:
    clock.advance(1234)
    assert store.views.clock() == clock.now


# -- waiting ---------------------------------------------------------------------------------------------


def test_waiting_for_the_finished_ends_at_once(mixed: Store) -> None:
    assert mixed.views.wait(["job1", "job2", "job6"], timeout=0) == {
        "job1": "completed",
        "job2": "dead",
        "job6": "cancelled",
    }
    assert mixed.views.wait([], timeout=0) == {}


def test_waiting_ends_with_its_timeout(mixed: Store) -> None:
    with pytest.raises(TimedOut, match="2 of 3 jobs") as late:
        mixed.views.wait(["job1", "job3", "job4"], timeout=0)
    assert late.value.exit_code == 124
    assert late.value.hint == "queuectl explain job3"


def test_waiting_goes_on_until_all_have_finished(
    store: Store, other_store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = store.enqueue([NewJob("true"), NewJob("true", max_retries=1)])
    worker = hire()
    outcomes = iter([Exited(0), Exited(1)])
    monkeypatch.setattr(time, "sleep", lambda pause: worker.work_off(next(outcomes)))
    assert other_store.views.wait(ids, timeout=60) == {ids[0]: "completed", ids[1]: "dead"}


def test_a_job_that_is_pruned_is_waited_for_no_longer(store: Store) -> None:
    assert store.views.wait(["never-was"], timeout=0) == {}


# -- history ---------------------------------------------------------------------------------------------


def test_a_history_begins_with_the_enqueueing(store: Store, clock: Clock) -> None:
    id = enqueue(store)
    [event] = store.views.history(id[:4])
    assert (event.at, event.state, event.run, event.worker_id, event.reason) == (
        clock.now, "pending", 0, None, "enqueued",
    )  # fmt: skip
    assert event.as_json()["at"] == "2027-01-15T08:00:00.000Z"


def test_a_history_is_its_own_jobs_only(store: Store, hire: Hire) -> None:
    enqueue(store, id="a")
    enqueue(store, id="b")
    hire().work_off()
    assert len(store.views.history("a")) == 3
    assert len(store.views.history("b")) == 1


# -- numbers ---------------------------------------------------------------------------------------------


def run_for(store: Store, worker: FakeWorker, clock: Clock, wait: float, took: float, code: int = 0) -> None:
    """A job that waits, runs and ends."""
    enqueue(store, max_retries=1)
    clock.advance(wait)
    claim = worker.claim_one()
    clock.advance(took)
    worker.settle(claim, Exited(code), Report(duration_ms=round(took * 1000)))


def test_an_empty_queue_has_no_numbers(store: Store) -> None:
    metrics = store.views.metrics()
    assert (metrics.total, metrics.window, metrics.workers) == (0, 0, 0)
    assert (metrics.average_attempts, metrics.success_rate, metrics.run_ms, metrics.wait_ms) == (None,) * 4
    assert (metrics.finished_last_minute, metrics.finished_last_hour) == (0, 0)


def test_the_numbers_of_a_known_set(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    hire("idle")
    hire("lost").die()
    for n in range(1, 101):
        run_for(store, worker, clock, wait=n / 100, took=n / 1000, code=int(n % 4 == 0))
    store.cancel([enqueue(store)])
    enqueue(store)
    metrics = store.views.metrics()
    assert metrics.jobs == store.views.counts()
    assert (metrics.total, metrics.window, metrics.workers) == (102, 101, 2)
    assert metrics.success_rate == 0.75
    assert metrics.average_attempts == pytest.approx(25 / 101)
    assert metrics.run_ms is not None
    assert (metrics.run_ms.min, metrics.run_ms.max, metrics.run_ms.avg) == (1, 100, 50.5)
    assert metrics.run_ms.p50 == pytest.approx(50, abs=1)
    assert metrics.run_ms.p95 == pytest.approx(95, abs=1)
    assert metrics.run_ms.p99 == pytest.approx(99, abs=1)
    assert metrics.wait_ms is not None
    assert (metrics.wait_ms.min, metrics.wait_ms.max, metrics.wait_ms.avg) == (10, 1000, 505)


def test_throughput_counts_what_finished_lately(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    run_for(store, worker, clock, 0, 0)
    clock.advance(3000)
    run_for(store, worker, clock, 0, 0)
    clock.advance(500)
    run_for(store, worker, clock, 0, 0)
    store.cancel([enqueue(store)])
    clock.advance(30)
    metrics = store.views.metrics()
    assert (metrics.finished_last_minute, metrics.finished_last_hour) == (2, 4)
    clock.advance(600)
    metrics = store.views.metrics()
    assert (metrics.finished_last_minute, metrics.finished_last_hour) == (0, 3)


def test_the_waiting_time_counts_from_the_moment_a_job_was_due(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, run_at=clock.now + 60_000)
    clock.advance(61)
    hire().work_off()
    metrics = store.views.metrics()
    assert metrics.wait_ms is not None
    assert metrics.wait_ms.max == 1000


def test_no_waiting_time_is_negative(store: Store, hire: Hire, clock: Clock) -> None:
    """A job that failed, and was cancelled before its next run was due, has not waited for minus some seconds."""
    id = enqueue(store)
    clock.advance(1)
    hire().work_off(Signalled(9))
    store.cancel([id])
    metrics = store.views.metrics()
    assert metrics.wait_ms is None or metrics.wait_ms.min >= 0


def test_a_job_that_never_ran_has_no_run_time(store: Store) -> None:
    store.cancel([enqueue(store)])
    metrics = store.views.metrics()
    assert (metrics.run_ms, metrics.wait_ms, metrics.window) == (None, None, 1)


def test_numbers_can_be_printed_as_json(mixed: Store) -> None:
    data = mixed.views.metrics().as_json()
    assert data["jobs"] == mixed.views.counts()
    assert set(data) >= {"total", "average_attempts", "success_rate", "run_ms", "wait_ms", "workers"}
