"""What all tests share: a clock that is moved instead of waited for, and waiting for a condition with a deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

pytest_plugins = ["tests.session"]

T = TypeVar("T")
DEADLINE = float(os.environ.get("DEADLINE", "60"))


class Clock:
    """Milliseconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def eventually(condition: Callable[[], T], what: str = "", deadline: float = DEADLINE) -> T:
    """The condition's first true value. Fails, loudly, only if the deadline passes."""
    end = time.monotonic() + deadline
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        assert now < end, f"not within {deadline:g} s: {what or condition}; last: {value!r}"
        # What takes a command to find out is asked less often: what is waited for needs the processor, too.
        time.sleep(min(max(0.01, now - asked), 0.5))
