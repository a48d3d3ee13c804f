"""The answer to a commit that succeeded depends on no further query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest

import queuectl.cli
from queuectl import Queue
from queuectl.cli import app
from queuectl.errors import StoreUnavailable
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited
from queuectl.store import Store, copy, open_store
from queuectl.store.engine import Engine
from queuectl.store.postgres import PostgresEngine, PostgresTransaction
from queuectl.store.sqlite import SqliteEngine, SqliteTransaction
from queuectl.web.api.operation import Call, Operation, Reply
from queuectl.web.api.operations import OPERATIONS
from queuectl.web.api.schemas import SCHEMAS
from queuectl.web.auth import Role, User
from tests.contract.conftest import Hire, enqueue


class Outage:
    """Once a change has been committed, the database cannot be reached any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed = self.begun = False
        for kind in (SqliteTransaction, PostgresTransaction):
            monkeypatch.setattr(kind, "__enter__", self._enter(kind.__enter__))
            monkeypatch.setattr(kind, "__exit__", self._exit(kind.__exit__))
        monkeypatch.setattr(PostgresEngine, "_connect", self._connect(PostgresEngine._connect))

    def _refuse(self) -> None:
        if self.begun:
            raise StoreUnavailable("the database is gone", "it was here a moment ago")

    def _enter(self, enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def entered(transaction: Any) -> Any:
            self._refuse()
            return enter(transaction)

        return entered

    def _exit(self, leave: Callable[..., None]) -> Callable[..., None]:
        def left(transaction: Any, kind: Any, error: Any, trace: Any) -> None:
            writes = getattr(transaction, "_writes", None) or getattr(transaction, "_begin", "") == "BEGIN IMMEDIATE"
            leave(transaction, kind, error, trace)
            self.begun = self.armed and writes and error is None
            if self.begun and isinstance(transaction, PostgresTransaction):
                transaction._db.close()

        return left

    def _connect(self, connect: Callable[[Any], None]) -> Callable[[Any], None]:
        def connected(engine: Any) -> None:
            self._refuse()
            connect(engine)

        return connected


@pytest.fixture
def open_engine(url: str) -> Callable[[], Engine]:
    """By the clock of the commands, which are tried here, too."""
    return lambda: open_store(url).engine


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


def fill(store: Store, hire: Hire) -> None:
    """Something of each kind."""
    worker = hire("w1")
    for id, outcome in (("completed", 0), ("dead", 1)):
        enqueue(store, id=id, max_retries=1)
        worker.work_off(Exited(outcome))
    enqueue(store, id="running")
    worker.claim_one()
    enqueue(store, id="pending", unique_key="taken")
    store.enqueue([NewJob("true", id="known")], submission=("word", "e3b0"))
    store.schedules.add("nightly", "0 1 * * *", None, "UTC", {"command": "true"})
    store.hooks.add("pager", ["dead"], command="true")


@pytest.fixture
def filled(store: Store, hire: Hire, outage: Outage) -> Iterator[Store]:
    """A queue with something of each kind; the next change is the last one that goes through."""
    fill(store, hire)
    outage.armed = True
    yield store
    outage.armed = outage.begun = False


# -- from Python -----------------------------------------------------------------------------------------


@pytest.fixture
def queue(filled: Store, url: str, outage: Outage) -> Iterator[Queue]:
    outage.armed = False
    with Queue(url) as queue:
        outage.armed = True
        yield queue


def test_enqueue_says_what_it_has_stored(queue: Queue, store: Store, outage: Outage) -> None:
    job = queue.enqueue("echo", id="new", tags=["b", "a"], depends_on=["pending"], env={"A": "1"})
    assert outage.begun
    outage.armed = outage.begun = False
    assert job == store.views.job("new")
    assert (job.state, job.tags, job.env, job.depends_on) == ("blocked", ("a", "b"), {"A": "1"}, (("pending", "ok"),))


def test_enqueue_many_says_what_it_has_stored_in_its_order(queue: Queue, store: Store, outage: Outage) -> None:
    jobs = queue.enqueue_many(["one", {"command": "two", "unique_key": "taken", "on_duplicate": "skip"}, "three"])
    assert outage.begun
    assert [job.command for job in jobs] == ["one", "true", "three"]
    assert jobs[1].id == "pending"
    outage.armed = outage.begun = False
    assert jobs == store.views.these([job.id for job in jobs])


def test_cancel_and_retry_have_happened(queue: Queue, store: Store, outage: Outage) -> None:
    for change, id, state in ((queue.cancel, "pending", "cancelled"), (queue.retry, "dead", "pending")):
        change(id)
        assert outage.begun
        outage.begun = False
        assert store.views.job(id).state == state


# -- over HTTP -------------------------------------------------------------------------------------------

CALLS: dict[str, list[tuple[dict[str, str], Any]]] = {
    "create_jobs": [
        ({}, {"command": "true", "id": "new"}),
        ({}, {"command": "true", "unique_key": "taken", "on_duplicate": "skip"}),
        ({}, {"jobs": [{"command": "true"}, {"command": "false"}]}),
    ],
    "cancel_job": [({"id": "pending"}, None), ({"id": "running"}, None)],
    "retry_job": [({"id": "dead"}, None)],
    "delete_job": [({"id": "completed"}, None)],
    "cancel_jobs": [({}, {"ids": ["pending"]})],
    "retry_jobs": [({}, {"ids": ["dead"]})],
    "delete_jobs": [({}, {"ids": ["completed"]})],
    "change_queue": [({"name": "mail"}, {"paused": True}), ({"name": "default"}, {"at_once": 3})],
    "create_schedule": [({}, {"name": "new", "cron": "0 1 * * *", "zone": "UTC", "job": {"command": "true"}})],
    "replace_schedule": [({"name": "nightly"}, {"every_seconds": 600, "job": {"command": "true"}})],
    "delete_schedule": [({"name": "nightly"}, None)],
    "pause_schedule": [({"name": "nightly"}, None)],
    "resume_schedule": [({"name": "nightly"}, None)],
    "trigger_schedule": [({"name": "nightly"}, None)],
    "stop_worker": [({"id": "w1"}, {"how": "drain"})],
    "put_setting": [({"key": "max_retries"}, {"value": 5})],
    "delete_setting": [({"key": "max_retries"}, None)],
}
CHANGES = {operation.name: operation for operation in OPERATIONS if operation.changes}


def test_every_operation_that_changes_something_is_tried() -> None:
    assert CALLS.keys() == CHANGES.keys()


@pytest.mark.parametrize(
    ("operation", "given", "body"),
    [
        pytest.param(CHANGES[name], given, body, id=f"{name}-{number}")
        for name, calls in CALLS.items()
        for number, (given, body) in enumerate(calls)
    ],
)
def test_an_operation_answers(
    filled: Store, outage: Outage, operation: Operation, given: dict[str, str], body: Any
) -> None:
    answer = called(filled, operation.name, given, body)
    assert outage.begun
    if operation.answer is not None:
        validator(operation.answer).validate(answer)


def test_a_request_that_is_sent_again_is_answered_like_the_first(filled: Store, outage: Outage) -> None:
    for body in ({"command": "true"}, {"jobs": [{"command": "true"}, {"command": "false"}]}):
        given = {"Idempotency-Key": f"word {len(body)} {'jobs' in body}"}
        first, second = (called(filled, "create_jobs", given, body, outage) for _ in range(2))
        assert first == second


def called(store: Store, name: str, given: dict[str, str], body: Any, outage: Outage | None = None) -> Any:
    """What the operation answers to this; the database is there again when it begins."""
    if outage:
        outage.begun = False
    call = Call(User("ann", Role.ADMIN), given, given, body, json.dumps(body).encode())
    answer = CHANGES[name].do(store, call)
    return answer.body if isinstance(answer, Reply) else answer


def validator(schema: Any) -> Any:
    return jsonschema_rs.validator_for({**schema, "components": {"schemas": SCHEMAS}})


# -- on the command line ---------------------------------------------------------------------------------

COMMANDS = [
    ["enqueue", "true"],
    ["enqueue", "--quiet", "true"],
    ["enqueue", "--json", "true"],
    ["enqueue", "--json", "--unique", "taken", "--on-duplicate", "skip", "true"],
    ["enqueue", "--array", "1-3", "--json", "true"],
    ["cancel", "pending"],
    ["cancel", "--json", "running"],
    ["cancel", "--queue", "default"],
    ["dlq", "retry", "dead"],
    ["dlq", "retry", "--all"],
    ["dlq", "purge", "dead"],
    ["queue", "pause", "default"],
    ["queue", "resume", "default"],
    ["queue", "limit", "default", "3", "--json"],
    ["queue", "set", "default", "--retry-on", "1"],
    ["schedule", "add", "new", "0 1 * * *", "true"],
    ["schedule", "add", "new", "0 1 * * *", "true", "--json"],
    ["schedule", "remove", "nightly"],
    ["schedule", "pause", "nightly"],
    ["schedule", "resume", "nightly"],
    ["schedule", "trigger", "nightly"],
    ["hook", "add", "chat", "--on", "dead", "--", "true"],
    ["hook", "remove", "pager"],
    ["hook", "pause", "pager"],
    ["hook", "resume", "pager"],
    ["hook", "test", "pager"],
    ["config", "set", "max_retries", "5"],
    ["config", "unset", "max_retries"],
    ["prune", "--older-than", "0s"],
]
# What changes nothing in the queue; and what goes on to wait for processes, which are another matter.
OTHERS = {
    "status", "top", "list", "show", "logs", "history", "explain", "wait", "metrics", "serve", "backup", "doctor",
    "completion", "dlq list", "queue list", "schedule list", "schedule show", "hook list", "hook show", "config get",
    "config list", "worker list", "worker start", "worker stop", "hook send", "copy", "reset",
}  # fmt: skip


def test_every_command_that_changes_something_is_tried() -> None:
    context = click.Context(app.cli)
    known = set()
    for name in app.COMMANDS:
        command = app.cli.get_command(context, name)
        words = command.commands if isinstance(command, click.Group) else [""]
        known |= {f"{name} {word}".strip() for word in words}
    tried = {name for args in COMMANDS for name in (args[0], " ".join(args[:2])) if name in known}
    assert tried | OTHERS == known
    assert not tried & OTHERS


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_command_says_what_it_has_done(
    filled: Store,
    outage: Outage,
    url: str,
    args: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUEUECTL_DB", url)
    assert queuectl.cli.run(args) == 0
    assert outage.begun
    said = capsys.readouterr()
    assert said.out
    assert "Error" not in said.err


def test_reset_has_happened_even_if_the_space_cannot_be_given_back(store: Store, engine_name: str, url: str) -> None:
    enqueue(store)
    assert store.reset() == 1
    if engine_name == "sqlite":
        impatient, other = SqliteEngine(url, patience=0.01), SqliteEngine(url)
        with other.write():
            impatient.compact()
        impatient.close()
        other.close()


def test_a_copy_is_complete_even_if_its_source_is_lost_in_the_end(
    store: Store, engine_name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(store)
    target = Store(SqliteEngine(str(tmp_path / "copy.db")))
    monkeypatch.setattr(target.engine, "write", partial(write_and_then, target.engine.write, lambda: hang_up(store)))
    assert copy.copy(store, target)["jobs"] == 1
    target.close()


@contextmanager
def write_and_then(write: Callable[[], Any], then: Callable[[], None]) -> Iterator[Any]:
    with write() as tx:
        yield tx
    then()


def hang_up(store: Store) -> None:
    """The server ends the connection."""
    if isinstance(store.engine, PostgresEngine):
        db = store.engine._connection()
        with store.engine._address.connect(10) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [db.info.backend_pid])


@pytest.mark.parametrize("json", [False, True])
def test_who_wants_to_wait_is_told_what_is_stored(
    filled: Store, outage: Outage, url: str, json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--json"] if json else []
    assert queuectl.cli.run(["enqueue", "--db", url, "--id", "new", "--wait", *options, "true"]) == 5
    assert outage.begun
    assert 'job "new" is stored' in capsys.readouterr().err
