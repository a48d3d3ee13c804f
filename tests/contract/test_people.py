"""Who did what, and what was asked for twice."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from queuectl.errors import Conflict
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited
from queuectl.store import Store, audit
from queuectl.store.engine import Engine
from tests.contract.conftest import Hire, enqueue


def acts(store: Store) -> list[tuple[str, str, str, str]]:
    return [(act.who, act.action, act.target, act.detail) for act in store.views.acts()]


def test_every_change_on_somebodys_behalf_is_written_down(store: Store, hire: Hire) -> None:
    store.actor = "ann"
    enqueue(store, id="a", max_retries=1)
    worker = hire("w1")
    worker.work_off(Exited(1))
    store.retry(["a"])
    store.cancel(["a"])
    store.delete(["a"])
    store.set_config("max_retries", "5")
    store.unset_config("max_retries")
    store.change_queue("mail", paused=True)
    store.schedules.add("nightly", "0 1 * * *", None, "UTC", {"command": "true"})
    store.schedules.pause(["nightly"], True)
    store.schedules.remove(["nightly"])
    store.hooks.add("pager", ["dead"], command="true")
    store.hooks.pause(["pager"], True)
    store.hooks.remove(["pager"])
    store.stop_workers(["w1"], "drain")
    assert acts(store)[::-1] == [
        ("ann", "enqueue", "a", ""),
        ("ann", "retry", "a", ""),
        ("ann", "cancel", "a", ""),
        ("ann", "delete", "a", ""),
        ("ann", "set", "max_retries", "5"),
        ("ann", "unset", "max_retries", "3"),
        ("ann", "queue", "mail", "paused = True"),
        ("ann", "schedule", "nightly", "added"),
        ("ann", "schedule", "nightly", "paused"),
        ("ann", "schedule", "nightly", "removed"),
        ("ann", "hook", "pager", "added, on dead"),
        ("ann", "hook", "pager", "paused"),
        ("ann", "hook", "pager", "removed"),
        ("ann", "stop", "w1", "drain"),
    ]


def test_nothing_is_written_down_if_nobody_is_behind_it_or_nothing_happened(store: Store) -> None:
    enqueue(store, id="a")
    store.cancel(["a"])
    store.actor = "ann"
    with pytest.raises(Conflict):
        store.cancel(["a"])
    store.purge_dead()
    assert acts(store) == []


def test_many_targets_are_told_in_short_and_old_acts_are_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "KEPT", 2)
    store.actor = "ann"
    store.enqueue([NewJob("true", id=f"j{n}") for n in range(9)])
    assert acts(store) == [("ann", "enqueue", "j0, j1, j2, j3, j4 and 4 more", "")]
    for n in range(3):
        store.cancel([f"j{n}"])
    assert [act.target for act in store.views.acts()] == ["j2", "j1"]
    assert [act.target for act in store.views.acts(before=store.views.acts()[0].n)] == ["j1"]


def test_acts_are_found_by_who_and_by_action(store: Store) -> None:
    for who in ("ann", "bob"):
        store.actor = who
        for value in ("1", "2"):
            store.set_config("max_retries", value)
        store.unset_config("max_retries")
    found = store.views.acts(who="ann", action="set")
    assert [(act.who, act.action, act.detail) for act in found] == [("ann", "set", "2"), ("ann", "set", "1")]
    assert [act.detail for act in store.views.acts(before=found[0].n, who="ann")] == ["1"]
    assert [act.who for act in store.views.acts(action="unset")] == ["bob", "ann"]
    assert store.views.acts(who="eve") == []


def test_only_what_has_finished_can_be_deleted_and_all_or_none_of_it(store: Store) -> None:
    enqueue(store, id="a")
    enqueue(store, id="b")
    store.cancel(["a"])
    with pytest.raises(Conflict, match='"b" is pending, not finished'):
        store.delete(["a", "b"])
    assert store.views.job("a").state == "cancelled"
    assert store.delete(["a"]) == 1
    assert store.views.states(["a", "b"]) == {"b": "pending"}


def test_a_request_that_names_itself_happens_once(store: Store) -> None:
    first = store.enqueue([NewJob("true"), NewJob("false")], submission=("key", "print"))
    assert store.enqueue([NewJob("true"), NewJob("false")], submission=("key", "print")) == first
    assert len(store.views.jobs()) == 2
    with pytest.raises(Conflict, match="another request"):
        store.enqueue([NewJob("true")], submission=("key", "other"))
    assert len(store.views.jobs()) == 2


def test_a_request_that_was_refused_may_be_made_again(store: Store) -> None:
    enqueue(store, id="a")
    with pytest.raises(Conflict):
        store.enqueue([NewJob("true", id="a")], submission=("key", "print"))
    store.cancel(["a"])
    store.delete(["a"])
    assert store.enqueue([NewJob("true", id="a")], submission=("key", "print")) == ["a"]


def test_the_same_request_from_many_at_once_happens_once(open_engine: Callable[[], Engine], store: Store) -> None:
    answers: list[list[str]] = []

    def ask() -> None:
        mine = Store(open_engine())
        answers.append(mine.enqueue([NewJob("true")], submission=("key", "print")))
        mine.close()

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(answers) == 8
    assert len({tuple(ids) for ids in answers}) == 1
    assert len(store.views.jobs()) == 1
