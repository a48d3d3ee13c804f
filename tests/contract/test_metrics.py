"""Figures that survive: totals beyond pruning, tallies of runs, charts, the oldest wait, the snapshot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from queuectl.errors import InvalidInput
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Cancelled, Exited
from queuectl.metrics import prometheus
from queuectl.metrics.run_stats import KEPT, Tally
from queuectl.store import Store, claim_settle, metrics
from queuectl.store import write_queries as sql
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue

on_postgres = pytest.mark.parametrize("engine_name", ["postgres"])  # SQLite has one writer at a time


def tallied(*ended: tuple[str, str, int, int]) -> Tally:
    tally = Tally()
    for run in ended:
        tally.add(*run)
    return tally


def rows(store: Store) -> list[tuple[object, ...]]:
    with store.engine.read() as tx:
        return tx.rows("SELECT span, moment, queue, state, what, bound, n, ms FROM tallies ORDER BY 1, 2, 3, 4, 5, 6")


def departed(store: Store) -> list[tuple[object, ...]]:
    with store.engine.read() as tx:
        return tx.rows("SELECT queue, state, job, n FROM departed ORDER BY 1, 2, 3")


def totals(store: Store) -> dict[str, dict[str, int]]:
    return {name: dict(queue.finished) for name, queue in store.figures.snapshot().queues.items()}


def scraped(store: Store) -> dict[tuple[str, str, str], float]:
    """What Prometheus would see, by name, queue and state (or `le`)."""
    text = prometheus.text(store.figures.snapshot(), "0")
    return {
        (sample.name, sample.labels.get("queue", ""), sample.labels.get("state", sample.labels.get("le", ""))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# -- finished, ever --------------------------------------------------------------------------------------


def test_nothing_has_finished_in_an_empty_queue(store: Store) -> None:
    assert totals(store) == {}
    enqueue(store)
    assert totals(store) == {"default": {"completed": 0, "dead": 0, "cancelled": 0}}


def test_a_total_survives_all_that_can_happen_to_a_job(store: Store, hire: Hire, clock: Clock) -> None:
    """Each act, and what it adds to the totals: never less than nothing."""
    worker = hire()
    for id in ("good", "bad", "worse", "third"):
        enqueue(store, id=id, queue="mail", max_retries=1, priority=-len(id))
    enqueue(store, id="child", queue="web", depends_on=["bad"])
    claims = {claim.id: claim for claim in worker.claim(4)}

    def fail(id: str) -> Callable[[], object]:
        return lambda: worker.settle(claims[id], Exited(1))

    def again() -> None:
        clock.advance(1)
        worker.work_off(Exited(1))

    seen = {queue: dict.fromkeys(("completed", "dead", "cancelled"), 0) for queue in ("mail", "web")}
    for act, added in (
        (lambda: worker.settle(claims["good"]), [("mail", "completed")]),
        (fail("bad"), [("mail", "dead"), ("web", "cancelled")]),
        (fail("worse"), [("mail", "dead")]),
        (lambda: store.prune(["completed"], 0), []),
        (lambda: store.retry(["bad"]), []),
        (again, [("mail", "dead"), ("web", "cancelled")]),
        (lambda: store.retry(["bad"]), []),
        (again, [("mail", "dead"), ("web", "cancelled")]),
        (lambda: store.purge_dead(), []),
        (fail("third"), [("mail", "dead")]),
        (store.engine.tidy, []),
        (lambda: store.retry(), []),
        (again, [("mail", "dead")]),
        (lambda: store.prune(["completed", "cancelled", "dead"], 0), []),
        (store.engine.tidy, []),
        (store.engine.tidy, []),
    ):
        act()
        for queue, state in added:
            seen[queue][state] += 1
        assert totals(store) == seen, (act, added)
    assert store.views.counts() == dict.fromkeys(store.views.counts(), 0)
    assert departed(store) == [("mail", "completed", 0, 1), ("mail", "dead", 0, 6), ("web", "cancelled", 0, 3)]


def test_who_only_finishes_jobs_writes_nothing_of_departures(store: Store, hire: Hire) -> None:
    worker = hire()
    for outcome in (Exited(0), Exited(1), Cancelled()):
        enqueue(store, max_retries=1)
        worker.work_off(outcome)
    store.cancel([enqueue(store)])
    assert departed(store) == []


def test_a_reset_starts_anew(store: Store, hire: Hire) -> None:
    worker = hire()
    enqueue(store)
    worker.work_off()
    store.prune(["completed"], 0)
    enqueue(store)
    worker.work_off()
    store.record(tallied(("default", "completed", 1, 1)))
    worker.leave()
    store.unregister(worker.id)
    store.reset()
    assert (departed(store), rows(store)) == ([], [])
    assert sum(sum(states.values()) for states in totals(store).values()) == 0


def test_many_departures_are_summed_up(store: Store, hire: Hire) -> None:
    worker = hire()
    store.enqueue([NewJob("exit 1", max_retries=1)] * 20)
    for _ in range(20):
        worker.work_off(Exited(1))
    store.retry()
    store.engine.tidy()
    assert departed(store) == [("default", "dead", 0, 20)]


@on_postgres
def test_a_sum_leaves_what_somebody_is_just_writing(store: Store, other_store: Store, hire: Hire) -> None:
    worker = hire()
    for id in ("a", "b"):
        enqueue(store, id=id, max_retries=1)
        worker.work_off(Exited(1))
    store.retry(["a"])
    worker.work_off(Exited(1))
    store.retry(["b"])
    with store.engine.write() as tx:
        assert not tx.missed(sql.RETRY_DEAD, [{"seq": 1, "now": tx.now, "run_at": tx.now}])
        other_store.engine.tidy()  # does not wait
    assert departed(store) == [("default", "dead", 0, 1), ("default", "dead", 1, 2)]
    other_store.engine.tidy()
    assert departed(store) == [("default", "dead", 0, 3)]


# -- tallies ---------------------------------------------------------------------------------------------


def test_a_tally_is_added_to_what_is_there(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    assert not store.tick(worker.id).tallied
    assert not store.tick(worker.id, tally=Tally()).tallied
    assert store.tick(worker.id, tally=tallied(("mail", "completed", 30, 1), ("web", "dead", 7000, 1))).tallied
    clock.advance(59.9)
    store.record(tallied(("mail", "completed", 50, 3)))
    clock.advance(0.1)
    store.record(tallied(("mail", "completed", 7, 3)))
    minute, hour = clock.now, clock.now - 60_000
    assert [row for row in rows(store) if row[4] == "run"] == [
        (0, 0, "mail", "completed", "run", 25, 1, 7),
        (0, 0, "mail", "completed", "run", 100, 2, 80),
        (0, 0, "web", "dead", "run", 30_000, 1, 7000),
        (60, minute - 60_000, "", "completed", "run", 100, 2, 80),
        (60, minute - 60_000, "", "dead", "run", 30_000, 1, 7000),
        (60, minute, "", "completed", "run", 25, 1, 7),
        (3600, hour, "", "completed", "run", 25, 1, 7),
        (3600, hour, "", "completed", "run", 100, 2, 80),
        (3600, hour, "", "dead", "run", 30_000, 1, 7000),
    ]
    found = store.figures.snapshot().queues
    assert (found["mail"].runs.n, found["mail"].runs.ms, found["mail"].waits.ms) == (3, 87, 7)
    assert (found["mail"].ended["completed"], found["web"].ended["dead"]) == (3, 1)


def test_what_is_old_goes_one_moment_at_a_time_and_what_was_ever_stays(store: Store, clock: Clock) -> None:
    for _ in range(3):
        store.record(tallied(("q", "completed", 1, 1), ("q", "dead", 10**6, 1)))
        clock.advance(60)
    clock.advance(KEPT[60] / 1000 - 60)
    assert len({row[1] for row in rows(store) if row[0] == 60}) == 3
    for _ in range(3):
        clock.advance(60)
        store.record(tallied(("q", "completed", 1, 1)))
    assert {row[1] for row in rows(store) if row[0] == 60} == {clock.now - n * 60_000 for n in (0, 1, 2)}
    clock.advance(40 * 86_400)
    for _ in range(3):
        store.record(tallied(("q", "completed", 1, 1)))
    assert len({row[1] for row in rows(store) if row[0] == 3600}) == 1
    assert store.figures.snapshot().queues["q"].runs.n == 12


@on_postgres
def test_who_finds_another_one_at_it_keeps_his_tally_and_goes_on(
    store: Store, other_store: Store, hire: Hire
) -> None:
    worker, job = hire(), enqueue(store)
    with other_store.engine.write() as tx:
        assert claim_settle.record(tx, tallied(("q", "completed", 1, 1)))
        tick = store.tick(worker.id, slots=1, tally=tallied(("q", "completed", 2, 2)))
        assert [claim.id for claim in tick.claims] == [job]
        assert not tick.tallied
    assert store.figures.snapshot().queues["q"].runs.ms == 1


def test_a_claim_tells_how_long_its_job_has_been_due(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()

    def waited() -> int:
        claim = worker.claim_one()
        worker.settle(claim, Exited(1))
        return claim.wait_ms

    enqueue(store, max_retries=3, backoff_base=2)
    clock.advance(3)
    assert waited() == 3000
    clock.advance(2 + 5)  # its backoff does not count
    assert waited() == 5000
    clock.advance(3600)
    [claim] = worker.claim()
    worker.settle(claim)
    enqueue(store, run_at=clock.now - 86_400_000)
    clock.advance(1)
    assert waited() == 1000
    store.cancel([job.id for job in store.views.jobs(state="failed")])


def test_waiting_for_other_jobs_is_not_waiting_for_a_worker(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    parent = enqueue(store)
    enqueue(store, depends_on=[parent])
    claim = worker.claim_one()
    clock.advance(100)
    worker.settle(claim)
    clock.advance(2)
    assert worker.claim_one().wait_ms == 2000


def test_a_run_that_was_claimed_before_tells_its_wait_again(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    enqueue(store, run_at=clock.now + 5000)
    clock.advance(7)
    claim = worker.claim_one()
    [again] = store.tick(worker.id, running=set()).claims
    assert (again, again.wait_ms) == (claim, 2000)


def test_a_lost_run_comes_back_with_what_there_is_to_count(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    enqueue(store, queue="mail")
    clock.advance(2)
    worker.claim_one()
    clock.advance(3)
    worker.die()
    recovered = store.recover(worker.id)
    assert recovered
    [(claim, end, report)] = recovered[1]
    assert (claim.queue, claim.wait_ms, end.state, report.duration_ms) == ("mail", 2000, "pending", 3000)


# -- charts ----------------------------------------------------------------------------------------------


def test_a_chart_shows_what_ended_when(store: Store, clock: Clock) -> None:
    store.record(tallied(("a", "completed", 40, 10), ("b", "completed", 60, 30), ("a", "failed", 50, 20)))
    clock.advance(600)
    store.record(tallied(("a", "dead", 50, 1), ("a", "pending", 50, 1), ("a", "cancelled", 50, 1)))
    hour = {point.moment: point for point in store.figures.series(3600)}
    now = clock.now
    assert (hour[now].completed, hour[now].failed) == (0, 1)
    first = hour[now - 600_000]
    assert (first.completed, first.failed) == (2, 1)
    assert first.wait_p95_ms is not None
    assert 25 < first.wait_p95_ms <= 100
    assert sum(point.completed + point.failed for point in hour.values()) == 4
    assert hour[now - 300_000].wait_p95_ms is None
    assert [(p.completed, p.failed) for p in store.figures.series(86_400)][-2:] == [(2, 1), (0, 1)]
    week = store.figures.series(604_800)
    assert [(p.completed, p.failed) for p in week][-2:] == [(0, 0), (2, 2)]
    clock.advance(86_400)
    assert [(p.completed, p.failed) for p in store.figures.series(604_800) if p.completed] == [(2, 2)]
    assert not any(p.completed for p in store.figures.series(3600))


def test_there_are_three_charts(store: Store) -> None:
    assert [len(store.figures.series(seconds)) for seconds in (3600, 86_400, 604_800)] == [60, 144, 168]
    with pytest.raises(InvalidInput, match="no chart of 60 seconds"):
        store.figures.series(60)


# -- the oldest wait -------------------------------------------------------------------------------------


def test_the_oldest_due_job_of_each_queue(store: Store, hire: Hire, clock: Clock) -> None:
    start = clock.now
    assert store.figures.oldest_wait() == {}
    enqueue(store, queue="later", run_at=start + 10_000)
    enqueue(store, queue="mail", priority=-5)
    enqueue(store, queue="blocked", depends_on=[enqueue(store, queue="web")])
    clock.advance(1)
    enqueue(store, queue="mail", priority=5)
    enqueue(store, queue="web")
    clock.advance(1)
    enqueue(store, queue="mail", priority=7)
    assert store.figures.oldest_wait() == {"mail": start, "web": start}
    hire(queues=("web",)).work_off()
    assert store.figures.oldest_wait() == {"blocked": start + 2000, "mail": start, "web": start + 1000}
    clock.advance(20)  # and nobody takes note
    assert store.figures.oldest_wait()["later"] == start + 10_000


def test_those_that_came_back_to_the_front_do_not_hide_an_older_one(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    store.enqueue([NewJob("exit 1", max_retries=9, backoff_base=1)] * 20)
    since = clock.now
    for claim in worker.claim(19):
        worker.settle(claim, Exited(1))
    clock.advance(60)
    [late] = worker.claim(1)  # brings those that failed back, and is the first of them
    assert late.run == 2
    assert store.figures.oldest_wait() == {"default": since}


def test_only_so_many_are_looked_at(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    since = clock.now
    for _ in range(3):
        clock.advance(1)
        enqueue(store)
    with store.engine.write() as tx:  # as if they had become due in the other order
        tx.run("UPDATE jobs SET updated_at = :since + 10000 - seq * 1000", {"since": since})
    assert store.figures.oldest_wait() == {"default": since + 7000}
    monkeypatch.setattr(metrics, "FIRST_ONES", 2)
    assert store.figures.oldest_wait() == {"default": since + 8000}


# -- the snapshot ----------------------------------------------------------------------------------------


def test_what_prometheus_sees(store: Store, hire: Hire, clock: Clock) -> None:
    assert {name for name, *_ in scraped(store)} == {"queuectl_workers", "queuectl_build_info"}
    worker = hire()
    enqueue(store, queue="mail")
    worker.work_off()
    enqueue(store, queue="mail", max_retries=1)
    worker.work_off(Exited(1))
    enqueue(store, queue="mail")
    enqueue(store, queue="mail")
    clock.advance(2.5)
    worker.claim_one()
    store.record(tallied(("mail", "completed", 30, 200), ("mail", "dead", 6000, 1)))
    store.change_queue("web", paused=True)
    hire("idle")
    seen = scraped(store)
    assert seen["queuectl_jobs", "mail", "completed"] == 1
    assert seen["queuectl_jobs", "mail", "processing"] == 1
    assert seen["queuectl_jobs", "mail", "pending"] == 1
    assert seen["queuectl_jobs", "mail", "blocked"] == 0
    assert seen["queuectl_jobs_finished_total", "mail", "dead"] == 1
    assert seen["queuectl_jobs_finished_total", "web", "dead"] == 0
    assert seen["queuectl_runs_total", "mail", "completed"] == 1
    assert seen["queuectl_runs_total", "mail", "failed"] == seen["queuectl_runs_total", "web", "pending"] == 0
    assert seen["queuectl_run_seconds_bucket", "mail", "0.1"] == 1
    assert seen["queuectl_run_seconds_bucket", "mail", "+Inf"] == 2
    assert seen["queuectl_run_seconds_sum", "mail", ""] == 6.03
    assert seen["queuectl_wait_seconds_sum", "mail", ""] == 0.201
    assert seen["queuectl_wait_seconds_count", "web", ""] == 0
    assert seen["queuectl_oldest_pending_seconds", "mail", ""] == 2.5
    assert seen["queuectl_oldest_pending_seconds", "web", ""] == 0
    assert (seen["queuectl_queue_paused", "mail", ""], seen["queuectl_queue_paused", "web", ""]) == (0, 1)
    assert {state: seen["queuectl_workers", "", state] for state in ("busy", "idle", "stopping", "lost")} == {
        "busy": 1, "idle": 1, "stopping": 0, "lost": 0,
    }  # fmt: skip


def test_no_counter_goes_down_and_no_series_ends(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    store.enqueue([NewJob("true", queue=queue, max_retries=1) for queue in ("a", "b") for _ in range(4)])
    before = scraped(store)
    for act in (
        lambda: [worker.work_off(Exited(code % 2)) for code in range(8)],
        lambda: store.record(tallied(("a", "completed", 1, 1), ("b", "dead", 1, 1))),
        lambda: store.prune(["completed"], 0),
        store.retry,
        lambda: worker.work_off(Exited(1)),
        store.engine.tidy,
        store.purge_dead,
        lambda: store.cancel([job.id for job in store.views.jobs(state="pending")]),
        lambda: store.prune(["cancelled"], 0, limit=1),
        lambda: store.prune(["cancelled"], 0),
        store.engine.tidy,
    ):
        act()
        clock.advance(1)
        now = scraped(store)
        assert before.keys() <= now.keys()
        counters = [key for key in before if key[0].endswith(("_total", "_bucket", "_sum", "_count"))]
        assert [key for key in counters if now[key] < before[key]] == [], act
        before = now
    assert before["queuectl_jobs_finished_total", "a", "completed"] == 2
    assert before["queuectl_jobs_finished_total", "b", "cancelled"] >= 1
