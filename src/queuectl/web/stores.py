"""Connections to the queue, lent to one thread at a time."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from contextlib import contextmanager

from queuectl.errors import StoreUnavailable
from queuectl.store import Store, open_store
from queuectl.web.refusals import TooBusy

MOST = 8
PATIENCE = 3.0  # seconds that a locked database is waited for: somebody looks at a page that does not come
WAIT = 10.0  # seconds that a free connection is waited for


class Stores:
    """A few connections to one queue; each is opened when it is first needed."""

    def __init__(self, url: str | None) -> None:
        first = open_store(url, patience=PATIENCE)
        self.url = first.engine.url
        self.name = first.engine.name
        # Beside the folder of the bells, not in it: workers clear away what they do not know there.
        self.own_folder = os.path.splitext(first.engine.run_dir)[0] + ".serve"
        self._free: queue.LifoQueue[Store | None] = queue.LifoQueue()  # the last used is the warmest
        for _ in range(MOST - 1):
            self._free.put(None)
        self._free.put(first)

    def open(self) -> Store:
        """One more, for whoever keeps it."""
        return open_store(self.url, patience=PATIENCE)

    @contextmanager
    def lend(self, actor: str | None = None) -> Iterator[Store]:
        """A store that nobody else uses meanwhile; what it changes is recorded as done by `actor`."""
        try:
            store = self._free.get(timeout=WAIT)
        except queue.Empty:
            raise TooBusy("all connections to the queue are in use", "try again in a moment") from None
        try:
            if store is None:
                store = self.open()
            store.engine.check_place()  # else we would go on with a file that somebody has moved away
            store.actor = actor
            yield store
        except StoreUnavailable:  # whatever is wrong with it, the next one begins anew
            if store is not None:
                store.close()
            store = None
            raise
        finally:
            self._free.put(store)

    def close(self) -> None:
        while not self._free.empty():
            if store := self._free.get():
                store.close()
