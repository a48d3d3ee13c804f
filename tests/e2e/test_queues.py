"""Pausing and limiting queues, binding workers to them, and what `explain` says of it."""

from __future__ import annotations

import re

import pytest

from tests.conftest import eventually
from tests.e2e.conftest import UNTIL_GO, Cli, lines_in, on_sqlite, refused


def test_a_paused_queue_rests_until_it_is_resumed(q: Cli) -> None:
    id = q.enqueue("true", queue="mail")
    assert q.ok("queue", "pause", "mail") == "Queue mail is paused.\n"
    q.ok("worker", "start")
    q.finished(q.enqueue("true"))
    assert q.state(id) == "pending"
    assert 'Its queue "mail" is paused. Let it go on: queuectl queue resume mail' in q.ok("explain", id)
    assert q.ok("queue", "resume", "mail") == "Queue mail goes on.\n"
    assert q.finished(id)["state"] == "completed"


def test_a_limit_says_who_reached_it(q: Cli) -> None:
    assert q.ok("queue", "limit", "mail", "1") == "Queue mail: 1 at once.\n"
    q.ok("worker", "start", "--concurrency", "4")
    first = q.enqueue(UNTIL_GO, queue="mail")
    q.until(first, "processing")
    second = q.enqueue("true", queue="mail")
    q.finished(q.enqueue("true"))
    assert f'Its queue "mail" may run 1 at once; running now: {first}.' in q.ok("explain", second)
    (q.folder / "go").touch()
    assert q.finished(second)["state"] == "completed"


def test_a_rate_says_when_it_goes_on(q: Cli) -> None:
    assert q.ok("queue", "limit", "mail", "1", "--per", "1h") == "Queue mail: 1 per 1h.\n"
    q.ok("worker", "start")
    q.finished(q.enqueue("true", queue="mail"))
    second = q.enqueue("true", queue="mail")
    q.finished(q.enqueue("true"))
    assert q.state(second) == "pending"
    told = q.ok("explain", second)
    # An hour after the first start: the command is quick enough to round what is left up to it, or it is not.
    assert re.search(r'Its queue "mail" has reached its rate, 1 per 1h: the next may start in (1h|59m)', told)
    assert q.ok("queue", "limit", "mail", "none") == "Queue mail: no limits.\n"
    assert q.finished(second)["state"] == "completed"


def test_a_key_says_who_has_it(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "4")
    first = q.ok("enqueue", "--quiet", "--key", "customer-7", UNTIL_GO).strip()
    q.until(first, "processing")
    second = q.ok("enqueue", "--quiet", "--key", "customer-7", "true").strip()
    q.finished(q.enqueue("true"))
    assert f'Only 1 with its key "customer-7" may run at once; running now: {first}.' in q.ok("explain", second)
    assert "Key:         customer-7" in q.ok("show", second)
    (q.folder / "go").touch()
    assert q.finished(second)["state"] == "completed"


def test_an_array_runs_as_many_at_once_as_it_says(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "8")
    q.ok("enqueue", "--array", "1-12%3", "--batch", "b", f"echo $QUEUECTL_ARRAY_INDEX >> ran; {UNTIL_GO}")
    lines_in(q.folder / "ran", 3)
    q.finished(q.enqueue("true"))  # a slot is free, and is used for something else
    assert len(lines_in(q.folder / "ran", 3)) == 3
    (q.folder / "go").touch()
    q.ok("wait", "--batch", "b")
    assert sorted(map(int, lines_in(q.folder / "ran", 12))) == list(range(1, 13))


def test_a_strict_order_and_weights(q: Cli) -> None:
    low = q.batch(*[{"command": "echo low >> ran", "queue": "low", "priority": 9}] * 3)
    q.batch(*[{"command": "echo high >> ran", "queue": "high"}] * 3)
    q.ok("worker", "start", "--queue", "high", "--queue", "low", "--strict")
    q.ok("wait", *low)
    assert lines_in(q.folder / "ran", 6) == ["high"] * 3 + ["low"] * 3
    assert "high > low" in q.ok("worker", "list")
    q.ok("worker", "stop")
    (q.folder / "ran").unlink()
    jobs = q.batch(*[{"command": f"echo {queue} >> ran", "queue": queue} for queue in ("a", "b") for _ in range(8)])
    q.ok("worker", "start", "--queue", "a=3", "--queue", "b=1")
    q.ok("wait", *jobs)
    assert lines_in(q.folder / "ran", 16)[:8].count("a") == 6
    assert "a=3 b=1" in q.ok("worker", "list")


