"""How the whole queue is doing."""

from __future__ import annotations

from operator import attrgetter

from queuectl.model import WORKER_STATES, Job, Worker
from queuectl.store import Store
from queuectl.web import chart
from queuectl.web.chart import Column
from queuectl.web.view import Ask, View

SPANS = {"1h": (3600, "1 hour"), "24h": (86_400, "24 hours"), "7d": (604_800, "7 days")}
RECENT_MINUTES = 5
RUNNING = 12
FAILURES = 8
FIRINGS = 6
QUEUES = 30


def show(store: Store, ask: Ask) -> View:
    views = store.views
    span = ask.query.get("span", "1h")
    span = span if span in SPANS else "1h"
    seconds, words = SPANS[span]
    counts, queues, oldest = views.counts(), views.queues(), store.figures.oldest_wait()
    columns = _series(store, seconds)
    return View(
        "overview.html",
        {
            "counts": counts,
            "any": any(counts.values()),
            "per_minute": _per_minute(columns if span == "1h" else _series(store, 3600)),
            "oldest": min(oldest.values(), default=None),
            "oldest_of": oldest,
            "workers": _workers(views.workers()),
            "span": span,
            "spans": {name: words for name, (_, words) in SPANS.items()},
            "chart": chart.draw(columns, seconds, _summary(columns, words)),
            "columns": [(chart.when(column.moment, seconds), column) for column in columns if column.runs],
            "queues": sorted(queues, key=lambda queue: -_open(queue.jobs))[:QUEUES],
            "more_queues": len(queues) - QUEUES,
            "running": views.running(RUNNING),
            "schedules": _next(store),
            "failures": _failures(store),
        },
    )


def _series(store: Store, seconds: int) -> list[Column]:
    points = store.figures.series(seconds)
    return [Column(point.moment, point.completed, point.failed, point.wait_p95_ms) for point in points]


def _per_minute(columns: list[Column]) -> str:
    """On average over the last whole minutes."""
    recent = columns[-1 - RECENT_MINUTES : -1]
    if not recent:
        return "–"
    rate = sum(column.completed for column in recent) / len(recent)
    return f"{rate:.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def _summary(columns: list[Column], words: str) -> str:
    completed, failed = sum(column.completed for column in columns), sum(column.failed for column in columns)
    return f"Runs of the last {words}: {completed:,} completed, {failed:,} failed"


def _workers(workers: list[Worker]) -> dict[str, int]:
    states = [worker.state for worker in workers]
    return {state: states.count(state) for state in WORKER_STATES}


def _open(jobs: dict[str, int]) -> int:
    return sum(jobs[state] for state in ("pending", "failed", "blocked", "processing"))


def _next(store: Store) -> list[tuple[str, int]]:
    """Which schedules fire next, and when."""
    due = [(one.name, one.next_at) for one, _ in store.schedules.all() if one.next_at is not None and not one.paused]
    return sorted(due, key=lambda one: one[1])[:FIRINGS]


def _failures(store: Store) -> list[Job]:
    """The newest jobs of which a run has failed, the last failure first."""
    jobs = [job for state in ("failed", "dead") for job in store.views.jobs(state=state, limit=FAILURES)]
    return sorted(jobs, key=attrgetter("updated_at"), reverse=True)[:FAILURES]
