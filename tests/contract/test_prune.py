"""Cleaning up: by age and state, with logs and history, in bounded steps; and wiping the lot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from queuectl.errors import Conflict, NotFound
from queuectl.jobs import log_files
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited
from queuectl.store import Store, copy, open_store
from queuectl.store import write_queries as sql
from tests.conftest import Clock, eventually
from tests.contract.conftest import FakeWorker, Hire, enqueue
from tests.postgres import Server

DAY = 86400
ALL = ("completed", "dead", "cancelled")


def finish(store: Store, worker: FakeWorker, state: str, id: str) -> Path:
    """A job that has come to this end, and left a log; the log."""
    enqueue(store, id=id, max_retries=1, tags=["x"])
    if state == "cancelled":
        store.cancel([id])
    else:
        worker.work_off(Exited(0 if state == "completed" else 1))
    path = log_files.path_of(store.engine.log_dir, id)
    log_files.append(path, b"hello\n")
    return Path(path)


def ids(store: Store) -> list[str]:
    return [job.id for job in reversed(store.views.jobs(limit=-1))]


def test_what_finished_long_enough_ago_goes(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    finish(store, worker, "completed", "old")
    clock.advance(3 * DAY)
    finish(store, worker, "completed", "young")
    clock.advance(4 * DAY)
    assert store.views.prunable(ALL, 7 * DAY) == 1
    assert store.prune(ALL, 7 * DAY) == 1
    assert ids(store) == ["young"]
    assert store.prune(ALL, 7 * DAY) == 0


def test_age_counts_from_the_end_and_not_from_the_enqueueing(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store)
    clock.advance(100 * DAY)
    hire().work_off()
    assert store.prune(ALL, DAY) == 0


@pytest.mark.parametrize("chosen", [("completed",), ("dead",), ("cancelled",), ("completed", "cancelled"), ALL])
def test_only_the_chosen_states_go(store: Store, hire: Hire, chosen: tuple[str, ...]) -> None:
    worker = hire()
    for state in ALL:
        finish(store, worker, state, state)
    assert store.views.prunable(chosen, 0) == len(chosen)
    assert store.prune(chosen, 0) == len(chosen)
    assert ids(store) == [state for state in ALL if state not in chosen]


def test_what_has_not_finished_never_goes(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    enqueue(store, id="running")
    worker.claim_one()
    enqueue(store, id="failed")
    worker.work_off(Exited(1))
    enqueue(store, id="waiting")
    clock.advance(1000 * DAY)
    assert store.prune((*ALL, "pending", "processing", "failed"), 0) == 0
    assert ids(store) == ["running", "failed", "waiting"]


def test_logs_and_history_and_tags_go_with_the_job(store: Store, hire: Hire) -> None:
    worker = hire()
    gone, kept = finish(store, worker, "completed", "a"), finish(store, worker, "dead", "b")
    store.prune(("completed",), 0)
    assert not gone.exists()
    assert kept.exists()
    with pytest.raises(NotFound):
        store.views.history("a")
    assert [job.id for job in store.views.jobs(tag="x")] == ["b"]
    enqueue(store, id="a")  # a new job of that name has no past
    assert [event.reason for event in store.views.history("a")] == ["enqueued"]
    assert store.views.job("a").tags == ()


def test_one_step_is_bounded_and_takes_the_oldest_first(store: Store, hire: Hire, clock: Clock) -> None:
    worker = hire()
    for n in range(5):
        finish(store, worker, "completed", f"job{n}")
        clock.advance(1)
    assert store.prune(ALL, 0, limit=2) == 2
    assert ids(store) == ["job2", "job3", "job4"]


def test_one_step_takes_a_thousand_at_most(store: Store) -> None:
    store.cancel(store.enqueue([NewJob("true")] * 1001))
    assert [store.prune(ALL, 0) for _ in range(3)] == [1000, 1, 0]


def test_the_counts_follow(store: Store, hire: Hire) -> None:
    finish(store, hire(), "completed", "a")
    store.prune(ALL, 0)
    assert sum(store.views.counts().values()) == 0


# -- the dead letter queue -------------------------------------------------------------------------------


def test_all_dead_jobs_are_purged_with_their_logs_and_no_others(store: Store, hire: Hire) -> None:
    worker = hire()
    paths = {state: finish(store, worker, state, state) for state in ALL}
    assert store.purge_dead() == 1
    assert ids(store) == ["completed", "cancelled"]
    assert {state: path.exists() for state, path in paths.items()} == {
        "completed": True,
        "dead": False,
        "cancelled": True,
    }


def test_only_the_named_ones_are_purged_and_only_if_they_are_dead(store: Store, hire: Hire) -> None:
    worker = hire()
    for id, state in (("a", "dead"), ("b", "dead"), ("c", "completed")):
        finish(store, worker, state, id)
    for others in (["a", "c"], ["a", "nobody"]):
        with pytest.raises((Conflict, NotFound)):
            store.purge_dead(others)
    assert store.purge_dead(["a"]) == 1
    assert ids(store) == ["b", "c"]


def test_an_empty_dead_letter_queue_is_purged_of_nothing(store: Store) -> None:
    assert store.purge_dead() == 0
    assert store.purge_dead([]) == 0


# -- reset -----------------------------------------------------------------------------------------------


def test_a_reset_leaves_an_empty_queue_with_default_settings_and_no_logs(store: Store, hire: Hire) -> None:
    worker = hire()
    path = finish(store, worker, "dead", "a")
    enqueue(store)
    worker.claim_one()
    enqueue(store)
    worker.die()
    store.recover("w1")
    store.set_config("max_retries", "9")
    assert store.reset() == 3
    assert store.views.jobs() == []
    assert sum(store.views.counts().values()) == 0
    assert store.views.workers() == []
    assert store.config()["max_retries"] == 3
    assert not path.exists()
    assert enqueue(store)


def test_a_reset_is_refused_while_a_worker_lives(store: Store, hire: Hire) -> None:
    worker = hire()
    path = finish(store, worker, "completed", "a")
    store.set_config("max_retries", "9")
    with pytest.raises(Conflict, match="running"):
        store.reset()
    assert ids(store) == ["a"]
    assert store.config()["max_retries"] == 9
    assert path.exists()


def test_a_claim_from_before_a_reset_reaches_no_job_after_it(store: Store, hire: Hire) -> None:
    enqueue(store, id="a")
    worker = hire("w1")
    old = worker.claim_one()
    worker.die()
    store.recover("w1")
    store.reset()
    enqueue(store, id="a")
    again = hire("w1")
    again.claim_one()
    assert again.settle(old) is False


@pytest.mark.parametrize("engine_name", ["postgres"])
@pytest.mark.parametrize("table", ["config", "jobs"])
def test_a_reset_waits_for_a_transaction_that_holds_a_job_and_has_more_to_write(
    store: Store, other_store: Store, postgres: Server, table: str
) -> None:
    """Each of the two would wait for the other, and the server would end one of them after a second."""
    enqueue(store, id="parent")
    reset = Thread(target=store.reset)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'"
    with other_store.engine.write() as tx:
        tx.rows(sql.LOCK_JOBS, {"ids": ["parent"]})
        reset.start()
        eventually(lambda: postgres.sql(waiting), "the reset to wait")
        if table == "config":
            tx.run(sql.SET_CONFIG, {"key": "max_retries", "value": "9"})
        else:
            tx.run("UPDATE jobs SET priority = 5 WHERE id = 'parent'")
    reset.join()
    assert (store.config()["max_retries"], store.views.jobs()) == (3, [])


# -- what still runs -------------------------------------------------------------------------------------


def copied_away(store: Store, folder: Path) -> None:
    with closing(open_store(str(folder / "copy.db"))) as target:
        copy.copy(store, target)


def copied_over(store: Store, folder: Path) -> None:
    with closing(open_store(str(folder / "copy.db"))) as source:
        enqueue(source)
        copy.copy(source, store)


REMOVALS: dict[str, tuple[Callable[[Store, Path], object], str]] = {
    "delete": (lambda store, _: store.delete(["a"]), "is processing, not finished"),
    "purge": (lambda store, _: store.purge_dead(["a"]), "is processing, not dead"),
    "purge all": (lambda store, _: store.purge_dead(), ""),
    "prune": (lambda store, _: store.prune((*ALL, "processing"), 0), ""),
    "reset": (lambda store, _: store.reset(), "workers that died have left jobs behind: 1"),
    "copy": (copied_away, "workers that died have left jobs behind: 1"),
    "copy into it": (copied_over, "is not empty"),
    "remove its schedule": (lambda store, _: store.schedules.remove(["s"]), ""),
    "remove its hook": (lambda store, _: store.hooks.remove(["h"]), ""),
    "drop the limits of its queue": (lambda store, _: store.change_queue("default", at_once=None), ""),
    "stop its worker": (lambda store, _: store.stop_workers(["w1"], "now"), ""),
}


@pytest.mark.parametrize("how", REMOVALS)
def test_no_removal_forgets_what_a_killed_worker_has_left_running(
    store: Store, hire: Hire, tmp_path: Path, how: str
) -> None:
    """Its processes may live on: until they are ended, the job must be there to be put back."""
    store.hooks.add("h", ["dead"], command="true")
    store.schedules.add("s", "0 * * * *", None, "UTC", {"command": "true"})
    store.change_queue("default", at_once=5)
    enqueue(store, id="a", notify=["h"])
    worker = hire("w1")
    claim = worker.claim_one()
    worker.die()
    remove, refused = REMOVALS[how]
    if refused:
        with pytest.raises(Conflict, match=refused) as error:
            remove(store, tmp_path)
        if "left jobs behind" in refused:
            assert "queuectl worker start" in error.value.hint
    else:
        remove(store, tmp_path)
    assert [(lost.seq, lost.run) for lost in store.lost_workers()["w1"]] == [(claim.seq, claim.run)]
    assert store.recover("w1") is not None
    assert store.views.job("a").state == "pending"
