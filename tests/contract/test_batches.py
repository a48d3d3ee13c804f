"""Jobs that belong together."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from queuectl.errors import InvalidInput, NotFound
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited
from queuectl.store import Store
from queuectl.store.engine import Engine
from tests.contract.conftest import Hire, enqueue

FAILED = Exited(1)


def member(id: str, max_fails: int | None = None, **fields: object) -> NewJob:
    return NewJob("true", id=id, batch="b", max_fails=max_fails, max_retries=1, **fields)  # type: ignore[arg-type]


def states(store: Store) -> dict[str, str]:
    return {job.id: job.state for job in reversed(store.views.jobs(limit=-1))}


def test_the_jobs_of_a_batch_are_found_together(store: Store, hire: Hire) -> None:
    store.enqueue([member("a"), NewJob("true", id="other"), member("b")])
    assert store.views.ids_in("b") == ["a", "b"]
    assert [job.id for job in store.views.jobs(batch="b")] == ["b", "a"]
    hire().work_off()
    assert store.views.unfinished(batch="b") == ["b"]
    assert [job.id for job in store.views.jobs(state="completed", batch="b")] == ["a"]
    assert store.views.job("other").batch is None
    with pytest.raises(NotFound, match='no batch "x"'):
        store.views.ids_in("x")


def test_too_many_dead_cancel_the_rest_but_not_what_runs(store: Store, hire: Hire) -> None:
    store.enqueue([member(id, 2) for id in ("a", "b", "c", "d")])
    store.enqueue([member("late", depends_on=["d"]), NewJob("true", id="other"), NewJob("true", depends_on=["d"])])
    worker = hire()
    running = worker.claim_one()
    worker.work_off(FAILED)
    assert states(store)["d"] == "pending"
    worker.work_off(FAILED)
    found = states(store)
    assert [found[id] for id in ("a", "b", "c", "d", "late", "other")] == [
        "processing", "dead", "dead", "cancelled", "cancelled", "pending",
    ]  # fmt: skip
    assert store.views.counts()["cancelled"] == 3  # with the stranger that waited for one of them
    error = 'its batch "b" has 2 dead, the limit is 2'
    assert store.views.job("d").error == error
    assert [(event.state, event.reason) for event in store.views.history("d")] == [
        ("pending", "enqueued"), ("cancelled", f"cancelled: {error}"),
    ]  # fmt: skip
    worker.settle(running)
    assert states(store)["a"] == "completed"


def test_workers_are_told_of_what_waited_for_the_end_of_the_rest(store: Store, hire: Hire) -> None:
    store.enqueue([member("a", 1), member("c")])
    store.enqueue([NewJob("true", id="after", depends_on=[{"id": "c", "condition": "any"}])])
    worker, other = hire("w1"), hire("w2")
    claim = worker.claim_one()
    other.hears()
    worker.settle(claim, FAILED)
    assert states(store)["after"] == "pending"
    assert other.hears()


def test_a_failure_that_is_retried_does_not_count(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true", id="a", batch="b", max_fails=1, max_retries=2), member("c")])
    hire().work_off(FAILED)
    assert states(store) == {"a": "failed", "c": "pending"}


def test_a_worker_lost_for_good_counts(store: Store, hire: Hire) -> None:
    store.set_config("crash_limit", "1")
    store.enqueue([member("a", 1), member("c")])
    worker = hire()
    worker.claim_one()
    worker.die()
    store.recover(worker.id)
    assert states(store) == {"a": "dead", "c": "cancelled"}


def test_two_that_die_at_once_do_not_overlook_each_other(
    store: Store, hire: Hire, open_engine: Callable[[], Engine]
) -> None:
    for turn in range(10):
        store.enqueue([NewJob("true", batch=f"b{turn}", max_fails=2, max_retries=1) for _ in range(3)])
        workers = [hire(f"w{turn}-{n}") for n in range(2)]
        claims = [worker.claim_one() for worker in workers]
        others = [Store(open_engine()) for _ in workers]
        for worker, other in zip(workers, others, strict=True):
            worker._store = other
        threads = [Thread(target=w.settle, args=(c, FAILED)) for w, c in zip(workers, claims, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker, other in zip(workers, others, strict=True):
            other.close()
            worker._store = store
            store.unregister(worker.id)
        assert sorted(job.state for job in store.views.jobs(batch=f"b{turn}")) == ["cancelled", "dead", "dead"]


def test_a_limit_needs_a_batch(store: Store) -> None:
    with pytest.raises(InvalidInput, match='without a "batch"'):
        enqueue(store, max_fails=1)
    with pytest.raises(InvalidInput, match="out of range"):
        enqueue(store, batch="b", max_fails=0)
