"""Workers: registering, signs of life, orders to stop."""

from __future__ import annotations

import os

import pytest

from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Report
from queuectl.store import Store
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue


def stop_of(store: Store, worker: str) -> str | None:
    return store.tick(worker).stop


def test_a_registered_worker_is_listed_with_all_there_is_to_know(store: Store, hire: Hire, clock: Clock) -> None:
    hire("w1", queues=("a", "b"))
    [worker] = store.views.workers()
    assert worker.as_json() == {
        "id": "w1", "pid": os.getpid(), "host": "here", "manager_pid": 1, "queues": ("a", "b"), "concurrency": 100,
        "started_at": "2027-01-15T08:00:00.000Z", "heartbeat_at": "2027-01-15T08:00:00.000Z", "stop": None,
        "jobs": (), "alive": True, "state": "idle",
    }  # fmt: skip


def test_workers_are_listed_in_the_order_they_came(store: Store, hire: Hire, clock: Clock) -> None:
    for id in ("z", "a", "m"):
        hire(id)
        clock.advance(1)
    assert [worker.id for worker in store.views.workers()] == ["z", "a", "m"]


def test_a_worker_is_idle_busy_stopping_or_lost(store: Store, hire: Hire) -> None:
    worker = hire()

    def state() -> str:
        return store.views.workers()[0].state

    id = enqueue(store)
    assert state() == "idle"
    claim = worker.claim_one()
    assert state() == "busy"
    assert store.views.workers()[0].jobs == (id,)
    store.stop_workers(["w1"], "drain")
    assert state() == "stopping"
    worker.die()
    assert state() == "lost"
    assert worker.settle(claim)
    assert store.views.workers()[0].jobs == ()


def test_a_heartbeat_is_a_sign_of_life(store: Store, hire: Hire, clock: Clock) -> None:
    hire()
    clock.advance(10)
    assert store.heartbeat("w1") == 30
    assert store.views.workers()[0].heartbeat_at == clock.now
    assert store.heartbeat("nobody") is None


def test_a_worker_that_leaves_is_gone(store: Store, hire: Hire) -> None:
    hire("w1")
    hire("w2")
    store.unregister("w1")
    assert [worker.id for worker in store.views.workers()] == ["w2"]


@pytest.mark.parametrize("order", ["drain", "now"])
def test_an_order_to_stop_wakes_the_worker_which_then_gets_no_new_job(store: Store, hire: Hire, order: str) -> None:
    enqueue(store)
    worker = hire()
    worker.hears()
    store.stop_workers(["w1"], order)
    assert worker.hears()
    tick = store.tick("w1", slots=5)
    assert (tick.stop, tick.claims) == (order, [])


def test_a_stopping_worker_still_settles_what_it_runs(store: Store, hire: Hire) -> None:
    id = enqueue(store)
    claim = hire().claim_one()
    store.stop_workers(["w1"], "drain")
    done = (claim, after_run(claim, Exited(0), store.config(), 0), Report())
    assert store.tick("w1", [done], slots=1).refused == []
    assert store.views.job(id).state == "completed"


def test_an_order_reaches_only_those_it_names(store: Store, hire: Hire) -> None:
    for id in ("w1", "w2", "w3"):
        hire(id)
    store.stop_workers(["w1", "w3", "nobody"], "drain")
    assert [stop_of(store, id) for id in ("w1", "w2", "w3")] == ["drain", None, "drain"]


@pytest.mark.parametrize(
    ("orders", "result"), [(["drain", "now"], "now"), (["now", "drain"], "now"), (["drain", "drain"], "drain")]
)
def test_the_harder_order_stands(store: Store, hire: Hire, orders: list[str], result: str) -> None:
    hire()
    for order in orders:
        store.stop_workers(["w1"], order)
    assert stop_of(store, "w1") == result


def test_a_new_worker_may_work_although_others_were_stopped(store: Store, hire: Hire) -> None:
    hire("old")
    store.stop_workers(["old"], "now")
    enqueue(store)
    assert hire("new").claim()


# -- workers of other machines ---------------------------------------------------------------------------


def send_away(store: Store, worker: str, place: str) -> None:
    """As if it lived on another machine."""
    with store.engine.write() as tx:
        tx.run("UPDATE workers SET place = :place WHERE id = :id", {"place": place, "id": worker})


def test_when_the_promise_of_another_machines_worker_runs_out_is_known(
    store: Store, hire: Hire, clock: Clock, engine_name: str
) -> None:
    hire("here")
    assert store.next_expiry() is None
    hire("away")
    send_away(store, "away", "elsewhere")
    clock.advance(10)
    assert store.next_expiry() == (20 if engine_name == "postgres" else None)  # of 30; a file has one machine
    clock.advance(25)
    assert store.next_expiry() == (-5 if engine_name == "postgres" else None)


def test_a_machine_that_cannot_name_itself_takes_nobody_for_its_own(
    store: Store, hire: Hire, engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hire("w1")
    send_away(store, "w1", "")
    monkeypatch.setattr(store.engine, "place", "")
    [worker] = store.views.workers()
    assert worker.here is (engine_name == "sqlite")
