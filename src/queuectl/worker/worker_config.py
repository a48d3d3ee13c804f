"""What a manager and its workers agree on: how one is told what to do, and what its exit code says."""

from __future__ import annotations

import signal
from dataclasses import dataclass

RETIRE = signal.SIGUSR1  # leave after the running jobs, and never in a hurry, however often it is said
LEFT_IN_ORDER = 0
START_AGAIN = 3


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the manager tells a new worker."""

    id: str
    url: str
    concurrency: int
    queues: tuple[str, ...]  # words for Turns
    lifeline: int  # a pipe that closes when the manager dies
    ready: int  # a pipe to write a byte into when registered; -1 if nobody waits
    leaving: bool  # only put things in order, claim nothing
    succeeds: str  # the dead worker whose place it takes, if any
    chatty: bool
