"""Tricks that once broke a promise."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import Any

import pytest

from tests.chaos.conftest import lives, pids
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import Cli

BLOCKED = "while [ ! -e go ]; do sleep 0.02; done"


def told_to_stop(q: Cli) -> tuple[str, dict[str, Any], subprocess.Popen[bytes]]:
    """A job that runs, its worker, and a `worker stop` that waits for it."""
    q.ok("worker", "start")
    id = q.enqueue(f"echo $$ >> running; {BLOCKED}")
    eventually(lambda: pids(q, "running"), "the job to run")
    [worker] = q.workers()
    stopping = q.start("worker", "stop")
    eventually(lambda: q.workers()[0]["state"] == "stopping", "the order to arrive")
    return id, worker, stopping


def test_what_a_failed_run_left_behind_is_ended_before_the_next_run(q: Cli) -> None:
    """Only a completed job may leave processes on purpose."""
    q.ok("worker", "start")
    left_behind = "(setsid sh -c 'echo $$ >> left; exec sleep 1000' &)"
    next_run = "for pid in $(cat left 2>/dev/null); do [ -e /proc/$pid/exe ] && echo $pid >> beside; done"
    wait = "while ! [ -e left ] || [ $(wc -l < left) -lt $QUEUECTL_ATTEMPT ]; do sleep 0.01; done"
    id = q.enqueue(f"{next_run}; {left_behind}; {wait}; exit 1", backoff_base=0, max_retries=3)
    assert q.until(id, "dead")["exit_code"] == 1
    assert len(pids(q, "left")) == 3
    assert pids(q, "beside") == []
    assert not any(lives(pid) for pid in pids(q, "left"))


def test_a_worker_of_a_copy_leaves_the_originals_processes_alone(q: Cli) -> None:
    q.ok("worker", "start")
    id = q.enqueue(f"echo $$ >> running; {BLOCKED}")
    [pid] = eventually(lambda: pids(q, "running"), "the job to run")
    q.ok("backup", str(q.folder / "backup.db"))
    shutil.copytree(q.db.parent, q.folder / "copy", ignore=lambda *_: ["queue.db.run"])
    os.makedirs(q.folder / "copy" / "queue.db.run", mode=0o700)
    for worker in q.workers():
        os.mkfifo(q.folder / "copy" / "queue.db.run" / worker["id"])
    (q.folder / "apart").mkdir()
    shutil.copy(q.folder / "backup.db", q.folder / "apart" / "queue.db")
    for copy in ("copy", "apart"):
        db = str(q.folder / copy / "queue.db")
        q.ok("worker", "start", "--queue", "nothing-here", "--db", db)
        assert q.json("show", id, "--db", db)["crashes"] == 1
        q.ok("worker", "stop", "--db", db)
    assert lives(pid)
    (q.folder / "go").touch()
    assert q.until(id, "completed")["attempts"] == 0


def test_a_database_that_was_moved_away_is_not_worked_on_any_longer(q: Cli) -> None:
    q.ok("worker", "start")
    running = q.enqueue(f"echo $$ >> running; {BLOCKED}")
    waiting = q.enqueue("echo $QUEUECTL_JOB_ID >> ran")
    eventually(lambda: pids(q, "running"), "the job to run")
    elsewhere = q.db.with_name("elsewhere.db")
    for name in ("", "-wal", "-shm"):
        os.rename(f"{q.db}{name}", f"{elsewhere}{name}")
    (q.folder / "go").touch()
    eventually(lambda: "store unavailable" in (q.logs / "workers.log").read_text(), "the worker to notice")
    assert not (q.folder / "ran").exists()
    for name in ("", "-wal", "-shm"):
        os.rename(f"{elsewhere}{name}", f"{q.db}{name}")
    assert q.until(running, "completed")["crashes"] == 0
    q.until(waiting, "completed")


@pytest.mark.parametrize("names", [("-wal",), ("-wal", "-shm")], ids=" ".join)
def test_workers_start_over_when_files_beside_the_database_are_removed(q: Cli, names: tuple[str, ...]) -> None:
    """They would go on with files without a name, and everybody else with others. Nothing is lost."""
    q.ok("worker", "start", "--count", "2", "--queue", "default")
    before = {worker["id"] for worker in q.workers()}
    running = q.enqueue(f"echo $$ >> running; {BLOCKED}")
    waiting = q.enqueue("true", queue="later")
    [pid] = eventually(lambda: pids(q, "running"), "the job to run")
    for name in names:
        os.unlink(f"{q.db}{name}")
    added = q.enqueue("true")  # it waits until nobody uses what was removed
    assert not lives(pid)
    (q.folder / "go").touch()
    for id in (running, added):
        q.until(id, "completed")
    assert q.state(waiting) == "pending"
    assert "was removed while it was in use" in (q.logs / "workers.log").read_text()
    assert "bug" not in (q.logs / "workers.log").read_text()
    eventually(lambda: q("doctor").code == 0, "both workers to be replaced")
    assert not before & {worker["id"] for worker in q.workers()}


def test_a_stop_order_outlives_the_worker_it_was_given_to(q: Cli) -> None:
    id, worker, stopping = told_to_stop(q)
    os.kill(worker["pid"], signal.SIGKILL)
    assert stopping.wait(DEADLINE) == 0
    eventually(lambda: not q.workers(), "the successor to leave, too")
    assert q.job(id)["crashes"] == 1
    assert q.state(id) == "pending"


def test_a_worker_can_be_stopped_while_it_waits_for_the_database_to_come_up(q: Cli) -> None:
    q.ok("worker", "start")
    [worker] = q.workers()
    os.kill(worker["manager_pid"], signal.SIGSTOP)
    os.kill(worker["pid"], signal.SIGKILL)
    q.db.rename(q.db.with_name("away.db"))
    q.db.mkdir()
    os.kill(worker["manager_pid"], signal.SIGCONT)
    log = q.logs / "workers.log"
    eventually(lambda: "store unavailable" in log.read_text(), "the successor to miss it")
    os.kill(worker["manager_pid"], signal.SIGTERM)
    eventually(lambda: not lives(worker["manager_pid"]), "both to leave")
    assert "left without the database" in log.read_text()
    assert "bug" not in log.read_text()


def test_a_starter_that_ignores_its_children_does_not_blind_the_manager(q: Cli) -> None:
    assert q.shell("trap '' CHLD; queuectl worker start").code == 0
    id = q.enqueue("[ -e once ] || { touch once; sleep 1000; }")
    eventually((q.folder / "once").exists, "the job to run")
    [worker] = q.workers()
    os.kill(worker["pid"], signal.SIGKILL)
    assert q.until(id, "completed")["crashes"] == 1


def test_a_timeout_without_file_handles_costs_the_other_jobs_nothing(q: Cli) -> None:
    timed = q.batch(*[{"command": "echo x; sleep 1000", "timeout": 15, "max_retries": 1}] * 3)
    q.shell("ulimit -n 32; queuectl worker start --concurrency 20")
    eventually(lambda: all(q.state(id) == "processing" for id in timed), "the three to start")
    others = q.batch(*[{"command": f"echo x; {BLOCKED}"}] * 10)
    eventually(lambda: "too many open files" in (q.logs / "workers.log").read_text(), "all handles to be in use")
    assert "too many open files" in q.ok("explain", next(id for id in others if q.state(id) == "pending"))
    eventually(lambda: all(q.state(id) == "dead" for id in timed), "the three to time out")
    (q.folder / "go").touch()
    for id in others:
        assert q.until(id, "completed")["crashes"] == 0


def test_a_left_behind_process_that_reads_its_own_output_harms_nobody(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "2")
    other = q.enqueue(BLOCKED)
    thieves = "for i in 1 2 3 4; do timeout 3 cat < /dev/stdout > /dev/null & done"
    q.until(q.enqueue(f"timeout 3 yes & {thieves}; exit 0"), "completed")
    eventually(lambda: not any(name == b"yes" for name in commands()), "the flood to end")
    (q.folder / "go").touch()
    assert q.until(other, "completed")["crashes"] == 0


def commands() -> list[bytes]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                found.append(file.read().split(b"\0")[0])
        except OSError:
            continue
    return found


def test_a_deep_chain_of_processes_is_ended_like_any_other(q: Cli) -> None:
    (q.folder / "deep.sh").write_text(
        'if [ "$1" -gt 0 ]; then sh "$0" $(($1 - 1)); else echo $$ > bottom; sleep 1000; fi; :'
    )
    q.ok("worker", "start")
    id = q.enqueue("[ -e bottom ] || sh ./deep.sh 1100")
    [bottom] = eventually(lambda: pids(q, "bottom"), "the chain to grow")
    [worker] = q.workers()
    os.kill(worker["pid"], signal.SIGKILL)
    assert q.until(id, "completed")["crashes"] == 1
    assert not lives(bottom)


def test_a_stopped_worker_is_named_by_the_stop_that_it_does_not_answer(q: Cli) -> None:
    q.ok("config", "set", "kill_grace", "0")
    q.ok("worker", "start")
    [worker] = q.workers()
    os.kill(worker["pid"], signal.SIGSTOP)
    try:
        stop = q("worker", "stop", "--now")
        assert stop.code == 124
        assert f"pid {worker['pid']}" in stop.err
    finally:
        os.kill(worker["pid"], signal.SIGCONT)


def test_a_database_put_in_the_place_of_another_is_served_by_the_same_workers(q: Cli) -> None:
    q.enqueue("true")
    q.ok("backup", str(q.folder / "backup.db"))
    q.ok("worker", "start")
    running = q.enqueue(f"echo $$ >> running; {BLOCKED}")
    [pid] = eventually(lambda: pids(q, "running"), "the job to run")
    os.rename(q.folder / "backup.db", q.db)
    for name in ("-wal", "-shm"):
        os.unlink(f"{q.db}{name}")
    eventually(lambda: not lives(pid), "what came from the old database to be ended")
    assert q("show", running).code == 3
    q.until(q.enqueue("true"), "completed")


def test_an_order_to_stop_is_not_inherited_by_a_stranger(q: Cli) -> None:
    id, worker, stopping = told_to_stop(q)
    os.kill(worker["manager_pid"], signal.SIGKILL)
    os.kill(worker["pid"], signal.SIGKILL)
    assert stopping.wait(DEADLINE) == 0
    (q.folder / "go").touch()
    q.ok("worker", "start")
    assert q.until(id, "completed")["crashes"] == 1
    assert len(q.workers()) == 1


def test_a_failure_stays_a_failure_though_its_leftovers_outlast_the_timeout(q: Cli) -> None:
    q.ok("config", "set", "kill_grace", "2")
    q.ok("worker", "start")
    stubborn = "(trap '' TERM; touch trapped; sleep 1000; sleep 1000) &"
    id = q.enqueue(f"{stubborn} while ! [ -e trapped ]; do sleep 0.01; done; exit 7", timeout=1, max_retries=1)
    job = q.until(id, "dead")
    assert (job["exit_code"], job["error"]) == (7, "exit code 7")


def test_a_reset_after_a_kill_does_not_forget_what_still_runs(q: Cli) -> None:
    """Enqueued again, the job would run beside its own processes."""
    q.ok("worker", "start")
    id = q.enqueue(f"echo $$ >> running; {BLOCKED}")
    [pid] = eventually(lambda: pids(q, "running"), "the job to run")
    [worker] = q.workers()
    os.kill(worker["manager_pid"], signal.SIGKILL)
    os.kill(worker["pid"], signal.SIGKILL)
    eventually(lambda: not lives(worker["pid"]), "the worker to be gone")
    refused = q("reset", "--yes")
    assert refused.code == 4
    assert "left jobs behind: 1" in refused.err
    assert "queuectl worker start" in refused.err
    assert q.state(id) == "processing"
    q.ok("worker", "start", "--queue", "nothing-here")
    assert not lives(pid)
    q.ok("worker", "stop")
    assert "1 job" in q.ok("reset", "--yes")
