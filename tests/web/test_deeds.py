"""Doing the same to many jobs, as the dashboard and the API do it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import pytest

from queuectl.jobs.job_filter import Filter
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited
from queuectl.jobs.model import Report
from queuectl.store import Store
from queuectl.web import bulk_actions, job_actions
from queuectl.web.api.bulk import to_matching
from queuectl.web.bulk_actions import AT_ONCE, Work, Works
from queuectl.web.http_errors import TooBusy
from queuectl.web.job_actions import DEEDS, Outcome, apply
from tests.conftest import eventually
from tests.contract.conftest import FakeWorker


def test_what_cannot_be_done_is_counted_and_stops_nothing(store: Store) -> None:
    known = store.enqueue([NewJob("true") for _ in range(4)])
    store.cancel(known[:1])
    assert apply(store, DEEDS["cancel"], [*known, "gone", known[1]]) == Outcome(3, 2)
    assert apply(store, DEEDS["retry"], known) == Outcome(0, 4)
    assert apply(store, DEEDS["delete"], known) == Outcome(4, 0)


def test_a_job_that_changes_meanwhile_does_not_hold_up_the_others(store: Store) -> None:
    known = store.enqueue([NewJob("true") for _ in range(3)])
    first = True

    def late(store: Store, ids: object) -> object:
        nonlocal first
        if first:
            first = False
            store.cancel([known[1]])
        return store.cancel(list(ids))  # type: ignore[call-overload]

    outcome = apply(store, DEEDS["cancel"]._replace(do=late), known)
    assert (outcome.done, outcome.unfit) == (2, 1)
    assert set(store.views.states(known).values()) == {"cancelled"}


def test_works_are_few_at_a_time_can_be_stopped_and_end_with_the_server(store: Store) -> None:
    store.enqueue([NewJob("true") for _ in range(10)])
    works = Works()
    gate = threading.Event()

    begun = []

    def slow(store: Store, ids: object) -> object:
        begun.append(ids)
        gate.wait()
        return store.cancel(list(ids))  # type: ignore[call-overload]

    running = [Work(DEEDS["cancel"]._replace(do=slow), Filter(), "ann", 10, True) for _ in range(AT_ONCE)]
    for work in running:
        works.start(work, store.engine.url)
    with pytest.raises(TooBusy):
        works.start(Work(DEEDS["cancel"], Filter(), "ann", 10, True), store.engine.url)
    eventually(lambda: len(begun) == AT_ONCE)
    gate.set()
    works.stop()
    assert works.running == []
    assert {work.state for work in running} <= {"completed", "cancelled"}
    assert store.views.counts()["cancelled"] == 10
    assert sum(work.outcome.done for work in running) == 10


def test_a_work_that_breaks_has_failed_and_is_in_the_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.enqueue([NewJob("true")])

    def broken(store: Store, ids: object) -> object:
        raise ZeroDivisionError

    works = Works()
    work = Work(DEEDS["cancel"]._replace(do=broken), Filter(), "ann", 1, True)
    with caplog.at_level(logging.ERROR, "queuectl.web"):
        works.start(work, store.engine.url)
        eventually(lambda: work.ended is not None)
    assert (work.state, work.percent) == ("failed", 0)
    assert "the server's log" in work.trouble
    assert "ZeroDivisionError" in caplog.text


def test_the_servers_end_waits_for_all_works_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_actions, "ENDS_WITHIN", 0.2)
    waited = []

    class Stuck(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            assert timeout is not None
            waited.append(timeout)
            threading.Event().wait(timeout)

    works = Works()
    works._threads += [Stuck(), Stuck(), Stuck()]
    works.stop()
    assert len(waited) == 3
    assert max(waited[1:]) < 0.1


# -- request by request ----------------------------------------------------------------------------------


def all_requests(store: Store, do: Callable[[Store, Sequence[str]], object], name: str) -> tuple[list[int], int]:
    """Requests that have no time at all, until one says that there is nothing more: what each saw, and all that was
    done."""
    deed = DEEDS[name]._replace(do=do)
    seen, done, cursor = [], 0, None
    while True:
        answer = to_matching(store, deed, Filter(queue="mail"), deed.states, cursor, budget=0)
        seen.append(answer["matched"])
        done += answer["done"]
        assert answer["more"] == (answer["next"] is not None)
        cursor = answer["next"]
        if cursor is None:
            return seen, done
        assert len(seen) < 50, "it never ends"


def test_each_request_goes_on_where_the_last_one_stopped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_actions, "CHUNK", 2)
    ids = store.enqueue([NewJob("true", queue="mail") for _ in range(5)])
    store.enqueue([NewJob("true", queue="mail", depends_on=[id]) for id in ids[:3]])
    other = store.enqueue([NewJob("true")])
    assert all_requests(store, Store.cancel, "cancel") == ([2, 3, 2, 1], 8)  # three are blocked, five pending
    assert store.views.job(other[0]).state == "pending"


def test_what_is_refused_for_ever_is_not_asked_for_ever(store: Store) -> None:
    ids = store.enqueue([NewJob("false", queue="mail", max_retries=1, unique_key=f"k{n}") for n in range(4)])
    worker = FakeWorker(store, "w1", ("mail",))
    for _ in ids:
        worker.settle(worker.claim_one(), Exited(1), Report())
    worker.leave()
    store.enqueue([NewJob("true", unique_key=f"k{n}") for n in (0, 2)])
    assert all_requests(store, Store.retry, "retry") == ([1, 1, 1, 1], 2)  # one by one, and time is up after each
    assert [store.views.job(id).state for id in ids] == ["dead", "pending", "dead", "pending"]