def test_a_queue_says_which_ends_are_worth_a_retry(q: Cli) -> None:
    assert q.ok("queue", "set", "mail", "--no-retry-on", "2,SIGKILL") == "Queue mail: retries not after 2 SIGKILL.\n"
    q.ok("worker", "start")
    assert q.finished(q.enqueue("exit 2", queue="mail"))["attempts"] == 1
    other = q.enqueue("exit 3", queue="mail")
    q.until(other, "failed")
    assert "none" not in q.ok("queue", "set", "mail", "--no-retry-on", "none")
    assert q.json("queue", "list")[0]["no_retry_on"] == []


def test_the_list_tells_what_there_is(q: Cli) -> None:
    assert q("queue", "list").err.startswith("There are no queues yet.")
    q.enqueue("true", queue="mail")
    q.enqueue("true")
    q.ok("queue", "limit", "mail", "10", "--per", "1m")
    q.ok("queue", "limit", "mail", "2", "--per-key")
    q.ok("queue", "pause", "mail")
    header, default, mail = q.ok("queue", "list").splitlines()
    assert header.split() == ["Queue", "Pending", "Processing", "Completed", "Paused", "Limits"]
    assert default.split() == ["default", "1", "0", "0"]
    assert mail.split() == ["mail", "1", "0", "0", "yes", "2", "per", "key,", "10", "per", "1m"]
    [_, stored] = q.json("queue", "list")
    assert (stored["rate"], stored["rate_ms"], stored["per_key"]) == (10, 60_000, 2)
    assert stored["paused"] is True
    assert stored["jobs"]["pending"] == 1


def test_a_slip_of_the_name_is_mentioned(q: Cli) -> None:
    q.enqueue("true", queue="Mail")
    assert q("queue", "pause", "Mial").err == 'No job has been in the queue "Mial" yet: did you mean "Mail"?\n'


@on_sqlite
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("limit", "mail", "0"), ("queue pause",)),
        (("limit", "mail", "-1"), ()),
        (("limit", "mail", "many"), ("many", "none")),
        (("limit", "mail", "9999999"), ()),
        (("limit", "mail", "0" * 9 + "9" * 30), ()),
        (("limit", "mail", "none", "--per", "soon"), ("duration",)),
        (("limit", "mail", "3", "--per", "soon"), ("duration",)),
        (("limit", "mail", "3", "--per", "0"), ("too short",)),
        (("limit", "mail", "3", "--per", "1m", "--per-key"), ("--per-key",)),
        (("limit", "a b", "3"), ("queue",)),
        (("pause", "../x"), ("queue",)),
        (("set", "mail"), ("--retry-on",)),
        (("set", "mail", "--retry-on", "maybe"), ("maybe",)),
    ],
)
def test_nonsense_is_refused(q: Cli, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    if args == ("limit", "mail", "-1"):
        assert q("queue", *args).code == 2
    else:
        refused(q("queue", *args), 2, *words)
    assert q.json("queue", "list") == []


@on_sqlite
@pytest.mark.parametrize(
    "args",
    [
        ("--key-limit", "3", "true"),
        ("--key", "", "true"),
        ("--key", "a", "--key-limit", "0", "true"),
        ("--array", "1-9%0", "true"),
        ("--array", "1-9%", "true"),
        ("--array", "1-9%x", "true"),
        ("--array", "1-9%2", "--key", "k", "true"),
        ("--array", "1-9%2", "--key-limit", "3", "true"),
    ],
)
def test_nonsense_keys_are_refused(q: Cli, args: tuple[str, ...]) -> None:
    refused(q("enqueue", *args), 2)
    assert q.json("list") == []


@on_sqlite
def test_workers_refuse_nonsense(q: Cli) -> None:
    for args in (("--queue", "a=0"), ("--strict",), ("--strict", "--queue", "a=2", "--queue", "b")):
        refused(q("worker", "start", *args), 2)
    assert q.workers() == []


@on_sqlite
def test_a_worker_that_idles_for_a_rate_does_not_spin(q: Cli) -> None:
    q.ok("queue", "limit", "mail", "1", "--per", "1h")
    q.ok("worker", "start")
    q.finished(q.enqueue("true", queue="mail"))
    waiting = q.enqueue("true", queue="mail")
    q.finished(q.enqueue("true"))
    pid = q.worker()["pid"]

    def ticks() -> int:
        with open(f"/proc/{pid}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

    before = ticks()
    marker = q.enqueue("sleep 2", queue="other")
    q.finished(marker)
    assert ticks() - before < 50, "half a second of two would be busy waiting"
    assert q.state(waiting) == "pending"
    eventually(lambda: q.worker()["state"] == "idle")
