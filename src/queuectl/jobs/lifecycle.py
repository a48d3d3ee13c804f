"""The life of a job: states, outcomes of a run, and what follows from what. Pure: no I/O, no clock."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

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
    kind: ClassVar = "exited"
    code: int


@dataclass(frozen=True, slots=True)
class Signalled:
    kind: ClassVar = "signalled"
    number: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    kind: ClassVar = "timed_out"
    seconds: float
    number: int | None = None


@dataclass(frozen=True, slots=True)
class NotStarted:
    """It can never start like this: the folder is missing, the command line is too long."""

    kind: ClassVar = "not_started"
    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    kind: ClassVar = "cancelled"
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ended by the operator's shutdown, or because its worker's lease ran out: not the job's failure."""

    kind: ClassVar = "interrupted"
    why: str = "the worker was stopped"


SILENT = Interrupted("its worker could give no sign of life")


@dataclass(frozen=True, slots=True)
class NoResources:
    """The machine could not start a process just now (EMFILE, EAGAIN, ENOMEM)."""

    kind: ClassVar = "no_resources"
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker died while it ran."""

    kind: ClassVar = "lost"
    worker_id: str


Outcome = Exited | Signalled | TimedOut | NotStarted | Cancelled | Interrupted | NoResources | Lost
OUTCOMES = (
    "exited", "signalled", "timed_out", "oom", "not_started", "cancelled", "interrupted", "no_resources", "lost",
)  # fmt: skip
LABELS = {
    "timed_out": "timeout", "oom": "oom", "not_started": "not-started", "cancelled": "cancelled", "lost": "lost",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settlement:
    """A job's next state after a run, and how the run ended. Behaviour never depends on `error` and `reason`."""

    state: State
    outcome: str  # one of OUTCOMES
    error: str | None = None
    failed: bool = False  # attempts + 1
    crashed: bool = False  # crashes + 1
    snoozed: bool = False  # snoozes + 1
    delay: float = 0.0
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""


COMPLETED = Settlement(State.COMPLETED, Exited.kind, exit_code=0, reason="exit code 0")
CANCELLED_RUNNING = "cancelled while running"
NO_RESOURCES_DELAY = 1.0
TEMPFAIL = 75  # the exit code of a command that asks to be run again later


def after_run(claim: Claim, outcome: Outcome, config: Config, roll: float) -> Settlement:
    """Decide what a finished run makes of its job. `roll`, from 0 to 1, is the luck of its jitter."""
    match outcome:
        case Exited(code=0):
            return COMPLETED
        case Cancelled(number):
            return Settlement(State.CANCELLED, outcome.kind, CANCELLED_RUNNING, signal=number, reason="cancelled")
        case Interrupted(why):
            return Settlement(State.PENDING, outcome.kind, reason=f"put back: {why}")
        case NoResources(why):
            error = f"put back: {why}"
            return Settlement(State.PENDING, outcome.kind, error, delay=NO_RESOURCES_DELAY, reason=error)
        case Lost(worker_id):
            return _after_loss(claim, worker_id, int(config["crash_limit"]))
        case Exited(code=75) if claim.snoozes < config["snooze_limit"] and _worth_retrying(claim, "75"):
            return _snoozed(claim, config, roll)
        case Exited(code):
            failed = Settlement(State.FAILED, outcome.kind, f"exit code {code}", exit_code=code)
            return _after_failure(claim, failed, str(code), config, roll)
        case Signalled(number):
            failed = Settlement(State.FAILED, outcome.kind, f"killed by {signal_name(number)}", signal=number)
            return _after_failure(claim, failed, signal_label(number), config, roll)
        case TimedOut(seconds, number):
            failed = Settlement(State.FAILED, outcome.kind, f"timed out after {seconds:g} s", signal=number)
            return _after_failure(claim, failed, "timeout", config, roll)
        case NotStarted(why):
            failed = Settlement(State.FAILED, outcome.kind, f"could not start: {why}")
            return _after_failure(claim, failed, "", config, roll)


