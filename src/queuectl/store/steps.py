"""Work of any size in steps: each is one short transaction, and whoever does it may be killed after any of them."""

from __future__ import annotations

import time

from queuectl.errors import Deadlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import ParamSpec, TypeVar

    T = TypeVar("T")
    P = ParamSpec("P")

AT_ONCE = 250  # jobs or dependencies in one transaction, which others may have to wait for: some 20 ms
TOGETHER = 500  # jobs that are named by their ids, and changed together or not at all
TRIES = 5  # of a transaction that ends in a deadlock
PAUSE = 0.01  # seconds between two steps: SQLite has no line of waiting writers, they look again now and then


def pause() -> None:
    """Let others write."""
    time.sleep(PAUSE)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """In slices for one step each, with a pause between them."""
    for start in range(0, len(items), AT_ONCE):
        if start:
            pause()
        yield items[start : start + AT_ONCE]


def repeat_on_deadlock(change: Callable[P, T]) -> Callable[P, T]:
    """Repeat a transaction that the server ended to break a deadlock. The method must have no effect but that of its
    last try."""

    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(TRIES - 1):
            try:
                return change(*args, **kwargs)
            except Deadlock:
                pause()
        return change(*args, **kwargs)

    repeated.__name__, repeated.__doc__ = change.__name__, change.__doc__
    return repeated
