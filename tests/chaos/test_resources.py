"""Too few file handles, too few processes, too much output: the jobs come through, and it costs them nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.conftest import need
from tests.chaos.flood import flood
from tests.conftest import eventually
from tests.e2e.conftest import Cli

MIB = 1024 * 1024


def all_done(q: Cli) -> bool:
    counts = q.json("status")["jobs"]
    return bool(counts["completed"] + counts["dead"] == sum(counts.values()))


def chown(q: Cli, user: int) -> None:
    for path in (q.db.parent, *q.db.parent.rglob("*")):
        os.chown(path, user, -1)


def test_a_worker_without_file_handles_puts_jobs_back_and_spends_no_attempt(q: Cli) -> None:
    q.ok("enqueue", "--lines", "-", stdin="sleep 0.2\n" * 40)
    q.shell("ulimit -n 32; queuectl worker start --concurrency 40")
    eventually(lambda: all_done(q), "all jobs to end")
    jobs = q.json("list", "--limit", "0")
    assert {(job["state"], job["attempts"], job["crashes"]) for job in jobs} == {("completed", 0, 0)}
    reasons = {event["reason"] for job in jobs for event in q.json("history", job["id"])}
    assert "put back: too many open files" in reasons


def test_a_worker_without_processes_puts_jobs_back_and_spends_no_attempt(q: Cli) -> None:
    q.ok("enqueue", "--lines", "-", stdin="exec sleep 0.2\n" * 20)
    # Root may start any number of processes; another user with root's right to read files may not.
    unprivileged = [
        "setpriv",
        "--reuid",
        "64999",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ]
    need([*unprivileged, "true"])
    chown(q, 64999)  # a queue is its owner's alone, also for root
    for command in (
        "ulimit -u 6; queuectl worker start --concurrency 20",
        "queuectl wait --all; queuectl worker stop",
    ):
        done = q.shell(" ".join([*unprivileged, "bash", "-c", f"'{command}'"]))
        assert done.code == 0, done
    chown(q, os.getuid())
    jobs = q.json("list", "--limit", "0")
    assert {(job["state"], job["attempts"], job["crashes"]) for job in jobs} == {("completed", 0, 0)}
    reasons = {event["reason"] for job in jobs for event in q.json("history", job["id"])}
    assert "put back: resource temporarily unavailable" in reasons


def test_after_a_shortage_all_slots_are_filled_again(q: Cli) -> None:
    """By the worker itself: nobody rings, nobody writes, and the next beat is far away."""
    q.ok("config", "set", "lease_timeout", "3600")
    q.ok("config", "set", "worker_poll_interval", "3600")
    ids = q.batch(*[{"command": "true"}] * 4, *[{"command": "exec sleep 1000"}] * 4)
    q.env.update(SHORTAGE="1", PYTHONPATH=str(Path(__file__).parent / "shortage"))
    q.ok("worker", "start", "--concurrency", "4")
    eventually(lambda: [q.state(id) for id in ids[4:]] == ["processing"] * 4, "all four to run")
    reasons = [event["reason"] for event in q.json("history", ids[4])]
    assert "put back: resource temporarily unavailable" in reasons
    q.ok("worker", "stop", "--now")


@pytest.mark.parametrize("command", ["yes 'a line of output'", "tr '\\0' x < /dev/zero", "cat /dev/urandom"])
def test_a_flood_of_output_is_bounded_on_disk_and_in_memory(q: Cli, command: str) -> None:
    result = flood(q, command, megabytes=100, limit=2 * MIB)
    assert result.state == "completed"
    assert result.log_size <= 2 * MIB + 1024
    assert result.peak_memory < 100 * MIB
    assert result.start_kept
    assert result.end_kept
    assert result.cut_marked


def test_the_logs_of_a_flood_can_be_followed(q: Cli, tmp_path: Path) -> None:
    q.ok("config", "set", "log_max_bytes", "100000")
    q.ok("worker", "start")
    id = q.enqueue("seq 1000000")
    assert q.ok("logs", "--follow", id).rstrip().endswith("---")
    assert q.state(id) == "completed"
