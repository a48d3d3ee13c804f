"""Operations on very many jobs, step by step: what they promise as a whole, and what holds between two steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Never
from unittest.mock import patch

import pytest

from queuectl.errors import Conflict, NotFound, StoreUnavailable
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Report
from queuectl.store import Store, bulk_changes, reset, steps
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue

FAILED = Exited(1)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "AT_ONCE", 2)
    monkeypatch.setattr(steps, "TOGETHER", 2)
    monkeypatch.setattr(bulk_changes, "MOST_ROWS", 4)
    monkeypatch.setattr(reset, "ROWS_AT_ONCE", 4)


def between(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], nth: int = 1) -> None:
    """Do this between two steps."""
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == nth:
            action()

    monkeypatch.setattr(steps, "pause", pause)


def job(id: str, *parents: str, condition: str = "ok", **fields: object) -> NewJob:
    links = [{"id": parent, "condition": condition} for parent in parents]
    return NewJob("true", id=id, depends_on=links, max_retries=1, **fields)  # type: ignore[arg-type]


def states(store: Store) -> dict[str, str]:
    return {job.id: job.state for job in reversed(store.views.jobs(limit=-1))}


def dead(store: Store, hire: Hire, *ids: str, **fields: object) -> list[str]:
    store.enqueue([job(id, **fields) for id in ids])  # type: ignore[arg-type]
    worker = hire("killer")
    for _ in ids:
        worker.work_off(FAILED)
    worker.leave()
    store.unregister("killer")
    return list(ids)


def acts(store: Store) -> list[tuple[str, str]]:
    return [(act.action, act.target) for act in store.views.acts()]


# -- all of it, or none ----------------------------------------------------------------------------------


def test_all_are_checked_before_the_first_is_changed(store: Store, hire: Hire) -> None:
    ids = dead(store, hire, *"abcd")
    enqueue(store, id="e")
    for action, wrong in (
        (store.retry, "e"), (store.delete, "e"), (store.purge_dead, "e"), (store.cancel, "a"),
    ):  # fmt: skip
        with pytest.raises(Conflict) as refused:
            action([*ids, wrong] if wrong == "e" else ["e", *ids])
        assert "before that" not in refused.value.message
        with pytest.raises(NotFound, match="nobody"):
            action([*ids, "nobody"])
    assert states(store) == {**dict.fromkeys(ids, "dead"), "e": "pending"}


def test_what_goes_wrong_on_the_way_is_told_with_what_was_done_before(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([job(id) for id in "abcd"])
    worker = hire()
    claims = {claim.id: claim for claim in worker.claim(4)}
    between(monkeypatch, lambda: worker.settle(claims["d"]))
    with pytest.raises(Conflict, match='job "d" is already completed; 2 of 4 jobs were cancelled before that'):
        store.cancel(list("abcd"))
    assert [store.views.job(id).cancel_requested for id in "abcd"] == [True, True, False, False]


def test_a_store_that_goes_away_on_the_way_says_so_and_what_was_done_before(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dead(store, hire, *"abcde")

    def fail() -> None:
        raise StoreUnavailable("the database is gone", "try again")

    between(monkeypatch, lambda: monkeypatch.setattr(store.engine, "write", fail))
    with pytest.raises(StoreUnavailable, match="the database is gone; 2 of 5 jobs were retried before that"):
        store.retry(ids)


# -- retry -----------------------------------------------------------------------------------------------


def test_all_dead_jobs_are_retried_in_one_line_of_time_and_of_the_audit(
    store: Store, hire: Hire, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dead(store, hire, *"abcdefg")
    store.actor = "ann"
    start = clock.now
    between(monkeypatch, lambda: clock.advance(0.5))
    assert store.retry(spacing=1) == ids
    assert [store.views.job(id).run_at - start for id in ids] == [1000 * n for n in range(7)]
    assert acts(store)[0] == ("retry", "a, b, c, d, e and 2 more")
    assert len(acts(store)) == 1


def test_of_all_dead_jobs_those_that_somebody_was_quicker_with_are_left_out(
    store: Store, other_store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(store, hire, *"abcd")
    between(monkeypatch, lambda: (other_store.retry(["c"]), other_store.delete(["d"])))
    assert store.retry() == ["a", "b"]
    assert store.purge_dead() == 0
    assert states(store) == dict.fromkeys("abc", "pending")


def test_keys_that_are_taken_are_found_before_the_first_is_retried(store: Store, hire: Hire) -> None:
    for id in "abcd":
        dead(store, hire, id, unique_key="same" if id in "ad" else None)
    with pytest.raises(Conflict, match='has the key "same"'):
        store.retry()
    store.delete(["a"])
    dead(store, hire, "e")
    enqueue(store, id="holder", unique_key="same")
    with pytest.raises(Conflict, match='job "holder" has the key "same" of "d" now'):
        store.retry()
    assert set(states(store).values()) == {"dead", "pending"}
    assert states(store)["b"] == "dead"


# -- cancel ----------------------------------------------------------------------------------------------


def test_nothing_that_is_to_be_cancelled_may_run_between_two_steps(
    store: Store, other_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of their numbers each would let the next one go, through jobs that are not meant, too."""
    store.enqueue([job("j0"), job("between", "j0"), job("j1", "between", condition="any")])
    store.enqueue([job(f"j{n}", f"j{n - 1}", condition="any") for n in range(2, 8)])
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(steps, "pause", lambda: seen.append(states(other_store)))
    store.cancel([f"j{n}" for n in range(8)])
    assert len(seen) >= 3
    for found in seen:
        assert [id for id, state in found.items() if state == "pending"] == ["j0"]
    assert set(states(store).values()) == {"cancelled"}


