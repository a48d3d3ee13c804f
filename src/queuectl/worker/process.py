"""One run of a shell command: its session, its pipes, and the end of everything it started."""

from __future__ import annotations

import errno
import os
import signal
import time

from queuectl import lifecycle, logs, procfs
from queuectl.model import Claim, Report
from queuectl.settings import Config
from queuectl.worker.kin import TAG, members, signal_one, tag_of
from queuectl.worker.output import STREAMS, Output

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


class CannotStart(Exception):
    """No process was started; `outcome` says what that means for the job."""

    def __init__(self, outcome: lifecycle.NotStarted | lifecycle.NoRoom) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Run:
    """A live execution of a claimed job, from start to the end of its processes."""

    def __init__(
        self,
        claim: Claim,
        worker_id: str,
        home: int,
        log_dir: str,
        config: Config,
        queue: str = "",
        group: str = "",  # a control group in which it is the only run
    ) -> None:
        self.claim = claim
        self._group = group
        self.tag = tag_of(worker_id, claim, queue)
        self.output = Output(
            logs.path_of(log_dir, claim.id),
            logs.start_mark(claim.started_at, claim.attempts + 1, worker_id),
            int(config["log_max_bytes"]),
            int(config["output_limit"]),
        )
        self.pipes: list[int] = []
        self.ending: lifecycle.TimedOut | lifecycle.Cancelled | lifecycle.Interrupted | None = None
        self._kill_at = 0.0
        self._killed = False
        self._clearing = False  # it failed by itself, and what it left is being ended
        self._status: int | None = None
        self._duration_ms = 0
        self._cpu_ms = self._max_rss_kb = 0
        self._members: dict[int, int] = {}
        self._began = time.monotonic()
        self.deadline = self._began + claim.timeout_seconds if claim.timeout_seconds else None
        first = procfs.ticks()
        self.pid = self._start(home)
        self.born = (first, procfs.ticks())

    def _start(self, home: int) -> int:
        claim, ends = self.claim, []
        command = ["/bin/sh", "-c", claim.command]
        if claim.command[0] in "-+":
            command.insert(2, "--")  # else the shell would take it for an option
        try:
            for _ in range(STREAMS):
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                self.pipes.append(reader)
                ends.append(writer)
            # The shell inherits our folder: posix_spawn cannot set one, and a wrapper would cost an exec.
            os.chdir(claim.cwd or home)
            return os.posix_spawn(
                command[0],
                command,
                self._environment(),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, ends[0], 1),
                    (os.POSIX_SPAWN_DUP2, ends[1], 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=RESET,
            )
        except (OSError, ValueError) as error:
            for pipe in self.pipes:
                os.close(pipe)
            raise CannotStart(_why_not(error, claim)) from error
        finally:
            for pipe in ends:
                os.close(pipe)
            try:
                os.chdir(home)
            except OSError:  # we may no longer enter it; the next run says where it wants to be
                pass

    def _environment(self) -> dict[str, str]:
        claim = self.claim
        env = dict(os.environ)
        if claim.env:
            import json  # most jobs have no environment of their own

            env.update(json.loads(claim.env))
        env["QUEUECTL_JOB_ID"] = claim.id
        env["QUEUECTL_ATTEMPT"] = str(claim.attempts + 1)
        env["QUEUECTL_QUEUE"] = claim.queue
        env[TAG] = self.tag
        return env

    # -- its output --------------------------------------------------------------------------------------

    def read(self, pipe: int) -> bool:
        """Take what has come; False at the end of the stream."""
        try:
            data = os.read(pipe, 65536)
        except BlockingIOError:
            return True
        self.output.feed(self.pipes.index(pipe), data)
        return bool(data)

    def _drain(self) -> None:
        """Take what was printed before the exit. Bounded: a process left behind may go on printing for ever."""
        for stream, pipe in enumerate(self.pipes):
            taken = 0
            while taken < DRAIN_AT_EXIT:
                try:
                    data = os.read(pipe, 65536)
                except OSError:  # nothing there now, or already closed at its end
                    break
                if not data:
                    break
                self.output.feed(stream, data)
                taken += len(data)

    # -- its end -----------------------------------------------------------------------------------------

    def end(self, why: lifecycle.TimedOut | lifecycle.Cancelled | lifecycle.Interrupted, grace: float) -> None:
        """Ask everything the run started to go; `over` sees to it that it does."""
        if self.ending is None:
            self.ending = why
            self._kill_at = time.monotonic() + grace
            try:
                with procfs.elbow_room():
                    self._signal(signal.SIGTERM)
            except OSError:  # no file handles to look with; at least the shell has been told
                pass

    def reaped(self, status: int, cpu_seconds: float, max_rss_kb: int, grace: float) -> None:
        """The shell has exited. If it failed, what it leaves behind must go before the job may run again; only a
        completed job may leave processes on purpose."""
        self._status = status
        self._duration_ms = round((time.monotonic() - self._began) * 1000)
        if status != 0 and self.ending is None:
            self._clearing = True
            self._kill_at = time.monotonic() + grace
            try:
                with procfs.elbow_room():
                    self._signal(signal.SIGTERM)
            except OSError:  # no file handles to look with; `over` tries again
                pass
        self._cpu_ms = round(cpu_seconds * 1000)
        self._max_rss_kb = max_rss_kb

    def over(self) -> bool:
        """Has it ended? What a run left behind on purpose may stay, but nothing survives a kill."""
        if self.ending is None and not self._clearing:
            return self._status is not None
        try:
            with procfs.elbow_room():
                return self._seen_off()
        except OSError:  # no file handles to look with: it is not over until we know
            return False

    def _seen_off(self) -> bool:
        if time.monotonic() >= self._kill_at and not self._killed:
            self._signal(signal.SIGKILL)
            self._killed = True
        elif self._killed and self._status is not None:
            self._signal(signal.SIGKILL)  # whatever was started in the meantime
        return self._status is not None and not self._find()

    def _signal(self, number: int) -> None:
        if self._status is None:  # once it is reaped its pid may be anybody's
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):  # gone; or it became another user's, and is not ours to end
                pass
        for pid, started in self._find().items():
            if pid != self.pid or self._status is not None:
                signal_one(pid, started, number)

    def _find(self) -> dict[int, int]:
        reaped = self._status is not None
        self._members = members(self.tag, self.pid, self._members, reaped, self._group, self.born[0])
        return self._members

    def next_deadline(self) -> float | None:
        """The moment, on the monotonic clock, at which `over` or the worker should look again."""
        if self.ending is None and not self._clearing:
            return self.deadline
        if self._killed or self._status is not None:
            return time.monotonic() + 0.02
        return self._kill_at

    def finish(self) -> tuple[lifecycle.Outcome, Report]:
        """Close its log and tell how it ended."""
        duration_ms = self._duration_ms
        self._drain()
        outcome, rc = self._outcome()
        self.output.close(logs.end_mark(self.claim.started_at + duration_ms, rc, duration_ms))
        report = Report(duration_ms, self.output.tail(0), self.output.tail(1), self._cpu_ms, self._max_rss_kb)
        return outcome, report

    def _outcome(self) -> tuple[lifecycle.Outcome, str]:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        number = -code if code < 0 else None
        match self.ending:
            case lifecycle.TimedOut(seconds):
                return lifecycle.TimedOut(seconds, number), "timeout"
            case lifecycle.Cancelled():
                return lifecycle.Cancelled(number), "cancelled"
            case lifecycle.Interrupted():
                return self.ending, "interrupted"
        if number:
            return lifecycle.Signalled(number), lifecycle.signal_label(number)
        return lifecycle.Exited(code), str(code)


def _why_not(error: OSError | ValueError, claim: Claim) -> lifecycle.NotStarted | lifecycle.NoRoom:
    if not isinstance(error, OSError):
        return lifecycle.NotStarted(str(error))
    reason = (error.strerror or str(error)).lower()
    if error.errno in NO_ROOM:
        return lifecycle.NoRoom(reason)
    if error.errno == errno.E2BIG:
        return lifecycle.NotStarted("the command and its environment are too long for this system; use a script")
    if error.filename == claim.cwd and claim.cwd:
        return lifecycle.NotStarted(f'the working folder "{claim.cwd}": {reason}')
    return lifecycle.NotStarted(reason)
