"""The slots of a worker and the runs in them: starting them, finding out that they have ended, ending them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from queuectl.jobs import lifecycle
from queuectl.jobs.model import Claim, Report
from queuectl.settings import Config
from queuectl.system import procfs
from queuectl.worker.leftover_output import LeftOutput
from queuectl.worker.log import Log
from queuectl.worker.poller import Ears
from queuectl.worker.process import CannotStart, Ending, Run, Workplace
from queuectl.worker.process_tree import tag_of
from queuectl.worker.progress import Reports
from queuectl.worker.run_registry import Board

SHORT = 0.005  # seconds: runs of this age end in company

Ended = tuple[Claim, lifecycle.Outcome, Report]


class Slots:
    """So many runs at once, each from its start to the end of its processes; settling them is the worker's."""

    def __init__(self, count: int, place: Workplace, board: Board, ears: Ears, reports: Reports, log: Log) -> None:
        self._count = count
        self._place = place
        self._board = board
        self._ears = ears
        self._reports = reports
        self._log = log
        self._left_output = LeftOutput(ears, count, log)
        self._runs: dict[int, Run] = {}  # by the job's number: a pid is free again before a killed run is over
        self._shells: dict[int, Run] = {}  # by pid, until reaped
        self.cramped = False  # the last start failed: one at a time until one succeeds
        self.closed_until = 0.0  # nothing new before this moment

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def running(self) -> set[tuple[int, int]]:
        """The (seq, run) of what goes on."""
        return {(run.claim.seq, run.claim.run) for run in self._runs.values()}

    @property
    def free(self) -> int:
        if time.monotonic() < self.closed_until:
            return 0
        free = self._count - len(self._runs)
        return min(free, 1) if self.cramped else free

    # -- starting ----------------------------------------------------------------------------------------

    def start(self, claim: Claim, config: Config) -> lifecycle.Outcome | None:
        """Start a run; how it ended at once, if it could not be started."""
        # On the board before there is a process: if we are killed in between, others know what to look for.
        self._board.pin(claim.seq, procfs.ticks(), tag_of(self._place.worker_id, claim, self._place.database))
        self._board.write()
        try:
            run = Run(claim, self._place, config)
        except CannotStart as error:
            self._board.unpin(claim.seq)
            self._log.tell("run not started", job=claim.id, run=claim.run, reason=error)
            if isinstance(error.outcome, lifecycle.NoResources):
                self.closed_until = time.monotonic() + lifecycle.NO_RESOURCES_DELAY
                self.cramped = True
            return error.outcome
        self._runs[claim.seq] = self._shells[run.pid] = run
        self.cramped = False
        for pipe in run.pipes:
            self._ears.turn_to(pipe, run.read)
        self._log.mention("run started", job=claim.id, run=claim.run, pid=run.pid)
        return None

    # -- what goes on ------------------------------------------------------------------------------------

    def next_moment(self) -> float:
        """When something has to be done about a run, on the monotonic clock."""
        moments = [moment for run in self._runs.values() if (moment := run.next_deadline()) is not None]
        return min([*moments, self._reports.due(self._runs)])

    def end_soon(self) -> bool:
        """Short runs end in company; long ones are not waited for."""
        young = time.monotonic() - SHORT
        return any(run.began > young for run in self._runs.values())

    def pass_on_reports(self) -> None:
        """Save what runs say of themselves, if it is time to."""
        if time.monotonic() >= self._reports.due(self._runs):
            self._reports.pass_on(self._runs.values())

    # -- ending ------------------------------------------------------------------------------------------

    def collect(self, grace: float) -> list[Ended]:
        """The runs that have ended; those that are out of time are asked to go."""
        self._place.eyes.blink()
        self._reap(grace)
        now = time.monotonic()
        ended = []
        for run in list(self._runs.values()):
            if run.over():  # looked at first: what has ended in time has, however late we come to see it
                ended.append(self._finish(run))
                continue
            if run.deadline is not None and now >= run.deadline:
                run.end(lifecycle.TimedOut(run.claim.timeout_seconds or 0), grace)
            run.output.flush()
        return ended

    def _reap(self, grace: float) -> None:
        for pid, status, used in self._place.children.reap():
            if pid in self._shells:
                self._shells.pop(pid).reaped(status, used.ru_utime + used.ru_stime, used.ru_maxrss, grace)

    def _finish(self, run: Run) -> Ended:
        del self._runs[run.claim.seq]
        open_before = list(run.pipes)
        outcome, report = run.finish()
        if run.output.problem:
            self._log.tell("log not written in full", job=run.claim.id, reason=run.output.problem)
        if (said := self._reports.last(run)) is not None:
            report = report._replace(said=said)
        for pipe in open_before:
            if pipe not in run.pipes:
                self._ears.forget(pipe)
            else:
                self._left_output.keep(pipe, run.claim.id)
        return run.claim, outcome, report

    def end(self, why: Ending, grace: float, only: Collection[tuple[int, int]] | None = None) -> None:
        """Ask runs to go: all, or those with these (seq, run). What has ended by itself before keeps its outcome."""
        self._place.eyes.blink()
        self._reap(grace)
        for run in list(self._runs.values()):
            if only is None or (run.claim.seq, run.claim.run) in only:
                run.end(why, grace)

    def settled(self, claims: Iterable[Claim]) -> None:
        """The store knows of the ends of these: nobody need look for what is left of them."""
        for claim in claims:
            self._board.unpin(claim.seq)
        self._board.write()

    def close(self) -> None:
        self._board.remove()
