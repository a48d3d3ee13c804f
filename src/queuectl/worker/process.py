"""One run of a shell command: its session, its pipes, and the end of everything it started."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from queuectl.jobs import lifecycle, log_files
from queuectl.jobs.model import Claim, Report
from queuectl.settings import Config
from queuectl.system import procfs
from queuectl.worker import progress, run_marks
from queuectl.worker.output import STREAMS, Output, RunLog
from queuectl.worker.process_tree import TAG, Eyes, Traces, find, signal_one, tag_of
from queuectl.worker.subreaper import Children

NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
# What Python or a shell may have set to "ignored" in us must not reach the job.
RESET = [
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
]
DRAIN_AT_EXIT = 1 << 20
KILL_AGAIN_AFTER = 0.02  # seconds, if the death of a child does not wake us before; twice as long each time
KILL_AGAIN_WITHIN = 1.0  # what cannot be killed (another user's, or one that waits for a disk) must not keep us busy
PYTHON = b"QUEUECTL_PYTHON"  # with it a run can call the queuectl of its worker, wherever that is
Ending = lifecycle.TimedOut | lifecycle.Cancelled | lifecycle.Interrupted
_buffer = memoryview(bytearray(65536))


class CannotStart(Exception):
    """No process was started; `outcome` says what that means for the job."""

    def __init__(
        self, outcome: lifecycle.NotStarted | lifecycle.NoResources | lifecycle.Interrupted, why: str
    ) -> None:
        super().__init__(why)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all runs of a worker have in common."""

    worker_id: str
    home: int  # the folder of jobs that name none
    log_dir: str
    database: str = ""  # names this very one
    run_dir: str = ""  # where a run may write what it says of itself
    null: int = field(default_factory=lambda: os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    # Low descriptors, for pipes whose own are above the limit of a run: posix_spawn refuses those.
    low: tuple[int, ...] = field(
        default_factory=lambda: tuple(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC) for _ in range(STREAMS))
    )
    # May a run be started still? Asked in the last moment: it may take long to get into its folder.
    may_start: Callable[[], bool] = lambda: True
    # Was the run with this tag ended because its worker's lease was over?
    lease_ended: Callable[[str], bool] = lambda tag: False
    eyes: Eyes = field(default_factory=Eyes)
    children: Children = field(default_factory=Children)
    file_limits: run_marks.Limits | None = None  # those of runs, if they are not the worker's own
    # As bytes, once: os.environ decodes and encodes every entry each time it is read.
    env: dict[bytes, bytes] = field(default_factory=lambda: {**os.environb, PYTHON: os.fsencode(sys.executable)})


