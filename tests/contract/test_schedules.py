"""Schedules, on every engine: each firing once, whoever looks; and what is done to a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuectl.errors import Conflict, NotFound
from queuectl.store import Store
from queuectl.store.engine import Engine
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue

HOUR = 3600


def add(
    store: Store, name: str = "s", when: str | None = "0 * * * *", every: float | None = None, **rest: Any
) -> None:
    fields = {"command": "true", **rest.pop("fields", {})}
    store.schedules.add(name, when, every, "UTC", fields, **rest)


def fire(store: Store) -> bool:
    """Did anything fire?"""
    fired, problems = store.schedules.fire()
    assert problems == []
    return fired


def ids(store: Store) -> list[str]:
    return [job.id for job in reversed(store.views.jobs(limit=-1))]


def outcomes(store: Store, name: str = "s") -> list[str]:
    return [firing.outcome for firing in reversed(store.schedules.firings(name))]


def test_a_firing_enqueues_its_job_once_however_often_one_looks(store: Store, clock: Clock, hire: Hire) -> None:
    add(store, fields={"queue": "mail", "priority": 3, "env": {"A": "b"}, "tags": ["t"]})
    assert not fire(store)
    clock.advance(HOUR)
    idle = hire()
    idle.hears()
    assert fire(store)
    assert idle.hears()
    assert not fire(store)
    [job] = store.views.jobs()
    assert (job.id, job.queue, job.priority, job.tags) == ("s:20270115T090000Z", "mail", 3, ("t",))
    assert job.env == {"A": "b", "QUEUECTL_SCHEDULE": "s", "QUEUECTL_MOMENT": "2027-01-15T09:00:00.000Z"}
    assert outcomes(store) == ["enqueued"]


def test_a_worker_learns_when_to_look(store: Store, clock: Clock, hire: Hire) -> None:
    worker = hire()
    assert store.tick(worker.id).fire_in is None
    worker.hears()
    add(store)
    assert worker.hears(), "a new schedule is announced"
    assert store.tick(worker.id).fire_in == HOUR
    clock.advance(HOUR + 5)
    assert store.tick(worker.id).fire_in == 0
    fire(store)
    assert store.tick(worker.id).fire_in == HOUR - 5


def test_whoever_else_is_firing_is_left_to_it(
    store: Store, clock: Clock, open_engine: Callable[[], Engine], engine_name: str
) -> None:
    add(store, "a")
    add(store, "b")
    clock.advance(HOUR)
    other = Store(open_engine())
    if engine_name == "postgres":
        with other.engine.write() as tx:
            other.schedules._locked(tx, "a")
            assert fire(store)
            assert ids(store) == ["b:20270115T090000Z"]
    assert fire(store)
    assert not fire(other)
    assert sorted(ids(store)) == ["a:20270115T090000Z", "b:20270115T090000Z"]
    other.close()


def test_a_new_firing_waits_for_nothing_or_is_skipped_while_the_last_job_is_there(
    store: Store, clock: Clock, hire: Hire
) -> None:
    add(store, "skips")
    add(store, "queues", overlap="queue")
    for _ in range(2):
        clock.advance(HOUR)
        fire(store)
    assert outcomes(store, "skips") == ["enqueued", "skipped"]
    assert outcomes(store, "queues") == ["enqueued", "enqueued"]
    [skipped, _] = store.schedules.firings("skips")
    assert skipped.reason == 'its job "skips:20270115T090000Z" is still pending'
    worker = hire()
    for claim in worker.claim(9):
        worker.settle(claim)
    clock.advance(HOUR)
    fire(store)
    assert outcomes(store, "skips")[-1] == "enqueued"


def test_what_was_missed(store: Store, clock: Clock) -> None:
    for missed in ("latest", "all", "skip"):
        add(store, missed, missed=missed)
    clock.advance(3 * HOUR + 120)
    assert fire(store)
    assert sorted(ids(store)) == [
        "all:20270115T090000Z", "all:20270115T100000Z", "all:20270115T110000Z", "latest:20270115T110000Z",
    ]  # fmt: skip
    assert outcomes(store, "latest") == ["missed", "enqueued"]
    assert outcomes(store, "skip") == ["missed"]


def test_a_paused_schedule_rests_and_makes_up_for_nothing(store: Store, clock: Clock, hire: Hire) -> None:
    add(store, missed="all")
    worker = hire()
    store.schedules.pause(["s"], paused=True)
    assert store.tick(worker.id).fire_in is None
    clock.advance(3 * HOUR)
    assert not fire(store)
    [one] = store.schedules.pause(["s"], paused=False)
    assert one.next_at == clock.now + HOUR * 1000
    assert not fire(store)
    clock.advance(HOUR)
    fire(store)
    assert len(ids(store)) == 1


def test_what_was_due_before_a_pause_is_not_lost_by_it(store: Store, clock: Clock) -> None:
    add(store, missed="all")
    clock.advance(3 * HOUR)
    store.schedules.pause(["s"], paused=True)
    assert len(ids(store)) == 3
    clock.advance(-2 * HOUR)  # a clock set back does not take a schedule back
    store.schedules.pause(["s"], paused=False)
    clock.advance(2 * HOUR)
    assert not fire(store)
    clock.advance(HOUR)
    assert fire(store)
    assert len(ids(store)) == 4


def test_resuming_one_that_is_not_paused_changes_nothing(store: Store, clock: Clock) -> None:
    add(store, missed="all")
    clock.advance(2 * HOUR)
    store.schedules.pause(["s"], paused=False)
    fire(store)
    assert len(ids(store)) == 2


def test_a_trigger_enqueues_besides_the_firings_even_twice_in_a_moment(store: Store, clock: Clock) -> None:
    add(store)
    first, second = store.schedules.trigger("s"), store.schedules.trigger("s")
    assert ids(store) == [first.id, second.id]
    assert outcomes(store) == ["triggered", "triggered"]
    assert store.schedules.get("s").next_at == clock.now + HOUR * 1000


def test_a_clock_that_was_set_back_repeats_no_firing(store: Store, clock: Clock) -> None:
    add(store, overlap="queue")
    clock.advance(HOUR)
    fire(store)
    clock.advance(-HOUR)
    assert not fire(store)
    clock.advance(HOUR)
    assert not fire(store)
    clock.advance(HOUR)
    fire(store)
    assert len(ids(store)) == 2


def test_a_schedule_made_again_does_not_enqueue_the_same_firing_again(store: Store, clock: Clock) -> None:
    add(store, overlap="queue")
    clock.advance(HOUR)
    fire(store)
    store.schedules.remove(["s"])
    clock.advance(-1)
    add(store, overlap="queue")
    clock.advance(1)
    fire(store)
    assert ids(store) == ["s:20270115T090000Z"]
    assert outcomes(store) == ["skipped"]


def test_a_key_that_another_job_has_costs_the_firing_and_nothing_else(store: Store, clock: Clock) -> None:
    enqueue(store, unique_key="u", id="other")
    add(store, "refuses", fields={"unique_key": "u"})
    add(store, "skips", fields={"unique_key": "u", "on_duplicate": "skip"})
    add(store, "well")
    clock.advance(HOUR)
    fire(store)
    assert (outcomes(store, "refuses"), outcomes(store, "skips")) == (["skipped"], ["skipped"])
    assert outcomes(store, "well") == ["enqueued"]
    with pytest.raises(Conflict):
        store.schedules.trigger("refuses")


def test_a_zone_that_this_machine_does_not_know_stops_nobody_else_and_spoils_nothing(
    store: Store, clock: Clock
) -> None:
    add(store, "bad", missed="skip")
    add(store, "well")
    with store.engine.write() as tx:
        tx.run("UPDATE schedules SET zone = 'Nowhere/Land' WHERE name = 'bad'")
    clock.advance(HOUR)
    fired, [problem] = store.schedules.fire()
    assert fired
    assert 'schedule bad: there is no time zone "Nowhere/Land"' in problem
    assert (outcomes(store, "bad"), outcomes(store, "well")) == ([], ["enqueued"])
    with store.engine.write() as tx:
        tx.run("UPDATE schedules SET zone = 'UTC' WHERE name = 'bad'")  # as another machine sees it
    assert fire(store)
    assert outcomes(store, "bad") == ["enqueued"]


def test_a_firing_that_somebody_has_taken_is_passed_over(store: Store, clock: Clock) -> None:
    add(store, overlap="queue")
    clock.advance(HOUR)
    fire(store)
    with store.engine.write() as tx:  # as it cannot be: nobody takes a schedule back
        tx.run("UPDATE schedules SET next_at = next_at - 3600000")
    assert fire(store)
    assert outcomes(store) == ["enqueued"]
    clock.advance(HOUR)
    fire(store)
    assert outcomes(store) == ["enqueued", "enqueued"]


def test_a_trigger_in_the_very_moment_of_a_firing_takes_nothing_from_it(store: Store, clock: Clock) -> None:
    add(store, overlap="queue")
    clock.advance(HOUR)
    triggered = store.schedules.trigger("s")
    assert fire(store)
    assert ids(store) == [triggered.id, "s:20270115T090000Z"]
    assert sorted(outcomes(store)) == ["enqueued", "triggered"]


def test_a_job_that_runs_through_very_many_firings_is_not_forgotten(store: Store, clock: Clock, hire: Hire) -> None:
    add(store, when=None, every=1)
    clock.advance(1)
    fire(store)
    hire().claim_one()
    for _ in range(5):
        clock.advance(50)
        fire(store)
    assert ids(store) == ["s:20270115T080001Z"]


def test_very_many_firings_come_in_parts(store: Store, clock: Clock) -> None:
    for n in range(10):
        add(store, f"s{n}", when="* * * * *", missed="all")
    clock.advance(HOUR)
    parts = 0
    while fire(store):
        parts += 1
    assert parts >= 3
    assert len(set(ids(store))) == 600


def test_only_the_last_firings_are_remembered(store: Store, clock: Clock) -> None:
    add(store, every=1, when=None, overlap="skip")
    for _ in range(4):
        clock.advance(50)
        fire(store)
    assert len(outcomes(store)) == 100


def test_names_are_taken_once_unless_it_is_to_be_replaced(store: Store, clock: Clock) -> None:
    add(store)
    with pytest.raises(Conflict, match="already"):
        add(store, every=5, when=None)
    assert store.schedules.get("s").cron == "0 * * * *"
    add(store, every=5, when=None, replace_it=True)
    assert (store.schedules.get("s").every_ms, store.schedules.get("s").cron) == (5000, None)


def test_one_that_takes_the_place_of_another_goes_on_where_that_one_was(
    store: Store, clock: Clock, hire: Hire
) -> None:
    add(store, when=None, every=HOUR)
    clock.advance(HOUR)
    fire(store)
    claim = hire().claim_one()
    clock.advance(60)
    add(store, when=None, every=HOUR, fields={"priority": 3}, replace_it=True)
    clock.advance(HOUR - 60)
    fire(store)
    assert outcomes(store) == ["enqueued", "skipped"], "it still knows that its job runs"
    assert store.views.job(claim.id).state == "processing"
    store.schedules.pause(["s"], paused=True)
    add(store, replace_it=True)
    assert store.schedules.get("s").paused


def test_all_or_none_and_unknown_names(store: Store) -> None:
    add(store, "one")
    for action in (
        lambda: store.schedules.remove(["one", "two"]),
        lambda: store.schedules.pause(["one", "two"], paused=True),
        lambda: store.schedules.trigger("two"),
        lambda: store.schedules.get("two"),
    ):
        with pytest.raises(NotFound, match="two"):
            action()
    [(found, last)] = store.schedules.all()
    assert (found.name, found.paused, last) == ("one", False, None)


def test_when_it_is_removed_its_jobs_stay(store: Store, clock: Clock) -> None:
    add(store)
    clock.advance(HOUR)
    fire(store)
    store.schedules.remove(["s"])
    assert store.schedules.all() == []
    assert len(ids(store)) == 1
