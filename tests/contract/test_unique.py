"""At most one unfinished job for each key, and what becomes of the second."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from queuectl.errors import Conflict, QueuectlError
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited
from queuectl.store import Store
from queuectl.store.engine import Engine
from tests.contract.conftest import Hire, enqueue

FAILED = Exited(1)


def keyed(id: str, on_duplicate: str = "refuse", **fields: object) -> NewJob:
    return NewJob("true", id=id, unique_key="k", on_duplicate=on_duplicate, max_retries=1, **fields)  # type: ignore[arg-type]


def states(store: Store) -> dict[str, str]:
    return {job.id: job.state for job in reversed(store.views.jobs(limit=-1))}


def test_a_second_one_is_refused_while_the_first_is_unfinished(store: Store, hire: Hire) -> None:
    store.enqueue([keyed("a")])
    with pytest.raises(Conflict, match=r'job "a" \(pending\) has the key "k" already') as refused:
        store.enqueue([NewJob("true"), keyed("b")])
    assert refused.value.index == 1
    worker = hire()
    claim = worker.claim_one()
    with pytest.raises(Conflict, match="processing"):
        store.enqueue([keyed("b")])
    worker.settle(claim)
    store.enqueue([keyed("b")])
    assert states(store) == {"a": "completed", "b": "pending"}


def test_keys_are_nothing_but_themselves(store: Store) -> None:
    for key in ("k", "K", "ä", "{k}", 'k"', "k\\"):
        enqueue(store, unique_key=key)
    assert sorted(str(job.unique_key) for job in store.views.jobs()) == sorted(["k", "K", "ä", "{k}", 'k"', "k\\"])


def test_a_duplicate_may_be_skipped_and_gives_the_id_of_the_first(store: Store) -> None:
    store.enqueue([keyed("a")])
    skipped: list[str] = []
    ids = store.enqueue([keyed("b", "skip"), NewJob("true", id="c"), keyed("d", "skip")], skipped=skipped.append)
    assert ids == ["a", "c", "a"]
    assert skipped == ["a", "a"]
    assert list(states(store)) == ["a", "c"]


def test_in_a_batch_the_first_has_the_key(store: Store) -> None:
    assert store.enqueue([keyed("a", "skip"), keyed("b", "skip")]) == ["a", "a"]
    with pytest.raises(Conflict, match="used twice in this batch"):
        store.enqueue([NewJob("true", unique_key="x"), NewJob("true", unique_key="x", on_duplicate="replace")])


def test_a_waiting_one_may_be_replaced(store: Store) -> None:
    store.enqueue([keyed("a"), NewJob("true", id="child", depends_on=["a"])])
    store.enqueue([keyed("b", "replace")])
    assert states(store) == {"a": "cancelled", "child": "cancelled", "b": "pending"}
    assert [(event.state, event.reason) for event in store.views.history("a")] == [
        ("pending", "enqueued"), ("cancelled", 'cancelled: replaced by "b"'),
    ]  # fmt: skip


def test_a_running_one_is_not_replaced(store: Store, hire: Hire) -> None:
    store.enqueue([keyed("a")])
    hire().claim_one()
    with pytest.raises(Conflict, match='job "a", which has the key "k", is processing'):
        store.enqueue([keyed("b", "replace")])
    assert states(store) == {"a": "processing"}


def test_what_is_refused_replaces_nothing(store: Store) -> None:
    store.enqueue([keyed("a")])
    with pytest.raises(QueuectlError):
        store.enqueue([keyed("b", "replace"), NewJob("true", id="a")])
    assert states(store) == {"a": "pending"}


def test_a_dead_one_is_not_retried_while_another_has_its_key(store: Store, hire: Hire) -> None:
    store.enqueue([keyed("a")])
    worker = hire()
    worker.work_off(FAILED)
    store.enqueue([keyed("b")])
    with pytest.raises(Conflict, match='job "b" has the key "k" of "a" now'):
        store.retry(["a"])
    worker.work_off(FAILED)
    with pytest.raises(Conflict, match='has the key "k"'):
        store.retry()  # both would live again
    assert states(store) == {"a": "dead", "b": "dead"}
    store.retry(["b"])


def test_a_child_whose_key_was_taken_meanwhile_is_not_revived(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true", id="p", max_retries=1), keyed("a", depends_on=["p"])])
    hire().work_off(FAILED)
    store.enqueue([keyed("b")])
    store.retry(["p"])
    assert states(store) == {"p": "pending", "a": "cancelled", "b": "pending"}


def test_of_many_that_come_at_once_one_is_stored(store: Store, open_engine: Callable[[], Engine]) -> None:
    together = Barrier(4)
    ids: list[str] = []

    def come() -> None:
        other = Store(open_engine())
        together.wait()
        ids.extend(other.enqueue([NewJob("true", unique_key="k", on_duplicate="skip")]))
        other.close()

    threads = [Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4
    assert len(set(ids)) == 1
    assert len(store.views.jobs()) == 1
