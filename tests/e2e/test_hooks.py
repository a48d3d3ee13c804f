"""Notifications as a user meets them: real workers, real commands, and a real server that is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from queuectl.hooks import hook
from tests.conftest import eventually
from tests.e2e.conftest import Cli, lines_in, on_sqlite, refused
from tests.receiver import Post, Receiver
from tests.receiver import receiver as receiver

ALL = ("--on", "completed", "--on", "failed", "--on", "dead")


def add(q: Cli, name: str, *args: str) -> str:
    """Make a hook for a URL that may be private; its secret."""
    made = json.loads(q.ok("hook", "add", name, *args, "--allow-private", "--json"))
    return str(made["secret"])


def events(receiver: Receiver, count: int = 1) -> list[dict[str, Any]]:
    """What the receiver was told, once it was told so much."""
    posts = eventually(lambda: receiver.posts if len(receiver.posts) >= count else [], f"{count} posts")
    return [json.loads(post.body) for post in posts]


def is_signed(post: Post, secret: str) -> bool:
    """As a stranger would verify it, with nothing of ours."""
    signed = b".".join([post.headers["webhook-id"].encode(), post.headers["webhook-timestamp"].encode(), post.body])
    key = base64.b64decode(secret.split("_")[1])
    wanted = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return post.headers["webhook-signature"] == f"v1,{wanted}"


def notifications(q: Cli) -> list[dict[str, Any]]:
    found = q.json("list", "--queue", hook.QUEUE)
    assert isinstance(found, list)
    return found


def settled(q: Cli, count: int = 1) -> list[dict[str, Any]]:
    """The notifications, once so many have finished."""
    ends = ("completed", "dead", "cancelled")
    eventually(lambda: sum(job["state"] in ends for job in notifications(q)) >= count, f"{count} notifications")
    return notifications(q)


def test_a_receiver_is_told_and_can_trust_it(working: Cli, receiver: Receiver) -> None:
    secret = add(working, "pager", receiver.url + "/hook?x=1", *ALL)
    before = int(time.time())
    id = working.enqueue("exit 3", max_retries=1, tags=["eu"])
    [event] = events(receiver)
    assert event["type"] == "job.dead"
    data = event["data"]
    assert (data["id"], data["exit_code"], data["error"], data["tags"]) == (id, 3, "exit code 3", ["eu"])
    assert event["timestamp"] == working.job(id)["finished_at"]
    [post] = receiver.posts
    assert post.path == "/hook?x=1"
    assert post.headers["content-type"] == "application/json"
    assert is_signed(post, secret)
    assert not is_signed(post._replace(body=post.body + b" "), secret)
    assert before <= int(post.headers["webhook-timestamp"]) <= time.time()
    [told] = settled(working)
    assert (told["state"], told["id"]) == ("completed", post.headers["webhook-id"])
    assert told["stdout"] == "200 OK\n"
    working.ok("wait", "--all")
    assert len(notifications(working)) == 1, "of a notification nobody is told"


def test_it_is_tried_again_under_the_same_id(working: Cli, receiver: Receiver) -> None:
    working.ok("config", "set", "backoff_max", "0.1")
    receiver.statuses, receiver.text = [500, 429, 200], b"not now"
    secret = add(working, "pager", receiver.url, *ALL)
    working.enqueue("true")
    events(receiver, 3)
    [told] = settled(working)
    assert (told["state"], told["attempts"]) == ("completed", 2)
    assert {post.headers["webhook-id"] for post in receiver.posts} == {told["id"]}
    assert all(is_signed(post, secret) for post in receiver.posts)
    assert len({post.body for post in receiver.posts}) == 1
    reasons = " ".join(event["reason"] for event in working.history(told["id"]))
    assert "exit code 1; attempt 1 of 8" in reasons


def test_what_cannot_be_delivered_ends_in_the_dead_letter_queue(working: Cli, receiver: Receiver) -> None:
    working.ok("config", "set", "backoff_max", "0.01")
    receiver.statuses, receiver.headers = [307], {"Location": receiver.url + "/elsewhere"}
    add(working, "pager", receiver.url + "/here", *ALL)
    working.enqueue("true")
    [told] = settled(working)
    assert (told["state"], told["attempts"]) == ("dead", 8)
    assert "307" in told["stderr"]
    assert "redirects are not followed" in told["stderr"]
    assert {post.path for post in receiver.posts} == {"/here"}
    receiver.statuses = [204]
    working.ok("dlq", "retry", told["id"])
    assert working.finished(told["id"])["state"] == "completed"


def test_a_private_address_is_not_called_and_not_tried_again(working: Cli, receiver: Receiver) -> None:
    refused(working("hook", "add", "pager", receiver.url), 2, "private address", "--allow-private")
    sly = receiver.url.replace("127.0.0.1", "2130706433")  # that is the same address
    working.ok("hook", "add", "pager", sly, "--on", "completed")
    working.enqueue("true")
    [told] = settled(working)
    assert (told["state"], told["attempts"], told["exit_code"]) == ("dead", 1, 2)
    assert "private address" in told["stderr"]
    assert receiver.posts == []


def test_gone_means_stop(working: Cli, receiver: Receiver) -> None:
    receiver.statuses = [410]
    add(working, "pager", receiver.url, *ALL)
    working.finished(working.enqueue("true"))
    [told] = settled(working)
    assert told["state"] == "completed"
    assert working.json("hook", "show", "pager")["reason"] == "410 Gone"
    assert "paused: 410 Gone" in working.ok("hook", "list")
    working.finished(working.enqueue("true"))
    assert len(notifications(working)) == 1
    working.ok("hook", "resume", "pager")
    working.enqueue("true")
    events(receiver, 2)


def test_a_notification_of_a_hook_that_is_no_more_is_not_tried_again(q: Cli, receiver: Receiver) -> None:
    add(q, "pager", receiver.url, *ALL)
    q.ok("worker", "start", "--queue", "default")
    q.finished(q.enqueue("true"))
    q.ok("hook", "remove", "pager")
    q.ok("worker", "start", "--queue", hook.QUEUE)
    [told] = settled(q)
    assert (told["state"], told["attempts"], told["exit_code"]) == ("dead", 1, 3)
    assert receiver.posts == []


def test_a_command_learns_what_happened_from_its_environment(working: Cli) -> None:
    script = 'echo "$QUEUECTL_EVENT $QUEUECTL_EVENT_JOB $QUEUECTL_EVENT_QUEUE $QUEUECTL_EVENT_EXIT_CODE'
    script += ' $QUEUECTL_EVENT_ATTEMPTS $QUEUECTL_EVENT_ERROR" >> told; echo "$QUEUECTL_EVENT_JSON" >> json'
    working.ok("hook", "add", "log", "--on", "failed,dead", "--", script)
    working.enqueue("exit 7", id="job-1", max_retries=2, backoff_base=0.01, queue="mail")
    assert lines_in(working.folder / "told", 2) == [
        "failed job-1 mail 7 1 exit code 7",
        "dead job-1 mail 7 2 exit code 7",
    ]
    assert [json.loads(line)["type"] for line in lines_in(working.folder / "json", 2)] == ["job.failed", "job.dead"]


def test_a_job_names_whom_to_tell(working: Cli, receiver: Receiver) -> None:
    add(working, "mine", receiver.url, "--on", "completed", "--for-named")
    working.ok("enqueue", "--quiet", "true")
    working.ok("enqueue", "--notify", "mine", "--id", "quick", "--", "true")
    working.ok("enqueue", "--notify", "mine", "--env", "A=1", "--id", "click", "true")
    working.enqueue("true", id="json", notify=["mine"])
    working.ok("schedule", "add", "yearly", "@yearly", "--notify", "mine", "--", "true")
    fired = working.ok("schedule", "trigger", "yearly", "--quiet").strip()
    assert {event["data"]["id"] for event in events(receiver, 4)} == {"quick", "click", "json", fired}
    assert "Notify:      mine" in working.ok("show", "quick")
    assert working.job("json")["notify"] == ["mine"]


def test_a_run_can_call_its_own_queuectl_on_its_own_queue(q: Cli) -> None:
    command = '"$QUEUECTL_PYTHON" -P -m queuectl enqueue --id inner true'
    q.ok("worker", "start")
    done = q.finished(q.enqueue(f"cd / && PATH=/nowhere {command}"))
    assert done["state"] == "completed", done["stderr"]
    assert q.finished("inner")["state"] == "completed"


def test_a_hook_can_be_tried_out(working: Cli, receiver: Receiver) -> None:
    secret = add(working, "pager", receiver.url, "--on", "dead")
    assert "said 200 OK" in working.ok("hook", "test", "pager")
    [post] = receiver.posts
    assert json.loads(post.body)["type"] == "test"
    assert is_signed(post, secret)
    receiver.statuses, receiver.text = [503], b"we are closed"
    result = working("hook", "test", "pager")
    assert result.code == 1
    assert "503 Service Unavailable: we are closed" in result.out
    working.ok("hook", "add", "log", "--", "echo $QUEUECTL_EVENT >> told")
    id = json.loads(working.ok("hook", "test", "log", "--json"))["job"]
    assert working.finished(id)["state"] == "completed"
    assert lines_in(working.folder / "told") == ["test"]


# -- the command line ------------------------------------------------------------------------------------


@on_sqlite
def test_a_secret_is_shown_once(q: Cli) -> None:
    told = q.ok("hook", "add", "pager", "https://example.com/services/token", "--on", "dead,failed")
    assert told.startswith(
        "Hook pager: on failed, dead, of all jobs, it posts to https://example.com/…\nSecret: whsec_"
    )
    secret = told.split()[-1]
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    shown = "".join(
        q.ok(*args)
        for args in (
            ("hook", "list"),
            ("hook", "show", "pager"),
            ("hook", "list", "--json"),
            ("hook", "pause", "pager"),
        )
    )
    assert secret not in shown
    assert q.json("hook", "show", "pager")["signed"] is True
    assert "token" not in q.ok("hook", "list")
    assert "token" in q.ok("hook", "show", "pager")
    assert stat.S_IMODE(q.db.stat().st_mode) == 0o600


@on_sqlite
def test_a_secret_of_ones_own(q: Cli) -> None:
    file = q.folder / "secret"
    file.write_text("whsec_" + base64.b64encode(bytes(24)).decode() + "\n")
    told = q.ok("hook", "add", "pager", "https://example.com/", "--secret-file", str(file))
    assert "whsec_" not in told
    assert "secret" not in q.json("hook", "add", "p2", "https://example.com/", "--secret-file", str(file))
    assert [row[0] for row in q.rows_of("hooks", "secret, name")] == [file.read_text().strip()] * 2
    for bad in (b"whsec_c2hvcnQ=", b"\xff\xfe", b"hunter2"):
        file.write_bytes(bad)
        result = q("hook", "add", "p3", "https://example.com/", "--secret-file", str(file))
        refused(result, 2, "no secret for webhooks")
        assert "hunter2" not in result.err
    refused(q("hook", "add", "p3", "https://example.com/", "--secret-file", "nowhere"), 2, "nowhere")


@on_sqlite
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("x",), ("a URL, or a command",)),
        (("x", "https://example.com/", "--on", "death"), ("dead",)),
        (("x", "ftp://example.com/"), ("http or https",)),
        (("x", "http://exa mple.com"), ("URL", "percent-encode")),
        (("x", "HTTPS://exa mple.com", "--allow-private"), ("URL", "percent-encode")),
        (("x", "--", "http://exa", "mple.com"), ("URL", "percent-encode")),
        (("x", "http://localhost:8080/"), ("--allow-private",)),
        (("x", "http://[::1]/"), ("--allow-private",)),
        (("x", "http://169.254.169.254/latest"), ("--allow-private",)),
        (("x", "https://u:geheim@example.com/"), ("password",)),
        (("x", "--allow-private", "--", "true"), ("for URLs",)),
        (("x", "--queue", "notifications", "--", "true"), ("notifications",)),
        (("x", "--queue", "q", "--for-named", "--", "true"), ("--for-named",)),
        (("a b", "--", "true"), ("hook",)),
        (("x", "--", ""), ("empty",)),
    ],
    ids=str,
)
def test_nonsense_is_refused_and_stores_nothing(q: Cli, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = q("hook", "add", *args)
    refused(result, 2, *words)
    assert "geheim" not in result.err
    assert q.json("hook", "list") == []


@on_sqlite
def test_names_that_are_not_there_and_names_that_are(q: Cli) -> None:
    assert "hook add" in q("hook", "list").err
    q.ok("hook", "add", "pager", "--", "true")
    refused(q("hook", "add", "pager", "--", "true"), 4, "hook remove pager")
    for what in ("show", "remove", "pause", "resume", "test"):
        refused(q("hook", what, "pagre"), 3, 'did you mean "pager"?')
    refused(q("enqueue", "--notify", "pagre", "true"), 4, 'did you mean "pager"?')
    refused(q("enqueue", "-", stdin='{"command": "true"}\n{"command": "true", "notify": ["x"]}\n'), 4, "line 2")
    refused(q("enqueue", '{"command": "true", "notify": "pager"}'), 2, '["pager"]')
    refused(q("schedule", "add", "s", "@daily", "--notify", "pagre", "--", "true"), 3, 'did you mean "pager"?')
    refused(q("hook", "send", "pager"), 2, "hook test pager")
    assert q.json("list") == []
    q.ok("hook", "remove", "pager")
    assert q.json("hook", "list") == []


@on_sqlite
def test_it_is_said_that_nobody_would_send_it(q: Cli) -> None:
    q.ok("worker", "start", "--queue", "mail")
    result = q("hook", "add", "pager", "--", "true")
    assert 'No worker serves the queue "notifications"' in result.err


@on_sqlite
def test_what_a_hook_shows(working: Cli, receiver: Receiver) -> None:
    add(working, "pager", receiver.url, "--on", "completed", "--queue", "mail")
    working.finished(working.enqueue("true", id="job-1", queue="mail"))
    settled(working)
    told = working.ok("hook", "show", "pager")
    assert "jobs in mail" in told
    assert "job-1" in told
    [last] = working.json("hook", "show", "pager")["last"]
    assert (last["env"]["QUEUECTL_EVENT_JOB"], last["state"]) == ("job-1", "completed")


def test_the_receivers_example_in_the_docs_tells_true_from_false(q: Cli, receiver: Receiver) -> None:
    """The very lines that docs/notifications.md shows."""
    page = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(example, names)
    secret = add(q, "pager", receiver.url)
    q.ok("hook", "test", "pager")
    [post] = receiver.posts
    assert names["verified"](secret, post.headers, post.body)["type"] == "test"
    old = {**post.headers, "webhook-timestamp": str(int(post.headers["webhook-timestamp"]) - 3600)}
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    for wrong in [
        (secret, post.headers, post.body + b" "),
        (other, post.headers, post.body),
        (secret, old, post.body),
    ]:
        with pytest.raises(ValueError, match="webhook"):
            names["verified"](*wrong)
