"""The recorded story: what every version of queuectl has had to do."""

from __future__ import annotations

from tests.e2e.conftest import Cli


def test_the_recorded_story(q: Cli) -> None:
    q.ok("config", "set", "max_retries", "2")
    good = q.enqueue("echo hello")
    bad = q.enqueue("exit 1")
    slow = q.enqueue("sleep 3 && echo done")
    missing = q.enqueue("no-such-command-anywhere")
    q.ok("worker", "start", "--count", "2")
    assert q("wait", "--all").code == 1

    for id in (good, slow):
        assert q.state(id) == "completed"
    for id, code in ((bad, 1), (missing, 127)):
        job = q.job(id)
        assert (job["state"], job["attempts"], job["exit_code"]) == ("dead", 2, code)

    q.ok("dlq", "retry", bad)
    assert q("wait", bad).code == 1
    assert q.job(bad)["attempts"] == 2
    assert [event["state"] for event in q.json("history", bad)].count("processing") == 4

    q.ok("worker", "stop")
    assert q.json("status")["workers"] == []


def test_five_workers_and_one_job_run_it_once(q: Cli) -> None:
    q.ok("worker", "start", "--count", "5")
    id = q.enqueue("echo ran >> ran.txt")
    assert q("wait", id).code == 0
    q.ok("worker", "stop")
    assert (q.folder / "ran.txt").read_text() == "ran\n"
    assert [event["state"] for event in q.json("history", id)].count("processing") == 1
