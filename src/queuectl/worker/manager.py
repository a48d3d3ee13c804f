"""The manager: owns worker processes and no database, so no lock can ever hang it.

It starts workers by forking itself (milliseconds, and shared memory), kills what a dead one was running, replaces it,
and passes on signals. A new worker's first act is to put right what a dead one left behind. Being a child subreaper,
the manager inherits the processes of a dead worker's runs, and reaps orphans as PID 1 of a container must.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass

from queuectl import store
from queuectl.jobs import job_spec
from queuectl.worker import cgroup, lease, manager_pidfile, run_registry
from queuectl.worker.log import Log
from queuectl.worker.process_tree import Traces, find, kill, kill_once
from queuectl.worker.subreaper import Children
from queuectl.worker.worker import work
from queuectl.worker.worker_config import LEFT_IN_ORDER, RETIRE, Assignment

CAUGHT = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, RETIRE)
SHORT_LIFE = 1.0
LONGEST_PAUSE = 30.0
LONGEST_PAUSE_AFTER_KILL = 0.1
FORK_AGAIN_AFTER = 0.5
LOOK_AGAIN_AFTER = 0.25  # seconds, for processes of dead workers
END_WITHIN = 1.0  # seconds: what a dead worker was running is gone by then, or will not die
FENCE_AGAIN_AFTER = 0.05
LONGEST_NAP = 0.5  # a lease may be made shorter at any time
LEAST_NAP = 0.001  # seconds; a timer of 0 would never go off
HOPELESS = 5  # so many short lives in a row mean that workers do not come up


@dataclass(frozen=True, slots=True)
class Child:
    """A worker process, as its manager sees it."""

    id: str
    started: float
    leaving: bool  # it was only to tidy up


@dataclass(slots=True)
class Dead:
    """A worker that died, while the processes of its runs are being ended."""

    child: Child
    pid: int
    code: int
    runs: Traces | None  # None: they could not be read yet
    until: float  # then its successor starts all the same: something will not die


class Manager:
    def __init__(
        self, url: str, run_dir: str, count: int, concurrency: int, queues: tuple[str, ...], ready: int, chatty: bool
    ) -> None:
        self._url = url
        self._leased = store.is_shared(url)
        self._run_dir = run_dir
        self._count = count
        self._concurrency = concurrency
        self._queues = queues
        self._ready = ready
        self._log = Log("manager", chatty)
        self._lifeline, self._life = os.pipe()
        self._workers: dict[int, Child] = {}
        self._dead: list[Dead] = []
        self._to_start: list[tuple[float, str]] = []  # when, and the dead whose places are to be taken
        self._short_lives = 0
        self._stops = 0
        self._retiring = False

    def run(self) -> int:
        """Keep the workers running until they have all left in good order."""
        for number in CAUGHT:
            signal.signal(number, signal.SIG_DFL)  # whoever started us may have had it ignored, and we inherit that
        signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        self._children = Children()
        store.preload(self._url)
        gc.freeze()  # what is loaded now stays shared with the workers
        gc.set_threshold(20_000, 50, 50)  # a worker makes little waste: look for it after 500 runs, not after 20
        try:
            manager_pidfile.post(self._run_dir, store.whereabouts(self._url)[0])
        except OSError as error:  # a full disk; `worker stop` still finds us through our workers
            self._log.tell("no card could be left", reason=error)
        self._log.tell("started", pid=os.getpid(), workers=self._count, slots=self._concurrency)
        for _ in range(self._count):
            self._start_worker("")
        while self._workers or self._dead or self._to_start:
            self._handle(self._wait())
            self._end_runs()
            self._start_due()
        manager_pidfile.remove(self._run_dir)
        self._log.tell("left")
        return 0

    def _wait(self) -> signal.Signals:
        """The next signal; SIGALRM when it is time to look at the leases, or to start a worker.

        The timer is a signal like the others, because `sigtimedwait` of Python 3.11 makes up a signal when its time
        runs out after it was interrupted, as it is when we are stopped and continued.
        """
        now = time.monotonic()
        moments = [moment for moment, _ in self._to_start] + [dead.until for dead in self._dead]
        if self._dead:  # a death among their processes brings us back sooner
            moments.append(time.monotonic() + LOOK_AGAIN_AFTER)
        pauses = [max(moment - now, LEAST_NAP) for moment in moments]
        if self._leased:
            pauses.append(max(self._fence(), LEAST_NAP))
        signal.setitimer(signal.ITIMER_REAL, min(pauses, default=0.0))  # 0: never
        return signal.Signals(signal.sigwait(CAUGHT))

    def _fence(self) -> float:
        """End the runs of workers whose lease is over; in how many seconds to look again."""
        nap = LONGEST_NAP
        for child in self._workers.values():
            try:
                left = lease.ends_at(self._run_dir, child.id) - lease.now()
                if left > 0:
                    nap = min(nap, left)
                elif self._end_runs_of(child):
                    self._log.tell("lease over, its runs were ended", worker=child.id)
                    nap = FENCE_AGAIN_AFTER
            except OSError as error:  # no file handles to look with
                self._log.tell("could not look after a lease", reason=error)
                nap = FENCE_AGAIN_AFTER
        return nap

    def _end_runs_of(self, child: Child) -> bool:
        """One round of that; was there anything left to end?"""
        traces = run_registry.read(run_registry.path_of(self._run_dir, child.id))
        found = find(traces) if traces.tags else {}
        if found:
            try:
                lease.mark_ended(self._run_dir, child.id, traces.tags)
            except OSError as error:  # a full disk, say: the runs must go all the same
                self._log.tell("could not note that runs were ended", worker=child.id, reason=error)
            kill(traces, found)
        return bool(found)

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGCHLD:
            self._bury()
        elif number == RETIRE:
            self._retiring = True
            self._to_start = [(0.0, dead) for _, dead in self._to_start]  # at once, to put back their jobs
            for pid in self._workers:
                os.kill(pid, RETIRE)
        elif number != signal.SIGALRM:
            self._stops += 1
            self._to_start.clear()
            self._log.tell("asked to stop", signal=number.name, times=self._stops)
            for pid in self._workers:
                os.kill(pid, signal.SIGTERM)

    def _start_due(self) -> None:
        now = time.monotonic()
        due = [dead for moment, dead in self._to_start if moment <= now]
        self._to_start = [one for one in self._to_start if one[0] > now]
        for dead in due:
            self._start_worker(dead)

    def _start_worker(self, succeeds: str) -> None:
        id, leaving = job_spec.new_id(), self._retiring or self._stops > 0
        try:
            pid = os.fork()
        except OSError as error:  # no memory or processes just now
            self._log.tell("no worker could be started, trying again", reason=error)
            self._to_start.append((time.monotonic() + FORK_AGAIN_AFTER, succeeds))
            return
        if pid:
            self._workers[pid] = Child(id, time.monotonic(), leaving)
            return
        code = 1
        try:
            os.close(self._life)
            os.setpgid(0, 0)  # a Ctrl-C in the terminal is for the manager to pass on, once
            code = work(
                Assignment(
                    id, self._url, self._concurrency, self._queues, self._lifeline, self._ready,
                    leaving, succeeds, self._log.chatty,
                )
            )  # fmt: skip
        except BaseException as error:
            self._log.tell("worker crashed; this is a bug, please report it", error=repr(error))
            if os.environ.get("QUEUECTL_DEBUG"):
                traceback.print_exc()
        finally:
            os._exit(code)

    def _bury(self) -> None:
        """Reap all that died: workers, and orphans that came to us."""
        for pid, status, _ in self._children.reap():
            child = self._workers.pop(pid, None)
            if child is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if code == LEFT_IN_ORDER:
                cgroup.remove(cgroup.path_of(child.id))
            else:
                self._dead.append(Dead(child, pid, code, self._runs_of(child), time.monotonic() + END_WITHIN))

    def _runs_of(self, child: Child) -> Traces | None:
        """What a dead worker was running; whole process trees of that are killed at once. None if nothing could be
        read, for want of file handles."""
        try:
            runs = run_registry.read(run_registry.path_of(self._run_dir, child.id))
            kill_once(runs)
            return runs
        except OSError as error:
            self._log.tell("could not end a dead worker's runs", reason=error)
            return None

    def _end_runs(self) -> None:
        """Replace the dead workers of whose runs no process is left. Those processes are our children since their
        worker died, or descendants of such children; the death of each brings us back here."""
        for dead in list(self._dead):
            if not self._is_left(dead) or time.monotonic() >= dead.until:
                self._dead.remove(dead)
                self._replace(dead.child, dead.pid, dead.code)
                cgroup.remove(cgroup.path_of(dead.child.id))

    def _is_left(self, dead: Dead) -> bool:
        """Kill what lives of its runs. As long as we cannot see, we do not conclude that nothing is left."""
        if dead.runs is None:
            dead.runs = self._runs_of(dead.child)
        try:
            left = self._children.of_runs(dead.runs.marks) if dead.runs else None
        except OSError as error:
            self._log.tell("could not end a dead worker's runs", reason=error)
            left = None
        for pid in left or ():
            self._children.kill(pid)
        return left is None or bool(left)

    def _replace(self, child: Child, pid: int, code: int) -> None:
        lived = time.monotonic() - child.started
        if child.leaving:  # it cannot; the next that starts will
            self._log.tell("worker died while stopping", worker=child.id, pid=pid, status=code)
            return
        self._short_lives = 0 if lived >= SHORT_LIFE else self._short_lives + 1
        came_up = os.path.exists(os.path.join(self._run_dir, child.id))  # its bell
        pause = restart_pause(self._short_lives, killed=came_up and code == -signal.SIGKILL)
        if self._short_lives >= HOPELESS and self._ready >= 0:
            os.close(self._ready)  # whoever waits for the workers to be ready has waited long enough
            self._ready = -1
        self._log.tell("worker died", worker=child.id, pid=pid, status=code, successor_in=f"{pause:g}s")
        self._to_start.append((time.monotonic() + pause, child.id))


def restart_pause(short_lives: int, killed: bool) -> float:
    """Seconds before a successor starts. A killed worker is replaced at once, or nearly so if that happens all the
    time; but if one after the other dies by itself in its first second, haste does not mend it."""
    longest = LONGEST_PAUSE_AFTER_KILL if killed else LONGEST_PAUSE
    return 0.0 if short_lives <= 10 else min(longest, 0.05 * 2 ** min(short_lives - 10, 10))


def main() -> None:
    """`… -m queuectl.worker.manager RUN-DIR COUNT CONCURRENCY READY-FD CHATTY [QUEUE…]`, with QUEUECTL_DB set."""
    count, concurrency, ready, chatty = (int(word) for word in sys.argv[2:6])
    url, run_dir, queues = os.environ["QUEUECTL_DB"], sys.argv[1], tuple(sys.argv[6:])
    manager = Manager(url, run_dir, count, concurrency, queues, ready, bool(chatty))
    os._exit(manager.run())  # a terminal that is gone must not turn a good end into an error


if __name__ == "__main__":
    main()
