"""Doing the same to all jobs that fit a search, in the background: it may be millions."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import dataclass, field

from queuectl.errors import QueuectlError, StoreUnavailable
from queuectl.jobs.job_filter import Filter
from queuectl.store import Store, open_store
from queuectl.system import times
from queuectl.web.http_errors import TooBusy, UnknownPage
from queuectl.web.job_actions import Deed, Outcome, step

AT_ONCE = 3  # works
KEPT = 50  # of those that have ended
TRIES = 5
PATIENCE = 10.0  # seconds that a locked database is waited for: nobody looks at a page meanwhile
ENDS_WITHIN = 5.0  # seconds that the server's end waits for all of them

log = logging.getLogger("queuectl.web")


@dataclass
class Work:
    """Doing it to all that fit. Its fields are written by its thread alone, and read by anybody."""

    deed: Deed
    wanted: Filter
    who: str
    total: int
    exact: bool  # is that all there are?
    id: str = field(default_factory=lambda: secrets.token_hex(5))
    outcome: Outcome = field(default_factory=Outcome)
    began: int = field(default_factory=times.now_ms)
    ended: int | None = None
    trouble: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def state(self) -> str:
        if self.ended is None:
            return "stopping" if self.stopping.is_set() else "processing"
        return "failed" if self.trouble else "cancelled" if self.stopping.is_set() else "completed"

    @property
    def percent(self) -> float | None:
        if self.state == "completed":
            return 100.0
        return min(99.0, 100 * self.outcome.seen / self.total) if self.exact and self.total else None

    def run(self, store: Store) -> None:
        """Chunk after chunk, the newest first, until nothing more fits or it is told to stop."""
        store.actor = self.who
        before: int | None = None
        tries = 0
        while not self.stopping.is_set():
            try:
                outcome, before = step(store, self.deed, self.wanted, before, self.stopping.is_set)
            except StoreUnavailable:
                tries += 1
                if tries == TRIES:
                    raise
                self.stopping.wait(tries)
                continue
            self.outcome += outcome
            tries = 0
            if before is None:
                return
            self.stopping.wait(0.01)  # let others write


class Works:
    """All works of this server, those that have ended lately included."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self, work: Work, url: str) -> None:
        with self._lock:
            if len(self.running) >= AT_ONCE:
                raise TooBusy(f"{AT_ONCE} such works are under way", "wait until one of them has ended, or stop one")
            self._works[work.id] = work
            for old in [one for one in self._works.values() if one.ended is not None][:-KEPT]:
                del self._works[old.id]
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            thread = threading.Thread(target=_run, args=(work, url), daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def running(self) -> list[Work]:
        return [work for work in list(self._works.values()) if work.ended is None]

    def get(self, id: str) -> Work:
        if id not in self._works:
            raise UnknownPage("nothing is known of this work", "it is forgotten when the server ends; see the audit")
        return self._works[id]

    def stop(self) -> None:
        """The server ends: what has begun is finished, what has not is left."""
        for work in self.running:
            work.stopping.set()
        deadline = time.monotonic() + ENDS_WITHIN
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _run(work: Work, url: str) -> None:
    try:
        store = open_store(url, patience=PATIENCE)
        try:
            work.run(store)
        finally:
            store.close()
    except QueuectlError as error:
        work.trouble = error.message
    except Exception:  # a bug of ours: it must not look as if all were done
        log.exception("bulk %s of %s failed", work.deed.name, work.who)
        work.trouble = "something went wrong here; the server's log says what"
    finally:
        work.ended = times.now_ms()


WORKS = Works()
"""Those of this process: it has one server."""
