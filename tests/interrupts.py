"""Exceptions that come from outside, at every moment of a call: from a signal handler, or from another thread.

CPython lets such an exception in when a function begins and when a call of C code is over (and where a loop begins
again, if nothing is called in it). `Interrupter` finds these moments in a call, and has an exception delivered at any
one of them.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupt(BaseException):
    """What a signal handler may raise."""


class Interrupter:
    """Interrupts calls of code that lies in one of these folders."""

    def __init__(self, *folders: str) -> None:
        self._folders = folders
        self._left = 0
        self._fuse = _fuse()
        self._seen: list[object] = []
        self._phase: Callable[[], object] | None = None

    def moments(self, act: Callable[[], object], phase: Callable[[], object] | None = None) -> list[int]:
        """Carry out; the moments at which it can be interrupted, counted from 1. With a `phase`: of those at the same
        place in the code in the same phase only the first."""
        self._seen, self._phase = [], phase
        self.interrupt(act, -1)
        keys = self._seen if phase else range(len(self._seen))
        return sorted({key: number for number, key in reversed(list(enumerate(keys, 1)))}.values())

    def interrupt(self, act: Callable[[], object], moment: int) -> None:
        """Carry out, and interrupt at this moment; if it comes to that."""
        self._left, done = moment, False
        sys.setprofile(self._record if moment < 0 else self._count)
        try:
            try:
                act()
                done = True
            finally:
                sys.setprofile(None)
        except Interrupt:
            if not done:  # else it came too late, after the call
                raise

    def _is_moment(self, frame: FrameType, event: str) -> bool:
        return event in ("call", "c_return", "c_exception") and frame.f_code.co_filename.startswith(self._folders)

    def _record(self, frame: FrameType, event: str, arg: object) -> None:
        if self._is_moment(frame, event):
            self._seen.append((frame.f_code, frame.f_lasti, event, self._phase and self._phase()))

    def _count(self, frame: FrameType, event: str, arg: object) -> None:
        if self._is_moment(frame, event):
            self._left -= 1
            if self._left == 0:
                self._fuse.blow  # noqa: B018 (no call: it would be interrupted itself)


def _fuse() -> Any:
    """Reading `blow` has an exception raised in this thread, as soon as its code gets to such a moment."""
    thread = ctypes.c_ulong(threading.get_ident())
    blow = functools.partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, thread, ctypes.py_object(Interrupt))

    class Fuse(int):  # which is what the function takes, and does not mind, as one argument too many
        @property
        def blow(self) -> None: ...

    Fuse.blow = property(blow)  # type: ignore[method-assign, assignment]
    return Fuse()
