"""The HTTP API, as programs use it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from queuectl.client.http_client import ROOT
from queuectl.store import Store, open_store
from queuectl.web.api.openapi import document
from queuectl.web.api.operation import Operation
from queuectl.web.api.operations import OPERATIONS
from queuectl.web.api.schemas import SCHEMAS
from queuectl.web.auth import Role
from tests.conftest import eventually
from tests.e2e.conftest import UNTIL_GO, Cli
from tests.e2e.conftest import engine_name as engine_name
from tests.e2e.conftest import q as q
from tests.postgres import Server
from tests.web.conftest import ROLES, Served, enqueue, serving


@pytest.fixture
def cli(q: Cli) -> Cli:
    """On both engines."""
    return q


@pytest.fixture
def store(cli: Cli, served: Served) -> Iterator[Store]:
    store = open_store(cli.url)
    yield store
    store.close()


@pytest.fixture
def api(served: Served) -> Iterator[httpx.Client]:
    with served.http("admin") as client:
        client.base_url = client.base_url.join(ROOT + "/")
        yield client


on_sqlite = pytest.mark.parametrize("engine_name", ["sqlite"])


def good(response: httpx.Response, status: int = 200, schema: str = "") -> Any:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    if schema:
        fits(schema, response.json())
    return response.json()


def problem(response: httpx.Response, status: int, *words: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    fits("Problem", found)
    assert found["status"] == status
    for word in words:
        assert word in f"{found['detail']} / {found['hint']}"
    return found


def fits(schema: str, value: Any) -> None:
    rules = {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": SCHEMAS}}
    jsonschema_rs.validator_for(rules).validate(value)


# -- jobs ------------------------------------------------------------------------------------------------


def test_a_job_is_made_looked_at_and_listed(api: httpx.Client, cli: Cli, store: Store) -> None:
    made = api.post("jobs", json={"command": "echo hello", "tags": ["x"], "depends_on": []})
    job = good(made, 201, "Job")
    assert made.headers["location"] == f"{ROOT}/jobs/{job['id']}"
    assert good(api.get(f"jobs/{job['id'][:5]}")) == good(api.get("jobs/@last")) == job == cli.job(job["id"])
    assert api.head(f"jobs/{job['id']}").status_code == 200
    assert [event["reason"] for event in good(api.get(f"jobs/{job['id']}/history"))["events"]] == ["enqueued"]
    why = good(api.get(f"jobs/{job['id']}/explain"))
    assert why["reasons"] == cli.json("explain", job["id"], "--json")["reasons"]
    assert (why["id"], why["state"]) == (job["id"], "pending")
    [act] = good(api.get("audit"))["acts"]
    assert (act["who"], act["action"], act["target"]) == ("admin", "enqueue", job["id"])


def test_jobs_are_made_all_or_none(api: httpx.Client, store: Store) -> None:
    jobs = good(api.post("jobs", json=[{"command": "true", "id": "a"}, {"command": "false"}]), 201)["jobs"]
    assert [job["command"] for job in jobs] == ["true", "false"]
    assert len(good(api.post("jobs", json={"jobs": [{"command": "true"}]}), 201)["jobs"]) == 1
    bad = problem(api.post("jobs", json=[{"command": "true"}, {"comand": "x"}]), 422, "jobs[1]:", '"command"?')
    assert bad["index"] == 1
    taken = problem(
        api.post("jobs", json=[{"command": "true"}, {"command": "true", "id": "a"}]), 409, "jobs[1]: a job"
    )
    assert taken["index"] == 1
    assert sum(store.views.counts().values()) == 3


def test_a_request_that_names_itself_happens_once(api: httpx.Client, store: Store) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    first = good(api.post("jobs", json={"command": "true"}, headers=key), 201)
    assert good(api.post("jobs", json={"command": "true"}, headers=key), 201) == first
    problem(api.post("jobs", json={"command": "false"}, headers=key), 409, "idempotency key")
    problem(api.post("jobs", json={"command": "true"}, headers={"Idempotency-Key": "x" * 200}), 422, "128")
    assert sum(store.views.counts().values()) == 1


@on_sqlite
def test_a_job_from_afar_runs_at_home_and_not_where_the_server_was_started(cli: Cli) -> None:
    home = cli.folder / "home"
    home.mkdir()
    cli.env["HOME"] = str(home)
    with serving(cli) as served, served.http() as api:
        assert good(api.post(f"{ROOT}/jobs", json={"command": "pwd"}), 201)["cwd"] == str(home)
        assert good(api.post(f"{ROOT}/jobs", json={"command": "pwd", "cwd": "/usr/.."}), 201)["cwd"] == "/"
        problem(api.post(f"{ROOT}/jobs", json={"command": "pwd", "cwd": "here"}), 422, "whole path")
        body = {"name": "s", "every_seconds": 60, "job": {"command": "pwd"}}
        assert good(api.post(f"{ROOT}/schedules", json=body), 201)["job"]["cwd"] == str(home)
        with served.session() as form:  # and the dashboard answers alike
            made = form.post("/jobs/new", data={"command": "pwd"})
            assert good(api.get(f"{ROOT}{made.headers['location']}"))["cwd"] == str(home)
            refused = form.post("/jobs/new", data={"command": "pwd", "cwd": "here"})
            assert (refused.status_code, "is no whole path" in refused.text) == (422, True)
            assert form.post("/schedules/new", data={"name": "t", "every": "1m", "command": "pwd"}).status_code == 303
            assert good(api.get(f"{ROOT}/schedules/t"))["job"]["cwd"] == str(home)


def test_pages_of_jobs_hang_together(api: httpx.Client, store: Store) -> None:
    ids = [enqueue(store, f"echo {n}", queue="mail" if n % 2 else "default") for n in range(7)]
    seen, cursor = [], None
    while True:
        page = good(api.get("jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}))
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
        if cursor is None:
            break
        assert len(page["jobs"]) == 2
        if len(seen) == 2:
            enqueue(store)  # what comes meanwhile disturbs nobody
    assert seen == ids[::-1]
    found = good(api.get("jobs", params={"q": "echo", "queue": "mail", "state": "pending"}))["jobs"]
    assert [job["id"] for job in found] == [id for n, id in enumerate(ids) if n % 2][::-1]
    assert good(api.get("jobs", params={"q": "queue:mail echo 3"}))["jobs"][0]["id"] == ids[3]
    for wrong in ("zzz", "", "MQ==", "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OQ"):  # the last: 9999999999999999999
        problem(api.get("jobs", params={"cursor": wrong}), 422, "none of ours")
        problem(api.get("audit", params={"cursor": wrong}), 422, "none of ours")
    for page in ("/jobs?at=5,", "/audit?before="):
        assert api.get(api.base_url.join(f"{page}9999999999999999999")).status_code == 422
        assert api.get(api.base_url.join(f"{page}999999999999999999")).status_code == 200
    problem(api.get("jobs", params={"q": "queue:mail", "queue": "other"}), 422, "differ")


def test_jobs_are_cancelled_retried_and_deleted(api: httpx.Client, store: Store, cli: Cli) -> None:
    id = enqueue(store)
    problem(api.delete(f"jobs/{id}"), 409, "cancel it first")
    problem(api.post(f"jobs/{id}/retry"), 409, "not dead")
    assert good(api.post(f"jobs/{id}/cancel"), 200, "Job")["state"] == "cancelled"
    problem(api.post(f"jobs/{id}/cancel"), 409, "already cancelled")
    problem(api.delete(f"jobs/{id[:5]}"), 404, "whole id")
    assert api.delete(f"jobs/{id}").status_code == 204
    problem(api.get(f"jobs/{id}"), 404, f'no job "{id}"', "queuectl list")
    dead = enqueue(store, "false", max_retries=1)
    cli.ok("worker", "start")
    cli.until(dead, "dead")
    cli.ok("worker", "stop")
    assert good(api.get("dlq"))["groups"][0]["example"] == dead
    assert good(api.post(f"jobs/{dead}/retry"))["state"] == "pending"
    acts = [act["action"] for act in good(api.get("audit"))["acts"] if act["who"] == "admin"]
    assert acts == ["retry", "delete", "cancel"]


def test_many_jobs_at_once(api: httpx.Client, store: Store) -> None:
    mail = [enqueue(store, queue="mail") for _ in range(3)]
    rest = [enqueue(store) for _ in range(2)]
    dry = good(api.post("jobs/cancel", json={"q": "queue:mail", "dry_run": True}), 200, "ManyChanged")
    assert dry == {"matched": 3, "done": 0, "more": False, "next": None}
    problem(api.post("jobs/cancel", json={"ids": [rest[0], "nope"]}), 404, '"nope"')
    assert store.views.counts()["cancelled"] == 0
    all_of_mail = good(api.post("jobs/cancel", json={"q": "queue:mail", "cursor": None}), 200, "ManyChanged")
    assert all_of_mail == {"matched": 3, "done": 3, "more": False, "next": None}
    assert good(api.post("jobs/cancel", json={"ids": rest}))["done"] == 2
    problem(api.post("jobs/cancel", json={"q": "state:dead"}), 422, "leave out state:")
    assert good(api.post("jobs/delete", json={"q": "queue:mail state:cancelled"}))["done"] == 3
    assert good(api.post("jobs/retry", json={"q": "state:dead", "dry_run": False})) == {**dry, "matched": 0}
    for wrong in ("pending", "dead.MQ", "pending.x", "pending.OTk5OTk5OTk5OTk5OTk5OTk5OQ"):
        problem(api.post("jobs/cancel", json={"q": "queue:mail", "cursor": wrong}), 422, "none of ours")
    problem(api.post("jobs/cancel", json={"q": "a", "dry_run": True, "cursor": "pending.MQ"}), 422, "which jobs?")
    beside: list[dict[str, object]] = [{"q": "x"}, {"dry_run": True}, {"cursor": None}, {"ids": []}]
    for more in beside:
        problem(api.post("jobs/delete", json={"ids": rest[:1], **more}), 422)
    problem(api.post("jobs/delete", json={}), 422, "which jobs?")
    problem(api.post("jobs/delete", json={"q": ""}), 422)
    problem(api.post("jobs/delete", json={"q": '""'}), 422, "every job")
    problem(api.post("jobs/delete", json={"ids": [rest[0][:6]]}), 404, "whole id")
    assert [id for id in (*mail, *rest) if store.views.states([id])] == rest


# -- logs and waiting ------------------------------------------------------------------------------------


def test_a_log_is_read_in_parts_and_live(api: httpx.Client, cli: Cli, store: Store) -> None:
    go = cli.folder / "go"
    id = enqueue(store, f"echo begun; printf 'half a line'; {UNTIL_GO}; echo; echo é ended", cwd=str(cli.folder))
    cli.ok("worker", "start")
    with api.stream("GET", f"jobs/{id}/log", params={"follow": 1}, timeout=60) as stream:
        assert stream.headers["content-type"] == "text/plain; charset=utf-8"
        pieces = stream.iter_bytes()
        seen = b""
        while b"half a line" not in seen:
            seen += next(pieces)
        assert b"ended" not in seen
        waiting = good(api.get(f"jobs/{id}/wait", params={"timeout": 0.2}))
        assert (waiting["finished"], waiting["job"]["state"]) == (False, "processing")
        go.touch()
        seen += b"".join(pieces)
    done = good(api.get(f"jobs/{id}/wait"))
    fits("Job", done["job"])
    assert (done["finished"], done["job"]["state"]) == (True, "completed")
    assert seen.decode() == cli.ok("logs", id)
    whole = api.get(f"jobs/{id}/log")
    assert whole.text == cli.ok("logs", id)
    assert api.get(f"jobs/{id}/log", params={"follow": 1}).text == whole.text
    raw = (cli.logs / f"job_{id}.log").read_bytes()
    assert api.get(f"jobs/{id}/log", params={"raw": 1}).content == raw
    assert api.get(f"jobs/{id}/log", params={"tail": 2}).text.startswith("é ended\n--- END")
    size = len(raw)
    for asked, first, last in (
        ("3-9", 3, 9),
        ("5-", 5, size - 1),
        ("-4", size - 4, size - 1),
        ("0-99999", 0, size - 1),
    ):
        answer = api.get(f"jobs/{id}/log", params={"raw": 1}, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, raw[first : last + 1])
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{size}"
    beyond = api.get(f"jobs/{id}/log", params={"raw": 1}, headers={"Range": f"bytes={len(raw)}-"})
    problem(beyond, 416, str(len(raw)))
    assert beyond.headers["content-range"] == f"bytes */{len(raw)}"
    for strange in ("bytes=9-3", "bytes=-", "lines=1-2", "bytes=0-1,3-4"):
        assert api.get(f"jobs/{id}/log", params={"raw": 1}, headers={"Range": strange}).content == raw
    saved = api.get(f"jobs/{id}/log", params={"download": 1})
    assert saved.headers["content-disposition"] == f'attachment; filename="job_{id}.log"'


@on_sqlite
def test_a_page_in_a_log_stays_text(api: httpx.Client, cli: Cli, store: Store) -> None:
    id = enqueue(store, "echo '<script>alert(1)</script>'")
    cli.ok("worker", "start")
    cli.finished(id)
    for params in ({}, {"raw": 1}, {"follow": 1}, {"tail": 5}):
        answer = api.get(f"jobs/{id}/log", params=params)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"


@on_sqlite
def test_followers_hold_nothing_and_go_at_once(served: Served, cli: Cli, store: Store) -> None:
    id = enqueue(store)  # nobody runs it
    waiting = socket.create_connection(("127.0.0.1", served.port))
    ask = f"GET {ROOT}/jobs/{id}/wait?timeout=60 HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
    waiting.sendall(f"{ask}Authorization: Bearer {served.tokens['viewer']}\r\n\r\n".encode())
    with served.http() as api, ExitStack() as streams:
        for _ in range(60):  # more than there are threads and connections to the queue
            streams.enter_context(api.stream("GET", f"{ROOT}/jobs/{id}/log?follow=1"))
        assert good(api.get(f"{ROOT}/jobs/{id}"))["state"] == "pending"
        assert served.stop() == 0
    assert "Cancel" not in served.printed  # nothing had to be torn down
    with waiting, waiting.makefile("rb") as answer:
        assert b'"finished":false' in answer.read()


def test_a_log_that_lies_on_another_machine_is_told_with_its_end(postgres: Server, tmp_path: Path) -> None:
    schema = f"test_{uuid.uuid4().hex}"
    cli = Cli(tmp_path, postgres.url(schema))
    store = open_store(cli.url)
    try:
        id = enqueue(store, "echo out; echo err >&2")
        cli.ok("worker", "start")
        cli.finished(id)
        postgres.sql(f"UPDATE {schema}.jobs SET log_place = 'elsewhere:/var/logs'")
        with serving(cli) as served, served.http() as api:
            found = problem(api.get(f"{ROOT}/jobs/{id}/log"), 409, "elsewhere", f"/var/logs/job_{id}.log")
            assert (found["stdout"], found["stderr"]) == ("out\n", "err\n")
            told = api.get(f"{ROOT}/jobs/{id}/log", params={"follow": 1}).text
            assert "elsewhere" in told
            assert told.endswith("out\nerr\n")
    finally:
        cli.end_all()
        store.close()
        postgres.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


# -- everything else -------------------------------------------------------------------------------------


def test_queues_are_paused_and_limited(api: httpx.Client, store: Store) -> None:
    enqueue(store, queue="mail")
    [queue] = good(api.get("queues"))["queues"]
    fits("Queue", queue)
    problem(api.get("queues/mial"), 404, 'did you mean "mail"?')
    wanted = {"paused": True, "at_once": 3, "rate": 10, "rate_ms": 60_000, "retry_on": [1, "kill"]}
    changed = good(api.patch("queues/mail", json=wanted), 200, "Queue")
    assert changed == good(api.get("queues/mail")) == {**queue, **wanted, "retry_on": ["1", "SIGKILL"]}
    assert good(api.patch("queues/mail", json={"at_once": None, "retry_on": []}))["at_once"] is None
    problem(api.patch("queues/mail", json={"rate": None}), 422, "a rate needs a number and a time")
    problem(api.patch("queues/mail", json={"pausd": True}), 422, 'did you mean "paused"?')
    problem(api.patch("queues/mail", json={"at_once": 0}), 422, "1 to 1000000")
    problem(api.patch("queues/mail", json={}), 422, "says nothing")
    assert good(api.patch("queues/new", json={"paused": True}), 200, "Queue")["jobs"]["pending"] == 0


def test_an_operator_pauses_a_queue_but_does_not_limit_it(served: Served, store: Store) -> None:
    with served.http("operator") as operator:
        assert good(operator.patch(f"{ROOT}/queues/mail", json={"paused": True}))["paused"]
        problem(operator.patch(f"{ROOT}/queues/mail", json={"at_once": 1}), 403, "takes an admin")
        problem(operator.patch(f"{ROOT}/queues/mail", json={"paused": False, "rate": 1, "rate_ms": 1}), 403)
    assert store.views.queues()[0].rules.paused


def test_schedules_are_made_replaced_paused_triggered_and_forgotten(api: httpx.Client) -> None:
    wanted = {"name": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "job": {"command": "true"}}
    made = good(api.post("schedules", json=wanted), 201, "Schedule")
    assert len(made["next"]) == 5
    problem(api.post("schedules", json=wanted), 409, "already")
    problem(api.post("schedules", json={**wanted, "name": "b", "zone": "Mars"}), 422)
    problem(api.put("schedules/b", json={"job": {"command": "true"}}), 422, "how often")
    assert good(api.put("schedules/b", json={"every_seconds": 60, "job": {"command": "b"}}), 201, "Schedule")
    put = good(api.put("schedules/nightly", json={"cron": "@daily", "missed": "skip", "job": {"command": "x"}}), 200)
    assert (put["cron"], put["zone"], put["missed"]) == ("@daily", "Europe/Berlin", "skip")
    assert good(api.post("schedules/nightly/pause"))["next"] == []
    assert good(api.post("schedules/nightly/resume"), 200, "Schedule")["paused"] is False
    job = good(api.post("schedules/nightly/trigger"), 201, "Job")
    [firing] = good(api.get("schedules/nightly/firings"))["firings"]
    fits("Firing", firing)
    assert (firing["job"], firing["outcome"]) == (job["id"], "triggered")
    listed = good(api.get("schedules"))["schedules"]
    for one in listed:
        fits("ListedSchedule", one)
    assert [one["name"] for one in listed] == ["b", "nightly"]
    assert listed[1]["last"] == firing
    assert api.delete("schedules/nightly").status_code == 204
    problem(api.get("schedules/nightly"), 404, "no schedule")
    problem(api.get("schedules/nightly/firings"), 404, "no schedule")


def test_the_whole_is_seen_and_set(api: httpx.Client, cli: Cli, store: Store) -> None:
    id = enqueue(store)
    cli.ok("worker", "start")
    cli.finished(id)
    [worker] = good(api.get("workers"))["workers"]
    fits("Worker", worker)
    for event in good(api.get(f"jobs/{id}/history"))["events"]:
        fits("Event", event)
    fits("Job", good(api.get(f"jobs/{id}")))
    stats = good(api.get("stats"), 200, "Stats")
    assert (stats["jobs"]["completed"], stats["workers"]) == (1, 1)
    problem(api.post("workers/nobody/stop", json={"how": "now"}), 404)
    problem(api.post(f"workers/{worker['id']}/stop", json={"how": "soon"}), 422, "drain, now")
    assert good(api.post(f"workers/{worker['id']}/stop", json={"how": "drain"}))["stop"] == "drain"
    eventually(lambda: good(api.get("workers"))["workers"] == [])
    for setting in good(api.get("config"))["settings"]:
        fits("Setting", setting)
    assert good(api.put("config/max-retries", json={"value": 7}), 200, "Setting")["value"] == 7
    assert store.config()["max_retries"] == 7
    problem(api.put("config/max_retries", json={"value": -1}), 422, "from 0 to")
    problem(api.put("config/max_retries", json={"value": 1.5}), 422, "whole number")
    problem(api.put("config/max_retrys", json={"value": 1}), 404, 'did you mean "max_retries"?')
    assert good(api.delete("config/max_retries"))["value"] == good(api.get("config/max_retries"))["default"] == 3
    assert good(api.get("whoami")) == {"name": "admin", "role": "admin"}
    acts = good(api.get("audit", params={"limit": 2}))
    for act in acts["acts"]:
        fits("Act", act)
    rest = good(api.get("audit", params={"limit": 2, "cursor": acts["next"]}))
    assert [act["action"] for act in (*acts["acts"], *rest["acts"])] == ["unset", "set", "stop"]
    assert rest["next"] is None


# -- what is refused -------------------------------------------------------------------------------------


@on_sqlite
def test_what_cannot_be_meant_is_refused_with_a_hint(api: httpx.Client) -> None:
    def post(body: str | bytes, kind: str = "application/json") -> httpx.Response:
        return api.post("jobs", content=body, headers={"Content-Type": kind})

    problem(post('{"command": "true"}', "text/plain"), 415, "Content-Type: application/json")
    problem(post('{"command": "true"'), 400, "not valid JSON", "quotes and commas")
    problem(post('{"command": "a", "command": "b"}'), 400, "given twice")
    problem(post('{"command": "a", "priority": NaN}'), 400, "NaN")
    problem(post("[" * 100_000), 400, "nested too deeply")
    problem(post(b'{"command": "\xff"}'), 400, "UTF-8")
    problem(post(""), 400, "not valid JSON")
    problem(post(r'{"command": "true", "\ud800": 1}'), 422, "unknown field")
    problem(post(r'{"command": "\u0000"}'), 422, "NUL")
    problem(post("[]"), 422, "0 jobs")
    spaced = {"Content-Type": "application/json", "Idempotency-Key": "a b"}
    problem(api.post("jobs", content='{"command": "true"}', headers=spaced), 422, '"Idempotency-Key"', "[!-~]")
    problem(post("3"), 422, "JSON object")
    problem(post('{"jobs": {}}'), 422, "must be a list")
    problem(post('{"command": "' + "x" * (1 << 20) + '"}'), 413)
    problem(api.get("jobs", params={"stat": "dead"}), 422, "unknown parameter", 'did you mean "state"?')
    problem(api.get("jobs?limit=5&limit=6"), 422, "twice")
    problem(api.get("jobs", params={"limit": 501}), 422, "1 to 500")
    problem(api.get("jobs", params={"limit": "many"}), 422, "whole number")
    problem(api.get("jobs", params={"state": "ded"}), 422, 'did you mean "dead"?')
    problem(api.get("jobs", params={"q": "stat:dead"}), 422, 'did you mean "state"?')
    problem(api.get("whoami", params={"x": 1}), 422, "it takes none")
    problem(api.get("nothing"), 404)
    wrong = api.put("jobs/x", json={})
    problem(wrong, 405)
    assert wrong.headers["allow"] == "DELETE, GET, HEAD"
    assert api.patch("jobs/cancel", json={}).headers["allow"] == "DELETE, GET, HEAD, POST"
    problem(api.get("jobs/%00"), 400, "NUL")


@on_sqlite
def test_each_operation_takes_its_role(served: Served) -> None:
    """Nobody gets further than the door without it, whatever he sends."""
    for operation in OPERATIONS:
        path = ROOT + re.sub(r"{\w+}", "nobody", operation.path)
        with served.http(None) as stranger:
            assert "Bearer" in stranger.request(operation.method, path).headers["www-authenticate"], operation.path
            problem(stranger.request(operation.method, path), 401, "Bearer TOKEN")
        for role in ROLES:
            with served.http(role) as client:
                answer = client.request(operation.method, path, json=json.loads(operation.example or "null"))
            allowed = Role[role.upper()] >= operation.role
            assert (answer.status_code != 403) == allowed, f"{role}: {operation.method} {path}: {answer.text}"
            if not allowed:
                problem(answer, 403, f"takes an {operation.role.word}")


def test_roles_are_as_intended() -> None:
    """Whoever can enqueue can run any command; what destroys evidence is for admins, too."""
    needs = {(one.method, one.path): one.role for one in OPERATIONS}
    assert all((role is Role.VIEWER) == (method == "GET") for (method, _), role in needs.items())
    operators = sorted(path for (_, path), role in needs.items() if role is Role.OPERATOR)
    assert operators == [
        "/jobs/cancel", "/jobs/retry", "/jobs/{id}/cancel", "/jobs/{id}/retry", "/queues/{name}",
        "/schedules/{name}/pause", "/schedules/{name}/resume", "/workers/{id}/stop",
    ]  # fmt: skip


@on_sqlite
def test_a_page_shows_every_operation_to_people(served: Served) -> None:
    with served.session("viewer") as browser:
        page = browser.get(ROOT)
        assert page.headers["content-type"].startswith("text/html")
        for operation in OPERATIONS:
            assert f"{operation.method} {operation.path}" in page.text
        assert "style=" not in page.text
        assert browser.get(f"{ROOT}/openapi.json").json() == document()
    assert httpx.get(served.url + ROOT).headers["location"].startswith("/login")


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.example], ids=lambda one: one.name)
def test_an_example_fits_its_schema(operation: Operation) -> None:
    rules = {**(operation.body or {}), "components": {"schemas": SCHEMAS}}
    jsonschema_rs.validator_for(rules).validate(json.loads(operation.example))


def test_every_operation_has_a_name_of_its_own() -> None:
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)


# -- the docs --------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@on_sqlite
def test_the_commands_of_the_docs_work(cli: Cli) -> None:
    script = "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    assert script.count("curl ") > 10
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    cli.ok("config", "set", "max_retries", "1")
    with serving(cli) as served:
        script = script.replace("http://127.0.0.1:8642", served.url)
        env = {"PATH": os.environ["PATH"], "QUEUECTL_TOKEN": served.tokens["admin"]}
        strict = f'set -e; curl() {{ command curl --silent --show-error --fail-with-body "$@"; echo; }}\n{script}'
        done = subprocess.run(["bash", "-c", strict], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, once, twice = done.stdout.splitlines()
    assert once == twice
