"""Pipelines of jobs, as a user builds and watches them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Cli, refused


def test_a_pipeline_runs_in_its_order(q: Cli) -> None:
    q.ok("worker", "start", "--count", "2")
    q.ok("enqueue", "--id", "fetch", "echo 1 >> log")
    q.ok("enqueue", "--id", "build", "--after", "fetch", "echo 2 >> log")
    told = q.ok("enqueue", "--id", "report", "--after", "build", "--after", "fetch", "echo 3 >> log")
    assert told.splitlines()[1] == "It waits for build, fetch."
    q.ok("wait", "report")
    assert (q.folder / "log").read_text().split() == ["1", "2", "3"]
    assert q.job("report")["depends_on"] == ["fetch", "build"]


def test_a_whole_graph_comes_in_one_batch_in_any_order(q: Cli) -> None:
    jobs: list[dict[str, Any]] = [
        {"id": "last", "command": "echo last >> log", "depends_on": ["left", "right"]},
        {"id": "left", "command": "echo middle >> log", "depends_on": ["first"]},
        {"id": "right", "command": "echo middle >> log", "depends_on": ["first"]},
        {"id": "first", "command": "echo first >> log"},
        {"id": "alarm", "command": "touch alarm", "depends_on": [{"id": "last", "condition": "fail"}]},
    ]
    q.ok("enqueue", "-", stdin="".join(json.dumps(job) + "\n" for job in jobs))
    q.ok("worker", "start", "--count", "2", "--concurrency", "2")
    assert q("wait", *(job["id"] for job in jobs)).code == 1
    assert (q.folder / "log").read_text().split() == ["first", "middle", "middle", "last"]
    assert q.job("alarm")["error"] == 'its dependency "last" is completed, and should have failed'
    assert not (q.folder / "alarm").exists()


def test_what_hangs_on_a_dead_job_is_cancelled_and_revived_with_it(q: Cli) -> None:
    q.ok("worker", "start")
    q.ok("enqueue", "--id", "build", "--max-retries", "1", "test -e source")
    q.ok("enqueue", "--id", "ship", "--after-any", "build", "true")
    q("wait", "build")
    refused(q("enqueue", "--after", "build", "true"), 4, '"build"', "is dead", "queuectl dlq retry build")
    (q.folder / "source").touch()
    q.ok("dlq", "retry", "build")
    q.ok("wait", "build", "ship")


def test_explain_and_show_tell_what_it_waits_for(q: Cli) -> None:
    q.enqueue("sleep 1000", id="a")
    q.ok("enqueue", "--id", "b", "--after", "a", "true")
    q.ok("enqueue", "--id", "c", "--after", "b", "--after-any", "a", "true")
    assert q.ok("explain", "c").splitlines() == [
        "Job c is blocked.",
        "It waits for other jobs:",
        "└─ a is pending, and has to end",
        "└─ b is blocked, and has to complete",
        "   └─ a is pending, and has to complete",
        "Why the first of them is not done yet: queuectl explain a",
    ]
    shown = q.ok("show", "b").splitlines()
    assert "After:       a (pending)" in shown
    assert "Before:      c (blocked)" in shown
    assert [event["state"] for event in q.history("c")] == ["blocked"]
    q.ok("cancel", "a")
    assert (q.state("b"), q.state("c")) == ("cancelled", "cancelled")
    assert q.ok("explain", "b").splitlines()[1].endswith(': its dependency "a" is cancelled.')


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"id": "a", "command": ":", "depends_on": ["b"]}', '{"id": "b", "command": ":", "depends_on": ["a"]}'],
         ["wait for each other: a → b → a"]),
        (['{"command": ":"}', '{"command": ":", "depends_on": ["gone"]}'], ['line 2: it should wait for "gone"']),
        (['{"command": "true", "depends_on": "a"}'], ['"depends_on" must be a list, not "a"', "for example"]),
        (['{"command": "true", "depends_on": [{"id": "a", "condition": "maybe"}]}'], ["one of ok, fail, any"]),
        (['{"command": "true", "depends_on": [{"job": "a"}]}'], ['cannot stand in "depends_on"']),
        (['{"command": "true", "depends_on": ["a", {"id": "a", "condition": "any"}]}'], ["with two conditions"]),
    ],
)  # fmt: skip
def test_a_bad_dependency_is_refused_and_nothing_is_stored(q: Cli, lines: list[str], words: list[str]) -> None:
    result = q("enqueue", "-", stdin="\n".join(lines))
    assert result.code in (2, 4)
    refused(result, result.code, *words)
    assert q.json("list") == []


def test_a_parent_may_be_named_by_its_beginning_or_as_the_last(q: Cli) -> None:
    first = q.ok("enqueue", "--quiet", "true").strip()
    second = q.ok("enqueue", "--quiet", "--after", "@last", "true").strip()
    third = q.ok("enqueue", "--quiet", "--after", second[:6], "true").strip()
    assert (q.job(second)["depends_on"], q.job(third)["depends_on"]) == ([first], [second])
    refused(q("enqueue", "--after", "nobody", "true"), 3, 'no job "nobody"')
