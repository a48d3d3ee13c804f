"""The figures of a queue in Prometheus' text format (version 0.0.4). Pure: numbers in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from queuectl.metrics.run_stats import BEYOND, Histogram, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# What we print: its type, and what it is.
METRICS = {
    "queuectl_jobs": ("gauge", "Jobs that are stored, by queue and state."),
    "queuectl_jobs_finished_total": ("counter", "Jobs that have come to a finished state, deleted ones included."),
    "queuectl_runs_total": ("counter", "Runs that have ended, by the state that they made of their job."),
    "queuectl_run_seconds": ("histogram", "How long runs took."),
    "queuectl_wait_seconds": ("histogram", "How long jobs were due before each of their runs began."),
    "queuectl_oldest_pending_seconds": ("gauge", "How long the oldest due job has been waiting; 0 if none is due."),
    "queuectl_workers": ("gauge", "Workers, by what they are doing."),
    "queuectl_queue_paused": ("gauge", "1 if the queue is paused, else 0."),
    "queuectl_build_info": ("gauge", "Always 1; its label is the version of queuectl."),
}

Labels = dict[str, str]


def text(snapshot: Snapshot, version: str) -> str:
    """All of it, ready to be scraped."""
    queues = snapshot.queues.items()
    values: dict[str, Iterable[tuple[Labels, float]]] = {
        "queuectl_jobs": _by_state((name, figures.jobs) for name, figures in queues),
        "queuectl_jobs_finished_total": _by_state((name, figures.finished) for name, figures in queues),
        "queuectl_runs_total": _by_state((name, figures.ended) for name, figures in queues),
        "queuectl_oldest_pending_seconds": [({"queue": name}, figures.oldest_ms / 1000) for name, figures in queues],
        "queuectl_workers": [({"state": state}, n) for state, n in snapshot.workers.items()],
        "queuectl_queue_paused": [({"queue": name}, int(figures.paused)) for name, figures in queues],
        "queuectl_build_info": [({"version": version}, 1)],
    }
    histograms = {
        "queuectl_run_seconds": [({"queue": name}, figures.runs) for name, figures in queues],
        "queuectl_wait_seconds": [({"queue": name}, figures.waits) for name, figures in queues],
    }
    lines = []
    for name, (kind, help) in METRICS.items():
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        if kind == "histogram":
            for labels, histogram in histograms[name]:
                lines += _histogram(name, labels, histogram)
        else:
            lines += [_sample(name, labels, value) for labels, value in values[name]]
    return "\n".join(lines) + "\n"


def _by_state(queues: Iterable[tuple[str, Mapping[str, int]]]) -> Iterator[tuple[Labels, float]]:
    for queue, states in queues:
        for state, n in states.items():
            yield {"queue": queue, "state": state}, n


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    """Each bucket with all that is below it."""
    below = 0
    for bound, n in histogram.buckets.items():
        below += n
        le = "+Inf" if bound == BEYOND else _number(bound / 1000)
        yield _sample(f"{name}_bucket", {**labels, "le": le}, below)
    yield _sample(f"{name}_sum", labels, histogram.ms / 1000)
    yield _sample(f"{name}_count", labels, histogram.n)


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
