"""What a hook is, which ends of runs it wants to hear of, and the job that tells it. Pure; the store applies it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs import job_spec
from queuectl.jobs.job_spec import NewJob
from queuectl.system.times import iso

EVENTS = ("completed", "failed", "dead")
QUEUE = "notifications"
# How a worker calls its own queuectl. Not by a path: the machines of a fleet have different ones.
SEND = '"$QUEUECTL_PYTHON" -P -m queuectl hook send'
MAX_RETRIES = 8
BACKOFF_BASE = 4  # with eight attempts: for more than two hours
SEND_WITHIN = 60
HOPELESS = ("2", "3")  # exit codes of `hook send`: a private address, a hook that is no more
LONGEST_NAME = 100  # it is part of a tag
# A variable holds 128 KiB, and each character may take twelve bytes.
LONGEST_COMMAND = 4000
LONGEST_ERROR = 1000
LONGEST_TAGS = 2000


@dataclass(frozen=True, slots=True)
class Hook:
    """Whom to tell, and of what."""

    name: str
    events: tuple[str, ...]
    queue: str | None  # only of the jobs of this one
    only_named: bool  # only of the jobs that name it
    url: str | None  # either this
    command: str | None  # or this
    cwd: str | None
    secret: str | None = field(repr=False)
    allow_private: bool
    paused: bool
    reason: str | None  # why it is paused, if nobody has said so
    created_at: int

    @property
    def tag(self) -> str:
        """Marks its notifications."""
        return f"hook:{self.name}"

    def as_json(self) -> dict[str, Any]:
        """All but the secret."""
        return {
            "name": self.name,
            "events": list(self.events),
            "queue": self.queue,
            "only_named": self.only_named,
            "url": self.url,
            "command": self.command,
            "cwd": self.cwd,
            "signed": self.secret is not None,
            "allow_private": self.allow_private,
            "paused": self.paused,
            "reason": self.reason,
            "created_at": iso(self.created_at),
        }


class Ended(NamedTuple):
    """A job whose run has just ended."""

    seq: int
    notify: str | None  # words
    id: str
    queue: str
    state: str
    command: str
    outcome: str | None
    exit_code: int | None
    signal: int | None
    error: str | None
    attempts: int
    max_retries: int
    run: int
    batch: str | None
    created_at: int
    started_at: int | None
    duration_ms: int | None
    next_run_at: int | None
    tags: str | None  # words


def make(
    name: str,
    events: Iterable[str],
    now: int,
    url: str | None = None,
    command: str | None = None,
    cwd: str | None = None,
    secret: str | None = None,
    queue: str | None = None,
    only_named: bool = False,
    allow_private: bool = False,
) -> Hook:
    """A valid hook. (What is to be said of its address, `webhook` has said.)"""
    wanted = {_event(event) for event in events}
    if not wanted:
        raise InvalidInput("a hook must know what to tell of", f"give --on with one of: {', '.join(EVENTS)}")
    if queue is not None and only_named:
        raise InvalidInput("both a queue and --for-named are given", "a job that names a hook may be in any queue")
    if queue is not None and job_spec.name("queue", queue) == QUEUE:
        raise InvalidInput(f'nobody is told of the jobs in "{QUEUE}"', "they are the notifications themselves")
    if len(job_spec.name("hook", name)) > LONGEST_NAME:
        raise InvalidInput(f'"{name[:20]}…" is too long for a hook', f"use {LONGEST_NAME} characters at most")
    if command is not None:
        NewJob(command)
    return Hook(
        name=name,
        events=tuple(event for event in EVENTS if event in wanted),
        queue=queue,
        only_named=only_named,
        url=url,
        command=command,
        cwd=cwd,
        secret=secret,
        allow_private=allow_private,
        paused=False,
        reason=None,
        created_at=now,
    )


def _event(word: str) -> str:
    if word not in EVENTS:
        raise InvalidInput(f'there is no event "{word}"', did_you_mean(word, list(EVENTS)))
    return word


def wants(hook: Hook, ended: Ended) -> bool:
    """Is it to be told of this? Never of a notification. If a job names a hook, its queue does not matter."""
    if hook.paused or ended.queue == QUEUE or ended.state not in hook.events:
        return False
    if hook.name in (ended.notify or "").split():
        return True
    return not hook.only_named and hook.queue in (None, ended.queue)


def job_id(hook: Hook, ended: Ended) -> str:
    """The same for the same end of the same run, so that nobody is told twice. By the number of the job: its id may
    be given to another one when it is gone."""
    what = hashlib.sha256(f"{hook.name} {ended.seq} {ended.run} {ended.state}".encode()).digest()
    return f"{hook.name[:40]}:{ended.id[:60]}:{base64.b32encode(what)[:16].decode().lower()}"


def told(ended: Ended, now: int) -> dict[str, Any]:
    """What there is to tell: the body of a webhook."""
    data = {name: getattr(ended, name) for name in Ended._fields if name not in ("seq", "notify")}
    data["command"] = _cut(ended.command, LONGEST_COMMAND)
    data["error"] = None if ended.error is None else _cut(ended.error, LONGEST_ERROR)
    data["tags"] = (ended.tags or "")[:LONGEST_TAGS].split()
    for name in ("created_at", "started_at", "next_run_at"):
        data[name] = iso(data[name])
    return {"type": f"job.{ended.state}", "timestamp": iso(now), "data": data}


def example(hook: Hook, now: int) -> dict[str, Any]:
    """What is told to try a hook out."""
    return {"type": "test", "timestamp": iso(now), "data": {"hook": hook.name}}


def notification(hook: Hook, tell: dict[str, Any]) -> NewJob:
    """The job that tells a hook. Not the secret: whoever may see jobs need not know it."""
    data = tell["data"]
    env = {
        "QUEUECTL_EVENT": tell["type"].removeprefix("job."),
        "QUEUECTL_EVENT_JOB": data.get("id"),
        "QUEUECTL_EVENT_QUEUE": data.get("queue"),
        "QUEUECTL_EVENT_EXIT_CODE": data.get("exit_code"),
        "QUEUECTL_EVENT_ERROR": data.get("error"),
        "QUEUECTL_EVENT_ATTEMPTS": data.get("attempts"),
        "QUEUECTL_EVENT_JSON": json.dumps(tell, separators=(",", ":")),
    }
    own = {"command": f"{SEND} {hook.name}", "cwd": "/", "timeout_seconds": SEND_WITHIN, "no_retry_on": HOPELESS}
    return NewJob(
        **(own if hook.url else {"command": hook.command, "cwd": hook.cwd}),
        queue=QUEUE,
        max_retries=MAX_RETRIES,
        backoff_base=BACKOFF_BASE,
        env={name: "" if value is None else str(value) for name, value in env.items()},
        tags=(hook.tag,),
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
