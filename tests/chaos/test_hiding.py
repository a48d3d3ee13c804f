"""Processes that hide from whoever must end them: in other sessions, behind dead parents, without an environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import apsw
import pytest

from queuectl.worker import cgroup
from tests.chaos.conftest import leave_out, lives, pids
from tests.conftest import eventually
from tests.e2e.conftest import Cli

STAY = "sh -c 'echo $$ >> stray; exec sleep 1000'"
WAYS = {
    "another session": f"setsid {STAY} &",
    "an orphan": f"( setsid {STAY} & )",
    "no environment": f"env -i {STAY} &",
    "a leader without an environment": f"exec env -i {STAY}",
    "no environment, another session": f"env -i setsid {STAY} &",
    "no environment, an orphan": f"( env -i setsid {STAY} & )",
}


def end(*pids: int) -> None:
    for pid in pids:
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


def job(hide: str) -> str:
    """Hides a process in its first run, and stays; the second run tells whom it met, and ends."""
    met = "for pid in $(cat stray); do [ -e /proc/$pid/exe ] && echo $pid >> met; done"
    return f"if [ -e stray ]; then {met}; exit 0; fi\n{hide}\nwhile :; do sleep 1; done"


def need_group() -> None:
    if not cgroup.delegated():
        leave_out("no control group is delegated to this user")


def hit_worker(worker: dict[str, int]) -> None:
    os.kill(worker["pid"], signal.SIGKILL)


def hit_everyone(worker: dict[str, int]) -> None:
    os.kill(worker["manager_pid"], signal.SIGKILL)
    os.kill(worker["pid"], signal.SIGKILL)


def survive(q: Cli, hide: str, hit: Callable[[dict[str, int]], None]) -> None:
    q.ok("worker", "start")
    id = q.enqueue(job(hide))
    [stray] = eventually(lambda: pids(q, "stray"), "the job to hide something")
    try:
        [worker] = q.workers()
        hit(worker)
        if hit is hit_everyone:
            q.ok("worker", "start")
        assert q.until(id, "completed")["crashes"] == 1
        assert pids(q, "met") == []
        assert not lives(stray)
    finally:
        end(stray)


@pytest.mark.parametrize("hit", [hit_worker, hit_everyone])
@pytest.mark.parametrize("way", WAYS)
def test_hidden_processes_are_ended_before_the_job_runs_again(
    q: Cli, way: str, hit: Callable[[dict[str, int]], None]
) -> None:
    q.env[cgroup.OFF] = "1"
    survive(q, WAYS[way], hit)


@pytest.mark.parametrize("hit", [hit_worker, hit_everyone])
@pytest.mark.parametrize("way", ["no environment, another session", "no environment, an orphan"])
def test_with_a_control_group_nothing_hides(q: Cli, way: str, hit: Callable[[dict[str, int]], None]) -> None:
    need_group()
    survive(q, WAYS[way], hit)


def test_a_child_without_an_environment_does_not_outlive_the_shell_that_is_killed_with_the_worker(q: Cli) -> None:
    """The manager adopts it, and knows its mark from the board."""
    q.env[cgroup.OFF] = "1"
    q.ok("worker", "start")
    shell = "if [ -e stray ]; then exit 0; fi; echo $$ > shell; "
    id = q.enqueue(f"{shell} {WAYS['no environment']} while :; do sleep 1; done")
    [stray] = eventually(lambda: pids(q, "stray"), "the job to hide something")
    try:
        [worker] = q.workers()
        os.kill(worker["manager_pid"], signal.SIGSTOP)
        hit_worker(worker)
        end(*pids(q, "shell"))
        os.kill(worker["manager_pid"], signal.SIGCONT)
        assert q.until(id, "completed")["crashes"] == 1
        assert not lives(stray)
    finally:
        end(stray)


def test_nothing_escapes_a_cancel(q: Cli) -> None:
    q.ok("worker", "start")
    hide = WAYS["no environment, an orphan"]
    id = q.enqueue(f"{hide}\nwhile ! [ -e stray ]; do sleep 0.01; done; touch hidden; sleep 1000", max_retries=1)
    eventually((q.folder / "hidden").exists, "the job to hide something")
    q.ok("cancel", id)
    q.until(id, "cancelled")
    assert not any(lives(pid) for pid in pids(q, "stray"))


@pytest.mark.parametrize("hide", [WAYS["an orphan"], WAYS["no environment, an orphan"]])
def test_what_a_completed_job_left_behind_stays_when_its_worker_is_killed(q: Cli, hide: str) -> None:
    q.ok("worker", "start")
    q.until(q.enqueue(f"{hide}\nwhile ! [ -e stray ]; do sleep 0.01; done"), "completed")
    id = q.enqueue("[ -e once ] || { touch once; exec sleep 1000; }")
    eventually((q.folder / "once").exists, "the next job to run")
    [stray] = pids(q, "stray")
    try:
        [worker] = q.workers()
        hit_worker(worker)
        assert q.until(id, "completed")["crashes"] == 1
        assert lives(stray)
    finally:
        end(stray)


def test_what_a_completed_run_left_behind_stays_though_its_end_was_never_recorded(q: Cli) -> None:
    q.ok("worker", "start")
    first = f"{WAYS['no environment, an orphan']}\nwhile ! [ -e stray ]; do sleep 0.01; done"
    q.until(q.enqueue(first), "completed")
    [stray] = pids(q, "stray")
    try:
        id = q.enqueue("echo x >> runs; while [ ! -e go ]; do sleep 0.01; done")
        eventually((q.folder / "runs").exists, "the second job to run")
        [worker] = q.workers()
        lock = apsw.Connection(str(q.db))
        lock.execute("BEGIN IMMEDIATE")
        (q.folder / "go").touch()
        eventually(lambda: "store unavailable" in (q.logs / "workers.log").read_text(), "a settle that has to wait")
        hit_worker(worker)
        lock.execute("ROLLBACK")
        assert q.until(id, "completed")["crashes"] == 1
        assert lives(stray)
    finally:
        end(stray)


def test_groups_and_boards_are_cleared_away(q: Cli) -> None:
    need_group()
    q.ok("worker", "start", "--count", "2")
    ids = [worker["id"] for worker in q.workers()]
    groups = [os.path.join(cgroup.delegated(), f"queuectl-{id}") for id in ids]
    assert all(os.path.isdir(group) for group in groups)
    q.ok("worker", "stop")
    eventually(lambda: not any(os.path.exists(group) for group in groups), "the groups to go")
    assert os.listdir(f"{q.db}.run") == []
