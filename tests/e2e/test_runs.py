"""What happens to a job once a worker has it: how it ends, what is kept of it, and in which order things run."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from datetime import datetime

import pytest

from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import QUEUECTL, UNTIL_GO, Cli, alive, gone, kill, lines_in, pids_in

START = re.compile(r"--- START (\S+) attempt=(\d+) worker=(\S+) ---\n")
END = re.compile(r"--- END (\S+) rc=(\S+) duration=(\S+)s ---\n")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# -- how a run ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "signal", "error"),
    [
        ("exit 1", 1, None, "exit code 1"),
        ("exit 255", 255, None, "exit code 255"),
        ("no-such-command-anywhere", 127, None, "exit code 127"),
        ("kill -9 $$", None, 9, "SIGKILL"),
        ("kill -TERM $$", None, 15, "SIGTERM"),
        ("kill -HUP $$", None, 1, "SIGHUP"),
    ],
)
def test_a_failed_run_is_told_in_numbers_and_in_words(
    working: Cli, command: str, code: int | None, signal: int | None, error: str
) -> None:
    job = working.finished(working.enqueue(command, max_retries=1))
    assert (job["state"], job["attempts"], job["crashes"]) == ("dead", 1, 0)
    assert (job["exit_code"], job["signal"]) == (code, signal)
    assert error in job["error"]


def test_a_completed_run_is_told(working: Cli) -> None:
    job = working.finished(working.enqueue("true"))
    assert (job["state"], job["attempts"], job["exit_code"], job["signal"]) == ("completed", 0, 0, None)
    assert job["error"] is None
    assert job["worker_id"] == working.worker()["id"]
    assert moment(job["created_at"]) <= moment(job["started_at"]) <= moment(job["finished_at"])
    assert job["duration_ms"] >= 0


def test_a_shell_that_writes_to_a_closed_pipe_ends_as_in_a_terminal(working: Cli) -> None:
    job = working.finished(working.enqueue("yes | head -n 1"))
    assert (job["state"], job["stdout"], job["stderr"]) == ("completed", "y\n", "")


def test_a_missing_folder_is_a_failed_run_with_a_clear_error(working: Cli) -> None:
    job = working.finished(working.enqueue("true", cwd=str(working.folder / "nowhere"), max_retries=1))
    assert (job["state"], job["attempts"]) == ("dead", 1)
    assert "could not start" in job["error"]
    assert "nowhere" in job["error"]
    assert working.finished(working.enqueue("true"))["state"] == "completed"


def test_a_command_too_long_for_the_system_is_a_failed_run_with_a_clear_error(working: Cli) -> None:
    [id] = working.batch({"command": "echo " + "x" * 200_000, "max_retries": 1})
    job = working.finished(id)
    assert (job["state"], job["attempts"]) == ("dead", 1)
    assert "too long" in job["error"]
    assert working.finished(working.enqueue("true"))["state"] == "completed"


# -- output ----------------------------------------------------------------------------------------------


def test_output_is_kept_in_the_row_and_between_marks_in_the_log(working: Cli) -> None:
    id = working.enqueue("echo one; echo two >&2; echo three; exit 4", max_retries=1)
    job = working.finished(id)
    assert (job["stdout"], job["stderr"]) == ("one\nthree\n", "two\n")
    log = working.ok("logs", id)
    assert (working.logs / f"job_{id}.log").read_text() == log
    start, end = START.match(log), END.search(log)
    assert start
    assert end
    assert (start[2], start[3], end[2]) == ("1", job["worker_id"], "4")
    assert TIME.fullmatch(start[1])
    assert TIME.fullmatch(end[1])
    assert sorted(log[start.end() : end.start()].splitlines()) == ["one", "three", "two"]
    assert log.endswith(end[0])


def test_output_keeps_the_order_in_which_it_came(working: Cli) -> None:
    said = {"out1": "", "err1": ">&2", "out2": "", "err2": ">&2"}
    id = working.enqueue(
        "; ".join(f"echo {w} {to}; while [ ! -e {w} ]; do sleep 0.02; done" for w, to in said.items())
    )
    log = working.logs / f"job_{id}.log"
    for number, word in enumerate(said):
        assert lines_in(log, number + 2)[-1] == word
        (working.folder / word).touch()
    working.finished(id)
    assert lines_in(log)[1:-1] == list(said)


def test_runs_of_one_job_append_to_one_log(working: Cli) -> None:
    id = working.enqueue("echo run $QUEUECTL_ATTEMPT; exit 1", max_retries=3, backoff_base=0)
    working.finished(id)
    log = working.ok("logs", id)
    assert [attempt for _, attempt, _ in START.findall(log)] == ["1", "2", "3"]
    assert re.findall(r"run \d", log) == ["run 1", "run 2", "run 3"]
    assert len(END.findall(log)) == 3
    working.ok("dlq", "retry", id)
    working.finished(id)
    assert len(START.findall(working.ok("logs", id))) == 6


def test_silent_runs_have_their_marks_too(working: Cli) -> None:
    id = working.enqueue("exit 3", max_retries=2, backoff_base=0)
    working.finished(id)
    log = working.ok("logs", id)
    assert [attempt for _, attempt, _ in START.findall(log)] == ["1", "2"]
    assert [rc for _, rc, _ in END.findall(log)] == ["3", "3"]


def test_a_silent_run_before_one_that_prints_has_its_marks(working: Cli) -> None:
    id = working.enqueue("[ $QUEUECTL_ATTEMPT = 1 ] && exit 3; echo hello", backoff_base=0)
    assert working.finished(id)["state"] == "completed"
    log = working.ok("logs", id)
    assert [attempt for _, attempt, _ in START.findall(log)] == ["1", "2"]
    assert [rc for _, rc, _ in END.findall(log)] == ["3", "0"]


def test_the_end_mark_tells_of_signals_and_timeouts(working: Cli) -> None:
    killed, late = working.batch(
        {"command": "echo hi; kill -9 $$", "max_retries": 1},
        {"command": "echo hi; sleep 1000", "max_retries": 1, "timeout": 2},
    )
    working("wait", killed, late)
    rcs = [END.findall(working.ok("logs", id))[0][1] for id in (killed, late)]
    assert rcs == ["SIGKILL", "timeout"]


def test_a_long_log_keeps_its_start_and_its_end_and_marks_the_cut(working: Cli) -> None:
    working.ok("config", "set", "log_max_bytes", "4096")
    id = working.enqueue("echo first; seq 100000; echo last")
    assert working.finished(id)["state"] == "completed"
    log = working.ok("logs", id)
    whole = "first\n" + "".join(f"{n}\n" for n in range(1, 100_001)) + "last\n"
    cut = re.search(r"\n--- CUT .*?(\d+) bytes are missing ---\n", log)
    assert cut
    head = START.sub("", log[: cut.start()])
    tail = END.sub("", log[cut.end() :])
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert min(len(head), len(tail)) > 500
    assert len(head) + len(tail) + int(cut[1]) == len(whole)
    assert len(log) < 4096 + 500  # and the marks


def test_the_row_keeps_the_last_characters_of_each_stream(working: Cli) -> None:
    id = working.enqueue("seq 10000; seq 20000 >&2; printf é%.0s $(seq 3000) >&2")
    job = working.finished(id)
    assert job["stdout"] == "".join(f"{n}\n" for n in range(1, 10_001))[-2000:]
    assert job["stderr"] == "é" * 2000
    working.ok("config", "set", "output_limit", "5")
    assert working.finished(working.enqueue("echo 0123456789"))["stdout"] == "6789\n"
    working.ok("config", "set", "output_limit", "0")
    assert not working.finished(working.enqueue("echo 0123456789"))["stdout"]


def test_binary_output_is_kept_raw_in_the_log_and_readable_in_the_row(working: Cli) -> None:
    id = working.enqueue(r"printf 'a\377\000\033[31m\303\251'")
    job = working.finished(id)
    assert job["state"] == "completed"
    assert job["stdout"] == "a\ufffd\ufffd\x1b[31mé"
    assert b"a\xff\x00\x1b[31m\xc3\xa9" in (working.logs / f"job_{id}.log").read_bytes()


def test_megabytes_without_a_newline_do_no_harm(working: Cli) -> None:
    id = working.enqueue("head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end")
    job = working.finished(id)
    assert job["state"] == "completed"
    assert job["stdout"].endswith("x\nend\n")
    assert (working.logs / f"job_{id}.log").stat().st_size < 11_000_000


def test_logs_lie_where_the_variable_says(q: Cli) -> None:
    q.env["QUEUECTL_LOG_DIR"] = str(q.folder / "elsewhere")
    q.ok("worker", "start")
    q.ok("enqueue", "--wait", "--id", "hi", "echo hi")
    assert q.job("hi")["log_path"] == str(q.folder / "elsewhere/job_hi.log")
    assert "hi\n" in (q.folder / "elsewhere/job_hi.log").read_text()


def test_a_planted_link_is_not_followed(working: Cli) -> None:
    precious = working.folder / "precious"
    precious.write_text("precious")
    working.logs.mkdir(exist_ok=True)
    (working.logs / "job_evil.log").symlink_to(precious)
    assert working.finished(working.enqueue("echo overwritten", id="evil"))["state"] == "completed"
    assert precious.read_text() == "precious"
    shown = working("logs", "evil")
    assert "precious" not in shown.out
    assert "bug in queuectl" not in shown.err


# -- the end of everything a run started -----------------------------------------------------------------

# A shell, a child, a grandchild in a session of its own that ignores TERM, and an orphan: each writes its pid.
FOREST = """
echo $$ >> pids
sh -c 'echo $$ >> pids; while :; do sleep 0.1; done' &
setsid sh -c 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 0.1; done' &
(setsid sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 0.1; done' &)
trap "" TERM
while :; do sleep 0.1; done
"""


def ends_while_its_worker_is_stopped(q: Cli, timeout: float) -> tuple[str, bool]:
    """A job whose worker looks at it only when its time is over; did it end in time?"""
    [worker] = q.workers()
    id = q.enqueue("while ! test -e go; do sleep 0.01; done; rm go; touch done", timeout=timeout)
    eventually(lambda: q.state(id) == "processing", "it runs")
    os.kill(worker["pid"], signal.SIGSTOP)
    try:
        (q.folder / "go").touch()
        eventually((q.folder / "done").exists, "it is done")
        over_at = moment(q.job(id)["started_at"]) + timeout
        in_time = time.time() < over_at - 0.5
        eventually(lambda: time.time() > over_at, "its time is over")
    finally:
        os.kill(worker["pid"], signal.SIGCONT)
    (q.folder / "done").unlink()
    return id, in_time


def test_what_ended_in_time_has_not_timed_out_however_late_its_worker_looks(working: Cli) -> None:
    id, in_time = ends_while_its_worker_is_stopped(working, 3)
    while not in_time:  # the machine was too slow for the job itself
        id, in_time = ends_while_its_worker_is_stopped(working, 10)
    assert working.finished(id)["state"] == "completed"


def test_a_timeout_ends_the_whole_tree(working: Cli) -> None:
    working.ok("config", "set", "kill_grace", "0.2")
    id = working.enqueue(FOREST, timeout=5, max_retries=1)
    pids = pids_in(working.folder / "pids", 4)
    job = working.finished(id)
    assert (job["state"], job["attempts"]) == ("dead", 1)
    assert "timed out after 5 s" in job["error"]
    assert not any(map(alive, pids))


def test_a_cancel_ends_the_whole_tree(working: Cli) -> None:
    working.ok("config", "set", "kill_grace", "0.2")
    id = working.enqueue(FOREST)
    pids = pids_in(working.folder / "pids", 4)
    assert working.ok("cancel", id) == f"Job {id} cancelled.\n"
    assert not any(map(alive, pids))
    job = working.job(id)
    assert (job["state"], job["attempts"], job["crashes"]) == ("cancelled", 0, 0)
    assert working.finished(working.enqueue("true"))["state"] == "completed"


def test_a_timed_out_job_may_tidy_up(working: Cli) -> None:
    command = "trap 'echo tidied; exit 0' TERM; while :; do sleep 0.05; done"
    job = working.finished(working.enqueue(command, timeout=2, max_retries=1))
    assert (job["state"], job["stdout"]) == ("dead", "tidied\n")
    assert "timed out" in job["error"]


def test_what_a_completed_job_leaves_behind_stays_and_is_not_waited_for(working: Cli) -> None:
    job = working.finished(working.enqueue("sh -c 'while sleep 0.05; do echo noise; done' & echo $! > pid"))
    [server] = pids_in(working.folder / "pid")
    try:
        assert job["state"] == "completed"
        for _ in range(3):  # the worker goes on, and the server is not killed by its own output
            assert working.finished(working.enqueue("sleep 0.1"))["state"] == "completed"
        assert alive(server)
    finally:
        kill(server)
    gone(server)


# -- retries ---------------------------------------------------------------------------------------------


def test_a_job_is_dead_when_its_attempts_reach_the_limit(working: Cli) -> None:
    id = working.enqueue("exit 1", max_retries=3, backoff_base=0)
    assert working.finished(id)["attempts"] == 3
    states = [event["state"] for event in working.history(id)]
    assert states == ["pending", "processing", "failed", "processing", "failed", "processing", "dead"]
    assert [event["run"] for event in working.history(id)] == [0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("limit", [0, 1])
def test_a_job_without_retries_runs_once(working: Cli, limit: int) -> None:
    id = working.enqueue("exit 1", max_retries=limit)
    assert working.finished(id)["state"] == "dead"
    assert working.runs(id) == 1


def test_a_job_that_recovers_is_completed_and_remembers_its_failures(working: Cli) -> None:
    id = working.enqueue("[ $QUEUECTL_ATTEMPT = 3 ]", max_retries=5, backoff_base=0)
    job = working.finished(id)
    assert (job["state"], job["attempts"], job["error"]) == ("completed", 2, None)


def test_delays_grow_and_are_kept(working: Cli) -> None:
    id = working.enqueue("exit 1", max_retries=3, backoff_base=1.2)
    working.finished(id)
    history = working.history(id)
    failed = [event for event in history if event["state"] == "failed"]
    again = [event for event in history if event["state"] == "processing"][1:]
    assert ["next in 1.2 s" in failed[0]["reason"], "next in 1.44 s" in failed[1]["reason"]] == [True, True]
    waited = [moment(next["at"]) - moment(before["at"]) for before, next in zip(failed, again, strict=True)]
    assert waited[0] >= 1.2 - 0.001
    assert waited[1] >= 1.44 - 0.001


def test_a_failed_job_shows_when_it_is_due_and_delays_have_a_ceiling(working: Cli) -> None:
    working.ok("config", "set", "backoff_max", "500")
    job = working.until(working.enqueue("exit 1", backoff_base=1000), "failed")
    assert moment(job["run_at"]) - moment(job["updated_at"]) == pytest.approx(500)
    assert job["finished_at"] is None


def test_dlq_retry_gives_a_new_life(working: Cli) -> None:
    id = working.enqueue("[ -e mended ]", max_retries=1)
    assert working.finished(id)["state"] == "dead"
    (working.folder / "mended").touch()
    assert id in working.ok("dlq", "retry", id)
    job = working.finished(id)
    assert (job["state"], job["attempts"]) == ("completed", 0)


# -- order -----------------------------------------------------------------------------------------------


def test_one_worker_runs_the_highest_priority_first_and_then_the_oldest(q: Cli) -> None:
    jobs = [("a", 0), ("b", 5), ("c", -5), ("d", 5), ("e", 0), ("f", 10)]
    q.batch(*({"command": f"echo {name} >> order", "priority": priority} for name, priority in jobs))
    q.ok("worker", "start")
    assert q("wait", "--all").code == 0
    assert lines_in(q.folder / "order", 6) == ["f", "b", "d", "a", "e", "c"]


def test_priority_counts_across_queues(q: Cli) -> None:
    jobs = [("a", 0, "x"), ("b", 5, "y"), ("c", 9, "x"), ("d", 7, "z")]
    q.batch(*({"command": f"echo {name} >> order", "priority": p, "queue": queue} for name, p, queue in jobs))
    q.ok("worker", "start")
    assert q("wait", "--all").code == 0
    assert lines_in(q.folder / "order", 4) == ["c", "d", "b", "a"]


def test_nothing_runs_before_its_time_whatever_its_priority(working: Cli) -> None:
    later, now = working.batch(
        {"command": "true", "run_at": "1.5s", "priority": 100}, {"command": "true", "priority": -100}
    )
    assert working("wait", later, now).code == 0
    first, second = working.job(now), working.job(later)
    assert moment(second["started_at"]) >= moment(second["run_at"])
    assert moment(first["started_at"]) <= moment(second["started_at"])


def test_a_worker_bound_to_a_queue_runs_only_that(q: Cli) -> None:
    q.ok("worker", "start", "--queue", "mail", "--queue", "fax")
    mail, fax, other = q.batch(*({"command": "true", "queue": name} for name in ("mail", "fax", "default")))
    assert q("wait", mail, fax).code == 0
    assert q.finished(q.enqueue("true", queue="mail"))["state"] == "completed"
    assert q.state(other) == "pending"
    q.ok("worker", "start")
    assert q("wait", other).code == 0


def test_one_worker_runs_as_many_jobs_at_once_as_it_has_slots(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "3")
    command = f"echo $$ >> pids; {UNTIL_GO}"
    ids = q.batch(*[{"command": command}] * 4)
    pids_in(q.folder / "pids", 3)
    jobs = q.json("status")["jobs"]
    assert (jobs["processing"], jobs["pending"]) == (3, 1)
    assert sorted(q.worker()["jobs"]) == sorted(ids[:3])
    (q.folder / "go").touch()
    assert q("wait", *ids).code == 0
    assert len(lines_in(q.folder / "pids", 4)) == 4


def test_two_thousand_jobs_over_eight_workers_run_exactly_once_each(q: Cli) -> None:
    q.ok("worker", "start", "--count", "8")
    ids = q.batch(*[{"command": "echo $QUEUECTL_JOB_ID >> ran"}] * 2000)
    assert q("wait", *ids).code == 0
    assert sorted(lines_in(q.folder / "ran", 2000)) == sorted(ids)
    assert q.json("status")["jobs"]["completed"] == 2000
    assert {job["attempts"] for job in q.json("list", "--limit", "0")} == {0}


# -- settings and restarts -------------------------------------------------------------------------------


def test_a_changed_setting_reaches_idle_workers_at_once(q: Cli) -> None:
    q.ok("config", "set", "worker_poll_interval", "3600")
    q.ok("worker", "start")
    q.ok("config", "set", "backoff_max", "7")
    job = q.until(q.enqueue("exit 1", backoff_base=100), "failed")
    assert moment(job["run_at"]) - moment(job["updated_at"]) == pytest.approx(7)


def test_a_changed_setting_reaches_a_worker_in_the_middle_of_a_job(q: Cli) -> None:
    q.ok("config", "set", "worker_poll_interval", "3600")
    q.ok("config", "set", "kill_grace", "3600")
    q.ok("worker", "start")
    id = q.enqueue("trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    [pid] = pids_in(q.folder / "pid")
    q.ok("config", "set", "kill_grace", "0.1")
    q.ok("cancel", id)
    assert q.state(id) == "cancelled"
    assert not alive(pid)


def test_jobs_and_settings_survive_a_restart_of_the_workers(q: Cli) -> None:
    q.ok("config", "set", "max_retries", "7")
    q.ok("worker", "start")
    done, waiting = q.batch({"command": "true"}, {"command": "true", "run_at": "1h"})
    assert q("wait", done).code == 0
    later = q.until(q.enqueue("exit 1", backoff_base=1000), "failed")
    before = [q.job(id) for id in (done, waiting, later["id"])]
    q.ok("worker", "stop")
    q.ok("worker", "start")
    assert [q.job(id) for id in (done, waiting, later["id"])] == before
    assert q.ok("config", "get", "max_retries") == "7\n"
    assert q.finished(q.enqueue("true"))["max_retries"] == 7


def test_a_job_can_enqueue_another(working: Cli) -> None:
    assert working.finished(working.enqueue(f"{QUEUECTL} enqueue --id child 'echo hello'"))["state"] == "completed"
    assert working.finished("child")["stdout"] == "hello\n"


def test_a_job_cancelled_while_it_waits_never_runs(q: Cli) -> None:
    one, two = q.batch({"command": "echo ran >> ran"}, {"command": "true"})
    assert json.loads(q.ok("cancel", one, "--json")) == [{"id": one, "state": "cancelled"}]
    q.ok("worker", "start")
    assert q("wait", two).code == 0
    assert q("wait", one).code == 1
    assert not (q.folder / "ran").exists()
    assert q.runs(one) == 0


def test_history_tells_every_step_with_worker_run_and_reason(working: Cli) -> None:
    id = working.enqueue("exit 1", max_retries=1)
    working.finished(id)
    working.ok("dlq", "retry", id)
    working.finished(id)
    steps = [(event["state"], event["run"], bool(event["worker_id"])) for event in working.history(id)]
    assert steps == [
        ("pending", 0, False),
        ("processing", 1, True),
        ("dead", 1, True),
        ("pending", 1, False),
        ("processing", 2, True),
        ("dead", 2, True),
    ]
    assert all(event["reason"] and TIME.fullmatch(event["at"]) for event in working.history(id))


def test_whoever_waits_is_told_of_the_end(working: Cli) -> None:
    id = working.enqueue(UNTIL_GO)
    working.until(id, "processing")
    waiting = working.start("wait", id)
    assert waiting.poll() is None
    (working.folder / "go").touch()
    assert waiting.wait(DEADLINE) == 0