def test_what_has_finished_or_is_gone_meanwhile_can_be_left_out(
    store: Store, other_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([job(id) for id in "abcd"])
    between(monkeypatch, lambda: (other_store.cancel(["c"]), other_store.cancel(["d"]), other_store.delete(["d"])))
    assert store.cancel(list("abcd"), skip_finished=True) == {"a": "cancelled", "b": "cancelled"}
    assert states(store) == dict.fromkeys("abc", "cancelled")


# -- cascades --------------------------------------------------------------------------------------------


def test_workers_are_told_that_there_is_something_to_work_off_and_one_step_after_the_other_does_it(
    store: Store, hire: Hire
) -> None:
    store.enqueue([job("a"), *(job(f"c{n}", "a") for n in range(5)), *(job(f"d{n}", f"c{n}") for n in range(5))])
    worker = hire()
    assert not store.tick(worker.id).undone
    with patch.object(Store, "work_off_all"):  # as if the one who cancels were killed now
        store.cancel(["a"])
    cancelled = [list(states(store).values()).count("cancelled")]
    assert worker.hears()
    while store.tick(worker.id).undone:
        store.work_off()
        cancelled.append(list(states(store).values()).count("cancelled"))
    assert cancelled == sorted(cancelled)
    assert (cancelled[0], cancelled[-1]) == (3, 11)
    assert max(after - before for before, after in itertools.pairwise(cancelled)) <= 2
    assert not store.work_off()


def test_a_parent_is_not_deleted_before_its_children_have_been_told(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), *(job(f"c{n}", "a") for n in range(5))])
    with patch.object(Store, "work_off_all"):
        store.cancel(["a"])
        with pytest.raises(Conflict, match="yet to be told"):
            store.delete(["a"])
        store.prune(["cancelled"], 0)
        assert states(store)["a"] == "cancelled"
    assert store.delete(["a"]) == 1  # works it off first
    assert set(states(store).values()) == {"cancelled"}


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_a_lock_on_one_parent_does_not_hold_up_the_children_of_others(store: Store, other_store: Store) -> None:
    store.enqueue([*(job(id) for id in "ab"), *(job(f"{id}{n}", id) for id in "ab" for n in range(5))])
    with patch.object(Store, "work_off_all"):
        store.cancel(["a"])
        store.cancel(["b"])
    with other_store.engine.write() as tx:
        tx.rows("SELECT 1 FROM jobs WHERE id = 'a' FOR UPDATE")
        while store.work_off():
            pass
    assert [states(store)[f"b{n}"] for n in range(5)] == ["cancelled"] * 5
    assert "blocked" in states(store).values()
    while store.work_off():
        pass
    assert "blocked" not in states(store).values()


