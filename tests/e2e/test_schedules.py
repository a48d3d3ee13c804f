"""Schedules as a user meets them, fired by real workers."""

from __future__ import annotations

import itertools
from datetime import datetime

import pytest

from tests.conftest import eventually
from tests.e2e.conftest import UNTIL_GO, Cli, lines_in, on_sqlite, refused

EVERY_SECOND = "* * * * * *"


def test_workers_fire_it_each_moment_once(q: Cli) -> None:
    q.ok("worker", "start", "--count", "3")
    told = q.ok("schedule", "add", "tick", EVERY_SECOND, "--overlap", "queue", "echo $QUEUECTL_MOMENT >> ticks")
    assert told.startswith(f"Schedule tick: {EVERY_SECOND} (")
    assert told.count("UTC") >= 6
    moments = lines_in(q.folder / "ticks", 4)
    q.ok("schedule", "remove", "tick")
    assert len(set(moments)) == len(moments)
    seconds = sorted(datetime.fromisoformat(moment) for moment in moments)
    gaps = {(later - earlier).total_seconds() for earlier, later in itertools.pairwise(seconds)}
    assert gaps == {1}
    job = q.json("list")[0]
    assert job["id"].startswith("tick:20")
    assert job["env"]["QUEUECTL_SCHEDULE"] == "tick"


def test_a_worker_with_no_free_slot_and_of_another_queue_fires_all_the_same(q: Cli) -> None:
    q.ok("worker", "start", "--queue", "other")
    q.until(q.enqueue(UNTIL_GO, queue="other"), "processing")
    q.ok("schedule", "add", "tick", "--every", "1s", "--", "true")
    eventually(lambda: q.json("list", "--state", "pending"), "a firing")
    (q.folder / "go").touch()


def test_an_interval_goes_on_and_on(q: Cli) -> None:
    q.ok("worker", "start")
    q.ok("schedule", "add", "often", "--every", "1s", "--", "echo", "a b", "$HOME")
    done = eventually(
        lambda: [job for job in q.json("list", "--state", "completed") if job["stdout"]][1:], "two runs"
    )
    assert done[0]["stdout"] == "a b $HOME\n"
    assert done[0]["command"] == "echo 'a b' '$HOME'"


def test_what_a_schedule_shows(q: Cli) -> None:
    q.ok("schedule", "add", "nightly", "30 4 * * *", "--tz", "Europe/Berlin", "--queue", "low", "--", "./backup.sh")
    told = q.ok("schedule", "show", "nightly")
    assert told.count("04:30:00 CE") == 5
    assert "at 04:30 every day), Europe/Berlin" in told
    stored = q.json("schedule", "show", "nightly")
    assert (stored["cron"], stored["zone"], stored["job"]["queue"]) == ("30 4 * * *", "Europe/Berlin", "low")
    assert len(stored["next"]) == 5
    assert stored["next"] == sorted(stored["next"])
    q.ok("schedule", "pause", "nightly")
    assert "paused" in q.ok("schedule", "list")
    assert "goes on: next" in q.ok("schedule", "resume", "nightly")


def test_a_trigger_runs_it_now(q: Cli) -> None:
    q.ok("schedule", "add", "yearly", "@yearly", "--", "echo", "hello")
    q.ok("worker", "start")
    id = q.ok("schedule", "trigger", "yearly", "--quiet").strip()
    assert q.finished(id)["stdout"] == "hello\n"
    [last] = q.json("schedule", "show", "yearly")["last"]
    assert (last["outcome"], last["job"], last["job_state"]) == ("triggered", id, "completed")


def test_jobs_run_where_the_schedule_was_made(q: Cli) -> None:
    folder = q.folder / "there"
    folder.mkdir()
    assert q("schedule", "add", "here", "@yearly", "--cwd", "there", "--", "pwd").code == 0
    q.ok("worker", "start")
    assert q.finished(q.ok("schedule", "trigger", "here", "--quiet").strip())["stdout"] == f"{folder}\n"


def test_it_is_said_that_nobody_would_fire_it(q: Cli) -> None:
    result = q("schedule", "add", "tick", "@daily", "--", "true")
    assert result.code == 0
    assert "No worker is running here." in result.err


@on_sqlite
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("add", "x"), ("say when",)),
        (("add", "x", "30 2 * * *"), ("command",)),
        (("add", "x", "30", "2", "--", "true"), ("in quotes",)),
        (("add", "x", "61 2 * * *", "--", "true"), ("minute",)),
        (("add", "x", "@dayly", "--", "true"), ("@daily",)),
        (("add", "x", "30 2 * * *", "--tz", "Europe/Berln", "--", "true"), ("Europe/Berlin",)),
        (("add", "x", "--every", "0", "--", "true"), ("second",)),
        (("add", "x", "--every", "5m", "--tz", "Nowhere/Land", "--", "true"), ("zone",)),
        (("add", "x", "--every", "5m", "* * * * *", "--", "true"), ("both",)),
        (("add", "x", "every day", "--", "true"), ("--every 10m",)),
        (("add", "x", "* * *", "--", "true"), ("3 fields",)),
        (("add", "x", "02:30", "--", "true"), ("'30 2 * * *'",)),
        (("add", "x", "--every", "soon", "--", "true"), ("duration",)),
        (("add", "a b", "@daily", "--", "true"), ("schedule",)),
        (("add", "x", "@daily", "--overlap", "no", "--", "true"), ("overlap",)),
        (("add", "x", "@daily", "--timeout", "never", "--", "true"), ("duration",)),
        (("add", "x", "@daily", "--", ""), ("empty",)),
        (("add", "x", "0 0 30 2 *", "--", "true"), ("never",)),
    ],
)
def test_nonsense_is_refused_and_stores_nothing(q: Cli, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(q("schedule", *args), 2, *words)
    assert q.json("schedule", "list") == []


@on_sqlite
def test_names_that_are_not_there_and_names_that_are(q: Cli) -> None:
    q.ok("schedule", "add", "nightly", "@daily", "--", "true")
    refused(q("schedule", "add", "nightly", "@daily", "--", "true"), 4, "--replace")
    q.ok("schedule", "add", "nightly", "@weekly", "--replace", "--", "true")
    for command in ("show", "pause", "resume", "trigger", "remove"):
        refused(q("schedule", command, "nighty"), 3, "nightly")
    assert q.json("schedule", "show", "nightly")["cron"] == "@weekly"
