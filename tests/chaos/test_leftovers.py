"""Processes that are started in the very moment in which their run ends."""

from __future__ import annotations

import json
import os

import pytest

from queuectl.worker import cgroup
from tests.chaos.conftest import lives, pids
from tests.chaos.leftovers import ENDS, WAYS, leftovers
from tests.conftest import eventually
from tests.e2e.conftest import Cli

# As su does it, through PAM: a process sheds the mark, the tag and its parent.
SCRIPTS = {
    "parent.sh": "ulimit -S -m 4000; echo $$ >> processes; sh ./child.sh & wait",
    "stubborn_parent.sh": "ulimit -S -m 4000; trap '' TERM; echo $$ >> processes; sh ./child.sh & wait",
    "marked_child.sh": "sleep 300 & echo $! >> processes; ulimit -S -m 4000; exec sleep 300",
    "child.sh": "trap '' TERM; echo $$ >> processes; exec sleep 300",
}
SHEDDING = {
    "its parent leaves when asked to": "env -i sh ./parent.sh; wait",
    "its parent has shed it": "env -i setsid sh ./marked_child.sh & sleep 0.3; exit 1",
    "it is all that is left": "env -i sh ./stubborn_parent.sh; sleep 300",
}


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("end", ENDS)
def test_nothing_of_a_run_lives_when_the_next_one_starts_or_the_job_has_ended(q: Cli, end: str, slots: int) -> None:
    q.env[cgroup.OFF] = "1"
    assert leftovers(q, 16, slots, list(WAYS), end) == []


def test_the_same_with_a_control_group(q: Cli) -> None:
    assert leftovers(q, 16, 1, list(WAYS)) == []


def test_daemons_that_hold_the_output_of_completed_jobs_do_not_stop_other_jobs(q: Cli) -> None:
    """Each costs the worker two file handles; it has 64."""
    assert q.shell("ulimit -n 64; queuectl worker start").code == 0
    for id in q.batch(*[{"command": "sleep 300 & echo $! >> daemons"}] * 40):
        q.until(id, "completed")
    last = q.enqueue("echo printed")
    assert q.until(last, "completed")["stdout"] == "printed\n"
    assert "no longer read" in (q.logs / "workers.log").read_text()
    assert all(lives(pid) for pid in pids(q, "daemons"))
    [handles] = [finding for finding in q.json("doctor") if finding["check"] == "file handles"]
    assert handles["ok"]


def test_more_runs_than_a_runs_own_limit_of_file_handles_are_started(q: Cli) -> None:
    """The worker raises its soft limit; its runs keep theirs, and the descriptors of their pipes lie above that."""
    assert q.shell("ulimit -Sn 40; queuectl worker start --concurrency 30").code == 0
    ids = q.batch(*[{"command": "sleep 300 & echo $!; ulimit -n", "max_retries": 1}] * 60)
    for id in ids:
        assert q.until(id, "completed")["stdout"].split()[1] == "40"
    for id in ids:
        os.kill(int(q.job(id)["stdout"].split()[0]), 9)


@pytest.mark.parametrize("command", SHEDDING, ids=list(SHEDDING))
@pytest.mark.parametrize("slots", ["1", "3"])
def test_processes_that_shed_the_mark_of_their_run_are_ended_with_it(q: Cli, command: str, slots: str) -> None:
    for name, script in SCRIPTS.items():
        (q.folder / name).write_text(script)
    q.ok("config", "set", "kill_grace", "0.3")
    q.ok("worker", "start", "--concurrency", slots)
    q.until(q.enqueue("(setsid sleep 300 & echo $! > daemon)"), "completed")
    id = q.enqueue(SHEDDING[command], max_retries=1, timeout=1)
    q.until(id, "dead")
    assert [pid for pid in pids(q, "processes") if lives(pid)] == []
    [daemon] = pids(q, "daemon")
    assert lives(daemon)


def test_what_a_completed_job_left_running_is_not_ended_by_the_end_of_another(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "2")
    q.until(q.enqueue("(env -i setsid sleep 300 & echo $! > daemon)"), "completed")
    [daemon] = pids(q, "daemon")
    failed = q.enqueue(f"{WAYS['daemonise']}; exit 1", max_retries=1)
    timed_out = q.enqueue("sleep 300", timeout=0.1, max_retries=1)
    for id in (failed, timed_out):
        q.until(id, "dead")
    assert lives(daemon)


def test_doctor_names_a_worker_that_is_short_of_file_handles(q: Cli) -> None:
    assert q.shell("ulimit -n 32; queuectl worker start --concurrency 4").code == 0
    q.batch(*[{"command": "echo x; sleep 300"}] * 4)
    eventually(lambda: q("doctor").code != 0, "the worker to use most of its handles")
    [handles] = [finding for finding in json.loads(q("doctor", "--json").out) if finding["check"] == "file handles"]
    assert "of 32" in handles["found"]
    assert "ulimit -n" in handles["advice"]