# -- batches ---------------------------------------------------------------------------------------------


def test_nothing_of_a_batch_is_claimed_while_the_rest_of_it_is_cancelled(store: Store, hire: Hire) -> None:
    store.enqueue([job(f"j{n}", batch="b", max_fails=1) for n in range(9)])
    enqueue(store, id="stranger")
    worker = hire()
    claim = worker.claim_one()
    end = after_run(claim, FAILED, store.config(), 0)
    tick = store.tick(worker.id, [(claim, end, Report())], slots=3)
    assert "pending" in [state for id, state in states(store).items() if id != "stranger"]
    claims = [claim.id for claim in tick.claims]
    while store.tick(worker.id).undone:
        claims += [claim.id for claim in worker.claim(3)]
        store.work_off()
    claims += [claim.id for claim in worker.claim(3)]
    assert claims == ["stranger"]
    assert [states(store)[f"j{n}"] for n in range(9)] == ["dead"] + ["cancelled"] * 8
    assert store.views.job("j8").error == 'its batch "b" has 1 dead, the limit is 1'


def test_what_joins_a_batch_while_its_rest_is_cancelled_is_not_meant(store: Store, hire: Hire) -> None:
    store.enqueue([job(f"j{n}", batch="b", max_fails=1) for n in range(9)])
    worker = hire()
    worker.work_off(FAILED)
    store.enqueue([job("late", batch="b")])
    assert [claim.id for claim in worker.claim(1)] == []
    while store.work_off():
        pass
    assert states(store)["late"] == "pending"
    assert worker.claim_one().id == "late"


def test_dead_jobs_that_were_deleted_still_count_against_their_batch(store: Store, hire: Hire) -> None:
    store.enqueue([job(f"j{n}", batch="b", max_fails=2) for n in range(3)])
    worker = hire()
    worker.work_off(FAILED)
    store.purge_dead()
    worker.work_off(FAILED)
    assert states(store) == {"j1": "dead", "j2": "cancelled"}


def test_a_batch_of_which_nothing_is_left_begins_anew(store: Store, hire: Hire) -> None:
    worker = hire()
    for _ in range(2):
        store.enqueue([job(f"j{n}", batch="b", max_fails=2) for n in range(2)])
        worker.work_off(FAILED)
        worker.work_off()
        assert set(states(store).values()) == {"dead", "completed"}
        store.delete(["j0", "j1"])


# -- delete, and reset -----------------------------------------------------------------------------------


def test_a_long_history_goes_before_its_job(store: Store, hire: Hire) -> None:
    enqueue(store, id="a", max_retries=30, backoff_base=0)
    worker = hire()
    for _ in range(30):
        worker.work_off(FAILED)
    assert len(store.views.history("a")) > 30
    assert store.purge_dead() == 1
    enqueue(store, id="a")
    assert len(store.views.history("a")) == 1


