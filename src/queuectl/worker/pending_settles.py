"""Runs that have ended, and whose settle must wait because others hold a lock on a row that it writes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from queuectl.errors import Locked
from queuectl.jobs.lifecycle import Settlement
from queuectl.jobs.model import Claim, Report
from queuectl.worker.log import Log

AGAIN_AFTER = 0.25  # seconds between two rounds
TRIES_A_ROUND = 5  # that fail: each takes some milliseconds, in which the worker does nothing else
MOST = 100
NEVER = float("inf")

Ended = tuple[Claim, Settlement, Report]


class Unsettled:
    """Each is tried for itself, so that none keeps the others waiting, and in turn."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._runs: deque[Ended] = deque()
        self._told: set[tuple[int, int]] = set()
        self._since = NEVER
        self.due_at = NEVER  # when to try again, on the monotonic clock

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def full(self) -> bool:
        """Are there so many that nothing new should be claimed?"""
        return len(self._runs) >= MOST

    @property
    def waiting(self) -> float:
        """Seconds since the first of them had to wait."""
        return time.monotonic() - self._since if self._runs else 0.0

    @property
    def runs(self) -> set[tuple[int, int]]:
        """Their (seq, run)."""
        return {(claim.seq, claim.run) for claim, _, _ in self._runs}

    def add(self, ended: Iterable[Ended]) -> None:
        """These could not be settled together."""
        if not self._runs:
            self._since = time.monotonic()
        self._runs.extend(ended)
        self.due_at = time.monotonic()

    def clear(self) -> None:
        self._runs.clear()
        self._told.clear()
        self.due_at = NEVER

    def retry(self, settle: Callable[[Ended], None]) -> None:
        """Try each again. `settle` raises Locked if it must wait on; any other error ends the round."""
        failed = 0
        try:
            for _ in range(len(self._runs)):
                try:
                    settle(self._runs[0])
                    self._told.discard(_key(self._runs.popleft()))
                except Locked:
                    self._tell(self._runs[0])
                    self._runs.rotate(-1)
                    failed += 1
                if failed == TRIES_A_ROUND:
                    break
        finally:
            self.due_at = time.monotonic() + AGAIN_AFTER if self._runs else NEVER

    def _tell(self, run: Ended) -> None:
        """Once for each."""
        if _key(run) not in self._told:
            self._told.add(_key(run))
            self._log.tell("job locked by others, its result must wait", job=run[0].id, run=run[0].run)


def _key(run: Ended) -> tuple[int, int]:
    return run[0].seq, run[0].run
