"""What the store gives back: jobs, their events, workers. Immutable; times in milliseconds, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from queuectl.errors import InvalidInput
from queuectl.jobs.states import FINISHED
from queuectl.settings import Config
from queuectl.system.times import iso, parse_moment, span

INTERNAL = ("run", "cancel_requested", "log_host", "parked")  # not part of a job's JSON
JSON_KINDS: Mapping[type, tuple[str, ...]] = {
    str: ("id", "command", "queue", "state", "run_at", "created_at", "updated_at", "log_path"),
    int: ("priority", "attempts", "crashes", "snoozes", "max_retries"),
    list: ("tags", "retry_on", "no_retry_on", "notify", "depends_on"),
    dict: ("env",),
}


@dataclass(frozen=True, slots=True)
class Job:
    """A stored job; the fields stand in the order of the JSON output."""

    id: str
    command: str
    queue: str
    state: str
    priority: int
    attempts: int
    crashes: int
    snoozes: int
    max_retries: int
    backoff_base: float
    retry_on: tuple[str, ...]
    no_retry_on: tuple[str, ...]
    timeout_seconds: float | None
    run_at: int
    cwd: str | None
    env: dict[str, str]
    tags: tuple[str, ...]
    depends_on: tuple[tuple[str, str], ...]  # ids and conditions
    unique_key: str | None
    batch: str | None
    key: str | None
    key_limit: int | None
    notify: tuple[str, ...]  # names of hooks
    created_at: int
    updated_at: int
    started_at: int | None
    finished_at: int | None
    duration_ms: int | None
    outcome: str | None  # how the last run ended: one of lifecycle.OUTCOMES
    exit_code: int | None
    signal: int | None
    error: str | None
    stdout: str | None
    stderr: str | None
    progress: int | float | None  # what the last run said of itself: see jobs/run_report.py
    message: str | None
    result: Any
    log_path: str
    worker_id: str | None
    run: int
    cancel_requested: bool
    log_host: str | None  # the machine that has its log, if it is another one
    parked: bool  # put aside because enough jobs with its key ran

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    def as_json(self) -> dict[str, Any]:
        data = {key: value for key, value in _as_json(self).items() if key not in INTERNAL}
        data["depends_on"] = [
            id if condition == "ok" else {"id": id, "condition": condition} for id, condition in self.depends_on
        ]
        return data

    @classmethod
    def from_json(cls, data: Any) -> Job:
        """The job that this is the JSON of; ValueError if it is none. Its internals are not in there."""
        names = {field.name for field in fields(cls)} - set(INTERNAL)
        if not isinstance(data, Mapping) or names - data.keys():
            raise ValueError("these are not the fields of a job")
        values: dict[str, Any] = {name: data[name] for name in names}
        for kind, those in JSON_KINDS.items():
            if not all(isinstance(values[name], kind) for name in those):
                raise ValueError(f"a job's {', '.join(those)} must be a {kind.__name__}")
        try:
            for name, value in values.items():
                if name.endswith("_at") and value is not None:
                    values[name] = parse_moment(value, 0)
            for name in ("tags", "retry_on", "no_retry_on", "notify"):
                values[name] = tuple(values[name])
            values["depends_on"] = tuple(
                (link, "ok") if isinstance(link, str) else (link["id"], link["condition"])
                for link in values["depends_on"]
            )
        except (AttributeError, KeyError, TypeError, InvalidInput):
            raise ValueError("what is in this job is not what is in jobs") from None
        return cls(**{**values, "run": 0, "cancel_requested": False, "log_host": None, "parked": False})


EVENT_KINDS = (
    "enqueued", "started", "run_ended", "settle_refused", "cancel_requested", "cancel_refused", "cancelled",
    "replaced", "batch_cancelled", "dependencies_met", "dependency_broken", "revived", "not_revived", "retried",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a job's history. What happened is `kind` and `outcome`; `reason` says it in words."""

    at: int
    state: str
    run: int
    worker_id: str | None
    kind: str  # one of EVENT_KINDS
    reason: str
    outcome: str | None = None  # of a run that ended
    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int | None = None
    cpu_ms: int | None = None
    max_rss_kb: int | None = None

    def as_json(self) -> dict[str, Any]:
        return _as_json(self)


