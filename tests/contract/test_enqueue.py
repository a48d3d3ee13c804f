"""Storing jobs: whole, or not at all, with what they left open filled in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queuectl.errors import Conflict, Duplicate
from queuectl.jobs import job_spec
from queuectl.jobs.job_spec import LONGEST_COMMAND, NewJob
from queuectl.store import Store
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue


def test_a_job_is_pending_due_now_and_has_the_defaults(store: Store, clock: Clock) -> None:
    job = store.views.job(enqueue(store, "echo hi"))
    assert job.as_json() == {
        "id": job.id, "command": "echo hi", "queue": "default", "state": "pending", "priority": 0, "attempts": 0,
        "crashes": 0, "snoozes": 0, "max_retries": 3, "backoff_base": 2, "retry_on": (), "no_retry_on": (),
        "timeout_seconds": None,
        "run_at": "2027-01-15T08:00:00.000Z", "cwd": store.engine.default_cwd(), "env": {}, "tags": (),
        "depends_on": [], "unique_key": None, "batch": None, "key": None, "key_limit": None, "notify": (),
        "created_at": "2027-01-15T08:00:00.000Z",
        "updated_at": "2027-01-15T08:00:00.000Z",
        "started_at": None, "finished_at": None, "duration_ms": None, "outcome": None,
            "exit_code": None, "signal": None,
        "error": None, "stdout": None, "stderr": None, "progress": None, "message": None, "result": None,
        "worker_id": None,
        "log_path": f"{store.engine.log_dir}/job_{job.id}.log",
    }  # fmt: skip


def test_every_field_is_stored_as_given(store: Store, clock: Clock) -> None:
    enqueue(
        store,
        "echo é 日本 🎉\n",
        id="build-7",
        queue="mail",
        priority=-5,
        max_retries=7,
        backoff_base=1.5,
        timeout_seconds=0.25,
        run_at=clock.now + 5000,
        cwd="/tmp",
        env={"LANG": "C", "QUOTE": "'\"\\", "É": "日本"},
        tags=("nightly", "eu"),
    )
    job = store.views.job("build-7")
    assert (job.command, job.queue, job.priority, job.max_retries) == ("echo é 日本 🎉\n", "mail", -5, 7)
    assert (job.backoff_base, job.timeout_seconds, job.run_at) == (1.5, 0.25, clock.now + 5000)
    assert (job.cwd, job.env, job.tags) == (
        "/tmp",
        {"LANG": "C", "QUOTE": "'\"\\", "É": "日本"},
        ("eu", "nightly"),
    )


def test_a_job_takes_the_settings_in_force_when_it_is_enqueued(store: Store) -> None:
    for key, value in (("max_retries", "5"), ("backoff_base", "1.5"), ("job_timeout", "60")):
        store.set_config(key, value)
    job = store.views.job(enqueue(store))
    store.set_config("max_retries", "9")
    assert (job.max_retries, job.backoff_base, job.timeout_seconds) == (5, 1.5, 60)
    assert store.views.job(job.id) == job


def test_a_jobs_own_values_come_before_the_settings_even_zero(store: Store) -> None:
    for key, value in (("max_retries", "5"), ("backoff_base", "1.5"), ("job_timeout", "60")):
        store.set_config(key, value)
    job = store.views.job(enqueue(store, max_retries=0, backoff_base=0, timeout_seconds=0))
    assert (job.max_retries, job.backoff_base, job.timeout_seconds) == (0, 0, None)


def test_the_longest_command_fits(store: Store) -> None:
    command = "é" * LONGEST_COMMAND
    assert store.views.job(enqueue(store, command)).command == command


def test_a_folder_that_was_removed_under_the_enqueuer_is_left_to_the_worker(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert store.views.job(enqueue(store)).cwd is None


def test_a_batch_keeps_its_order(store: Store) -> None:
    ids = store.enqueue([NewJob(f"echo {n}") for n in range(2500)])
    assert len(set(ids)) == 2500
    assert [job.id for job in store.views.jobs(limit=-1)] == ids[::-1]
    assert [job.command for job in store.views.jobs(limit=2)] == ["echo 2499", "echo 2498"]


def test_no_jobs_are_no_jobs(store: Store) -> None:
    assert store.enqueue([]) == []
    assert store.views.counts()["pending"] == 0


def test_progress_is_told_along_the_way(store: Store) -> None:
    steps: list[int] = []
    store.enqueue([NewJob("true")] * 2500, steps.append)
    assert steps == [0, 1000, 2000]


def test_a_batch_that_fails_in_the_middle_leaves_nothing(store: Store) -> None:
    def fail_later(done: int) -> None:
        if done == 2000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.enqueue([NewJob("true", tags=["x"])] * 2500, fail_later)
    assert store.views.jobs() == []
    assert sum(store.views.counts().values()) == 0
    assert enqueue(store)  # and the connection is as good as before


def test_an_id_that_is_stored_already_refuses_the_whole_batch(store: Store) -> None:
    enqueue(store, id="taken")
    with pytest.raises(Duplicate) as refused:
        store.enqueue([NewJob("true"), NewJob("true", id="free"), NewJob("true", id="taken")])
    assert refused.value.index == 2
    assert refused.value.message == 'a job "taken" is already there (pending)'
    assert refused.value.exit_code == 4
    assert [job.id for job in store.views.jobs()] == ["taken"]


def test_an_id_used_twice_in_a_batch_refuses_it(store: Store) -> None:
    with pytest.raises(Duplicate, match='"a" is used twice') as refused:
        store.enqueue([NewJob("true", id="a"), NewJob("true", id="b"), NewJob("true", id="a")])
    assert refused.value.index == 2
    assert store.views.jobs() == []


def test_ids_that_differ_in_case_are_two(store: Store) -> None:
    assert store.enqueue([NewJob("true", id="a"), NewJob("true", id="A")]) == ["a", "A"]


def draw(monkeypatch: pytest.MonkeyPatch, ids: Iterator[str]) -> None:
    monkeypatch.setattr(job_spec, "new_ids", lambda count: [next(ids) for _ in range(count)])


def test_a_drawn_id_that_is_taken_is_drawn_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(store, id="old")
    draw(monkeypatch, iter(["old", "new"]))
    assert enqueue(store) == "new"


def test_a_drawn_id_that_meets_a_chosen_one_of_its_batch_is_drawn_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(monkeypatch, iter(["mine", "other"]))
    assert store.enqueue([NewJob("true", id="mine"), NewJob("true")]) == ["mine", "other"]


def test_two_drawn_ids_that_are_the_same_are_drawn_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(monkeypatch, iter(["same", "same", "one", "two"]))
    assert store.enqueue([NewJob("true"), NewJob("true")]) == ["one", "two"]


def test_drawing_ends_if_no_id_is_ever_free(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(store, id="old")
    monkeypatch.setattr(job_spec, "new_ids", lambda count: ["old"] * count)
    with pytest.raises(Conflict):
        enqueue(store)


def test_a_stored_job_is_seen_by_everyone_at_once_and_wakes_the_workers(
    store: Store, other_store: Store, hire: Hire
) -> None:
    worker = hire()
    assert not worker.hears()
    id = enqueue(store)
    assert worker.hears()
    assert other_store.views.job(id).state == "pending"


def test_a_refused_job_wakes_nobody(store: Store, hire: Hire) -> None:
    enqueue(store, id="a")
    worker = hire()
    with pytest.raises(Duplicate):
        enqueue(store, id="a")
    assert not worker.hears()


@pytest.mark.parametrize("delay", [1, 3_600_000])
def test_a_job_for_later_is_pending_until_then(store: Store, hire: Hire, clock: Clock, delay: int) -> None:
    id = enqueue(store, run_at=clock.now + delay)
    worker = hire()
    assert worker.claim() == []
    clock.now += delay
    assert worker.claim_one().id == id


def test_a_moment_long_past_is_due_now(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, run_at=-62_135_596_800_000)
    assert hire().claim()


@pytest.mark.parametrize("delay", ["5m", "in 5m", 300, "now"])
def test_a_delay_counts_on_the_clock_of_the_database(store: Store, clock: Clock, delay: object) -> None:
    [id] = store.enqueue([job_spec.from_fields({"command": "true", "run_at": delay})])
    assert store.views.job(id).run_at == clock.now + (0 if delay == "now" else 300_000)
