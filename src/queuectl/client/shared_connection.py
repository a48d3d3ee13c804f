"""One connection for all threads of a program: one call at a time, with nothing left open when a call is interrupted,
and with a new connection in a child process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from queuectl.errors import Conflict, InvalidInput, OutcomeUnknown, QueuectlError


class Connection(Protocol):
    """A connection to a queue: to its database, or to a server."""

    commits: int
    """How many changes have got so far that they may be stored, also if their commit has not returned."""

    def roll_back(self) -> None:
        """End what an interrupted call has left open. Does nothing between calls."""
        ...

    def close(self) -> None: ...
    def close_in_child(self) -> None:
        """Let go of it in a child process, without a trace in the parent process, which goes on with it."""
        ...


C = TypeVar("C", bound=Connection)
T = TypeVar("T")

GUARDS = 10  # beyond the first: so many signals may come while one of them is being dealt with


class SharedConnection(Generic[C]):
    """Lends a connection to one call at a time."""

    def __init__(self, open: Callable[[], C]) -> None:
        self._open = open
        self._lock = threading.RLock()
        self._in_use = False
        self._closed = False
        self._connection: C | None = open()
        _all.add(self)

    def call(self, act: Callable[[C], T]) -> T:
        """Call `act` with the connection while no other thread uses it.

        An exception may be raised in it at any moment, by a signal handler or by another thread: then no transaction
        stays open. It is passed on if nothing was stored; else OutcomeUnknown is raised, with it as the cause.
        """
        # Made before it is needed: where nothing is called, no second signal can take its place.
        unknown = OutcomeUnknown(
            "interrupted in the moment of the commit, or after it",
            "it may have happened or not: look before you try again",
        )
        stored = False
        try:
            with self._lock:
                connection = self._ready()
                commits = connection.commits
                self._in_use = True
                try:
                    return self._guarded(act, connection, GUARDS)
                finally:
                    stored = connection.commits != commits
                    self._in_use = False
        except QueuectlError:
            raise
        except BaseException as error:
            if not stored:
                raise
            raise unknown from error

    def _nested(self) -> Conflict:
        return Conflict(
            "this Queue is in use by a call that was interrupted", "open another one for a signal handler"
        )

    def _ready(self) -> C:
        if self._in_use:
            raise self._nested()
        if self._closed:
            raise InvalidInput("this Queue is closed", "open another one")
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _guarded(self, act: Callable[[C], T], connection: C, guards: int) -> T:
        """Whatever is raised, nothing stays open. If a signal interrupts that as well, the next guard sees to it."""
        try:
            return self._guarded(act, connection, guards - 1) if guards else act(connection)
        except BaseException:
            connection.roll_back()
            raise

    def close(self) -> None:
        with self._lock:
            if self._in_use:
                raise self._nested()
            connection, self._connection, self._closed = self._connection, None, True
            if connection is not None:
                connection.close()

    # -- fork --------------------------------------------------------------------------------------------

    def hold(self) -> None:
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def release_in_child(self) -> None:
        """The connection is the parent's. If the code that forked was in a call itself, that goes on as it can."""
        if self._connection is not None and not self._in_use:
            connection, self._connection = self._connection, None
            connection.close_in_child()
        self._lock.release()


_all: weakref.WeakSet[SharedConnection[Any]] = weakref.WeakSet()
_held: list[SharedConnection[Any]] = []


def _before_fork() -> None:
    """Wait until no thread is in the middle of a call: a child could not close what is in use."""
    for shared in sorted(_all, key=id):
        shared.hold()
        _held.append(shared)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    while _held:
        _held.pop().release_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
