"""Prometheus' text format, read back by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from queuectl.metrics import prometheus
from queuectl.metrics.run_stats import BEYOND, Histogram, QueueFigures, Snapshot

NASTY = 'a "b" \\n \\ c\nd, e="f"} 7 ünï'
NOTHING = Histogram.of([])


def figures(**fields: object) -> QueueFigures:
    usual: dict[str, object] = {
        "jobs": {"pending": 0}, "finished": {"completed": 0}, "ended": {}, "runs": NOTHING, "waits": NOTHING,
        "oldest_ms": 0, "paused": False,
    }  # fmt: skip
    return QueueFigures(**{**usual, **fields})  # type: ignore[arg-type]


def parsed(snapshot: Snapshot) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples by name and labels; none may come twice."""
    found = {}
    for family in text_string_to_metric_families(prometheus.text(snapshot, "1.2.3")):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_a_snapshot_can_be_read_back() -> None:
    runs = Histogram.of([(5, 2, 6), (25, 1, 20), (BEYOND, 1, 30_000_000)])
    mail = figures(
        jobs={"pending": 2, "dead": 1},
        finished={"dead": 3},
        ended={"failed": 4},
        runs=runs,
        oldest_ms=1500,
        paused=True,
    )
    values = parsed(Snapshot({"mail": mail}, {"busy": 1, "lost": 0}))
    queue = ("queue", "mail")
    assert values["queuectl_jobs", (queue, ("state", "pending"))] == 2
    assert values["queuectl_jobs_finished_total", (queue, ("state", "dead"))] == 3
    assert values["queuectl_runs_total", (queue, ("state", "failed"))] == 4
    assert values["queuectl_oldest_pending_seconds", (queue,)] == 1.5
    assert values["queuectl_queue_paused", (queue,)] == 1
    assert values["queuectl_workers", (("state", "busy"),)] == 1
    assert values["queuectl_workers", (("state", "lost"),)] == 0
    assert values["queuectl_build_info", (("version", "1.2.3"),)] == 1
    bucket = {key[1][0][1]: n for key, n in values.items() if key[0] == "queuectl_run_seconds_bucket"}
    assert (bucket["0.005"], bucket["0.025"], bucket["0.1"], bucket["21600"], bucket["+Inf"]) == (2, 3, 3, 3, 4)
    assert values["queuectl_run_seconds_count", (queue,)] == 4
    assert values["queuectl_run_seconds_sum", (queue,)] == 30_000.026
    assert values["queuectl_wait_seconds_count", (queue,)] == 0


def test_any_text_can_be_a_label() -> None:
    values = parsed(Snapshot({NASTY: figures(jobs={"pending": 7})}, {}))
    assert values["queuectl_jobs", (("queue", NASTY), ("state", "pending"))] == 7
    assert values["queuectl_run_seconds_bucket", (("le", "+Inf"), ("queue", NASTY))] == 0


def test_every_metric_has_its_type_and_help_even_if_there_is_nothing_to_say() -> None:
    text = prometheus.text(Snapshot({}, {}), "1.2.3")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name.removesuffix("_total") for name in prometheus.METRICS} == set(families)
    for name, (kind, help) in prometheus.METRICS.items():
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (kind, help)
    assert text.endswith("} 1\n")


def test_counters_are_named_like_counters() -> None:
    assert all((kind == "counter") == name.endswith("_total") for name, (kind, _) in prometheus.METRICS.items())
