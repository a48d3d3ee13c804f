"""Doing the same to many jobs: at once to those that somebody chose, in the background to all that fit a search."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from queuectl import times
from queuectl.errors import Conflict, NotFound, QueuectlError, StoreUnavailable
from queuectl.search import Filter
from queuectl.states import FINISHED
from queuectl.store import Store, open_store
from queuectl.web.access import Role
from queuectl.web.refusals import TooBusy, UnknownPage

AT_ONCE = 3  # works
KEPT = 50  # of those that have ended
CHUNK = 500  # jobs in one transaction: others want to write, too
TRIES = 5
PATIENCE = 10.0  # seconds that a locked database is waited for: nobody looks at a page meanwhile
ENDS_WITHIN = 5.0  # seconds that the server's end waits for a chunk


class Deed(NamedTuple):
    """What can be done to many jobs."""

    name: str
    past: str
    role: Role
    fits: Callable[[str], bool]  # a job in this state?
    others: str  # what those are to which it cannot be done
    do: Callable[[Store, Sequence[str]], object]


DEEDS = {
    deed.name: deed
    for deed in (
        Deed(
            "cancel",
            "cancelled",
            Role.OPERATOR,
            lambda state: state not in FINISHED,
            "finished already",
            Store.cancel,
        ),
        Deed("retry", "retried", Role.OPERATOR, lambda state: state == "dead", "not dead", Store.retry),
        Deed("delete", "deleted", Role.ADMIN, lambda state: state in FINISHED, "not finished", Store.delete),
    )
}


class Outcome(NamedTuple):
    done: int = 0
    unfit: int = 0  # in a state in which it cannot be done, or gone
    refused: str = ""  # what the store said of the last one that it refused

    def __add__(self, other: object) -> Outcome:
        assert isinstance(other, Outcome)
        return Outcome(self.done + other.done, self.unfit + other.unfit, other.refused or self.refused)


def apply(store: Store, deed: Deed, ids: Sequence[str]) -> Outcome:
    """Do it to those of these jobs that it can be done to. What changes meanwhile is counted, and stops nothing."""
    states = store.views.states(ids)
    fit = [id for id in dict.fromkeys(ids) if id in states and deed.fits(states[id])]
    outcome = Outcome(unfit=len(set(ids)) - len(fit))
    if not fit:
        return outcome
    try:
        deed.do(store, fit)
        return outcome + Outcome(done=len(fit))
    except (Conflict, NotFound) as refused:
        if len(fit) == 1:
            return outcome + Outcome(unfit=1, refused=refused.message)
    for id in fit:  # all or none is what the store does: so one by one
        outcome += apply(store, deed, [id])
    return outcome


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
    def seen(self) -> int:
        return self.outcome.done + self.outcome.unfit

    @property
    def percent(self) -> float | None:
        if self.state == "completed":
            return 100.0
        return min(99.0, 100 * self.seen / self.total) if self.exact and self.total else None

    def run(self, store: Store) -> None:
        """Chunk after chunk, the newest first, until nothing more fits or it is told to stop."""
        store.actor = self.who
        before: int | None = None
        tries = 0
        while not self.stopping.is_set():
            try:
                found = store.views.listing.matches(self.wanted, before, CHUNK)
                self.outcome += apply(store, self.deed, found.ids)
            except StoreUnavailable:
                tries += 1
                if tries == TRIES:
                    raise
                self.stopping.wait(tries)
                continue
            before, tries = found.next, 0
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
        for thread in self._threads:
            thread.join(ENDS_WITHIN)


def _run(work: Work, url: str) -> None:
    try:
        store = open_store(url, patience=PATIENCE)
        try:
            work.run(store)
        finally:
            store.close()
    except QueuectlError as error:
        work.trouble = error.message
    finally:
        work.ended = times.now_ms()


WORKS = Works()
"""Those of this process: it has one server."""
