"""One run of a shell command, with real processes: what it is given, how it ends, and whom a signal may reach."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuectl.jobs.lifecycle import (
    SILENT,
    Cancelled,
    Exited,
    Interrupted,
    NoResources,
    NotStarted,
    Outcome,
    Signalled,
    TimedOut,
)
from queuectl.jobs.model import Report
from queuectl.settings import effective
from queuectl.system import procfs
from queuectl.worker import run_marks
from queuectl.worker.process import CannotStart, Run, Workplace
from queuectl.worker.process_tree import TAG, Traces, find, kill_survivors, signal_one, tag_of
from queuectl.worker.subreaper import Children
from tests.conftest import eventually
from tests.unit.conftest import a_claim, limited

CONFIG = effective([])
FOREVER = 1000
WORKER = f"test{os.getpid()}"  # others may run these tests at the same time

Start = Callable[..., subprocess.Popen[bytes]]


def born(pid: int) -> int | None:
    """When this process was started, in the kernel's ticks; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def end(pids: dict[int, int]) -> None:
    """Kill exactly these processes."""
    for pid, started in pids.items():
        if born(pid) == started:
            os.kill(pid, signal.SIGKILL)


def tagged(tag: str) -> Traces:
    return Traces(frozenset([tag]))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start shell commands; they and what they started are gone when the test is over."""
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(command: str, tag: str = "") -> subprocess.Popen[bytes]:
        tag = tag or f"{WORKER}:untagged{len(processes)}"
        env = {**os.environ, TAG.decode(): tag}
        processes[tag] = subprocess.Popen(
            ["/bin/sh", "-c", command], env=env, start_new_session=True, stdout=subprocess.PIPE
        )
        return processes[tag]

    yield start
    for tag, process in processes.items():
        end(find(tagged(tag)))
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def printed_pids(process: subprocess.Popen[bytes], count: int) -> list[int]:
    assert process.stdout
    return [int(process.stdout.readline()) for _ in range(count)]


# -- whom a signal may reach -----------------------------------------------------------------------------


def test_a_signal_reaches_the_very_process_that_was_meant(start: Start) -> None:
    process = start(f"exec sleep {FOREVER}")
    signal_one(process.pid, born(process.pid) or 0, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_a_pid_that_belongs_to_another_by_now_is_left_alone(start: Start) -> None:
    process = start(f"exec sleep {FOREVER}")
    started = born(process.pid) or 0
    for other_time in (started - 1, started + 1, 0):
        signal_one(process.pid, other_time, signal.SIGKILL)
    process.terminate()
    assert process.wait() == -signal.SIGTERM  # and not the KILL before it


def test_a_process_that_is_gone_can_be_signalled_for_nothing(start: Start) -> None:
    process = start("exit 0")
    started = born(process.pid) or 0
    process.wait()
    signal_one(process.pid, started, signal.SIGKILL)


def test_a_tagged_process_is_found_with_its_start_time(start: Start) -> None:
    process = start(f"exec sleep {FOREVER}", tag=f"{WORKER}:1:1")
    eventually(lambda: find(tagged(f"{WORKER}:1:1")) == {process.pid: born(process.pid)})


@pytest.mark.parametrize("other", ["{}:1:11", "{}:1:", "x{}:1:1", "{}:1:1 "])
def test_another_runs_tag_is_not_this_runs(start: Start, other: str) -> None:
    process = start(f"echo $$; exec sleep {FOREVER}", tag=other.format(WORKER))
    printed_pids(process, 1)
    assert find(tagged(f"{WORKER}:1:1")) == {}


def test_grandchildren_in_sessions_of_their_own_are_found(start: Start) -> None:
    daemon = f"setsid sh -c 'echo $$; exec sleep {FOREVER}'"
    process = start(f"({daemon} &); {daemon} & sleep {FOREVER}", tag=f"{WORKER}:2:1")
    pids = printed_pids(process, 2)
    found = find(tagged(f"{WORKER}:2:1"))
    assert {process.pid, *pids} <= found.keys()


def test_a_process_without_parent_session_and_environment_is_found_by_its_mark(start: Start) -> None:
    tag = f"{WORKER}:3:1"
    with run_marks.limits_of_run(run_marks.of(tag), None):
        process = start(
            f"(env -i setsid sh -c 'echo $$; exec sleep {FOREVER}' &); echo $$; exec sleep {FOREVER}", tag
        )
    pids = printed_pids(process, 2)
    eventually(lambda: procfs.process(pids[0]), "the daemon")
    process.kill()
    process.wait()
    assert find(tagged(tag)).keys() == set(pids) - {process.pid}
    assert find(Traces(frozenset([tag]), since=procfs.ticks() + 1000)) == {}


def test_a_zombie_is_nobodys_member(start: Start) -> None:
    tag = f"{WORKER}:5:1"
    with run_marks.limits_of_run(run_marks.of(tag), None):
        process = start("exit 0", tag)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert run_marks.read(process.pid) == run_marks.of(tag)
    assert find(tagged(tag)) == {}


def test_what_a_dead_workers_runs_left_behind_is_ended_and_nothing_else(start: Start) -> None:
    claim, other = a_claim(seq=6), a_claim(seq=61)
    survivor = start(
        f"trap '' TERM; setsid sh -c 'echo $$; exec sleep {FOREVER}' & sleep {FOREVER}; sleep {FOREVER}",
        tag=tag_of(WORKER, claim, "db"),
    )
    bystander = start(f"exec sleep {FOREVER}", tag=tag_of(WORKER, other, "db"))
    [daemon] = printed_pids(survivor, 1)
    assert kill_survivors(tagged(tag_of(WORKER, claim, "db")), 5)
    assert survivor.wait() == -signal.SIGKILL
    assert born(daemon) is None
    assert born(bystander.pid) is not None


def test_there_may_be_no_survivors() -> None:
    assert kill_survivors(tagged(f"{WORKER}:7:1"), 5)
    assert kill_survivors(Traces(), 5)


def test_a_tag_names_the_worker_the_job_and_the_run() -> None:
    assert tag_of("w1", a_claim(seq=12, run=3), "db") == "db:w1:12:3"
    assert len({tag_of("w", a_claim(seq=s, run=r), "db") for s in (1, 11, 111) for r in (1, 11, 111)}) == 9


# -- a run, from its start to its end --------------------------------------------------------------------


class Stage:
    """A worker's household without a worker: starts runs and sees them through."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self.null = os.open(os.devnull, os.O_RDONLY)
        self.children = Children()
        self.runs: list[Run] = []
        self.fenced: set[str] = set()  # the tags of runs that the manager has ended

    def run(self, command: str, **fields: object) -> Run:
        claim = a_claim(command, seq=len(self.runs) + 100, **{"cwd": str(self.folder), **fields})
        place = Workplace(
            WORKER, self.home, str(self.folder / "logs"), null=self.null, run_dir=str(self.folder),
            low=(self.null, self.null), children=self.children, lease_ended=self.fenced.__contains__,
        )  # fmt: skip
        run = Run(claim, place, CONFIG)
        self.runs.append(run)
        return run

    def turn(self, run: Run) -> bool:
        """One turn of a worker's loop; is the run over?"""
        run._place.eyes.blink()
        for pipe in list(run.pipes):
            run.read(pipe)
        for pid, status, used in self.children.reap():
            for other in self.runs:
                if other.pid == pid:
                    other.reaped(status, used.ru_utime + used.ru_stime, used.ru_maxrss, grace=5)
        return run.over()

    def see_through(self, run: Run) -> tuple[Outcome, Report]:
        eventually(lambda: self.turn(run), "the run is over")
        self.runs.remove(run)
        ended = run.finish()
        for pipe in run.pipes:
            os.close(pipe)
        return ended

    def close(self) -> None:
        for run in list(self.runs):
            run._place.eyes.blink()
            run.end(Interrupted(), 0)
            self.see_through(run)
        hand_on_orphans()
        os.close(self.null)
        os.close(self.home)


