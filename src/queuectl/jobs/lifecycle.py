"""The life of a job: states, outcomes of a run, and what follows from what. Pure: no I/O, no clock."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, replace
from enum import StrEnum

from queuectl.jobs.model import Claim
from queuectl.settings import Config


class State(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Exited:
    code: int


@dataclass(frozen=True, slots=True)
class Signalled:
    number: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    seconds: float
    number: int | None = None


@dataclass(frozen=True, slots=True)
class NotStarted:
    """It can never start like this: the folder is missing, the command line is too long."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ended by the operator's shutdown, or for want of a sign of life: not the job's fault."""

    why: str = "the worker was stopped"


SILENT = Interrupted("its worker could give no sign of life")


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The machine could not start a process just now (EMFILE, EAGAIN, ENOMEM)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker died under it."""

    worker_id: str


Outcome = Exited | Signalled | TimedOut | NotStarted | Cancelled | Interrupted | NoRoom | Lost


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a finished run makes of its job; the store applies it."""

    state: State
    error: str | None = None
    failed: bool = False  # attempts + 1
    crashed: bool = False  # crashes + 1
    snoozed: bool = False  # snoozes + 1
    delay: float = 0.0
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""


COMPLETED = Settlement(State.COMPLETED, exit_code=0, reason="exit code 0")
NO_ROOM_DELAY = 1.0
TEMPFAIL = 75  # the exit code of a command that asks to be run again later


def after_run(claim: Claim, outcome: Outcome, config: Config, roll: float) -> Settlement:
    """Decide what a finished run makes of its job. `roll`, from 0 to 1, is the luck of its jitter."""
    match outcome:
        case Exited(code=0):
            return COMPLETED
        case Cancelled(number):
            return Settlement(State.CANCELLED, error="cancelled while running", signal=number, reason="cancelled")
        case Interrupted(why):
            return Settlement(State.PENDING, reason=f"put back: {why}")
        case NoRoom(why):
            return Settlement(State.PENDING, f"put back: {why}", delay=NO_ROOM_DELAY, reason=f"put back: {why}")
        case Lost(worker_id):
            return _after_loss(claim, worker_id, int(config["crash_limit"]))
        case Exited(code=75) if claim.snoozes < config["snooze_limit"] and _worth_retrying(claim, "75"):
            return _snoozed(claim, config, roll)
        case Exited(code):
            return _after_failure(claim, str(code), f"exit code {code}", config, roll, exit_code=code)
        case Signalled(number):
            word = signal_label(number)
            return _after_failure(claim, word, f"killed by {signal_name(number)}", config, roll, signal=number)
        case TimedOut(seconds, number):
            return _after_failure(claim, "timeout", f"timed out after {seconds:g} s", config, roll, signal=number)
        case NotStarted(why):
            return _after_failure(claim, "", f"could not start: {why}", config, roll)


def after_loss(claim: Claim, worker_id: str, cancel_requested: bool, config: Config) -> Settlement:
    """Decide what the loss of its worker makes of a job. The reason is never that of a worker's own settle, so that a
    late one is not taken for a repetition."""
    if cancel_requested:
        cancelled = after_run(claim, Cancelled(), config, 0)
        return replace(cancelled, reason=f"cancelled; its worker {worker_id} was lost")
    return after_run(claim, Lost(worker_id), config, 0)


def despite_cancel(settlement: Settlement) -> Settlement:
    """A job whose cancellation was requested does not run again, however its run ended."""
    if settlement.state in (State.PENDING, State.FAILED):
        reason = f"cancelled; its run had ended: {settlement.reason}"
        return replace(settlement, state=State.CANCELLED, error="cancelled while running", reason=reason)
    return settlement


def backoff(base: float, attempts: int, longest: float, jitter: float, roll: float) -> float:
    """Seconds until the next run: base ** attempts, of which the share `jitter` is random, capped."""
    try:
        delay = min(float(base) ** attempts, longest)
    except OverflowError:
        delay = longest
    return delay * (1 - jitter * roll)


def signal_name(number: int) -> str:
    return f"signal {number} ({signal_label(number)})"


def signal_label(number: int) -> str:
    """`SIGKILL`; real-time signals have no names of their own."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def exit_status(state: str, exit_code: int | None, signal: int | None, error: str | None) -> int:
    """What a shell would say of a finished job: its own code, 128 + signal, or 124 for a timeout."""
    if state == State.COMPLETED:
        return 0
    if error and error.startswith("timed out"):
        return 124
    if exit_code:
        return exit_code
    return 128 + signal if signal else 1


def _after_failure(
    claim: Claim,
    word: str,
    error: str,
    config: Config,
    roll: float,
    exit_code: int | None = None,
    signal: int | None = None,
) -> Settlement:
    """`word` is how `retry_on` and `no_retry_on` call such an end, if they can."""
    attempts = claim.attempts + 1
    if word and not _worth_retrying(claim, word):
        reason = f"{error}; not to be tried again"
        return Settlement(State.DEAD, error, failed=True, exit_code=exit_code, signal=signal, reason=reason)
    if attempts >= claim.max_retries:
        reason = f"{error}; attempt {attempts} of {max(claim.max_retries, 1)} was the last"
        return Settlement(State.DEAD, error, failed=True, exit_code=exit_code, signal=signal, reason=reason)
    delay = backoff(claim.backoff_base, attempts, config["backoff_max"], config["backoff_jitter"], roll)
    reason = f"{error}; attempt {attempts} of {claim.max_retries}, next in {delay:.3g} s"
    return Settlement(State.FAILED, error, True, delay=delay, exit_code=exit_code, signal=signal, reason=reason)


def _worth_retrying(claim: Claim, word: str) -> bool:
    if claim.no_retry_on and word in claim.no_retry_on.split():
        return False
    return not claim.retry_on or word in claim.retry_on.split()


def _snoozed(claim: Claim, config: Config, roll: float) -> Settlement:
    times = claim.snoozes + 1
    delay = backoff(claim.backoff_base, times, config["backoff_max"], config["backoff_jitter"], roll)
    reason = f"exit code {TEMPFAIL}: put off for the {times}. time of {config['snooze_limit']}, next in {delay:.3g} s"
    error = f"exit code {TEMPFAIL}: not now"
    return Settlement(State.PENDING, error, snoozed=True, delay=delay, exit_code=TEMPFAIL, reason=reason)


def _after_loss(claim: Claim, worker_id: str, limit: int) -> Settlement:
    error = f"worker lost: {worker_id} died while running it"
    crashes = claim.crashes + 1
    if crashes >= limit:
        reason = f"{error}; lost {crashes} times, the limit"
        return Settlement(State.DEAD, error, crashed=True, reason=reason)
    return Settlement(State.PENDING, error, crashed=True, reason=f"{error}; put back")
