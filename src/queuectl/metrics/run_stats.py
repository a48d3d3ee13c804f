"""What is counted of runs: how many ended in which state, how long they took, how long their jobs had waited.

Pure: a worker adds up, the store keeps the sums, views and charts make sense of them. Times are milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
BEYOND = 10**15  # stands for no bound at all
# Up to and with so much. Rows that were stored with other bounds stay true: each names its own.
BOUNDS = (
    5, 25, 100, 500, SECOND, 5 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, BEYOND,
)  # fmt: skip

EVER = 0
KEPT = {60: 25 * HOUR, 3600: 31 * 24 * HOUR}
"""The spans, in seconds, by which runs are counted besides; each for so long."""


class Chart(NamedTuple):
    """How a chart is made and called that looks back so far."""

    name: str
    words: str
    span: int  # in seconds: of KEPT, what it is made of
    step: int  # the distance of its points
    mark: int  # the distance of the times below it

    @property
    def by_day(self) -> bool:
        return self.mark >= 24 * HOUR


CHARTS = {
    3600: Chart("1h", "1 hour", 60, MINUTE, 10 * MINUTE),
    86_400: Chart("24h", "24 hours", 60, 10 * MINUTE, 4 * HOUR),
    604_800: Chart("7d", "7 days", 3600, HOUR, 24 * HOUR),
}
"""By how far they look back, in seconds."""

FAILED = ("failed", "dead")

Cell = tuple[str, str, str, int]
"""A queue, the state that runs made of their jobs, `run` or `wait`, and the bound below which that lasted."""


class Tally:
    """Runs that have ended since it was last handed to the store."""

    def __init__(self) -> None:
        self._cells: dict[Cell, tuple[int, int]] = {}

    def add(self, queue: str, state: str, run_ms: int, wait_ms: int) -> None:
        """Count a run."""
        cells = self._cells
        for what, ms in (("run", run_ms), ("wait", wait_ms)):
            cell = (queue, state, what, BOUNDS[bisect_left(BOUNDS, ms)])
            n, total = cells.get(cell, (0, 0))
            cells[cell] = (n + 1, total + ms)

    def __bool__(self) -> bool:
        return bool(self._cells)

    def clear(self) -> None:
        self._cells.clear()

    def rows(self, now: int) -> list[dict[str, Any]]:
        """What is to be added to the tallies that are stored. A run counts for the moment at which it is told of."""
        sums: dict[tuple[int, int, str, str, str, int], tuple[int, int]] = {}
        for (queue, state, what, bound), (n, ms) in self._cells.items():
            for span in (EVER, *KEPT):
                moment = now - now % (span * SECOND) if span else 0
                place = (span, moment, "" if span else queue, str(state), what, bound)
                others, time = sums.get(place, (0, 0))
                sums[place] = (others + n, time + ms)
        names = ("span", "moment", "queue", "state", "what", "bound", "n", "ms")
        return [dict(zip(names, (*place, *sum), strict=True)) for place, sum in sorted(sums.items())]


class Histogram(NamedTuple):
    """How a time is distributed: how many there are up to each bound and above the one before, and their sum."""

    buckets: Mapping[int, int]
    ms: int

    @classmethod
    def of(cls, cells: Iterable[tuple[int, int, int]]) -> Histogram:
        """Put together from any number of (bound, n, ms)."""
        buckets, total = dict.fromkeys(BOUNDS, 0), 0
        for bound, n, ms in cells:
            buckets[bound] = buckets.get(bound, 0) + n
            total += ms
        return cls(dict(sorted(buckets.items())), total)

    @property
    def n(self) -> int:
        return sum(self.buckets.values())

    def quantile(self, share: float) -> float | None:
        """The time that this share of all stayed below, as if those between two bounds were spread evenly. What is
        beyond the last bound is taken for that bound."""
        wanted, below, passed = share * self.n, 0, 0
        for bound, n in self.buckets.items():
            if n and passed + n >= wanted:
                return float(below) if bound == BEYOND else below + (bound - below) * (wanted - passed) / n
            below, passed = bound, passed + n
        return None


class Point(NamedTuple):
    """What ended within one step of a chart."""

    moment: int  # when the step began
    completed: int
    failed: int  # runs that failed, those that were a job's last included
    wait_p95_ms: float | None  # 95 % of them had waited less

    @property
    def runs(self) -> int:
        return self.completed + self.failed


def beginning(now: int, seconds: int) -> int:
    """The moment of the first point of a chart; its last one is that in which we are."""
    step = CHARTS[seconds].step
    return now - now % step - (seconds * SECOND - step)


def points(now: int, seconds: int, rows: Iterable[tuple[int, str, str, int, int, int]]) -> list[Point]:
    """A chart of what was stored (moment, state, what, bound, n, ms) since its beginning; no step is left out."""
    step = CHARTS[seconds].step
    begin = beginning(now, seconds)
    found: dict[int, list[tuple[str, str, int, int, int]]] = {}
    for moment, *cell in rows:
        found.setdefault(moment - moment % step, []).append(tuple(cell))  # type: ignore[arg-type]
    return [_point(moment, found.get(moment, [])) for moment in range(begin, begin + seconds * SECOND, step)]


def _point(moment: int, cells: list[tuple[str, str, int, int, int]]) -> Point:
    waits = Histogram.of((bound, n, ms) for _, what, bound, n, ms in cells if what == "wait")
    ended = [(state, n) for state, what, _, n, _ in cells if what == "run"]
    return Point(
        moment,
        sum(n for state, n in ended if state == "completed"),
        sum(n for state, n in ended if state in FAILED),
        waits.quantile(0.95),
    )


class QueueFigures(NamedTuple):
    """What is known of one queue."""

    jobs: Mapping[str, int]  # by state, now
    finished: Mapping[str, int]  # by state, ever
    ended: Mapping[str, int]  # runs, by the state they made of their job
    runs: Histogram
    waits: Histogram
    oldest_ms: int  # how long the oldest due job has been waiting; 0 if none is
    paused: bool


class Snapshot(NamedTuple):
    """All figures, as of now: what is printed for Prometheus."""

    queues: Mapping[str, QueueFigures]
    workers: Mapping[str, int]  # by state
