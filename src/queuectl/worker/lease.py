"""How long a worker may go on running jobs without another sign of life: its promise to other machines, on file.

They take over what it runs when they have not heard of it for `lease_timeout`. It ends its runs before that itself,
and its manager, who reads the promise here, does so if the worker cannot: because it is stopped, or stuck. The
manager appends the tags of the runs that it ends, so that the worker, when it is continued, does not take that for
their own failure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from queuectl.system import private_files

SUFFIX = ".lease"  # the dot tells it from a bell
BEAT = 1 / 3  # of the lease: a worker gives a sign of life so often
ASK = 2 / 3  # of the lease: the worker asks its runs to go
KILL = 5 / 6  # of the lease: its manager ends them
NEVER = float("inf")
_MOMENT = 20  # characters, in which the promise is written; what follows are tags
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps


def now() -> float:
    return time.clock_gettime(_CLOCK)


class Lease:
    """The worker's own side. One that is never renewed is never over: on one machine nobody counts on it."""

    def __init__(self, folder: str, worker_id: str) -> None:
        self._path = path_of(folder, worker_id)
        self._file = -1
        self._ask_at = NEVER
        self.grace = 0.0  # seconds that runs have to go in when they are asked to
        self.asked = False  # have the runs been asked to go?

    @property
    def over(self) -> bool:
        """Must the runs go?"""
        return now() >= self._ask_at

    @property
    def left(self) -> float:
        """Seconds until they must be asked to go; once they were, there is nothing to wait for."""
        return NEVER if self.asked else self._ask_at - now()

    def renew(self, since: float, seconds: float) -> None:
        """A sign of life has arrived that was given at the moment `since`."""
        if self._file < 0:
            self._file = private_files.open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.pwrite(self._file, b"%20.3f" % (since + seconds * KILL), 0)
        self._ask_at = since + seconds * ASK
        self.grace = seconds * (KILL - ASK) / 2
        self.asked = False

    def ended(self, tag: str) -> bool:
        """Has the manager ended the run with this tag, because the lease was over?"""
        return self._file >= 0 and tag.encode() in _ended(self._file)

    def end(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass


def path_of(folder: str, worker_id: str) -> str:
    return os.path.join(folder, worker_id + SUFFIX)


def ends_at(folder: str, worker_id: str) -> float:
    """When this worker's runs must be gone; never, if it has promised nothing."""
    try:
        with open(private_files.open_file(path_of(folder, worker_id), os.O_RDONLY), encoding="ascii") as file:
            return float(file.read(_MOMENT))
    except (FileNotFoundError, ValueError):
        return NEVER


def mark_ended(folder: str, worker_id: str, tags: Iterable[str]) -> None:
    """Note, before it happens, that these runs are ended because the lease is over."""
    file = private_files.open_file(path_of(folder, worker_id), os.O_RDWR | os.O_APPEND)
    try:
        if new := {tag.encode() for tag in tags}.difference(_ended(file)):
            os.write(file, b" " + b" ".join(new))
    finally:
        os.close(file)


def _ended(file: int) -> list[bytes]:
    return os.pread(file, os.fstat(file).st_size, _MOMENT).split()