WORKER_STATES = ("idle", "busy", "stopping", "lost")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process that has registered. `alive` is what the kernel says, or of another machine its heartbeat."""

    id: str
    pid: int
    host: str
    manager_pid: int
    queues: tuple[str, ...]
    concurrency: int
    started_at: int
    heartbeat_at: int
    stop: str | None
    jobs: tuple[str, ...]
    alive: bool
    here: bool  # on this machine

    @property
    def state(self) -> str:
        """One of WORKER_STATES."""
        if not self.alive:
            return "lost"
        if self.stop:
            return "stopping"
        return "busy" if self.jobs else "idle"

    def as_json(self) -> dict[str, Any]:
        return {**{key: value for key, value in _as_json(self).items() if key != "here"}, "state": self.state}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a health check found; advice if it is bad."""

    check: str
    ok: bool
    found: str
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        return _as_json(self)


class Link(NamedTuple):
    """A dependency, seen from one of its ends: the job at the other one, and how things stand between them."""

    id: str
    state: str  # or `graph.DELETED`
    condition: str
    outcome: str

    @property
    def open(self) -> bool:
        return self.outcome == "open"


class Wait(NamedTuple):
    """A job in the chain before a blocked one."""

    depth: int
    link: Link


class Rules(NamedTuple):
    """What is said of a queue, besides the jobs in it."""

    name: str
    paused: bool = False
    at_once: int | None = None  # jobs that may run at the same time
    per_key: int | None = None  # of those with the same key; 1 if it is not said
    rate: int | None = None  # runs that may start within any `rate_ms` milliseconds
    rate_ms: int | None = None
    retry_on: str | None = None  # words; for jobs that say nothing themselves
    no_retry_on: str | None = None

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Rules:
        return cls(*row)._replace(paused=bool(row[1]))

    def as_json(self) -> dict[str, Any]:
        words = {name: (getattr(self, name) or "").split() for name in ("retry_on", "no_retry_on")}
        return {**self._asdict(), **words}

    @property
    def limits(self) -> str:
        """For people: `3 at once, 10 per 1m`."""
        parts = [
            f"{self.at_once} at once" if self.at_once else "",
            f"{self.per_key} per key" if self.per_key else "",
            f"{self.rate} per {span(self.rate_ms / 1000)}" if self.rate and self.rate_ms else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def retries(self) -> str:
        """For people: `only after 1 75, not after timeout`."""
        given = (("only after", self.retry_on), ("not after", self.no_retry_on))
        return ", ".join(f"{word} {ends}" for word, ends in given if ends)


class Obstacles(NamedTuple):
    """What limits have to say to a job: of its queue, and of its key."""

    rules: Rules
    in_queue: tuple[str, ...] = ()  # the jobs that run there, if their number is limited
    with_key: tuple[str, ...] = ()
    key_limit: int = 1
    free_at: int | None = None  # when the rate lets another one start; None if it does now


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue: how many jobs it has in each state, and what is said of it."""

    name: str
    jobs: dict[str, int]
    rules: Rules

    def as_json(self) -> dict[str, Any]:
        return {**self.rules.as_json(), "jobs": self.jobs}


class Act(NamedTuple):
    """What somebody did to the queue."""

    n: int
    at: int
    who: str
    action: str
    target: str
    detail: str

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "at": iso(self.at)}


class Claim(NamedTuple):  # made for each run, in a third of the time of a frozen dataclass
    """A job leased to one worker for one run: all that running it takes. (seq, run) is its fence."""

    seq: int
    id: str
    run: int
    command: str
    queue: str
    attempts: int
    crashes: int
    snoozes: int
    max_retries: int
    backoff_base: float
    retry_on: str | None  # words
    no_retry_on: str | None
    timeout_seconds: float | None
    cwd: str | None
    env: str | None
    key: str | None
    key_limit: int | None
    due_at: int  # since when it has been waiting to be claimed
    started_at: int

    @property
    def wait_ms(self) -> int:
        return max(0, self.started_at - self.due_at)


class Report(NamedTuple):
    """What a run used, printed, and said of itself."""

    duration_ms: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    cpu_ms: int | None = None
    max_rss_kb: int | None = None
    said: str | None = None  # JSON, if it is new


@dataclass(frozen=True, slots=True)
class Tick:
    """What a worker learns from one exchange with the store."""

    claims: list[Claim]
    refused: list[Claim]  # settled too late: these runs were no longer ours
    cancels: set[tuple[int, int]]  # (seq, run) of our runs that somebody wants ended
    stop: str | None
    tallied: bool  # the tally we brought is stored
    given_up: bool  # others took us for lost: what we run is no longer ours
    due_in: float | None  # seconds until the next job becomes due, if nothing is due now
    fire_in: float | None  # seconds until a schedule fires
    undone: bool  # there is something for `Store.work_off`
    config: Config


def _as_json(record: Any) -> dict[str, Any]:
    data = {field.name: getattr(record, field.name) for field in fields(record)}
    for key, value in data.items():
        if key == "at" or key.endswith("_at"):
            data[key] = iso(value)
    return data
