"""Connections to the queue, lent to one thread at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from queuectl.errors import StoreUnavailable
from queuectl.store import Store, open_store
from queuectl.store.factory import serve_folder
from queuectl.web.http_errors import TooBusy

MOST = 8
MOST_CHANGING = 4  # so that those who only look are served while the database is locked
PATIENCE = 3.0  # seconds that a locked database is waited for: somebody looks at a page that does not come
WAIT = 3.0  # seconds that a free connection is waited for


class Stores:
    """A few connections to one queue; each is opened when it is first needed."""

    def __init__(self, url: str | None) -> None:
        first = open_store(url, patience=PATIENCE)
        self.url = first.engine.url
        self.name = first.engine.name
        self.own_folder = serve_folder(first.engine.run_dir)
        self._free: queue.LifoQueue[Store | None] = queue.LifoQueue()  # the last used is the warmest
        for _ in range(MOST - 1):
            self._free.put(None)
        self._free.put(first)
        self._changing = threading.BoundedSemaphore(MOST_CHANGING)

    def open(self) -> Store:
        """One more, for whoever keeps it. If the queue is gone, no empty one takes its place."""
        return open_store(self.url, patience=PATIENCE, create=False)

    @contextmanager
    def lend(self, actor: str | None = None) -> Iterator[Store]:
        """A store that nobody else uses meanwhile. Whoever wants to change something says on whose behalf."""
        if actor is None:
            with self._lend(None) as store:
                yield store
            return
        if not self._changing.acquire(timeout=WAIT):
            raise _too_busy()
        try:
            with self._lend(actor) as store:
                yield store
        finally:
            self._changing.release()

    @contextmanager
    def _lend(self, actor: str | None) -> Iterator[Store]:
        try:
            store = self._free.get(timeout=WAIT)
        except queue.Empty:
            raise _too_busy() from None
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


def _too_busy() -> TooBusy:
    return TooBusy("all connections to the queue are in use", "try again in a moment")
