"""Jobs page by page, and those that fit a filter. Bounded: a look that finds nothing stops in time and says so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from queuectl.errors import InvalidInput
from queuectl.jobs.job_filter import Filter
from queuectl.store import read_queries as ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queuectl.jobs.model import Job
    from queuectl.store.engine import Row, Transaction
    from queuectl.store.views import Views

NEWEST = 2**62
FIRST_LOOK = 1_000  # jobs; the next one goes further
WIDEST_LOOK = 32_000
BUDGET = 0.1  # seconds
READ_AT_ONCE = 50
LARGEST_PAGE = 8_000_000  # characters, or hardly more: a command may have a million


class Page(NamedTuple):
    jobs: list[Job]
    next: int | None  # the cursor from which to go on; None: there is nothing more
    seen_all: bool  # False: the budget ended before a page was full, and further back there may be more


class Matches(NamedTuple):
    ids: list[str]
    places: list[int]  # the cursor behind each of them
    next: int | None


class Listing:
    """What fits a filter, the newest first."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._engine = views.engine

    def page(self, wanted: Filter, before: int | None = None, limit: int = 50, budget: float = BUDGET) -> Page:
        """Up to `limit` jobs that come after the cursor `before`; fewer if they are large."""
        jobs: list[Job] = []
        size, deadline = 0, time.monotonic() + budget
        while True:
            part = self._page(wanted, before, min(limit - len(jobs), READ_AT_ONCE), deadline)
            jobs += part.jobs
            size += sum(map(_size, part.jobs))
            before = part.next
            if before is None or len(jobs) >= limit or size > LARGEST_PAGE or not part.seen_all:
                return Page(jobs, before, part.seen_all)

    def _page(self, wanted: Filter, before: int | None, limit: int, deadline: float) -> Page:
        found: list[Row] = []
        with self._engine.read() as tx:
            low: int | None = None
            for rows, reached in self._looks(tx, wanted, before, limit + 1, ask.FITTING):
                found, low = found + rows, reached
                if len(found) > limit or time.monotonic() > deadline:
                    break
        if len(found) > limit:
            return Page([self._views.as_job(row[1:]) for row in found[:limit]], found[limit - 1][0], True)
        return Page([self._views.as_job(row[1:]) for row in found], low, low is None)

    def matches(self, wanted: Filter, before: int | None = None, limit: int = 500, budget: float = BUDGET) -> Matches:
        """The ids of the next jobs that fit, and where to go on; there may be more as long as `next` is not None."""
        found: list[Row] = []
        deadline = time.monotonic() + budget
        with self._engine.read() as tx:
            low: int | None = None
            for rows, reached in self._looks(tx, wanted, before, limit, ask.FITTING_IDS):
                found, low = found + rows, reached
                if len(found) >= limit:
                    found, low = found[:limit], found[limit - 1][0]
                    break
                if time.monotonic() > deadline:
                    break
        return Matches([id for _, id in found], [place for place, _ in found], low)

    def count(self, wanted: Filter, budget: float = BUDGET) -> tuple[int, bool]:
        """How many fit, and whether all were looked at."""
        n, deadline = 0, time.monotonic() + budget
        with self._engine.read() as tx:
            low: int | None = None
            for rows, reached in self._looks(tx, wanted, None, 0, ask.FITTING_COUNT):
                n, low = n + (rows[0][0] if rows else 0), reached
                if time.monotonic() > deadline:
                    break
        return n, low is None

    def _looks(
        self, tx: Transaction, wanted: Filter, before: int | None, limit: int, statements: dict[str, str]
    ) -> Iterator[tuple[list[Row], int | None]]:
        """Look further and further back; what was found each time, and down to where."""
        params = _params(wanted, tx.now) | {"limit": limit}
        way = _way(wanted)
        high, width = NEWEST if before is None else before, FIRST_LOOK
        if not 0 <= high <= NEWEST:
            raise InvalidInput("this cursor is none of ours", "begin with the first page")
        while True:
            [(low, n)] = tx.rows(ask.LOOK[way], {**params, "before": high, "window": width})
            if low is None:
                yield [], None
                return
            rows = tx.rows(statements[way], {**params, "before": high, "low": low})
            yield rows, low if n == width else None
            if n < width:
                return
            high, width = low, min(width * 4, WIDEST_LOOK)


def _size(job: Job) -> int:
    return len(job.command) + len(job.stdout or "") + len(job.stderr or "")


def _way(wanted: Filter) -> str:
    """The index along which to look: that of the rarest, as far as we can tell."""
    if wanted.state == "processing":
        return "running"
    for name in ("batch", "tag", "state"):
        if getattr(wanted, name) is not None:
            return name
    return "all"


def _params(wanted: Filter, now: int) -> dict[str, Any]:
    text = wanted.text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return {
        "state": wanted.state,
        "queue": wanted.queue,
        "tag": wanted.tag,
        "batch": wanted.batch,
        "key": wanted.key,
        "worker": wanted.worker,
        "exit": wanted.exit,
        "since": None if wanted.since is None else now - round(wanted.since * 1000),
        "text": f"%{text}%" if text else None,
    }
