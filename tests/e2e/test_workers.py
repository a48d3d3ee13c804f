"""Worker processes: starting, stopping, and every way in which they can die."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import (
    QUEUECTL,
    UNTIL_GO,
    Cli,
    alive,
    children_of,
    gone,
    kill,
    lines_in,
    on_sqlite,
    parent_of,
    pids_in,
    processes_with,
    read_until,
    refused,
    status_of,
)

# A pid namespace of its own; without root, inside a user namespace.
CONTAINER = [
    "unshare",
    *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
    "--pid",
    "--fork",
    "--mount-proc",
]
# Its first run hangs, with a child, until somebody ends it; the next one completes.
HANGS_ONCE = "echo $$ >> pids; [ -e again ] && exit 0; touch again; sleep 1000 & echo $! >> pids; wait"


def put_back(q: Cli, id: str) -> None:
    """The job is as if its run had never been, but for its history."""
    job = q.job(id)
    assert (job["state"], job["attempts"], job["crashes"]) == ("pending", 0, 0)
    assert "put back" in q.history(id)[-1]["reason"]


# -- starting and looking --------------------------------------------------------------------------------


def test_workers_are_ready_when_start_returns(q: Cli) -> None:
    out = q.ok("worker", "start", "--count", "3")
    workers = q.json("worker", "list")
    assert len(workers) == 3
    assert "3 workers" in out
    [manager] = {worker["manager_pid"] for worker in workers}
    assert str(manager) in out
    for worker in workers:
        assert worker["state"] == "idle"
        assert worker["jobs"] == []
        assert parent_of(worker["pid"]) == manager


def test_list_and_status_have_their_shapes(q: Cli) -> None:
    assert q.json("worker", "list") == []
    assert q.json("status")["workers"] == []
    q.ok("worker", "start", "--queue", "mail", "--concurrency", "2")
    id = q.enqueue(UNTIL_GO, queue="mail")
    q.until(id, "processing")
    [worker] = q.json("worker", "list")
    assert q.json("status")["workers"] == [worker]
    assert worker.keys() >= {"id", "pid", "host", "state", "jobs", "started_at", "queues", "concurrency"}
    assert (worker["state"], worker["jobs"], worker["queues"], worker["concurrency"]) == ("busy", [id], ["mail"], 2)
    assert worker["host"] == os.uname().nodename
    for view in (("worker", "list"), ("status",)):
        shown = q.ok(*view)
        assert worker["id"] in shown
        assert str(worker["pid"]) in shown
        assert id in shown


def test_starting_again_adds_workers(q: Cli) -> None:
    q.ok("worker", "start")
    q.ok("worker", "start", "--count", "2")
    workers = q.workers()
    assert len(workers) == 3
    assert len({worker["manager_pid"] for worker in workers}) == 2


@on_sqlite
def test_a_start_whose_workers_cannot_come_up_fails_and_leaves_nothing_running(q: Cli) -> None:
    q.enqueue("true")
    Path(f"{q.db}.run").write_text("in the way")
    result = q("worker", "start")
    assert result.code != 0
    assert "Traceback" not in result.err
    assert "Hint" in result.err
    eventually(lambda: not processes_with(f"HOME={q.folder}"), "nothing left running")


# -- stopping --------------------------------------------------------------------------------------------


def test_stop_waits_for_the_running_job(working: Cli) -> None:
    running = working.enqueue(UNTIL_GO)
    working.until(running, "processing")
    next = working.enqueue("true")
    stopping = working.start("worker", "stop")
    eventually(lambda: working.workers()[0]["state"] == "stopping", "told to stop")
    assert stopping.poll() is None
    assert (working.state(running), working.state(next)) == ("processing", "pending")
    (working.folder / "go").touch()
    assert stopping.wait(DEADLINE) == 0
    assert (working.state(running), working.state(next)) == ("completed", "pending")
    assert working.json("worker", "list") == []


@pytest.mark.parametrize("how", [("--timeout", "0.3"), ("--now",)], ids=" ".join)
def test_stop_ends_the_running_job_and_puts_it_back_uncounted(working: Cli, how: tuple[str, ...]) -> None:
    worker = working.worker()
    id = working.enqueue(f"echo $$ >> pids; {UNTIL_GO}")
    [pid] = pids_in(working.folder / "pids")
    working.ok("worker", "stop", *how)
    assert not alive(pid)
    put_back(working, id)
    assert working.json("worker", "list") == []
    gone(worker["pid"], worker["manager_pid"])
    (working.folder / "go").touch()
    working.ok("worker", "start")
    job = working.finished(id)
    assert (job["state"], job["attempts"]) == ("completed", 0)


def test_stop_ends_a_job_that_does_not_listen(working: Cli) -> None:
    working.ok("config", "set", "kill_grace", "0.2")
    id = working.enqueue("trap '' TERM; echo $$ >> pids; while :; do sleep 0.05; done")
    [pid] = pids_in(working.folder / "pids")
    working.ok("worker", "stop", "--now")
    assert not alive(pid)
    put_back(working, id)


def test_one_worker_is_stopped_by_its_id(q: Cli) -> None:
    q.ok("worker", "start", "--count", "2")
    first, second = q.workers()
    q.ok("worker", "stop", first["id"])
    assert [worker["id"] for worker in q.workers()] == [second["id"]]
    gone(first["pid"])
    q.ok("worker", "stop", second["id"][:6])
    assert q.workers() == []
    gone(second["pid"], second["manager_pid"])
    refused(q("worker", "stop", first["id"]), 3, first["id"])


def test_jobs_may_stop_the_workers_without_waiting_for_each_other(q: Cli) -> None:
    q.ok("worker", "start", "--count", "2")
    ids = [q.enqueue(f"echo >> here; while [ $(wc -l < here) -lt 2 ]; do sleep 0.01; done; {QUEUECTL} worker stop")]
    ids += [q.enqueue(q.job(ids[0])["command"])]
    for id in ids:
        assert "runs this very job" in q.until(id, "completed")["stdout"]
    eventually(lambda: not q.workers(), "both to leave")


def test_stop_also_reaches_a_manager_that_has_no_worker_just_then(q: Cli) -> None:
    q.ok("worker", "start")
    [worker] = q.workers()
    os.kill(worker["manager_pid"], signal.SIGSTOP)
    kill(worker["pid"])
    q.ok("worker", "start", "--queue", "other")  # which tidies up behind the dead one
    eventually(lambda: [other["state"] for other in q.workers()] == ["idle"], "the dead worker to be struck off")
    stopping = q.start("worker", "stop")
    eventually(lambda: not q.workers(), "the other one to leave")
    assert stopping.poll() is None
    os.kill(worker["manager_pid"], signal.SIGCONT)
    assert stopping.wait(DEADLINE) == 0
    gone(worker["manager_pid"])
    assert q.json("worker", "list") == []


def test_a_manager_that_retires_takes_its_workers_along_but_hurries_none(q: Cli) -> None:
    """What `worker stop` says to managers; also to one whose worker was replaced the moment before."""
    q.ok("worker", "start")
    id = q.enqueue(UNTIL_GO)
    q.until(id, "processing")
    [worker] = q.workers()
    for _ in range(2):
        os.kill(worker["manager_pid"], signal.SIGUSR1)
        eventually(lambda: q.workers()[0]["state"] == "stopping", "the worker to be told")
    assert q.state(id) == "processing"
    (q.folder / "go").touch()
    assert q.until(id, "completed")["attempts"] == 0
    gone(worker["pid"], worker["manager_pid"])


def test_workers_whose_manager_was_killed_are_seen_to_leave(q: Cli) -> None:
    q.ok("worker", "start")
    running = q.enqueue(UNTIL_GO)
    q.until(running, "processing")
    waiting = q.enqueue("true")
    [worker] = q.workers()
    kill(worker["manager_pid"])
    eventually(lambda: q.workers()[0]["state"] == "stopping", "the worker to say that it leaves")
    assert "are stopping" in q.ok("explain", waiting)
    doctor = q("doctor")
    assert doctor.code == 1
    assert "1 stopping" in doctor.out
    (q.folder / "go").touch()
    q.until(running, "completed")


def test_stopping_nothing_is_no_error(q: Cli) -> None:
    result = q("worker", "stop")
    assert (result.code, result.out) == (0, "")


# -- in the foreground -----------------------------------------------------------------------------------


def foreground(q: Cli, *options: str) -> subprocess.Popen[bytes]:
    q.ok("status")  # makes the queue: starting is what is looked at here, not meeting at a new one
    manager = q.start("worker", "start", "--foreground", *options)
    eventually(q.workers, "workers up")
    return manager


SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_lets_the_running_job_finish_and_exits_0(q: Cli, number: signal.Signals) -> None:
    manager = foreground(q)
    running = q.enqueue(UNTIL_GO)
    q.until(running, "processing")
    next = q.enqueue("true")
    manager.send_signal(number)
    read_until(manager.stderr, b"asked to stop")
    assert q.state(running) == "processing"
    (q.folder / "go").touch()
    assert manager.wait(DEADLINE) == 0
    assert (q.state(running), q.state(next)) == ("completed", "pending")
    assert q.json("worker", "list") == []


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_second_signal_ends_the_running_job_and_puts_it_back(q: Cli, number: signal.Signals) -> None:
    manager = foreground(q)
    id = q.enqueue(f"echo $$ >> pids; {UNTIL_GO}")
    [pid] = pids_in(q.folder / "pids")

    def signalled_until_it_left() -> bool:  # two that come at once count as one
        manager.send_signal(number)
        return manager.poll() is not None

    eventually(signalled_until_it_left, "left")
    assert manager.returncode == 0
    assert not alive(pid)
    put_back(q, id)


def test_an_idle_foreground_worker_leaves_at_the_first_signal(q: Cli) -> None:
    manager = foreground(q, "--count", "2")
    manager.send_signal(signal.SIGTERM)
    assert manager.wait(DEADLINE) == 0


def test_the_foreground_tells_what_happens(q: Cli) -> None:
    manager = foreground(q)
    id = q.enqueue("exit 3", max_retries=1)
    assert q.finished(id)["state"] == "dead"
    manager.send_signal(signal.SIGTERM)
    out, err = manager.communicate(timeout=DEADLINE)
    assert out == b""
    assert f"run started job={id}" in err.decode()
    assert f"run ended job={id}" in err.decode()
    assert "Traceback" not in err.decode()


# -- dying -----------------------------------------------------------------------------------------------


def test_a_killed_workers_job_is_ended_and_run_again_by_a_successor(working: Cli) -> None:
    victim = working.worker()
    id = working.enqueue(HANGS_ONCE)
    pids = pids_in(working.folder / "pids", 2)
    kill(victim["pid"])
    job = working.finished(id)
    assert (job["state"], job["attempts"], job["crashes"]) == ("completed", 0, 1)
    assert working.runs(id) == 2
    assert any("worker lost" in event["reason"] for event in working.history(id))
    gone(*pids)
    [successor] = eventually(working.workers)
    assert successor["id"] != victim["id"]
    assert successor["manager_pid"] == victim["manager_pid"]


def test_a_lost_run_is_marked_in_the_log(working: Cli) -> None:
    id = working.enqueue(f"echo hello; {HANGS_ONCE}")
    pids_in(working.folder / "pids", 2)
    eventually(lambda: "hello" in working.ok("logs", id))
    kill(working.worker()["pid"])
    working.finished(id)
    log = working.ok("logs", id)
    assert [log.count(text) for text in ("--- START", "--- END", "rc=lost", "rc=0")] == [2, 2, 1, 1]


def test_other_workers_go_on_when_one_is_killed(q: Cli) -> None:
    q.ok("worker", "start", "--count", "2")
    hanging, waiting = q.batch({"command": HANGS_ONCE}, {"command": UNTIL_GO})
    pids_in(q.folder / "pids", 2)
    q.until(waiting, "processing")
    [victim] = [worker for worker in q.workers() if worker["jobs"] == [hanging]]
    kill(victim["pid"])
    assert q.finished(hanging)["crashes"] == 1
    (q.folder / "go").touch()
    job = q.finished(waiting)
    assert (job["state"], job["crashes"]) == ("completed", 0)
    assert q.runs(waiting) == 1


def test_when_the_manager_is_killed_its_workers_finish_their_jobs_and_leave(q: Cli) -> None:
    q.ok("worker", "start", "--count", "2")
    workers = q.workers()
    running = q.enqueue(UNTIL_GO)
    q.until(running, "processing")
    kill(workers[0]["manager_pid"])
    eventually(lambda: len(q.workers()) == 1, "the idle one left")
    next = q.enqueue("true")
    assert q.state(running) == "processing"
    (q.folder / "go").touch()
    assert q.finished(running)["state"] == "completed"
    gone(*(worker["pid"] for worker in workers))
    assert q.json("worker", "list") == []
    assert (q.runs(running), q.state(next)) == (1, "pending")
    q.ok("worker", "start")
    assert q.finished(next)["state"] == "completed"


def test_after_everything_was_killed_the_next_start_puts_the_job_back(working: Cli) -> None:
    worker = working.worker()
    id = working.enqueue(HANGS_ONCE)
    pids = pids_in(working.folder / "pids", 2)
    kill(worker["manager_pid"])
    kill(worker["pid"])
    gone(worker["pid"], worker["manager_pid"])
    assert working.state(id) == "processing"
    assert working.json("worker", "list")[0]["state"] == "lost"
    working.ok("worker", "start")
    job = working.finished(id)
    assert (job["state"], job["attempts"], job["crashes"]) == ("completed", 0, 1)
    gone(*pids)
    assert working.runs(id) == 2
    assert [w["state"] for w in working.json("worker", "list")] == ["idle"]


def test_a_killed_worker_that_is_not_quite_dead_at_the_next_start_is_looked_at_again(working: Cli) -> None:
    """Soon, and not only with the next heartbeat: the kernel may take its time to end a process."""
    working.ok("config", "set", "lease_timeout", "3600")
    worker = working.worker()
    id = working.enqueue(HANGS_ONCE)
    pids_in(working.folder / "pids", 2)
    [bell] = working.folder.rglob(worker["id"])
    dying = os.open(bell, os.O_RDONLY | os.O_NONBLOCK)  # as if neither it nor the database had been closed yet
    with closing(sqlite3.connect(working.db if working.db.exists() else ":memory:")) as database:
        database.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        kill(worker["manager_pid"])
        kill(worker["pid"])
        gone(worker["pid"], worker["manager_pid"])
        working.ok("worker", "start")
        assert working.state(id) == "processing"
        os.close(dying)
        assert working.until(id, "completed")["crashes"] == 1


def test_a_cancelled_job_of_a_killed_worker_does_not_run_again(working: Cli) -> None:
    worker = working.worker()
    id = working.enqueue(HANGS_ONCE)
    pids = pids_in(working.folder / "pids", 2)
    kill(worker["manager_pid"])
    kill(worker["pid"])
    gone(worker["pid"], worker["manager_pid"])
    working("cancel", id)
    working.ok("worker", "start")
    assert working.until(id, "cancelled")["crashes"] == 0
    gone(*pids)
    assert working.runs(id) == 1


def test_a_job_that_kills_its_worker_is_dead_at_the_crash_limit_and_others_go_on(working: Cli) -> None:
    working.ok("config", "set", "crash_limit", "2")
    killer, honest = working.batch({"command": "echo $$ >> runs; kill -9 $PPID; sleep 1000"}, {"command": "true"})
    job = working.finished(killer)
    assert (job["state"], job["attempts"], job["crashes"]) == ("dead", 0, 2)
    assert "worker lost" in job["error"]
    assert len(lines_in(working.folder / "runs", 2)) == 2
    assert working.finished(honest)["state"] == "completed"
    gone(*pids_in(working.folder / "runs", 2))
    working.ok("dlq", "retry", killer)
    assert working.finished(killer)["crashes"] == 2  # a new life, with a new budget
    assert len(lines_in(working.folder / "runs", 4)) == 4


@on_sqlite  # on PostgreSQL other machines may judge it by its silence
def test_a_stopped_worker_keeps_its_job_while_others_start(working: Cli) -> None:
    working.ok("config", "set", "lease_timeout", "1")
    worker = working.worker()
    id = working.enqueue(UNTIL_GO)
    working.until(id, "processing")
    os.kill(worker["pid"], signal.SIGSTOP)
    try:
        working.ok("worker", "start")
        (working.folder / "go").touch()
        for _ in range(3):  # the other one works, and its looks for the dead find nobody
            assert working.finished(working.enqueue("sleep 0.4"))["state"] == "completed"
        assert working.state(id) == "processing"
        assert working.job(id)["worker_id"] == worker["id"]
    finally:
        os.kill(worker["pid"], signal.SIGCONT)
    job = working.finished(id)
    assert (job["state"], job["crashes"], job["worker_id"]) == ("completed", 0, worker["id"])
    assert working.runs(id) == 1


def test_a_pool_that_was_stopped_and_continued_goes_on(working: Cli) -> None:
    """Ctrl-Z, `docker pause`, a debugger, a suspended laptop. A lease is looked after every half a second."""
    worker = working.worker()
    id = working.enqueue(UNTIL_GO)
    working.until(id, "processing")
    for pids in ([worker["manager_pid"]], [worker["pid"]], [worker["manager_pid"], worker["pid"]]):
        for number, seconds in ((signal.SIGSTOP, 0.6), (signal.SIGCONT, 0.1)):
            for pid in pids:
                os.kill(pid, number)
            time.sleep(seconds)
    (working.folder / "go").touch()
    job = working.finished(id)
    assert (job["state"], job["attempts"], job["crashes"]) == ("completed", 0, 0)
    assert working.worker()["id"] == worker["id"]
    kill(worker["pid"])  # the manager still does what it is there for
    eventually(lambda: working.workers() and working.worker()["id"] != worker["id"], "a successor")
    assert working.worker()["manager_pid"] == worker["manager_pid"]


# -- the house they live in ------------------------------------------------------------------------------


def no_zombies(manager: int, *workers: int) -> bool:
    return not any("Z" in children_of(pid).values() for pid in (manager, *workers))


def test_orphans_of_jobs_are_adopted_and_buried(working: Cli) -> None:
    worker = working.worker()
    orphan = f"(sh -c 'echo $$ >> pids; {UNTIL_GO}' &)"
    job = working.finished(working.enqueue(f"{orphan}; {orphan}; (true &) ; (setsid true &)"))
    assert job["state"] == "completed"
    pids = pids_in(working.folder / "pids", 2)
    assert [parent_of(pid) for pid in pids] == [worker["pid"]] * 2
    kill(worker["pid"])
    eventually(lambda: [parent_of(pid) for pid in pids] == [worker["manager_pid"]] * 2, "the manager to adopt them")
    (working.folder / "go").touch()
    eventually(lambda: not any(map(status_of, pids)), "buried")
    eventually(lambda: no_zombies(worker["manager_pid"]), "no zombies")


def test_an_orphan_that_ends_while_its_worker_is_idle_is_reaped(working: Cli) -> None:
    worker = working.worker()
    job = working.finished(working.enqueue(f"(sh -c 'echo $$ >> pids; {UNTIL_GO}' &)"))
    assert job["state"] == "completed"
    [orphan] = pids_in(working.folder / "pids")
    (working.folder / "go").touch()
    eventually(lambda: not status_of(orphan), "reaped")
    assert no_zombies(worker["manager_pid"], worker["pid"])


def test_background_workers_survive_their_terminal(q: Cli) -> None:
    screen, shell = q.in_terminal("sh", "-c", f"{QUEUECTL} worker start --count 2; echo started; read line")
    read_until(screen, b"started\r\n")
    os.close(screen)  # the window is closed: SIGHUP for all that belongs to it
    shell.wait(DEADLINE)
    assert len(q.workers()) == 2
    assert q.finished(q.enqueue("true"))["state"] == "completed"
    assert len(q.workers()) == 2


def test_ctrl_c_in_a_terminal_is_one_signal_and_lets_the_running_job_finish(q: Cli) -> None:
    id = q.enqueue(UNTIL_GO)
    screen, manager = q.in_terminal(QUEUECTL, "worker", "start", "--foreground")
    q.until(id, "processing")
    os.write(screen, b"\x03")
    read_until(screen, b"asked to stop")
    assert q.state(id) == "processing"
    (q.folder / "go").touch()
    assert manager.wait(DEADLINE) == 0
    os.close(screen)
    assert (q.state(id), q.runs(id)) == ("completed", 1)


def test_a_foreground_worker_leaves_with_its_terminal(q: Cli) -> None:
    q.ok("status")
    screen, manager = q.in_terminal(QUEUECTL, "worker", "start", "--foreground")
    eventually(q.workers, "workers up")
    os.close(screen)
    assert manager.wait(DEADLINE) == 0
    assert q.json("worker", "list") == []


def test_the_manager_serves_as_process_1_of_a_container(q: Cli) -> None:
    q.ok("status")
    container = subprocess.Popen(
        [*CONTAINER, QUEUECTL, "worker", "start", "--foreground"],
        env=q.env, cwd=q.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    [worker] = eventually(q.workers)
    assert worker["manager_pid"] == 1  # as it sees itself
    [manager] = children_of(container.pid)
    orphan = f"(sh -c 'echo $$ >> pids; {UNTIL_GO}' &)"
    assert q.finished(q.enqueue(f"{orphan}; (setsid true &)"))["state"] == "completed"
    pids_in(q.folder / "pids")
    (q.folder / "go").touch()
    eventually(lambda: len(children_of(manager)) == 1, "only the worker left, all orphans buried")
    [inside] = children_of(manager)
    kill(inside)
    eventually(lambda: q.workers() and q.worker()["id"] != worker["id"], "a successor")
    assert q.finished(q.enqueue("true"))["state"] == "completed"
    os.kill(manager, signal.SIGTERM)
    assert container.wait(DEADLINE) == 0
    assert q.json("worker", "list") == []


def test_a_container_that_was_killed_leaves_its_job_to_the_next(q: Cli) -> None:
    id = q.enqueue(HANGS_ONCE)
    inside = [
        *CONTAINER,
        "--kill-child",
        QUEUECTL,
        "worker",
        "start",
        "--foreground",
    ]
    quiet = subprocess.DEVNULL
    container = subprocess.Popen(inside, env=q.env, cwd=q.folder, stdout=quiet, stderr=quiet)
    pids_in(q.folder / "pids", 2)
    container.kill()
    container.wait(DEADLINE)
    eventually(lambda: q.json("worker", "list")[0]["state"] == "lost", "all dead")
    again = subprocess.Popen(inside, env=q.env, cwd=q.folder, stdout=quiet, stderr=quiet)
    job = q.finished(id)
    assert (job["state"], job["attempts"], job["crashes"]) == ("completed", 0, 1)
    again.kill()
    again.wait(DEADLINE)


# -- waking up -------------------------------------------------------------------------------------------


@pytest.fixture
def sleepy(q: Cli) -> Cli:
    """A queue whose only worker looks for work by itself once an hour."""
    q.ok("config", "set", "worker_poll_interval", "3600")
    q.ok("worker", "start")
    return q


def test_an_idle_worker_is_woken_by_new_work(sleepy: Cli) -> None:
    for _ in range(3):
        assert sleepy.finished(sleepy.enqueue("true"))["state"] == "completed"


def test_a_scheduled_job_runs_at_its_time_without_polling(sleepy: Cli) -> None:
    assert sleepy.finished(sleepy.enqueue("true", run_at="1s"))["state"] == "completed"


def test_a_retry_runs_at_its_time_without_polling(sleepy: Cli) -> None:
    job = sleepy.finished(sleepy.enqueue("[ $QUEUECTL_ATTEMPT = 2 ]", backoff_base=0.5))
    assert (job["state"], job["attempts"]) == ("completed", 1)


def test_an_earlier_job_is_not_delayed_by_a_later_one(sleepy: Cli) -> None:
    later = sleepy.enqueue("true", run_at="1h")
    assert sleepy.finished(sleepy.enqueue("true", run_at="1s"))["state"] == "completed"
    assert sleepy.state(later) == "pending"


def test_stop_cancel_and_dlq_retry_wake_a_worker_too(sleepy: Cli) -> None:
    dead = sleepy.enqueue("exit 1", max_retries=1)
    assert sleepy.finished(dead)["state"] == "dead"
    sleepy.ok("dlq", "retry", dead)
    eventually(lambda: sleepy.runs(dead) == 2)
    running = sleepy.enqueue(UNTIL_GO)
    sleepy.until(running, "processing")
    sleepy.ok("cancel", running)
    assert sleepy.state(running) == "cancelled"
    sleepy.ok("worker", "stop")
    assert sleepy.workers() == []


def test_nothing_stays_in_the_run_folder_of_those_who_were_killed(q: Cli) -> None:
    q.ok("worker", "start", "--count", "2")
    once = "[ -e once ] || { echo '{\"progress\": 5}' > $QUEUECTL_RESULT; touch once; sleep 1000; }"
    id = q.enqueue(once)
    eventually((q.folder / "once").exists, "the job to run")
    [run_dir] = {card.parent for card in q.folder.rglob("*.manager")}
    assert list(run_dir.glob("*.result"))
    os.mkfifo(run_dir / ".half-made")
    workers = q.workers()
    for pid in [workers[0]["manager_pid"], *(worker["pid"] for worker in workers)]:
        kill(pid)
    q.ok("worker", "start")
    q.until(id, "completed")
    [worker] = [worker for worker in q.workers() if worker["state"] != "lost"]
    wanted = {worker["id"], f"{worker['id']}.runs", f"{worker['manager_pid']}.manager"}
    wanted |= {f"{worker['id']}.lease"} if "://" in q.url else set()
    eventually(lambda: set(os.listdir(run_dir)) == wanted, "only what the new worker needs to be there")
    q.ok("worker", "stop")
    eventually(lambda: not os.listdir(run_dir), "nothing to be there")