def hand_on_orphans() -> None:
    """Leave the orphans of other tests to others."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 0, 0, 0, 0)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def first_line(stage: Stage, run: Run) -> str:
    eventually(lambda: stage.turn(run) or "\n" in run.output.tail(0), "its first line")
    return run.output.tail(0).splitlines()[0]


def test_a_run_tells_its_exit_code_and_what_it_printed(stage: Stage) -> None:
    outcome, report = stage.see_through(stage.run("echo out; echo err >&2; exit 3"))
    assert outcome == Exited(3)
    assert (report.stdout, report.stderr) == ("out\n", "err\n")
    assert report.duration_ms is not None
    assert report.max_rss_kb
    log = (stage.folder / "logs" / "job_job1.log").read_text().splitlines()
    assert log[0].startswith("--- START 2027-01-15T08:00:00.000Z attempt=1 worker=")
    assert sorted(log[1:3]) == ["err", "out"]
    assert " rc=3 duration=" in log[3]


def test_a_run_that_is_killed_tells_the_signal(stage: Stage) -> None:
    outcome, _ = stage.see_through(stage.run("kill -SEGV $$"))
    assert outcome == Signalled(signal.SIGSEGV)


def test_a_missing_command_is_exit_code_127(stage: Stage) -> None:
    outcome, report = stage.see_through(stage.run("no-such-command-anywhere"))
    assert outcome == Exited(127)
    assert "not found" in (report.stderr or "")


@pytest.mark.parametrize("command", ["-x", "+x", "--version"])
def test_a_command_that_looks_like_an_option_is_a_command(stage: Stage, command: str) -> None:
    outcome, _ = stage.see_through(stage.run(command))
    assert outcome == Exited(127)


def test_a_run_gets_its_folder_its_environment_and_no_input(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_WORKER", "worker")
    monkeypatch.setenv("BOTH", "worker")
    env = json.dumps({"BOTH": "job", "QUEUECTL_JOB_ID": "a lie", "QUEUECTL_RESULT": "a lie"})
    (stage.folder / "sub").mkdir()
    run = stage.run(
        'pwd; echo "$FROM_WORKER $BOTH $QUEUECTL_JOB_ID $QUEUECTL_ATTEMPT $QUEUECTL_QUEUE"; wc -c;'
        ' echo "$QUEUECTL_RESULT"',
        env=env, attempts=1, queue="mail", cwd=str(stage.folder / "sub"),
    )  # fmt: skip
    _, report = stage.see_through(run)
    assert (report.stdout or "").split("\n")[:3] == [f"{stage.folder}/sub", "worker job job1 2 mail", "0"]
    assert (report.stdout or "").split("\n")[3] == f"{stage.folder}/{WORKER}.{run.claim.seq}.1.result"


def test_a_run_has_a_session_of_its_own_and_undisturbed_signals(stage: Stage) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        run = stage.run("cut -d' ' -f6 /proc/$$/stat; grep -E 'SigBlk|SigIgn' /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    _, report = stage.see_through(run)
    session, blocked, ignored = (line.split()[-1] for line in (report.stdout or "").splitlines())
    assert int(session) == run.pid
    assert int(blocked, 16) == 0
    assert not int(ignored, 16) & (1 << signal.SIGHUP - 1 | 1 << signal.SIGPIPE - 1 | 1 << signal.SIGTERM - 1)


def test_a_run_inherits_no_descriptor_of_the_worker(stage: Stage) -> None:
    see = "ls /proc/$$/fd"
    _, report = stage.see_through(stage.run(see))
    plain = subprocess.run(["/bin/sh", "-c", see], stdin=subprocess.DEVNULL, capture_output=True, close_fds=False)
    assert report.stdout == plain.stdout.decode()  # what our own parent left open, and nothing of ours


def test_what_was_printed_just_before_the_exit_is_not_lost(stage: Stage) -> None:
    _, report = stage.see_through(stage.run("head -c 60000 /dev/zero | tr '\\0' x; printf the-end"))
    assert (report.stdout or "").endswith("xxx" + "the-end")


# -- runs that cannot start ------------------------------------------------------------------------------


def cannot_start(stage: Stage, command: str = "true", **fields: object) -> NotStarted | NoResources:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(CannotStart) as problem:
        stage.run(command, **fields)
    assert os.listdir("/proc/self/fd") == before
    assert isinstance(problem.value.outcome, NotStarted | NoResources)
    return problem.value.outcome


def test_a_missing_folder_is_a_failed_run_that_says_so(stage: Stage) -> None:
    outcome = cannot_start(stage, cwd="/no/such/folder")
    assert outcome == NotStarted('the working folder "/no/such/folder": no such file or directory')


@pytest.mark.parametrize("command", ["kill -KILL $$", "exit 137"])
def test_a_run_that_was_ended_with_its_lease_has_not_failed(stage: Stage, command: str) -> None:
    run = stage.run(command)
    stage.fenced.add(run.tag)
    assert stage.see_through(run)[0] == SILENT


def test_a_run_that_completed_before_its_lease_was_over_has_completed(stage: Stage) -> None:
    run = stage.run("true")
    stage.fenced.add(run.tag)
    assert stage.see_through(run)[0] == Exited(0)


@pytest.mark.parametrize("code", [0, 3])
def test_what_has_ended_by_itself_cannot_be_ended_any_more(stage: Stage, code: int) -> None:
    run = stage.run(f"exit {code}")
    eventually(lambda: stage.turn(run), "its end")
    run.end(Cancelled(), 0)
    assert stage.see_through(run)[0] == Exited(code)


def test_what_came_too_late_is_not_started(stage: Stage) -> None:
    """Its folder may have kept us waiting until the job was somebody else's."""
    asked: list[str] = []

    def in_time() -> bool:
        asked.append(os.getcwd())
        return False

    place = Workplace(WORKER, stage.home, str(stage.folder), null=stage.null, may_start=in_time)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(CannotStart) as problem:
        Run(a_claim("touch started", cwd=str(stage.folder)), place, CONFIG)
    assert problem.value.outcome == SILENT
    assert asked == [str(stage.folder)]
    assert os.listdir("/proc/self/fd") == before