def after_loss(claim: Claim, worker_id: str, cancel_requested: bool, config: Config) -> Settlement:
    """Decide what the loss of its worker makes of a job. The outcome is never that of a worker's own settle, so that
    a late one is not taken for a repetition."""
    if cancel_requested:
        reason = f"cancelled; its worker {worker_id} was lost"
        return Settlement(State.CANCELLED, Lost.kind, CANCELLED_RUNNING, reason=reason)
    return after_run(claim, Lost(worker_id), config, 0)


def despite_cancel(settlement: Settlement) -> Settlement:
    """A job whose cancellation was requested does not run again, however its run ended."""
    if settlement.state in (State.PENDING, State.FAILED):
        reason = f"cancelled; its run had ended: {settlement.reason}"
        return replace(settlement, state=State.CANCELLED, error=CANCELLED_RUNNING, reason=reason)
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


def outcome_label(outcome: str | None, exit_code: int | None, signal: int | None) -> str:
    """An outcome in one word, as in the marks of a log: an exit code, a signal's name, `timeout`, `lost` …"""
    if outcome == Exited.kind and exit_code is not None:
        return str(exit_code)
    if outcome == Signalled.kind and signal:
        return signal_label(signal)
    return LABELS.get(outcome or "", "interrupted")


def exit_status(state: str, outcome: str | None, exit_code: int | None, signal: int | None) -> int:
    """The exit status of a finished job as a shell would report it: its own code, 128 + signal, 124 for a timeout."""
    if state == State.COMPLETED:
        return 0
    if outcome == TimedOut.kind:
        return 124
    if exit_code:
        return exit_code
    return 128 + signal if signal else 1


def _after_failure(claim: Claim, failed: Settlement, word: str, config: Config, roll: float) -> Settlement:
    """`word` is the name of this outcome in `retry_on` and `no_retry_on`, if it has one."""
    attempts, error = claim.attempts + 1, failed.error
    if word and not _worth_retrying(claim, word):
        return replace(failed, state=State.DEAD, failed=True, reason=f"{error}; not to be tried again")
    if attempts >= claim.max_retries:
        reason = f"{error}; attempt {attempts} of {max(claim.max_retries, 1)} was the last"
        return replace(failed, state=State.DEAD, failed=True, reason=reason)
    delay = backoff(claim.backoff_base, attempts, config["backoff_max"], config["backoff_jitter"], roll)
    reason = f"{error}; attempt {attempts} of {claim.max_retries}, next in {delay:.3g} s"
    return replace(failed, failed=True, delay=delay, reason=reason)


def _worth_retrying(claim: Claim, word: str) -> bool:
    if claim.no_retry_on and word in claim.no_retry_on.split():
        return False
    return not claim.retry_on or word in claim.retry_on.split()


def _snoozed(claim: Claim, config: Config, roll: float) -> Settlement:
    times = claim.snoozes + 1
    delay = backoff(claim.backoff_base, times, config["backoff_max"], config["backoff_jitter"], roll)
    reason = f"exit code {TEMPFAIL}: put off for the {times}. time of {config['snooze_limit']}, next in {delay:.3g} s"
    error = f"exit code {TEMPFAIL}: not now"
    return Settlement(State.PENDING, Exited.kind, error, snoozed=True, delay=delay, exit_code=TEMPFAIL, reason=reason)


def _after_loss(claim: Claim, worker_id: str, limit: int) -> Settlement:
    error = f"worker lost: {worker_id} died while running it"
    crashes = claim.crashes + 1
    if crashes >= limit:
        reason = f"{error}; lost {crashes} times, the limit"
        return Settlement(State.DEAD, Lost.kind, error, crashed=True, reason=reason)
    return Settlement(State.PENDING, Lost.kind, error, crashed=True, reason=f"{error}; put back")
