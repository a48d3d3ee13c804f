"""Batches and arrays, from the shell."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Cli, refused


def test_an_array_runs_once_for_each_number(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "4")
    told = q.ok(
        "enqueue", "--array", "1-9:2", "--id", "sum", "--env", "A=b", 'echo "$A $QUEUECTL_ARRAY_INDEX" >> log'
    )
    assert told == "Enqueued 5 jobs as batch sum.\n"
    q.ok("wait", "--batch", "sum")
    assert sorted((q.folder / "log").read_text().splitlines()) == ["b 1", "b 3", "b 5", "b 7", "b 9"]
    assert [job["id"] for job in q.json("list", "--batch", "sum")] == ["sum.9", "sum.7", "sum.5", "sum.3", "sum.1"]


def test_a_batch_is_waited_for_cancelled_and_listed_together(q: Cli) -> None:
    q.ok("enqueue", "--batch", "night", "true")
    q.ok("enqueue", "--batch", "night", "--lines", "-", stdin="true\nexit 1\n")
    q.ok("enqueue", "--id", "other", "true")
    assert len(q.json("list", "--batch", "night")) == 3
    q.ok("cancel", "--batch", "night")
    assert {job["state"] for job in q.json("list", "--batch", "night")} == {"cancelled"}
    assert q.state("other") == "pending"
    assert "no such job that has not finished" in q("cancel", "--batch", "night").err
    assert q("wait", "--batch", "night").code == 1


def test_after_too_many_failures_the_rest_is_not_tried(q: Cli) -> None:
    q.ok("enqueue", "--batch", "b", "--max-fails", "2", "--max-retries", "1", "--array", "1-20", "exit 1")
    q.ok("worker", "start")
    assert q("wait", "--batch", "b").code == 1
    states = [job["state"] for job in q.json("list", "--batch", "b")]
    assert (states.count("dead"), states.count("cancelled")) == (2, 18)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["enqueue", "--array", "5-1", "true"], 2, ["has 0 numbers"]),
        (["enqueue", "--array", "1-x", "true"], 2, ["is no range of numbers"]),
        (["enqueue", "--array", "1-9:0", "true"], 2, ["is no range of numbers"]),
        (["enqueue", "--array", "1-99999999", "true"], 2, ["it takes 1 to 1,000,000"]),
        (["enqueue", "--array", "1-3"], 2, ["nothing to enqueue"]),
        (["enqueue", "--array", "1-3", "--lines", "-f", "x"], 2, ["--array takes a plain command"]),
        (["enqueue", "--array", "1-3", '{"command": "true"}'], 2, ["--array takes a plain command"]),
        (["enqueue", "--array", "1-3", "--unique", "k", "true"], 4, ["number 2: the key", "used twice"]),
        (["enqueue", "--max-fails", "1", "true"], 2, ['without a "batch"']),
        (["wait", "--batch", "nobody"], 3, ['no batch "nobody"']),
        (["cancel"], 2, ["cancel what?"]),
        (["wait", "--batch", "b", "--all"], 2, ["wait for what?"]),
    ],
)
def test_what_makes_no_sense_is_refused(q: Cli, args: list[str], code: int, words: list[str]) -> None:
    refused(q(*args), code, *words)
    assert q.json("list") == []


def test_a_whole_queue_or_a_tag_is_cancelled_at_once(q: Cli) -> None:
    mail = q.batch(*[{"command": "true", "queue": "mail"}] * 25)
    tagged = q.batch({"command": "true", "tags": ["t"]})
    other = q.enqueue("true")
    assert q.ok("cancel", "--queue", "mail") == "Cancelled 25 jobs.\n"
    assert q.ok("cancel", "--tag", "t") == f"Job {tagged[0]} cancelled.\n"
    assert {q.state(id) for id in mail[:2]} == {"cancelled"}
    assert q.state(other) == "pending"
