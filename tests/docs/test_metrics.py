"""What the dashboard, the alerts and the page say of metrics: only of those that are printed, and of all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from queuectl.jobs.model import WORKER_STATES
from queuectl.metrics.prometheus import METRICS
from queuectl.metrics.run_stats import BEYOND, BOUNDS

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
ALERTS = ROOT / "deploy" / "prometheus-alerts.yml"
PAGE = ROOT / "docs" / "metrics.md"


def named(text: str) -> set[str]:
    """The metrics that are named there; the parts of a histogram under its own name."""
    words = set(re.findall(r"\bqueuectl_[a-z_]+", text))
    parts = {name: [f"{name}{end}" for end in ("_bucket", "_sum", "_count")] for name in METRICS}
    whole = {part: name for name, kinds in parts.items() if METRICS[name][0] == "histogram" for part in kinds}
    return {whole.get(word, word) for word in words}


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def expressions() -> list[str]:
    found = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    alerts = re.findall(
        r"^ +expr: (?:\|\n((?:^ {10}.*\n)+)|(.+)\n)", ALERTS.read_text(encoding="utf-8"), re.MULTILINE
    )
    return found + [block or line for block, line in alerts]


@pytest.mark.parametrize("file", [DASHBOARD, ALERTS, PAGE], ids=lambda file: file.name)
def test_every_metric_that_is_named_is_printed(file: Path) -> None:
    assert named(file.read_text(encoding="utf-8")) - METRICS.keys() == set()


@pytest.mark.parametrize("file", [DASHBOARD, PAGE], ids=lambda file: file.name)
def test_every_metric_that_is_printed_is_named(file: Path) -> None:
    assert METRICS.keys() - named(file.read_text(encoding="utf-8")) == set()


def test_the_page_gives_every_metric_its_type() -> None:
    rows = re.findall(r"^\| `(queuectl_\w+)` \| (\w+) \| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: kind for name, kind, _ in rows} == {name: kind for name, (kind, _) in METRICS.items()}


def test_there_are_alerts_for_what_must_not_be_missed() -> None:
    text = ALERTS.read_text(encoding="utf-8")
    assert len(re.findall("- alert: ", text)) == text.count("expr:") == text.count("severity:") == 5


def test_what_is_asked_for_has_these_labels() -> None:
    """A selector with a label or a value that does not exist matches nothing, for ever."""
    labels = {name: set(re.findall(r"`(\w+)`", row)) for name, row in re.findall(
        r"^\| `(queuectl_\w+)` \| \w+ \| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)}  # fmt: skip
    states = {"pending", "processing", "completed", "failed", "dead", "cancelled", "blocked", *WORKER_STATES}
    for expression in expressions():
        assert expression.count("(") == expression.count(")")
        for name, selector in re.findall(r"(queuectl_[a-z_]+)(?:\{([^}]*)\})?", expression):
            [metric] = named(name)
            for label, values in re.findall(r'(\w+)[=!~]+"([^"]*)"', selector):
                assert label in labels[metric] | {"job"}, expression
                if label == "state":
                    assert set(values.split("|")) <= states, expression


def test_the_dashboard_can_be_imported() -> None:
    page = dashboard()
    assert [variable["type"] for variable in page["templating"]["list"]] == ["datasource", "query", "query"]
    assert page["id"] is None
    assert page["schemaVersion"] >= 36
    assert len({panel["id"] for panel in page["panels"]}) == len(page["panels"])
    for panel in page["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert all(target["expr"] for target in panel["targets"])
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in page["panels"]]
    assert len(set(places)) == len(places)


def test_the_page_names_the_buckets() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [line] = re.findall(r"\*\*The buckets\*\* of both histograms end at (.+)\.", text)
    units = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}
    bounds = []
    for group, unit in re.findall(r"([\d, and]+) (ms|s|min|h)\b", line):
        bounds += [int(number) * units[unit] for number in re.findall(r"\d+", group)]
    assert (*bounds, BEYOND) == BOUNDS
