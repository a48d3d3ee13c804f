"""Waiting for many things at once. What `selectors` does, for a tenth of its price, which short jobs would feel."""

from __future__ import annotations

import select
from collections.abc import Callable


class Ears:
    """Calls back when something has come that can be read, in the order in which it came (where the system tells).
    Who answers False has closed the file, and is not called again."""

    def __init__(self) -> None:
        self._calls: dict[int, Callable[[int], bool | None]] = {}
        self._kernel = select.epoll() if hasattr(select, "epoll") else select.poll()
        self._second = 1 if hasattr(select, "epoll") else 1000  # the two count time differently

    def turn_to(self, file: int, call: Callable[[int], bool | None]) -> None:
        if file not in self._calls:
            self._kernel.register(file, select.POLLIN)
        self._calls[file] = call

    def turn_from(self, file: int) -> None:
        """Stop listening."""
        del self._calls[file]
        self._kernel.unregister(file)

    def forget(self, file: int) -> None:
        """It has been closed, and with that the kernel has forgotten it, too."""
        if self._calls.pop(file, None) and not hasattr(select, "epoll"):
            self._kernel.unregister(file)

    def listen(self, seconds: float) -> None:
        """Wait for something to happen, for so long at most, and tell whoever asked for it."""
        for file, _ in self._kernel.poll(seconds * self._second):
            call = self._calls.get(file)
            if call and call(file) is False:  # no call: somebody has turned away in this very round
                self.forget(file)
