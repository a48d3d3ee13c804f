"""The manager: owns worker processes and no database, so no lock can ever hang it.

It starts workers by forking itself (milliseconds, and shared memory), kills what a dead one was running, replaces it,
and passes on signals. A new worker's first act is to put right what a dead one left behind. Being a child subreaper,
the manager inherits and buries the orphans of its workers' jobs, as PID 1 of a container must.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass

from queuectl import newjob, store
from queuectl.worker import board, card, cgroup, lease
from queuectl.worker.assignment import LEFT_IN_ORDER, RETIRE, Assignment
from queuectl.worker.kin import kill_once
from queuectl.worker.log import Log
from queuectl.worker.worker import work

CAUGHT = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, RETIRE)
SHORT_LIFE = 1.0
LONGEST_PAUSE = 30.0
LONGEST_PAUSE_AFTER_KILL = 0.1
FORK_AGAIN_AFTER = 0.5
FENCE_AGAIN_AFTER = 0.05
LONGEST_NAP = 0.5  # a lease may be made shorter at any time
HOPELESS = 5  # so many short lives in a row mean that workers do not come up


@dataclass(frozen=True, slots=True)
class Child:
    """A worker process, as its manager sees it."""

    id: str
    started: float
    leaving: bool  # it was only to tidy up


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
        self._to_start: list[str] = []  # the dead whose places are to be taken; "" for nobody's
        self._short_lives = 0
        self._stops = 0
        self._retiring = False

    def run(self) -> int:
        """Keep the workers running until they have all left in good order."""
        for number in CAUGHT:
            signal.signal(number, signal.SIG_DFL)  # whoever started us may have had it ignored, and we inherit that
        signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        adopt_orphans()
        store.preload(self._url)
        gc.freeze()  # what is loaded now stays shared with the workers
        gc.set_threshold(20_000, 50, 50)  # a worker makes little waste: look for it after 500 runs, not after 20
        try:
            card.post(self._run_dir)
        except OSError as error:  # a full disk; `worker stop` still finds us through our workers
            self._log.tell("no card could be left", reason=error)
        self._log.tell("started", pid=os.getpid(), workers=self._count, slots=self._concurrency)
        for _ in range(self._count):
            self._start_worker("")
        while self._workers or self._to_start:
            if heard := self._wait():
                self._handle(heard)
        card.remove(self._run_dir)
        self._log.tell("left")
        return 0

    def _wait(self) -> int:
        """The next signal, or 0 if it is only time to look at the leases again."""
        if not self._leased or not hasattr(signal, "sigtimedwait"):
            return signal.sigwait(CAUGHT)
        heard = signal.sigtimedwait(CAUGHT, self._fence())
        return heard.si_signo if heard else 0

    def _fence(self) -> float:
        """End the runs of workers whose lease is over; in how many seconds to look again."""
        nap = LONGEST_NAP
        for child in self._workers.values():
            try:
                left = lease.ends_at(self._run_dir, child.id) - lease.now()
                if left > 0:
                    nap = min(nap, left)
                elif kill_once(board.read(board.path_of(self._run_dir, child.id)), adopter=os.getpid()):
                    self._log.tell("lease over, its runs were ended", worker=child.id)
                    nap = FENCE_AGAIN_AFTER
            except OSError as error:  # no file handles to look with
                self._log.tell("could not look after a lease", reason=error)
                nap = FENCE_AGAIN_AFTER
        return nap

    def _handle(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._bury()
        elif number in (signal.SIGALRM, RETIRE):
            if number == RETIRE:
                self._retiring = True
                for pid in self._workers:
                    os.kill(pid, RETIRE)
            waiting, self._to_start = self._to_start, []
            for dead in waiting:
                self._start_worker(dead)
        else:
            self._stops += 1
            self._to_start.clear()
            self._log.tell("asked to stop", signal=signal.Signals(number).name, times=self._stops)
            for pid in self._workers:
                os.kill(pid, signal.SIGTERM)

    def _start_worker(self, succeeds: str) -> None:
        id, leaving = newjob.new_id(), self._retiring or self._stops > 0
        try:
            pid = os.fork()
        except OSError as error:  # no memory or processes just now
            self._log.tell("no worker could be started, trying again", reason=error)
            self._start_later(succeeds, FORK_AGAIN_AFTER)
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
        """Reap all that died: workers, and orphans whose grandparents they were."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._workers.pop(pid, None)
            if child is None:
                continue
            if os.waitstatus_to_exitcode(status) != LEFT_IN_ORDER:
                try:
                    # One round, so that nothing keeps us; the successor goes on until all is gone.
                    kill_once(board.read(board.path_of(self._run_dir, child.id)), adopter=os.getpid())
                except OSError as error:  # no file handles to look with
                    self._log.tell("could not end a dead worker's runs", reason=error)
                self._replace(child, pid, status)
            cgroup.remove(cgroup.path_of(child.id))

    def _replace(self, child: Child, pid: int, status: int) -> None:
        lived = time.monotonic() - child.started
        code = os.waitstatus_to_exitcode(status)
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
        if pause:
            self._start_later(child.id, pause)
        else:
            self._start_worker(child.id)

    def _start_later(self, succeeds: str, seconds: float) -> None:
        self._to_start.append(succeeds)
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        signal.setitimer(signal.ITIMER_REAL, min(seconds, left or seconds))


def restart_pause(short_lives: int, killed: bool) -> float:
    """Seconds before a successor starts. A killed worker is replaced at once, or nearly so if that happens all the
    time; but if one after the other dies by itself in its first second, haste does not mend it."""
    longest = LONGEST_PAUSE_AFTER_KILL if killed else LONGEST_PAUSE
    return 0.0 if short_lives <= 10 else min(longest, 0.05 * 2 ** min(short_lives - 10, 10))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents die (Linux; elsewhere they go to PID 1)."""
    if sys.platform == "linux":
        import ctypes

        pr_set_child_subreaper = 36
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def main() -> None:
    """`… -m queuectl.worker.manager RUN-DIR COUNT CONCURRENCY READY-FD CHATTY [QUEUE…]`, with QUEUECTL_DB set."""
    count, concurrency, ready, chatty = (int(word) for word in sys.argv[2:6])
    url, run_dir, queues = os.environ["QUEUECTL_DB"], sys.argv[1], tuple(sys.argv[6:])
    manager = Manager(url, run_dir, count, concurrency, queues, ready, bool(chatty))
    os._exit(manager.run())  # a terminal that is gone must not turn a good end into an error


if __name__ == "__main__":
    main()
