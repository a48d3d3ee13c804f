"""Work of any size in steps: each is one short transaction, and whoever does it may be killed after any of them."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    T = TypeVar("T")

AT_ONCE = 250  # jobs or dependencies in one transaction, which others may have to wait for: some 20 ms
TOGETHER = 500  # jobs that are named by their ids, and changed together or not at all
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
