"""The dead letter queue as a place to sort things out."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Cli, refused


@pytest.fixture
def morgue(q: Cli) -> Cli:
    """Three that died of one thing, one of another."""
    q.ok("worker", "start")
    commands = [f"echo no space left on disk {n} >&2; exit 1" for n in (1, 22, 333)] + ["kill -9 $$"]
    ids = [q.enqueue(command, id=f"d{number}", max_retries=1) for number, command in enumerate(commands)]
    for id in ids:
        q.finished(id)
    q.ok("worker", "stop")
    return q


def test_the_dead_are_grouped_by_what_they_died_of(morgue: Cli) -> None:
    groups = morgue.json("dlq", "list", "--group")
    assert [(group["count"], group["cause"]) for group in groups] == [
        (3, "exit code 1: no space left on disk #"),
        (1, "killed by signal 9 (SIGKILL)"),
    ]
    shown = morgue.ok("dlq", "list", "--group").splitlines()
    assert shown[0].split() == ["Jobs", "Group", "Newest", "Example", "Cause"]
    assert groups[0]["group"] in shown[1]


def test_a_group_is_retried_after_a_look(morgue: Cli) -> None:
    name = morgue.json("dlq", "list", "--group")[0]["group"]
    told = morgue.ok("dlq", "retry", "--where", f"group={name}", "--dry-run")
    assert told == "3 jobs would be retried, for example d0.\n"
    assert morgue.json("status")["jobs"]["dead"] == 4
    told = morgue.ok("dlq", "retry", "--where", f"group={name}", "--rate", "2/1m")
    assert told.splitlines()[-1] == "The last of them is due in 1m."
    jobs = {job["id"]: job for job in morgue.json("list")}
    assert [jobs[id]["state"] for id in ("d0", "d1", "d2", "d3")] == ["pending", "pending", "pending", "dead"]
    assert jobs["d0"]["run_at"] < jobs["d1"]["run_at"] < jobs["d2"]["run_at"]


def test_conditions_choose_and_none_may_match(morgue: Cli) -> None:
    assert [job["id"] for job in morgue.json("dlq", "list", "--where", "signal=KILL")] == ["d3"]
    result = morgue("dlq", "retry", "--where", "exit=99")
    assert (result.code, result.out, result.err) == (0, "", "No dead job matches.\n")


@pytest.mark.parametrize(
    "args", [[], ["d0", "--all"], ["--all", "--where", "exit=1"], ["--where", "size=1"], ["--all", "--rate", "fast"]]
)
def test_a_retry_must_say_what_it_means(q: Cli, args: list[str]) -> None:
    refused(q("dlq", "retry", *args), 2)