def test_an_environment_that_cannot_be_written_is_a_failed_run(stage: Stage) -> None:
    assert isinstance(cannot_start(stage, env=json.dumps({"A": "\ud800"})), NotStarted)


def test_many_runs_are_ended_with_one_look(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Workplace(WORKER, stage.home, str(stage.folder), null=stage.null)
    stage.runs += [Run(a_claim(f"sleep {FOREVER}", seq=n), place, CONFIG) for n in range(5)]
    looks: list[int] = []
    every = procfs.processes
    monkeypatch.setattr(procfs, "processes", lambda: looks.append(1) or every())  # type: ignore[func-returns-value]
    place.eyes.blink()
    for run in stage.runs:
        run.end(Cancelled(), grace=5)
        run.over()
    assert len(looks) == 1


def test_a_file_is_no_folder(stage: Stage) -> None:
    assert "not a directory" in cannot_start(stage, cwd="/dev/null").reason


def test_a_command_too_long_for_the_system_is_a_failed_run_that_says_so(stage: Stage) -> None:
    outcome = cannot_start(stage, ": " + "x" * 1_000_000)
    assert isinstance(outcome, NotStarted)
    assert "too long" in outcome.reason


def test_a_machine_without_descriptors_is_not_the_jobs_fault(stage: Stage) -> None:
    with limited(resource.RLIMIT_NOFILE, 3), pytest.raises(CannotStart) as problem:
        stage.run("true")
    assert isinstance(problem.value.outcome, NoResources)


def test_whether_it_starts_or_not_the_worker_stays_in_its_own_folder(stage: Stage, tmp_path: Path) -> None:
    before = os.getcwd()
    try:
        stage.see_through(stage.run("true", cwd="/"))
        assert os.getcwd() == str(stage.folder)
        cannot_start(stage, cwd="/no/such/folder")
        assert os.getcwd() == str(stage.folder)
    finally:
        os.chdir(before)


# -- ending a run ----------------------------------------------------------------------------------------


def test_a_run_that_heeds_term_has_its_grace(stage: Stage) -> None:
    run = stage.run(f"trap 'echo bye; exit 9' TERM; sleep {FOREVER} & echo ready; wait")
    first_line(stage, run)
    run.end(TimedOut(5), grace=3)  # enough for the shell; a child in the midst of its fork may miss the signal
    outcome, report = stage.see_through(run)
    assert outcome == TimedOut(5, None)
    assert report.stdout == "ready\nbye\n"


def test_a_run_that_ignores_term_is_killed_when_its_grace_is_over(stage: Stage) -> None:
    run = stage.run(f"trap '' TERM; echo ready; sleep {FOREVER}; sleep {FOREVER}")
    first_line(stage, run)
    run.end(Cancelled(), grace=0.05)
    assert stage.see_through(run)[0] == Cancelled(signal.SIGKILL)


def test_the_first_reason_to_end_a_run_stands(stage: Stage) -> None:
    run = stage.run(f"echo ready; exec sleep {FOREVER}")
    first_line(stage, run)
    run.end(TimedOut(5), grace=5)
    run.end(Interrupted(), grace=5)
    assert stage.see_through(run)[0] == TimedOut(5, signal.SIGTERM)


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
def test_ending_a_run_ends_its_grandchildren_in_other_sessions_too(stage: Stage, trap: str) -> None:
    daemon = f"{trap} setsid sh -c '{trap} echo $$; sleep {FOREVER}; sleep {FOREVER}'"
    run = stage.run(f"({daemon} &) ; sleep {FOREVER}")
    pid = int(first_line(stage, run))
    assert born(pid)
    run.end(TimedOut(1), grace=0.05)
    stage.see_through(run)
    assert born(pid) is None


def test_what_a_finished_run_left_behind_stays_and_is_not_waited_for(stage: Stage) -> None:
    run = stage.run(f"sleep {FOREVER} & echo $!")
    outcome, report = stage.see_through(run)
    pid = int(report.stdout or "0")
    started = born(pid)
    assert outcome == Exited(0)
    assert started
    end({pid: started})


def test_a_run_has_a_deadline_only_if_it_has_a_timeout(stage: Stage) -> None:
    without, with_one = stage.run("true"), stage.run("true", timeout_seconds=90)
    assert without.next_deadline() is None
    deadline = with_one.next_deadline()
    assert deadline is not None
    assert 0 < deadline - time.monotonic() <= 90
