"""A worker: one process, one connection, some slots, one loop.

Each turn waits for something to happen, collects the runs that ended, and then makes one exchange with the
store that settles those and claims new ones. A heartbeat now and then looks after the rest of the household.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from queuectl.errors import Duplicate, Locked, OutcomeUnknown, Outdated, StoreReplaced, StoreUnavailable
from queuectl.jobs import lifecycle
from queuectl.jobs.model import Claim, Report, Tick
from queuectl.jobs.states import PRUNABLE
from queuectl.metrics.run_stats import Tally
from queuectl.queues.selection import Turns
from queuectl.store import Store, open_store
from queuectl.store.engine import Line
from queuectl.system import procfs
from queuectl.system.wakeup import Bell
from queuectl.worker import cgroup, lease, run_marks
from queuectl.worker.lease import Lease
from queuectl.worker.log import Log
from queuectl.worker.pending_settles import Ended, Unsettled
from queuectl.worker.poller import Ears
from queuectl.worker.process import Workplace
from queuectl.worker.progress import Reports
from queuectl.worker.recovery import Recovery
from queuectl.worker.run_registry import Board
from queuectl.worker.slots import Slots
from queuectl.worker.worker_config import LEFT_IN_ORDER, RETIRE, START_AGAIN, Assignment

LINGER = 0.001  # seconds to wait for other short runs to end, so that they share a transaction
FLUSH_WITHIN = 0.05  # a settled run is on disk this many seconds later at most
STORE_PATIENCE = 1.0  # a locked database must not keep the loop from its runs for longer
RETRY_STORE_AFTER = 0.25
LEAVE_LOCKED_AFTER = 5.0  # seconds that a worker in a hurry waits for whoever has locked its jobs
FIRE_AGAIN_AFTER = 0.25
WORK_OFF_EVERY = 0.03
SETTLED_AT_ONCE = 200  # runs: if more have ended at the same moment, the next exchange takes the rest
TALLY_EVERY = 1.0  # what was counted of runs is stored this many seconds later: what a kill -9 may lose of it
TALLY_TRIES = 3
LEAST_BEAT = 1.0  # seconds between two looks for workers that are lost
PRUNE_EVERY = 60.0
PRUNES_AT_ONCE = 10

PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)  # waiting helps
LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NEVER = float("inf")

T = TypeVar("T")


class LeftWaiting(Exception):
    """Told to leave while it waited for the database."""


def work(assignment: Assignment) -> int:
    """Be a worker until told to leave; the exit code."""
    log = Log(f"worker pid={os.getpid()}", assignment.chatty)
    try:
        return Worker(assignment).serve()
    except LeftWaiting as error:  # the next worker tidies up
        log.tell("left without the database", reason=error)
    except StoreReplaced as error:  # while we were still getting ready
        log.tell("database replaced", reason=error)
        return START_AGAIN
    except Outdated as error:
        log.tell("left", reason=error)
    return LEFT_IN_ORDER


def _open_here() -> int:
    """The folder we were started in, for jobs that name none; we need not be allowed to read it."""
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(".", flags)
    except OSError:
        return os.open("/", flags)


class Worker:
    def __init__(self, assignment: Assignment) -> None:
        self.id = assignment.id
        self._assignment = assignment
        self._log = Log(f"worker={self.id}", assignment.chatty)
        procfs.keep_elbow_room()
        self._ears = Ears()
        self._turns = Turns.parse(assignment.queues)
        self._ended: list[Ended] = []
        self._unsettled = Unsettled(self._log)
        self._leaving = assignment.leaving
        self._in_a_hurry = False
        self._asked = 0  # signals to leave, so far
        self._retired = False
        self._registered = False
        self._exit_code = LEFT_IN_ORDER
        self._news = True
        self._due_at = NEVER
        self._fire_at = NEVER
        self._work_off_at = NEVER
        self._poll_at = 0.0
        self._began = 0.0  # registered, that is
        self._beat_at = 0.0
        self._prune_at = 0.0
        self._flush_at: float | None = None
        self._tally = Tally()
        self._tally_at = NEVER
        self._judges = False  # may we tell that workers of other machines are lost? Not if we were away ourselves
        self._in_doubt = False  # the last exchange failed: nobody knows if it happened
        self._line: Line | None = None
        self._store_trouble = ""
        self._schedule_troubles: set[str] = set()
        self._listen()
        self._store = self._patiently(self._open_store)
        self._config = self._patiently(self._store.config)
        engine = self._store.engine
        self._bell = self._patiently(lambda: Bell(engine.run_dir, self.id))  # before any other file
        group = cgroup.join(self.id)
        self._lease = Lease(engine.run_dir, self.id)
        place = Workplace(
            self.id, _open_here(), engine.log_dir, engine.identity, engine.run_dir,
            may_start=lambda: not self._lease.over, lease_ended=self._lease.ended,
            file_limits=run_marks.raise_file_limit(),
        )  # fmt: skip
        board = self._patiently(lambda: Board(engine.run_dir, self.id, engine.identity, group))
        reports = Reports(self._store, self.id, self._log)
        self._slots = Slots(assignment.concurrency, place, board, self._ears, reports, self._log)
        self._recovery = Recovery(self._store, group, self._tally, self._log)
        self._ears.turn_to(self._bell.fileno(), self._heard_bell)

    def _open_store(self) -> Store:
        return open_store(self._assignment.url, durable=False, patience=STORE_PATIENCE)

    def _listen(self) -> None:
        """Everything that can happen comes to the same ears: signals, rings, output, the manager's death."""
        self._signals, wake = os.pipe()
        for end in (self._signals, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes the loop, that is all
        for number in LEAVE:
            signal.signal(number, self._count_signal)
        signal.signal(RETIRE, self._retire)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        self._ears.turn_to(self._signals, self._heard_signals)
        self._ears.turn_to(self._assignment.lifeline, self._manager_died)

    # -- the loop ----------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Register, put right what dead workers left, then take turns until there is nothing left to do."""
        self._patiently(self._register)
        self._began = time.monotonic()
        self._patiently(self._recover_lost)
        self._say_ready()
        self._log.tell("started", pid=os.getpid(), slots=self._assignment.concurrency)
        while not (self._leaving and not self._slots and not self._ended and not self._unsettled):
            self._wait()
            self._collect()
            if self._ended and self._slots.end_soon():
                self._ears.listen(LINGER)
                self._collect()
            now = time.monotonic()
            if self._flush_at is not None and now >= self._flush_at:
                self._flush()
            if self._exit_code == START_AGAIN:  # there is nobody to settle with
                self._news = False
                self._ended.clear()
            elif self._news or now >= min(self._due_at, self._tally_at):
                self._exchange()
            elif now >= self._poll_at:
                self._poll()
            if now >= self._unsettled.due_at:
                self._settle_one_by_one()
            if now >= self._fire_at:
                self._fire()
            if now >= self._work_off_at:
                self._work_off()
            self._pass_on_reports()
            if now >= self._beat_at:
                self._beat()
        if self._exit_code == LEFT_IN_ORDER:
            self._store_tally()
            self._patiently(lambda: self._store.unregister(self.id))
            self._flush()
        self._lease.end()
        self._slots.close()
        self._store.close()
        self._bell.close()  # last: until now nobody may open a queue whose files were removed
        self._log.tell("left")
        return self._exit_code

    def _wait(self) -> None:
        self._hear_line()
        moments = [self._due_at, self._fire_at, self._poll_at, self._beat_at, self._tally_at, self._unsettled.due_at]
        moments += [self._work_off_at, self._slots.next_moment(), time.monotonic() + self._lease.left]
        if self._flush_at is not None:
            moments.append(self._flush_at)
        timeout = 0.0 if self._news else max(0.0, min(moments) - time.monotonic())
        self._ears.listen(timeout)

    def _collect(self) -> None:
        """Take note of the runs that have ended."""
        if self._lease.over and not self._lease.asked:
            self._fence()  # first: what goes wrong with a run after its lease is not the job's failure
        for ended in self._slots.collect(self._config["kill_grace"]):
            self._settle_later(*ended)

    def _exchange(self) -> None:
        """One transaction: what ended is settled, free slots are filled, news is read."""
        free = 0 if self._leaving or self._lease.over or self._unsettled.full else self._slots.free
        open_again = self._slots.closed_until if time.monotonic() < self._slots.closed_until else NEVER
        tally = self._tally if time.monotonic() >= self._tally_at else None
        ended = self._ended[:SETTLED_AT_ONCE]
        try:
            tick = self._store.tick(self.id, ended, free, self._turns, self._going_on(), tally)
        except (StoreReplaced, Outdated) as error:
            self._start_over(error)
            return
        except Locked as error:
            self._meet_lock(error)
            return
        except StoreUnavailable as error:
            self._report_trouble(error)
            if self._in_a_hurry and not self._slots:
                raise LeftWaiting(str(error)) from error
            self._in_doubt = True
            self._news = False
            self._due_at = time.monotonic() + RETRY_STORE_AFTER
            if tally is not None:
                if isinstance(error, OutcomeUnknown):  # rather not counted than twice
                    tally.clear()
                self._tally_later(anew=True)
            return
        self._report_trouble(None)
        if tick.given_up:
            self._log.tell("others took this worker for lost", jobs=len(self._slots))
            self._start_over()
            return
        self._in_doubt = False
        now = time.monotonic()
        self._take_note(ended, tick)
        self._tally_later(anew=tally is not None)
        del self._ended[: len(ended)]
        self._news = bool(self._ended)
        self._config = tick.config
        self._due_at = min(open_again, NEVER if tick.due_in is None else now + tick.due_in)
        self._fire_at = NEVER if tick.fire_in is None or tick.stop else now + tick.fire_in
        if tick.undone and not tick.stop:
            self._work_off_at = min(self._work_off_at, now + WORK_OFF_EVERY)
        self._poll_at = now + tick.config["worker_poll_interval"]
        self._beat_at = min(self._beat_at, now + self._beat_every())
        if tick.cancels:
            self._slots.end(lifecycle.Cancelled(), tick.config["kill_grace"], only=tick.cancels)
        if tick.stop:
            self._leave(in_a_hurry=tick.stop == "now")
        for claim in tick.claims:
            if self._lease.over:  # the answer was long on its way: others may have it by now
                self._settle_later(claim, lifecycle.SILENT, Report(duration_ms=0))
            elif self._in_a_hurry:
                self._settle_later(claim, lifecycle.Interrupted(), Report(duration_ms=0))
            else:
                self._start(claim)

    def _take_note(self, ended: Sequence[Ended], tick: Tick) -> None:
        """These runs were settled."""
        if tick.tallied:  # those of before are stored
            self._tally.clear()
        if not ended:
            return
        for claim, end, report in ended:
            if claim not in tick.refused:
                state = (lifecycle.despite_cancel(end) if (claim.seq, claim.run) in tick.cancels else end).state
                self._tally.add(claim.queue, state, report.duration_ms or 0, claim.wait_ms)
        for claim in tick.refused:
            self._log.tell("late result refused", job=claim.id, run=claim.run)
        self._slots.settled([claim for claim, _, _ in ended])
        self._flush_soon()

    def _meet_lock(self, error: Locked) -> None:
        """Others hold a lock, and nothing has happened. What ended is settled one by one, the rest goes on."""
        if self._ended:
            self._unsettled.add(self._ended)
            self._ended = []
        else:  # it is in the way of claims
            self._report_trouble(error)
            self._news = False
            self._due_at = time.monotonic() + RETRY_STORE_AFTER
        if time.monotonic() >= self._tally_at:
            self._tally_later(anew=True)

    def _settle_one_by_one(self) -> None:
        try:
            self._unsettled.retry(self._settle_alone)
        except (StoreReplaced, Outdated) as error:
            self._start_over(error)
        except StoreUnavailable as error:
            self._report_trouble(error)
        if self._in_a_hurry and not self._slots and self._unsettled.waiting > LEAVE_LOCKED_AFTER:
            raise LeftWaiting(f"others have locked {len(self._unsettled)} of its jobs")

    def _settle_alone(self, run: Ended) -> None:
        tick = self._store.tick(self.id, [run], at_once=True)
        self._news |= tick.given_up  # the next exchange sees to that
        self._take_note([run], tick)
        self._tally_later()

    def _tally_later(self, anew: bool = False) -> None:
        """Store what was counted within a second, with whatever else there is to say by then; nothing, never."""
        if not self._tally or self._exit_code == START_AGAIN:
            self._tally_at = NEVER
        elif anew or self._tally_at == NEVER:
            self._tally_at = time.monotonic() + TALLY_EVERY

    def _store_tally(self) -> None:
        """The rest of it, on leaving. It is not worth staying for long."""
        for _ in range(TALLY_TRIES if self._tally else 0):
            try:
                self._store.record(self._tally)
                return
            except (StoreReplaced, Outdated, OutcomeUnknown):
                return
            except StoreUnavailable as error:
                self._report_trouble(error)
                self._ears.listen(RETRY_STORE_AFTER)

    def _going_on(self) -> set[tuple[int, int]] | None:
        """What we know to be ours, if the store may think otherwise."""
        if not self._in_doubt:
            return None
        ended = {(claim.seq, claim.run) for claim, _, _ in self._ended}
        return self._slots.running | self._unsettled.runs | ended

    def _poll(self) -> None:
        """The net below the bell: has anything been written that nobody told us of?"""
        self._poll_at = time.monotonic() + self._config["worker_poll_interval"]
        try:
            self._news = self._store.engine.changed()
        except (StoreReplaced, Outdated) as error:
            self._start_over(error)
        except StoreUnavailable as error:
            self._report_trouble(error)

    def _fire(self) -> None:
        """Enqueue what schedules want by now. If another worker is at it already, look again in a moment."""
        self._fire_at = time.monotonic() + FIRE_AGAIN_AFTER
        try:
            fired, problems = self._store.schedules.fire()
            if fired:
                self._news = True
                self._flush_soon()  # what has become a job must not be forgotten with the power
            for problem in set(problems) - self._schedule_troubles:
                self._log.tell("schedule not fired", reason=problem)
            self._schedule_troubles = set(problems)
        except (StoreReplaced, Outdated) as error:
            self._start_over(error)
        except (StoreUnavailable, Duplicate) as error:
            self._report_trouble(error)

    def _work_off(self) -> None:
        """Do a step of what was too much for the transactions that caused it; others may write before the next."""
        self._work_off_at = NEVER
        try:
            if self._store.work_off():
                self._work_off_at = time.monotonic() + WORK_OFF_EVERY
                self._flush_soon()
        except (StoreReplaced, Outdated) as error:
            self._start_over(error)
        except StoreUnavailable as error:
            self._report_trouble(error)
            self._work_off_at = time.monotonic() + RETRY_STORE_AFTER

    def _start_over(self, error: StoreUnavailable | None = None) -> None:
        """What we hold is not ours any more: end what came from it, and leave the place to a successor."""
        if error:
            self._report_trouble(error)
        self._exit_code = START_AGAIN
        self._news = False
        self._due_at = self._fire_at = self._work_off_at = self._poll_at = self._tally_at = NEVER
        self._ended.clear()
        self._unsettled.clear()
        self._leave(in_a_hurry=True)

    # -- runs --------------------------------------------------------------------------------------------

    def _start(self, claim: Claim) -> None:
        cramped = self._slots.cramped
        outcome = self._slots.start(claim, self._config)
        if outcome is not None:
            self._settle_later(claim, outcome, Report(duration_ms=0))
        self._news |= cramped and not self._slots.cramped  # there is room again: fill the other slots, too

    def _pass_on_reports(self) -> None:
        try:
            self._slots.pass_on_reports()
        except StoreUnavailable as error:  # if that is for good, the next exchange says so
            self._report_trouble(error)

    def _settle_later(self, claim: Claim, outcome: lifecycle.Outcome, report: Report) -> None:
        settlement = lifecycle.after_run(claim, outcome, self._config, random.random())
        self._ended.append((claim, settlement, report))
        self._news = True
        tell = self._log.mention if settlement.state == "completed" else self._log.tell
        tell("run ended", job=claim.id, run=claim.run, next=settlement.state, reason=settlement.reason)

    # -- leaving -----------------------------------------------------------------------------------------

    def _count_signal(self, *_: object) -> None:
        self._asked += 1  # no more than this: it interrupts whatever the loop is doing

    def _retire(self, *_: object) -> None:
        self._retired = True

    def _heard_signals(self, _: int) -> None:
        """A first signal lets the running jobs finish, a second one ends them."""
        os.read(self._signals, 4096)
        if self._asked or self._retired:
            self._leave(in_a_hurry=self._asked > 1)

    def _manager_died(self, _: int) -> None:
        self._ears.turn_from(self._assignment.lifeline)
        self._log.tell("manager died, leaving after the running jobs", jobs=len(self._slots))
        self._leave(in_a_hurry=False)

    def _leave(self, in_a_hurry: bool) -> None:
        if not self._leaving:
            self._leaving = True
            self._say_leaving()
        if in_a_hurry and not self._in_a_hurry:
            self._in_a_hurry = True
            self._slots.end(lifecycle.Interrupted(), self._config["kill_grace"])

    def _say_leaving(self) -> None:
        """Nobody should count on us any longer; whoever ordered it knows, others read it in our row."""
        if not self._registered:
            return
        try:
            self._store.stop_workers([self.id], "drain")
        except StoreUnavailable as error:
            self._report_trouble(error)

    # -- the rest of the household -----------------------------------------------------------------------

    def _say_ready(self) -> None:
        if self._assignment.ready < 0:
            return
        try:
            os.write(self._assignment.ready, b".")
        except BrokenPipeError:  # whoever started us did not wait
            pass
        os.close(self._assignment.ready)

    def _register(self) -> None:
        since = lease.now()
        promised = self._store.register(
            self.id,
            os.getpid(),
            socket.gethostname(),
            os.getppid(),
            self._turns.words,
            self._assignment.concurrency,
        )
        self._renew_lease(since, promised)
        self._registered = True

    def _renew_lease(self, since: float, seconds: float) -> None:
        if self._store.engine.leased:
            self._lease.renew(since, seconds)

    def _recover_lost(self, patience: float = 5.0) -> None:
        orders = self._recovery.put_back(patience, everywhere=self._judges)
        self._tally_later()
        self._news |= bool(orders)
        if order := orders.get(self._assignment.succeeds):  # it was told to leave, and we have its place
            self._leave(in_a_hurry=order == "now")

    def _heard_bell(self, _: int) -> None:
        self._bell.clear()
        self._news = True

    def _hear_line(self) -> None:
        """Take what came while we waited, or with an answer of the store."""
        if self._line is None:
            return
        try:
            self._news |= self._line.hear()
        except OSError as error:  # a beat opens another; polling goes on
            self._log.tell("line lost", reason=error)
            self._ears.turn_from(self._line.fileno())
            self._line.close()
            self._line = None
            self._beat_at = time.monotonic()

    def _hold_the_line(self) -> None:
        if self._line is None:
            self._line = self._store.engine.listen()
            if self._line is not None:
                self._ears.turn_to(self._line.fileno(), lambda _: self._hear_line())
                self._news = True  # what was said before we listened

    def _beat_every(self) -> float:
        """Others may take our jobs when they have missed three beats; on one machine nobody counts them."""
        return self._config["lease_timeout"] * (lease.BEAT if self._store.engine.leased else 1)

    def _fence(self) -> None:
        """Nobody has heard of us for too long: others will take our jobs soon, so our own runs must end before."""
        self._lease.asked = True
        self._log.tell("no sign of life could be given, ending the running jobs", jobs=len(self._slots))
        self._slots.end(lifecycle.SILENT, min(self._config["kill_grace"], self._lease.grace))

    def _beat(self) -> None:
        """A sign of life, a look for dead workers, and the clean-up that `retention_days` asks for."""
        now, since, cut_off = time.monotonic(), lease.now(), self._lease.over
        age = now - self._began
        # Soon after the start, and then less and less often: whoever was killed before it may not have been dead yet.
        self._beat_at = now + min(self._beat_every(), max(LEAST_BEAT, age))
        try:
            promised = self._store.heartbeat(self.id)
            if promised is not None:
                self._renew_lease(since, promised)
            self._news |= (
                min(self._due_at, self._fire_at) != NEVER
            )  # clocks may have been set, or the machine suspended, meanwhile
            self._news |= promised is None
            self._hold_the_line()
            self._store.engine.tidy()
            # Not before those who were away with us have had the time to show themselves.
            self._judges = age >= self._beat_every() and not cut_off
            self._recover_lost(patience=0.1)  # our own runs must not wait for a stranger's to die
            if (expiry := self._store.next_expiry()) is not None:  # a lost machine is noticed as soon as it may be
                self._beat_at = min(self._beat_at, now + max(expiry, LEAST_BEAT))
            days = self._config["retention_days"]
            if days and now >= self._prune_at:
                self._prune_at = now + PRUNE_EVERY
                self._prune(days * 86400)
        except (StoreReplaced, Outdated) as error:
            self._start_over(error)
        except StoreUnavailable as error:
            self._report_trouble(error)
            self._beat_at = time.monotonic() + RETRY_STORE_AFTER
        except OSError as error:  # no file handles to look with, say
            self._log.tell("upkeep failed", reason=error)

    def _prune(self, age: float) -> None:
        for _ in range(PRUNES_AT_ONCE):
            if not self._store.prune(PRUNABLE, age):
                return
        self._prune_at = 0.0  # there is more: go on with the next beat

    def _flush_soon(self) -> None:
        if self._flush_at is None:
            self._flush_at = time.monotonic() + FLUSH_WITHIN

    def _flush(self) -> None:
        self._flush_at = None
        try:
            self._store.engine.flush()
        except (StoreReplaced, Outdated) as error:
            self._start_over(error)
        except StoreUnavailable as error:
            self._report_trouble(error)
            # What cannot be made durable must not grow: no new runs until a sync succeeds.
            self._flush_at = self._slots.closed_until = time.monotonic() + RETRY_STORE_AFTER

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do it, however long the database is away; only being told to leave ends the waiting."""
        while True:
            try:
                return action()
            except (StoreReplaced, Outdated):  # waiting does not bring it back
                raise
            except (StoreUnavailable, OSError) as error:
                if not isinstance(error, StoreUnavailable) and error.errno not in PASSING:
                    raise
                self._report_trouble(error)
                self._ears.listen(RETRY_STORE_AFTER)
                if self._leaving:
                    raise LeftWaiting(str(error)) from error

    def _report_trouble(self, error: Exception | None) -> None:
        """Say once that the store has become unreachable, and once that it is back."""
        message = str(error) if error else ""
        if message != self._store_trouble:
            self._log.tell("store unavailable" if error else "store available again", reason=message)
            self._store_trouble = message
