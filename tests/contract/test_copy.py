"""A queue copied to another database, in every direction, is the same queue; or nothing was copied."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from queuectl.errors import Conflict, QueuectlError, StoreUnavailable
from queuectl.jobs import run_report
from queuectl.jobs.job_spec import NewJob, from_fields
from queuectl.jobs.lifecycle import Exited, Signalled
from queuectl.jobs.model import Report
from queuectl.metrics.run_stats import Tally
from queuectl.store import Store, copy
from queuectl.store import write_queries as sql
from queuectl.store.postgres import PostgresEngine
from queuectl.store.sqlite import SqliteEngine
from tests.conftest import Clock
from tests.contract.conftest import ENGINES, FakeWorker, Hire, enqueue
from tests.postgres import Queues

AWKWARD = "zwei\nZeilen\r\n\ttab \\N \\. \\ 'quoted' \"so\" % {x} :y \x01\x7f \ufffd ünï→🎈"
IMPATIENT = 0.3  # seconds

OpenTarget = Callable[..., Store]


@pytest.fixture(params=ENGINES, ids=lambda name: f"to_{name}")
def open_target(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> Iterator[OpenTarget]:
    """Open a connection to the queue that is copied to."""
    monkeypatch.setenv("QUEUECTL_LOG_DIR", str(tmp_path / "logs"))  # so that both tell the same path
    if request.param == "sqlite":
        path = str(tmp_path / "target" / "queue.db")
        yield lambda **options: Store(SqliteEngine(path, clock=clock, **options))
        return
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    queues: Queues = request.getfixturevalue("postgres_queues")
    with queues.lend() as url:
        yield lambda **options: Store(PostgresEngine(url, clock=clock, **options))


@pytest.fixture
def target(open_target: OpenTarget) -> Iterator[Store]:
    target = open_target()
    yield target
    target.close()


@pytest.fixture
def full(open_target: OpenTarget, store: Store, hire: Hire, clock: Clock) -> Store:
    """A queue with all that can be in one, and no worker left."""
    store.set_config("max_retries", "2")
    store.set_config("backoff_jitter", "0.25")
    store.change_queue("mail", rate=10, rate_ms=3_600_000, no_retry_on="2 SIGKILL")
    store.change_queue("web", paused=True, at_once=3, per_key=2)
    for name, paused in (("hourly", False), ("often", True)):
        fields = {"command": AWKWARD, "env": {"A": "b"}}
        store.schedules.add(name, "0 * * * *", None, "Europe/Berlin", fields)
        store.schedules.trigger(name)
        store.schedules.pause([name], paused)
    store.cancel([job.id for job in store.views.jobs()])
    store.hooks.add("pager", ["dead"], url="https://example.com/x", secret="whsec_x", queue="none")
    store.hooks.add("resting", ["failed", "dead"], command=AWKWARD, only_named=True)
    store.hooks.pause(["resting"], paused=True, reason="410 Gone")
    worker, doomed = hire("w1"), hire("w2")

    enqueue(store, "exit 1", id="dead", max_retries=1)
    worker.work_off(Exited(1))
    enqueue(store, "exit 1", id="revived", max_retries=1, queue="mail")
    worker.work_off(Exited(3))
    store.retry(["revived"])
    clock.advance(1)
    said = run_report.dumped({"progress": 12.5, "message": "half", "result": {AWKWARD: [1, None]}})
    worker.settle(worker.claim_one(), Exited(0), Report(12, AWKWARD, "", 3, 4096, said))
    enqueue(store, AWKWARD, id="awkward", tags=("ünï→🎈", "b", "a"), env={"A": AWKWARD}, cwd="/tmp/ä b")
    worker.settle(worker.claim_one(), Signalled(9), Report(12, "out\n\n", "err" * 1000, 0, 0, said))
    enqueue(store, "true", id="failed", timeout_seconds=1.5, backoff_base=1.25, batch="b1", max_fails=2)
    worker.work_off(Exited(1))
    enqueue(store, "true", id="gone", max_retries=1)
    worker.work_off(Exited(1))
    store.purge_dead(["gone"])
    enqueue(store, "true", id="lost", batch="b2", max_fails=3)
    doomed.claim_one()
    doomed.die()
    store.recover("w2")
    clock.advance(5)
    enqueue(store, "true", id="cancelled", priority=-1_000)
    store.cancel(["cancelled"])
    enqueue(store, "true", id="cancelled-while-running", priority=1_000)
    claim = worker.claim_one()
    store.cancel([claim.id])
    worker.settle(claim, Signalled(15))
    later = NewJob("true", id="later", run_at=clock.now + 3_600_000, tags=("b",))
    store.enqueue([later], submission=("request 1", "fingerprint"))
    more = {"queue": "mail", "unique_key": "ä {key}", "key": "k ä", "key_limit": 4, "notify": ["pager"]}
    store.enqueue(
        [from_fields({"command": "true", "id": "pending", **more})], submission=("request ü", "fingerprint")
    )
    enqueue(store, "true", id="blocked", depends_on=["pending", {"id": "dead", "condition": "fail"}])
    tally = Tally()
    for state, run_ms in (("completed", 12), ("completed", 10**8), ("dead", 12)):
        tally.add("mail", state, run_ms, 7)
    store.record(tally)

    worker.leave()
    store.unregister("w1")
    with store.engine.write() as tx:  # as if much were left to be worked off
        tx.run("INSERT INTO cascades (job) SELECT seq FROM jobs WHERE id IN ('dead', 'cancelled')")
        tx.run("UPDATE batches SET cancel_up_to = 1, died = 7, deleted = 5 WHERE name = 'b1'")
    return store


def rows_of(store: Store) -> dict[str, list[Any]]:
    """Every row that is copied, to the last column; only where a job's log lies is told anew, and those that have
    departed may be summed up."""
    with store.engine.read() as tx:
        found = {table: tx.rows(sql.BATCH[table], {**key, "limit": 10**9}) for table, (key, _) in sql.COPIED.items()}
    key, rest = sql.COPIED["jobs"]
    place = (*key, *rest).index("log_place")
    departed: Counter[tuple[str, str]] = Counter()
    for queue, state, _, n in found["departed"]:
        departed[queue, state] += n
    jobs = [(*job[:place], *job[place + 1 :]) for job in found["jobs"]]
    return {**found, "jobs": jobs, "departed": sorted(departed.items())}


def views_of(store: Store) -> list[Any]:
    """What people see of it."""
    jobs = [(job.as_json(), job.run, store.views.history(job.id)) for job in store.views.jobs(limit=-1)]
    return [
        jobs,
        store.views.counts(),
        store.config(),
        store.views.metrics(),
        store.views.queues(),
        store.schedules.all(),
        store.hooks.all(),
    ]


def last_seq(store: Store) -> int:
    return int(rows_of(store)["jobs"][-1][0])


def is_empty(store: Store) -> bool:
    return not any(rows_of(store).values()) and not any(store.views.counts().values())


# -- the copy --------------------------------------------------------------------------------------------


def test_a_copy_is_the_same_queue(full: Store, target: Store) -> None:
    before = rows_of(full)
    counts = copy.copy(full, target)
    assert rows_of(target) == rows_of(full) == before
    assert views_of(target) == views_of(full)
    assert counts == {table: len(rows) for table, rows in before.items()}
    assert sum(counts.values()) == copy.size(full)
    assert min(counts.values()) > 1
    assert {state for state, n in target.views.counts().items() if n} == {
        "pending", "failed", "completed", "dead", "cancelled", "blocked"
    }  # fmt: skip


def test_a_request_repeated_to_the_copy_stores_nothing_twice(full: Store, target: Store) -> None:
    copy.copy(full, target)
    before = rows_of(target)
    assert target.enqueue([NewJob("true")], submission=("request 1", "fingerprint")) == ["later"]
    with pytest.raises(Conflict, match="idempotency key"):
        target.enqueue([NewJob("false")], submission=("request 1", "another fingerprint"))
    assert rows_of(target) == before


@pytest.mark.parametrize("engine_name", ["sqlite"])
def test_a_job_that_moves_to_a_fleet_says_which_machine_has_its_log(full: Store, target: Store) -> None:
    copy.copy(full, target)
    with target.engine.read() as tx:
        places = {place for (place,) in tx.rows("SELECT log_place FROM jobs WHERE run > 0")}
    assert places == ({f"{os.uname().nodename}:{full.engine.log_dir}"} if target.engine.leased else {None})


def test_every_column_of_every_table_is_copied(store: Store, engine_name: str) -> None:
    if engine_name == "sqlite":
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        columns = "SELECT name FROM pragma_table_info(:table)"
    else:
        tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        columns = """SELECT column_name FROM information_schema.columns
                      WHERE table_schema = current_schema() AND table_name = :table"""
    with store.engine.read() as tx:
        assert {name for (name,) in tx.rows(tables)} - sql.NOT_COPIED.keys() == sql.COPIED.keys()
        for table, (key, rest) in sql.COPIED.items():
            assert {name for (name,) in tx.rows(columns, {"table": table})} == {*key, *rest}


def test_an_empty_queue_can_be_copied(store: Store, target: Store) -> None:
    assert set(copy.copy(store, target).values()) == {0}
    assert is_empty(target)


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
def test_it_goes_in_batches(full: Store, target: Store, batch: int) -> None:
    told = [0]
    copy.copy(full, target, told.append, batch)
    steps = [after - before for before, after in pairwise(told)]
    assert 0 < min(steps) <= max(steps) <= batch
    assert told[-1] == copy.size(full)
    assert rows_of(target) == rows_of(full)


def test_a_job_enqueued_on_the_copy_comes_after_all_others(full: Store, target: Store) -> None:
    copy.copy(full, target, batch=2)
    enqueue(target, id="new")
    assert last_seq(target) > last_seq(full)
    assert target.views.resolve("@last") == "new"


def test_a_number_that_the_target_has_given_out_is_not_given_out_again(store: Store, target: Store) -> None:
    for _ in range(5):
        enqueue(target)
    used = last_seq(target)
    target.reset()
    enqueue(store)
    copy.copy(store, target)
    enqueue(target)
    assert last_seq(target) > used


def test_the_copy_is_worked_off_as_the_queue_would_have_been(full: Store, target: Store, clock: Clock) -> None:
    clock.advance(3600)
    copy.copy(full, target)
    for store in (full, target):
        worker = FakeWorker(store, "w9")
        claims = [claim.id for claim in worker.claim(100)]
        assert claims == ["awkward", "failed", "lost", "later", "pending"]
        worker.leave()


def test_what_is_enqueued_meanwhile_is_not_part_of_it(full: Store, other_store: Store, target: Store) -> None:
    def meanwhile(done: int) -> None:
        if done < 10:
            enqueue(other_store)
            other_store.set_config("max_retries", "7")

    before = rows_of(full)
    copy.copy(full, target, meanwhile, batch=3)
    assert rows_of(target) == before
    assert rows_of(full) != before


# -- refused ---------------------------------------------------------------------------------------------


def test_a_queue_is_not_copied_to_itself(full: Store, other_store: Store) -> None:
    before = rows_of(full)
    with pytest.raises(Conflict, match="this very queue"):
        copy.copy(full, other_store)
    assert rows_of(full) == before


@pytest.mark.parametrize("what", ["jobs", "settings"])
def test_a_target_that_is_not_empty_is_refused(full: Store, target: Store, what: str) -> None:
    if what == "jobs":
        enqueue(target)
    else:
        target.set_config("max_retries", "3")
    before = rows_of(target)
    with pytest.raises(Conflict, match=f"is not empty: it has {what}") as refused:
        copy.copy(full, target)
    assert target.engine.name in refused.value.message
    assert f"--db {target.engine.name}" in refused.value.hint.replace("'", "")
    assert rows_of(target) == before


def test_a_target_that_was_emptied_is_empty(full: Store, target: Store) -> None:
    enqueue(target)
    target.reset()
    copy.copy(full, target)
    assert views_of(target) == views_of(full)


def test_it_is_refused_while_workers_serve_the_queue(full: Store, target: Store, hire: Hire) -> None:
    hire("w3")
    with pytest.raises(Conflict, match="workers are running") as refused:
        copy.copy(full, target)
    assert full.engine.name in refused.value.message
    assert refused.value.hint == "stop them first: queuectl worker stop"
    assert is_empty(target)


def test_it_is_refused_while_workers_serve_the_target(full: Store, target: Store) -> None:
    worker = FakeWorker(target, "w3")
    with pytest.raises(Conflict, match="workers are running") as refused:
        copy.copy(full, target)
    assert target.engine.name in refused.value.message
    assert f"--db {target.engine.name}" in refused.value.hint.replace("'", "")
    assert is_empty(target)
    worker.die()
    copy.copy(full, target)


def test_jobs_that_dead_workers_hold_must_be_put_back_first(full: Store, target: Store, hire: Hire) -> None:
    worker = hire("w3")
    held = worker.claim_one()
    worker.die()
    with pytest.raises(Conflict, match="left jobs behind: 1") as refused:
        copy.copy(full, target)
    assert "queuectl worker start" in refused.value.hint
    assert is_empty(target)
    full.recover("w3")
    copy.copy(full, target)
    assert target.views.job(held.id).crashes == 1


# -- all or nothing --------------------------------------------------------------------------------------


def test_a_copy_that_fails_on_its_way_leaves_nothing(full: Store, target: Store) -> None:
    class Enough(Exception):
        pass

    for limit in range(1, copy.size(full) + 1):

        def stop(done: int, limit: int = limit) -> None:
            if done == limit:
                raise Enough

        with pytest.raises(Enough):
            copy.copy(full, target, stop, batch=1)
        assert is_empty(target)
    copy.copy(full, target)
    assert views_of(target) == views_of(full)


def test_nobody_else_gets_in_while_it_is_filled(full: Store, target: Store, open_target: OpenTarget) -> None:
    other = open_target(patience=IMPATIENT)
    kept_out: list[int] = []

    def intrude(done: int) -> None:
        if kept_out:
            return
        for change in (lambda: enqueue(other), lambda: other.set_config("max_retries", "5")):
            with pytest.raises(StoreUnavailable):
                change()
            kept_out.append(done)
        assert is_empty(other)  # nobody is kept from reading, and there is nothing to see yet

    copy.copy(full, target, intrude)
    assert len(kept_out) == 2
    assert rows_of(target) == rows_of(full)
    enqueue(other)
    other.close()


def test_what_it_would_lose_is_noticed(full: Store, target: Store) -> None:
    enqueue(full, id="alone")
    with full.engine.write() as tx:
        tx.run("UPDATE jobs SET seq = -1 WHERE id = 'alone'")  # where nobody looks for jobs
    with pytest.raises(QueuectlError, match=r"came out wrong \(jobs: 12 instead of 13\)") as refused:
        copy.copy(full, target)
    assert refused.value.exit_code == 1
    assert is_empty(target)


def test_counters_that_lie_are_noticed(full: Store, target: Store) -> None:
    with target.engine.write() as tx:
        tx.run("INSERT INTO counts (queue, state, n) VALUES ('ghosts', 'dead', 3)")
    with pytest.raises(QueuectlError, match=r"came out wrong \(ghosts dead: 3 instead of 0\)"):
        copy.copy(full, target)
    assert not any(rows_of(target).values())


@pytest.mark.parametrize("whose", ["source", "target"])
def test_an_error_is_blamed_on_the_database_that_had_it(
    full: Store, target: Store, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaking(done: int) -> None:
        if whose == "source":
            monkeypatch.setitem(sql.BATCH, "events", "SELECT 1 FROM nowhere")
        else:
            monkeypatch.setattr(sql, "COPIED_ROWS", "SELECT 1 FROM nowhere")

    with pytest.raises(StoreUnavailable) as failed:
        copy.copy(full, target, breaking)
    monkeypatch.undo()
    blamed, innocent = (full, target) if whose == "source" else (target, full)
    assert blamed.engine.name in failed.value.message
    assert innocent.engine.name not in failed.value.message
    assert is_empty(target)


def test_the_number_of_a_deleted_parent_is_given_to_no_new_job(store: Store, target: Store, hire: Hire) -> None:
    """Else a retry of that one would revive the children of the other."""
    child = NewJob("true", id="child", depends_on=["parent"], max_retries=1)
    store.enqueue([child, NewJob("true", id="parent", max_retries=1)])
    worker = hire("w1")
    worker.work_off(Exited(1))
    store.purge_dead(["parent"])
    worker.leave()
    store.unregister("w1")
    copy.copy(store, target)
    enqueue(target, id="stranger", max_retries=1)
    assert target.views.children("stranger") == []
    assert [(link.id, link.state) for link in target.views.parents("child")] == [("parent", "deleted")]
