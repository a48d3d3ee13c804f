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
    store.schedules.add(store.schedules.make(name, when, every, "UTC", fields=fields, **rest))


def ids(store: Store) -> list[str]:
    return [job.id for job in reversed(store.views.jobs(limit=-1))]


def outcomes(store: Store, name: str = "s") -> list[str]:
    return [firing.outcome for firing in reversed(store.schedules.firings(name))]


def test_a_firing_enqueues_its_job_once_however_often_one_looks(store: Store, clock: Clock, hire: Hire) -> None:
    add(store, fields={"queue": "mail", "priority": 3, "env": {"A": "b"}, "tags": ["t"]})
    assert not store.schedules.fire()
    clock.advance(HOUR)
    idle = hire()
    idle.hears()
    assert store.schedules.fire()
    assert idle.hears()
    assert not store.schedules.fire()
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
    store.schedules.fire()
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
            assert store.schedules.fire()
            assert ids(store) == ["b:20270115T090000Z"]
    assert store.schedules.fire()
    assert not other.schedules.fire()
    assert sorted(ids(store)) == ["a:20270115T090000Z", "b:20270115T090000Z"]
    other.close()


def test_a_new_firing_waits_for_nothing_or_is_skipped_while_the_last_job_is_there(
    store: Store, clock: Clock, hire: Hire
) -> None:
    add(store, "skips")
    add(store, "queues", overlap="queue")
    for _ in range(2):
        clock.advance(HOUR)
        store.schedules.fire()
    assert outcomes(store, "skips") == ["enqueued", "skipped"]
    assert outcomes(store, "queues") == ["enqueued", "enqueued"]
    [skipped, _] = store.schedules.firings("skips")
    assert skipped.reason == 'its job "skips:20270115T090000Z" is still pending'
    worker = hire()
    for claim in worker.claim(9):
        worker.settle(claim)
    clock.advance(HOUR)
    store.schedules.fire()
    assert outcomes(store, "skips")[-1] == "enqueued"


def test_what_was_missed(store: Store, clock: Clock) -> None:
    for missed in ("latest", "all", "skip"):
        add(store, missed, missed=missed)
    clock.advance(3 * HOUR + 120)
    assert store.schedules.fire()
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
    assert not store.schedules.fire()
    [one] = store.schedules.pause(["s"], paused=False)
    assert one.next_at == clock.now + HOUR * 1000
    assert not store.schedules.fire()
    clock.advance(HOUR)
    store.schedules.fire()
    assert len(ids(store)) == 1


def test_resuming_one_that_is_not_paused_changes_nothing(store: Store, clock: Clock) -> None:
    add(store, missed="all")
    clock.advance(2 * HOUR)
    store.schedules.pause(["s"], paused=False)
    store.schedules.fire()
    assert len(ids(store)) == 2


def test_a_trigger_enqueues_besides_the_firings_even_twice_in_a_moment(store: Store, clock: Clock) -> None:
    add(store)
    first, second = store.schedules.trigger("s"), store.schedules.trigger("s")
    assert ids(store) == [first, second]
    assert outcomes(store) == ["triggered", "triggered"]
    assert store.schedules.get("s").next_at == clock.now + HOUR * 1000


def test_a_clock_that_was_set_back_repeats_no_firing(store: Store, clock: Clock) -> None:
    add(store, overlap="queue")
    clock.advance(HOUR)
    store.schedules.fire()
    clock.advance(-HOUR)
    assert not store.schedules.fire()
    clock.advance(HOUR)
    assert not store.schedules.fire()
    clock.advance(HOUR)
    store.schedules.fire()
    assert len(ids(store)) == 2


def test_a_schedule_made_again_does_not_enqueue_the_same_firing_again(store: Store, clock: Clock) -> None:
    add(store, overlap="queue")
    clock.advance(HOUR)
    store.schedules.fire()
    store.schedules.remove(["s"])
    clock.advance(-1)
    add(store, overlap="queue")
    clock.advance(1)
    store.schedules.fire()
    assert ids(store) == ["s:20270115T090000Z"]
    assert outcomes(store) == ["skipped"]


def test_a_key_that_another_job_has_costs_the_firing_and_nothing_else(store: Store, clock: Clock) -> None:
    enqueue(store, unique_key="u", id="other")
    add(store, "refuses", fields={"unique_key": "u"})
    add(store, "skips", fields={"unique_key": "u", "on_duplicate": "skip"})
    add(store, "well")
    clock.advance(HOUR)
    store.schedules.fire()
    assert (outcomes(store, "refuses"), outcomes(store, "skips")) == (["skipped"], ["skipped"])
    assert outcomes(store, "well") == ["enqueued"]
    with pytest.raises(Conflict):
        store.schedules.trigger("refuses")


def test_a_zone_that_this_machine_does_not_know_stops_nobody_else(store: Store, clock: Clock, hire: Hire) -> None:
    add(store, "bad")
    add(store, "well")
    with store.engine.write() as tx:
        tx.run("UPDATE schedules SET zone = 'Nowhere/Land' WHERE name = 'bad'")
    clock.advance(HOUR)
    store.schedules.fire()
    assert (outcomes(store, "bad"), outcomes(store, "well")) == (["skipped"], ["enqueued"])
    assert store.tick(hire().id).fire_in == 60, "it is not looked at again at once"


def test_only_the_last_firings_are_remembered(store: Store, clock: Clock) -> None:
    add(store, every=1, when=None, overlap="skip")
    for _ in range(4):
        clock.advance(50)
        store.schedules.fire()
    assert len(outcomes(store)) == 100


def test_names_are_taken_once_unless_it_is_to_be_replaced(store: Store) -> None:
    add(store)
    with pytest.raises(Conflict, match="already"):
        add(store, every=5, when=None)
    assert store.schedules.get("s").cron == "0 * * * *"
    new = store.schedules.make("s", None, 5, "UTC", fields={"command": "false"})
    store.schedules.add(new, replace_it=True)
    assert store.schedules.get("s") == new


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
    store.schedules.fire()
    store.schedules.remove(["s"])
    assert store.schedules.all() == []
    assert len(ids(store)) == 1
