"""What real workers count: it is all there when they have left, and a lost run is counted by who puts it back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import eventually
from tests.e2e.conftest import UNTIL_GO, Cli, gone

Scraped = dict[tuple[str, str, str], float]


def scraped(q: Cli) -> Scraped:
    """By name, queue and state (or `le`)."""
    return {
        (sample.name, sample.labels.get("queue", ""), sample.labels.get("state", sample.labels.get("le", ""))): (
            sample.value
        )
        for family in text_string_to_metric_families(q.ok("metrics", "--prometheus"))
        for sample in family.samples
    }


def runs(q: Cli) -> dict[str, int]:
    """The runs that were counted, as `queue state`."""
    seen = scraped(q).items()
    return {f"{queue} {state}": int(n) for (name, queue, state), n in seen if n and name == "queuectl_runs_total"}


def cpu(pid: int) -> int:
    """The time that a process has worked, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_all_runs_are_counted_when_the_workers_have_left(q: Cli) -> None:
    jobs = [{"command": "true", "queue": "mail"} for _ in range(30)]
    q.batch(*jobs, *({"command": "exit 1", "max_retries": n, "backoff_base": 1} for n in (1, 2)))
    q.ok("worker", "start", "--count", "2", "--concurrency", "2")
    q("wait", "--all")
    q.ok("worker", "stop")
    assert runs(q) == {"mail completed": 30, "default failed": 1, "default dead": 2}
    seen = scraped(q)
    assert seen["queuectl_run_seconds_count", "mail", ""] == seen["queuectl_wait_seconds_count", "mail", ""] == 30
    assert seen["queuectl_run_seconds_sum", "mail", ""] > 0
    assert seen["queuectl_jobs_finished_total", "mail", "completed"] == 30
    q.ok("prune", "--older-than", "0s")
    q.ok("dlq", "purge", "--all", "--yes")
    after = scraped(q)
    assert after["queuectl_jobs", "mail", "completed"] == 0
    assert after["queuectl_jobs_finished_total", "mail", "completed"] == 30
    assert after["queuectl_jobs_finished_total", "default", "dead"] == 2


def test_an_idle_worker_brings_out_what_it_has_counted_and_rests(q: Cli) -> None:
    for other_reason_to_wake_up in ("worker_poll_interval", "lease_timeout"):
        q.ok("config", "set", other_reason_to_wake_up, "3600")
    q.ok("worker", "start")
    q.finished(q.enqueue("true"))
    eventually(lambda: runs(q) == {"default completed": 1}, "the tally to be stored")
    pid = q.worker()["pid"]
    eventually(lambda: cpu(pid) == (runs(q) and cpu(pid)), "the worker to do nothing while we look at the figures")
    q.ok("worker", "stop")
    assert runs(q) == {"default completed": 1}  # and not once more


def test_a_put_back_and_a_cancelled_run_are_counted_as_such(working: Cli) -> None:
    id = working.enqueue(UNTIL_GO)
    working.until(id, "processing")
    working.ok("worker", "stop", "--now")
    assert runs(working) == {"default pending": 1}
    working.ok("worker", "start")
    working.until(id, "processing")
    working.ok("cancel", id)
    working.until(id, "cancelled")
    working.ok("worker", "stop")
    assert runs(working) == {"default pending": 1, "default cancelled": 1}


def test_a_lost_run_is_counted_by_who_puts_it_back(working: Cli) -> None:
    id = working.enqueue(UNTIL_GO)
    working.until(id, "processing")
    pid = working.worker()["pid"]
    os.kill(pid, signal.SIGKILL)
    gone(pid)
    eventually(lambda: working.runs(id) == 2, "another run")
    (working.folder / "go").touch()
    working.finished(id)
    working.ok("worker", "stop")
    assert runs(working) == {"default pending": 1, "default completed": 1}
