"""What the unit tests share: a local time zone, and limits of the operating system for the length of a block."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from queuectl.jobs.model import Claim


@pytest.fixture
def in_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Live in another time zone until the test is over."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@contextmanager
def limited(what: int, soft: int) -> Iterator[None]:
    """As under `ulimit`: a soft limit of this process, taken back afterwards."""
    before, hard = resource.getrlimit(what)
    resource.setrlimit(what, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (before, hard))


def a_claim(command: str = "true", **fields: object) -> Claim:
    """A claim as a store would hand it out."""
    usual: dict[str, object] = {
        "seq": 7, "id": "job1", "run": 1, "command": command, "queue": "default", "attempts": 0, "crashes": 0,
        "snoozes": 0, "retry_on": None, "no_retry_on": None, "max_retries": 3, "backoff_base": 2.0,
        "timeout_seconds": None, "cwd": None, "env": None, "key": None, "key_limit": None,
        "due_at": 1_800_000_000_000, "started_at": 1_800_000_000_000,
    }  # fmt: skip
    return Claim(**{**usual, **fields})  # type: ignore[arg-type]