def test_a_reset_in_steps_leaves_nothing_and_gives_one_account(store: Store, hire: Hire) -> None:
    dead(store, hire, *"abcdefgh", tags=["x"])
    store.enqueue([job("p"), *(job(f"c{n}", "p") for n in range(5))])
    with patch.object(Store, "work_off_all"):
        store.cancel(["p"])
    store.set_config("max_retries", "9")
    store.actor = "ann"
    assert store.reset() == 14
    assert store.config()["max_retries"] == 3
    with store.engine.read() as tx:
        for table in ("jobs", "events", "tags", "dependencies", "cascades", "counts", "departed", "config"):
            assert tx.rows(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert acts(store) == [("reset", "c4, c3, c2, c1, c0 and 9 more")]


def test_a_reset_stops_when_a_worker_comes_and_says_how_far_it_got(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_config("max_retries", "9")
    store.enqueue([job(f"j{n}") for n in range(20)])
    between(monkeypatch, lambda: hire("late"), nth=3)
    with pytest.raises(Conflict, match=r"workers are running: 1; \d+ jobs were deleted before that"):
        store.reset()
    assert 0 < len(states(store)) < 20
    assert store.config()["max_retries"] == 9, "what holds jobs back goes after them"


def test_a_reset_that_loses_the_database_says_how_far_it_got(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.enqueue([job(f"j{n}") for n in range(20)])

    def gone() -> None:
        monkeypatch.setattr(store.engine, "write", unavailable)

    def unavailable(at_once: bool = False) -> Never:
        raise StoreUnavailable("the database is gone", "try again")

    between(monkeypatch, gone, nth=3)
    with pytest.raises(StoreUnavailable, match=r"the database is gone; \d+ jobs were deleted before that"):
        store.reset()


# -- limits ----------------------------------------------------------------------------------------------


def test_jobs_that_a_refused_reset_leaves_are_whole(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset, "JOBS_AT_ONCE", 4)
    monkeypatch.setattr(bulk_changes, "MOST_ROWS", 100)
    store.enqueue(
        [job(f"c{n}", f"p{n}", tags=["a"]) for n in range(5)] + [job(f"p{n}", tags=["a"]) for n in range(5)]
    )
    between(monkeypatch, lambda: hire("late"))
    with pytest.raises(Conflict, match="4 jobs were deleted before that"):
        store.reset()
    left = store.views.jobs(limit=-1)
    assert len(left) == 6
    assert all(job.tags == ("a",) for job in left if job.id.startswith("c"))
    assert {parent for job in left for parent, _ in job.depends_on} <= {job.id for job in left}


def test_an_id_given_twice_is_retried_once(store: Store, hire: Hire) -> None:
    ids = dead(store, hire, *(f"j{n}" for n in range(5)))
    assert store.retry([*ids, ids[0]]) == ids


@pytest.mark.parametrize("change", ["cancel", "retry"])
def test_workers_hear_of_what_was_changed_before_an_error(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ids = [f"j{n}" for n in range(5)]
    if change == "cancel":
        store.enqueue([job(id) for id in ids])
    else:
        dead(store, hire, *ids)
    other = {"cancel": store.delete, "retry": store.purge_dead}[change]
    between(monkeypatch, lambda: (store.cancel([ids[-1]]) if change == "cancel" else None, other([ids[-1]])))
    calls: list[bool] = []
    act = {"cancel": bulk_changes.cancel, "retry": bulk_changes.retry}[change]
    with patch.object(store.engine, "announce", side_effect=lambda: calls.append(True)), pytest.raises(NotFound):
        act(store, ids)
    assert calls


def test_dead_jobs_whose_children_are_yet_to_be_told_do_not_keep_a_purge_busy(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dead(store, hire, *(f"j{n}" for n in range(3)))
    monkeypatch.setattr(store, "work_off_all", lambda *_: None)
    with store.engine.write() as tx:
        for id in ids[:2]:
            tx.run("INSERT INTO cascades (job) SELECT seq FROM jobs WHERE id = :id", {"id": id})
    assert store.purge_dead() == 1
    assert sorted(states(store)) == ids[:2]


def test_a_deletion_in_steps_that_is_refused_says_what_was_deleted(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "TOGETHER", 100)
    ids = dead(store, hire, *(f"j{n}" for n in range(4)))
    between(monkeypatch, lambda: store.retry([ids[-1]]))
    with pytest.raises(Conflict, match=r'job "j3" is pending, not dead; \d of 4 jobs were deleted before that'):
        store.purge_dead(ids)


@pytest.mark.parametrize("most", [2, 7])
def test_a_higher_limit_lets_go_of_the_first_of_each_key(store: Store, hire: Hire, most: int) -> None:
    store.enqueue([job(f"{key}{n}", key=key) for key in "abcde" for n in range(4)])
    worker = hire()
    running = worker.claim(99)
    assert [claim.id for claim in running] == ["a0", "b0", "c0", "d0", "e0"]
    store.change_queue("default", per_key=most)
    running += worker.claim(99)
    assert {claim.id[0] for claim in running[5:]} == set("abcde")
    while running:
        worker.settle(running.pop(0))
        running += worker.claim(99)
    assert set(states(store).values()) == {"completed"}
