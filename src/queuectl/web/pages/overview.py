"""How the whole queue is doing."""

from __future__ import annotations

from operator import attrgetter

from queuectl.jobs.model import WORKER_STATES, Job, Worker
from queuectl.metrics import run_stats
from queuectl.metrics.run_stats import Point
from queuectl.store import Store
from queuectl.web import chart
from queuectl.web.rendering import Ask, View

SPANS = {one.name: seconds for seconds, one in run_stats.CHARTS.items()}
RECENT_MINUTES = 5
RUNNING = 12
FAILURES = 8
FIRINGS = 6
QUEUES = 30


def show(store: Store, ask: Ask) -> View:
    views = store.views
    span = ask.query.get("span", "1h")
    span = span if span in SPANS else "1h"
    seconds = SPANS[span]
    words = run_stats.CHARTS[seconds].words
    counts, queues, oldest = views.counts(), views.queues(), store.figures.oldest_wait()
    points = store.figures.series(seconds)
    return View(
        "overview.html",
        {
            "counts": counts,
            "any": any(counts.values()),
            "per_minute": _per_minute(points if span == "1h" else store.figures.series(3600)),
            "oldest": min(oldest.values(), default=None),
            "oldest_of": oldest,
            "workers": _workers(views.workers()),
            "span": span,
            "spans": {one.name: one.words for one in run_stats.CHARTS.values()},
            "chart": chart.draw(points, seconds, _summary(points, words)),
            "points": [(chart.when(point.moment, seconds), point) for point in points if point.runs],
            "queues": sorted(queues, key=lambda queue: -_open(queue.jobs))[:QUEUES],
            "more_queues": len(queues) - QUEUES,
            "running": views.running(RUNNING),
            "schedules": _next(store),
            "failures": _failures(store),
        },
    )


def _per_minute(points: list[Point]) -> str:
    """On average over the last whole minutes."""
    recent = points[-1 - RECENT_MINUTES : -1]
    if not recent:
        return "–"
    rate = sum(point.completed for point in recent) / len(recent)
    return f"{rate:.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def _summary(points: list[Point], words: str) -> str:
    completed, failed = sum(point.completed for point in points), sum(point.failed for point in points)
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