class Run:
    """A live execution of a claimed job, from start to the end of its processes."""

    ending: Ending | None = None
    _moved = False  # its pipes were given to it through low descriptors
    _clearing = False  # it failed by itself, and what it left is being ended
    _kill_at = 0.0
    _kills = 0
    _status: int | None = None
    _duration_ms = _cpu_ms = _max_rss_kb = 0

    def __init__(self, claim: Claim, place: Workplace, config: Config) -> None:
        self.claim = claim
        self._place = place
        self.tag = tag_of(place.worker_id, claim, place.database)
        self.mark = run_marks.of(self.tag)
        self.result_path = progress.path_of(place.run_dir, place.worker_id, claim)
        self.output = Output(lambda: self._open_log(int(config["log_max_bytes"])), int(config["output_limit"]))
        self.pipes: dict[int, int] = {}  # the streams that are still open
        self.began = time.monotonic()
        self.deadline = self.began + claim.timeout_seconds if claim.timeout_seconds else None
        self._traces = Traces(frozenset([self.tag]), since=procfs.ticks())
        self._known: dict[int, int] = {}  # pids and start times of those that were found
        self.pid = self._start(place.home)

    def _start(self, home: int) -> int:
        claim, ends = self.claim, []
        command = ["/bin/sh", "-c", claim.command]
        if claim.command[0] in "-+":
            command.insert(2, "--")  # else the shell would take it for an option
        try:
            for stream in range(STREAMS):
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                self.pipes[reader] = stream
                ends.append(writer)
            # The shell inherits our folder: posix_spawn cannot set one, and a wrapper would cost an exec.
            os.chdir(claim.cwd or home)
            if not self._place.may_start():
                raise CannotStart(lifecycle.SILENT, "too late")
            given = self._below_limit(ends)
            with run_marks.limits_of_run(self.mark, self._place.file_limits):
                return os.posix_spawn(
                    command[0],
                    command,
                    self._environment(),
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, self._place.null, 0),
                        (os.POSIX_SPAWN_DUP2, given[0], 1),
                        (os.POSIX_SPAWN_DUP2, given[1], 2),
                    ],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=RESET,
                )
        except (OSError, ValueError, CannotStart) as error:
            for pipe in self.pipes:
                os.close(pipe)
            if isinstance(error, CannotStart):
                raise
            outcome = _why_not(error, claim)
            raise CannotStart(outcome, outcome.reason) from error
        finally:
            for pipe in ends:
                os.close(pipe)
            if self._moved:
                for low in self._place.low:  # else the pipes would never come to their end
                    os.dup2(self._place.null, low, inheritable=False)
            try:
                os.chdir(home)
            except OSError:  # we may no longer enter it; the next run says where it wants to be
                pass

    def _below_limit(self, ends: list[int]) -> Sequence[int]:
        """The writing ends of the pipes, under numbers that a process with the limits of a run may use."""
        limits = self._place.file_limits
        if limits is None or max(ends) < limits[0] or limits[0] == resource.RLIM_INFINITY:
            return ends
        self._moved = True
        for end, low in zip(ends, self._place.low, strict=True):
            os.dup2(end, low, inheritable=False)
        return self._place.low

    def _environment(self) -> dict[bytes, bytes]:
        claim = self.claim
        env = self._place.env.copy()
        if claim.env:
            import json  # most jobs have no environment of their own

            env.update((os.fsencode(name), os.fsencode(value)) for name, value in json.loads(claim.env).items())
        env[b"QUEUECTL_JOB_ID"] = claim.id.encode()
        env[b"QUEUECTL_ATTEMPT"] = b"%d" % (claim.attempts + 1)
        env[b"QUEUECTL_QUEUE"] = claim.queue.encode()
        env[b"QUEUECTL_RESULT"] = os.fsencode(self.result_path)
        env[TAG] = self.tag.encode()
        return env

    def _open_log(self, limit: int) -> RunLog:
        claim = self.claim
        mark = log_files.start_mark(claim.started_at, claim.attempts + 1, self._place.worker_id)
        return RunLog(log_files.path_of(self._place.log_dir, claim.id), mark, limit)

    # -- its output --------------------------------------------------------------------------------------

    def read(self, pipe: int) -> bool:
        """Take what has come; False at the end of the stream, which is closed then."""
        try:
            data = take(pipe)
        except BlockingIOError:
            return True
        if data:
            self.output.feed(self.pipes[pipe], data)
            return True
        del self.pipes[pipe]
        os.close(pipe)
        return False

    def _drain(self) -> None:
        """Take what was printed before the exit. Bounded: a process left behind may go on printing for ever."""
        for pipe, stream in list(self.pipes.items()):
            taken = 0
            while taken < DRAIN_AT_EXIT:
                try:
                    data = take(pipe)
                except BlockingIOError:
                    break
                if not data:
                    del self.pipes[pipe]
                    os.close(pipe)
                    break
                self.output.feed(stream, data)
                taken += len(data)

    # -- its end -----------------------------------------------------------------------------------------

    def end(self, why: Ending, grace: float) -> None:
        """Ask everything the run started to go; `over` sees to it that it does. (What has ended by itself before
        stays completed or failed.)"""
        if self.ending is None and self._status is None:
            self.ending = why
            self._ask_to_go(grace)
        else:
            self._kill_at = min(self._kill_at, time.monotonic() + grace)

    def reaped(self, status: int, cpu_seconds: float, max_rss_kb: int, grace: float) -> None:
        """The shell has exited. If it failed, what it leaves behind must go before the job may run again; only a
        completed job may leave processes on purpose."""
        self._status = status
        self._duration_ms = round((time.monotonic() - self.began) * 1000)
        self._cpu_ms = round(cpu_seconds * 1000)
        self._max_rss_kb = max_rss_kb
        if status != 0 and self.ending is None and self._place.lease_ended(self.tag):
            self.ending = lifecycle.SILENT
        if status != 0 and self.ending is None and self._is_left():
            self._clearing = True
            self._ask_to_go(grace)

    def _ask_to_go(self, grace: float) -> None:
        self._kill_at = time.monotonic() + grace
        try:
            with procfs.elbow_room():
                self._signal(signal.SIGTERM)
        except OSError:  # no file handles to look with; `over` kills it
            pass

    def over(self) -> bool:
        """Has it ended? A completed run may leave processes behind on purpose; of any other none may live."""
        if self.ending is None and not self._clearing:
            return self._status is not None
        if time.monotonic() >= self._kill_at:
            self._kill()
        return self._status is not None and not self._is_left()

    def _is_left(self) -> bool:
        """Does any process of the run live, once its shell was reaped? Not decided by a look at all processes: one
        that starts another and exits can slip through that."""
        try:
            with procfs.elbow_room():
                return bool(self._place.children.of_runs((self.mark,)) or self._unmarked())
        except OSError:  # no file handles to look with: it is not over until we know
            return True

    def _unmarked(self) -> dict[int, int]:
        """Processes of the run that shed its mark (su does, through PAM), or are hidden behind a parent that did."""
        known = {pid: started for pid, started in self._known.items() if procfs.start_time(pid) == started}
        if not known and not self._place.children.has_unmarked():
            return {}
        self._known = known | find(self._traces, known=known)
        return self._known

    def _kill(self) -> None:
        """Kill all of it, again each time: a process may have started another while it was looked for."""
        self._kills += 1
        try:
            with procfs.elbow_room():
                self._signal(signal.SIGKILL)
                for pid in self._place.children.of_runs((self.mark,)):
                    if pid != self.pid:
                        self._place.children.kill(pid)
        except OSError:  # no file handles to look with; the next call tries again
            pass

    def _signal(self, number: int) -> None:
        # Looked for first: what a signalled process has started is no descendant of the shell any more.
        shell = {self.pid: procfs.start_time(self.pid)} if self._status is None else {}
        self._known |= find(self._traces, self._place.eyes.look(), self._known | shell)
        if self._status is None:  # once it is reaped its pid may be anybody's
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):  # gone; or it became another user's, and is not ours to end
                pass
        for pid, started in self._known.items():
            if pid != self.pid or self._status is not None:
                signal_one(pid, started, number)

    def next_deadline(self) -> float | None:
        """The moment, on the monotonic clock, at which `over` or the worker should look again."""
        if self.ending is None and not self._clearing:
            return self.deadline
        pause = min(KILL_AGAIN_WITHIN, KILL_AGAIN_AFTER * (1 << min(self._kills, 10)))
        return max(self._kill_at, time.monotonic() + pause)

    def finish(self) -> tuple[lifecycle.Outcome, Report]:
        """Close its log and tell how it ended. What is left in `pipes` is held by a process left behind."""
        duration_ms = self._duration_ms
        self._drain()
        outcome = self._outcome()
        code, number = getattr(outcome, "code", None), getattr(outcome, "number", None)
        label = lifecycle.outcome_label(outcome.kind, code, number)
        self.output.close(lambda: log_files.end_mark(self.claim.started_at + duration_ms, label, duration_ms))
        report = Report(duration_ms, self.output.tail(0), self.output.tail(1), self._cpu_ms, self._max_rss_kb)
        return outcome, report

    def _outcome(self) -> lifecycle.Outcome:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        number = -code if code < 0 else None
        match self.ending:
            case lifecycle.TimedOut(seconds):
                return lifecycle.TimedOut(seconds, number)
            case lifecycle.Cancelled():
                return lifecycle.Cancelled(number)
            case lifecycle.Interrupted():
                return self.ending
        return lifecycle.Signalled(number) if number else lifecycle.Exited(code)


def take(pipe: int) -> bytes:
    """What has come, up to a pipe's fill. Through one buffer: to allocate so much each time, and give it back, makes
    the heap breathe, which costs more than the reading."""
    return bytes(_buffer[: os.readv(pipe, [_buffer])])


def _why_not(error: OSError | ValueError, claim: Claim) -> lifecycle.NotStarted | lifecycle.NoResources:
    if not isinstance(error, OSError):
        return lifecycle.NotStarted(str(error))
    reason = (error.strerror or str(error)).lower()
    if error.errno in NO_ROOM:
        return lifecycle.NoResources(reason)
    if error.errno == errno.E2BIG:
        return lifecycle.NotStarted("the command and its environment are too long for this system; use a script")
    if error.filename == claim.cwd and claim.cwd:
        return lifecycle.NotStarted(f'the working folder "{claim.cwd}": {reason}')
    return lifecycle.NotStarted(reason)
