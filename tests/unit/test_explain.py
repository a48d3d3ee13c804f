"""Why a job is not running: each reason, and that the weightiest comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.jobs.explain import explain
from queuectl.jobs.model import Job, Link, Worker

NOW = 1_800_000_000_000

JOB = Job(
    id="job1", command="true", queue="mail", state="pending", priority=0, attempts=0, crashes=0, snoozes=0,
    max_retries=3, retry_on=(), no_retry_on=(),
    backoff_base=2, timeout_seconds=None, run_at=NOW, cwd="/", env={}, tags=(),
    depends_on=(), unique_key=None, batch=None, key=None, key_limit=None, notify=(), created_at=NOW, updated_at=NOW,
    started_at=None, finished_at=None, duration_ms=None, outcome=None, exit_code=None, signal=None, error=None,
    stdout=None, stderr=None, progress=None, message=None, result=None, log_path="/x.log", worker_id=None, run=0,
    cancel_requested=False, log_host=None, parked=False,
)  # fmt: skip
IDLE = Worker(
    id="w1", pid=1, host="here", manager_pid=1, queues=(), concurrency=1, started_at=NOW, heartbeat_at=NOW,
    stop=None, jobs=(), alive=True, here=True,
)  # fmt: skip
BUSY = replace(IDLE, jobs=("other",))


def reasons(job: Job = JOB, *workers: Worker, ahead: int = 0) -> list[str]:
    return explain(job, workers, ahead, NOW)


def test_no_worker_runs() -> None:
    assert reasons(JOB) == ["No worker is running. Start one: queuectl worker start"]
    assert reasons(JOB, replace(IDLE, alive=False)) == reasons(JOB)


def test_no_worker_serves_its_queue() -> None:
    [reason] = reasons(JOB, replace(IDLE, queues=("default", "web")))
    assert 'No worker serves its queue "mail"' in reason
    assert "queuectl worker start --queue mail" in reason


def test_the_workers_that_serve_its_queue_are_stopping() -> None:
    [reason] = reasons(JOB, replace(IDLE, stop="drain"), replace(IDLE, id="w2", queues=("web",)))
    assert "are stopping" in reason


def test_all_slots_are_busy() -> None:
    [reason] = reasons(JOB, replace(BUSY, concurrency=1), replace(BUSY, id="w2"), ahead=12345)
    assert reason == "Every slot of its workers (2) is busy, and 12,345 due jobs come before it."


def test_a_free_slot_means_that_nothing_holds_it_back() -> None:
    for workers in ([IDLE], [BUSY, replace(IDLE, queues=("mail",))], [replace(BUSY, concurrency=2)]):
        assert reasons(JOB, *workers) == ["Nothing holds it back: it will be claimed in a moment."]


def test_a_job_that_was_put_back_says_why() -> None:
    [reason] = reasons(replace(JOB, error="put back: too many open files"), IDLE)
    assert reason.endswith("it will be claimed in a moment. Its last run: put back: too many open files.")


def test_it_is_scheduled_for_later() -> None:
    [reason] = reasons(replace(JOB, run_at=NOW + 90_000), IDLE)
    assert reason.startswith("It is scheduled: due ")
    assert reason.endswith(", in 1m 30s.")


def test_it_failed_and_waits_for_its_next_try() -> None:
    failed = replace(JOB, state="failed", attempts=1, error="exit code 1", run_at=NOW + 4000)
    [reason] = reasons(failed, IDLE)
    assert reason.startswith("It failed and waits for its next try (exit code 1): due ")
    assert reason.endswith(", in 4s.")


def test_the_time_comes_before_the_missing_worker() -> None:
    first, second = reasons(replace(JOB, run_at=NOW + 1000))
    assert first.startswith("It is scheduled")
    assert second.startswith("No worker is running")


def test_it_is_running() -> None:
    running = replace(JOB, state="processing", started_at=NOW - 5000, worker_id="w1", run=1)
    assert reasons(running, IDLE) == ["It is running: started 5s ago by worker w1."]


def test_its_cancellation_was_asked_for() -> None:
    running = replace(JOB, state="processing", started_at=NOW, worker_id="w1", run=1, cancel_requested=True)
    assert "cancellation was asked for" in reasons(running, IDLE)[-1]


@pytest.mark.parametrize("workers", [[], [replace(IDLE, alive=False)], [replace(IDLE, id="w2")]])
def test_its_worker_is_gone(workers: list[Worker]) -> None:
    running = replace(JOB, state="processing", started_at=NOW, worker_id="w1", run=1)
    assert "That worker is gone" in reasons(running, *workers)[1]


def test_it_has_finished() -> None:
    assert reasons(replace(JOB, state="completed", finished_at=NOW - 2000)) == ["It completed 2s ago."]
    [cancelled] = reasons(replace(JOB, state="cancelled", finished_at=NOW - 2000))
    assert cancelled.startswith("It was cancelled 2s ago.")


def test_it_is_dead_and_how_to_run_it_again() -> None:
    dead = replace(JOB, state="dead", finished_at=NOW, error="exit code 1", attempts=3, crashes=1)
    first, second = reasons(dead, IDLE)
    assert first.startswith("It is dead: exit code 1, after 3 failed and 1 lost runs (allowed: 3 failed; ")
    assert "queuectl dlq retry job1" in second


LOST = replace(JOB, state="cancelled", finished_at=NOW - 2000, error='its dependency "a" is dead')


def broken(**parents: str) -> list[Link]:
    return [Link(id, state, "ok", "broken") for id, state in parents.items()]


def test_what_was_cancelled_for_dead_parents_says_which_to_retry() -> None:
    first, second = explain(LOST, [], 0, NOW, broken=broken(a="dead", b="dead"))
    assert first == 'It was cancelled 2s ago: its dependency "a" is dead.'
    assert second == "Retry all of these, and this one waits for them again: queuectl dlq retry a b"
    assert "Retry that one, and" in explain(LOST, [], 0, NOW, broken=broken(a="dead"))[1]


def test_a_deleted_parent_cannot_be_retried() -> None:
    _, second = explain(LOST, [], 0, NOW, broken=broken(a="dead", b="deleted"))
    assert second == 'It can never run: its dependency "b" was deleted. Enqueue the command again.'
    assert len(explain(LOST, [], 0, NOW, broken=broken(a="dead", b="cancelled"))) == 1
