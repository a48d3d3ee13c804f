"""A job with every field that a job can be given, none of them at its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EVERY: dict[str, Any] = {
    "command": "echo 'a b' \"$A\"",
    "id": "every",
    "queue": "mail",
    "priority": -5,
    "max_retries": 7,
    "backoff_base": 1.5,
    "timeout_seconds": 90.25,
    "run_at": "2999-01-01T00:00:00.123Z",
    "cwd": "/tmp/a b",
    "env": {"A": "x=y z"},
    "tags": ["a", "b'c"],
    "depends_on": ["p1", {"id": "p2", "condition": "fail"}, {"id": "p3", "condition": "any"}],
    "batch": "b.1",
    "max_fails": 2,
    "key": "a key",
    "key_limit": 3,
    "retry_on": ["1", "SIGKILL", "timeout"],
    "no_retry_on": ["75"],
    "unique_key": "only one",
    "on_duplicate": "skip",
    "notify": ["pager"],
}
PARENTS = ("p1", "p2", "p3")
NOT_STORED = {
    "max_fails": "belongs to the batch, not to the job",
    "on_duplicate": "decides what this one enqueue does",
}
STORED = {name: value for name, value in EVERY.items() if name not in NOT_STORED}


def given(job: Mapping[str, Any], besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Of a job's JSON, what its enqueuer can choose, but for some fields."""
    return {name: list(job[name]) if isinstance(job[name], tuple) else job[name] for name in STORED.keys() - besides}


def wanted(*besides: str) -> dict[str, Any]:
    """What `given` says of a job with every field."""
    return {name: value for name, value in STORED.items() if name not in besides}
