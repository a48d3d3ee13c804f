"""`Queue("http://…")` is like any other: the same tests, for a queue at hand and one behind a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from queuectl import Queue, remote
from queuectl.errors import Conflict, Denied, InvalidInput, NotFound, OutcomeUnknown, StoreUnavailable, TimedOut
from queuectl.model import INTERNAL, Job
from queuectl.store import open_store
from tests.conftest import eventually
from tests.e2e.conftest import Cli
from tests.e2e.conftest import engine_name as engine_name
from tests.e2e.conftest import q as q
from tests.web.conftest import Served, serving


@pytest.fixture
def cli(q: Cli) -> Cli:
    """On both engines."""
    return q


@pytest.fixture
def on_sqlite(engine_name: str) -> None:
    if engine_name != "sqlite":
        pytest.skip("the engine does not matter")


@pytest.fixture(params=["local", "remote"])
def queue(request: pytest.FixtureRequest, cli: Cli) -> Iterator[Queue]:
    if request.param == "local":
        with Queue(cli.url) as local:
            yield local
        return
    served: Served = request.getfixturevalue("served")
    with Queue(served.url, token=served.tokens["admin"]) as there:
        yield there


@pytest.fixture
def far(served: Served) -> Iterator[Queue]:
    with Queue(served.url, token=served.tokens["admin"]) as queue:
        yield queue


def test_jobs_are_enqueued_found_and_counted(queue: Queue, cli: Cli) -> None:
    job = queue.enqueue("echo hello", id="build-7", tags=["x", "y"], env={"A": "é"}, priority=3, retry_on=[1, "kill"])
    assert (job.state, job.tags, job.env, job.retry_on) == ("pending", ("x", "y"), {"A": "é"}, ("1", "SIGKILL"))
    assert queue.get("build") == queue.get("@last") == job
    first, second = queue.enqueue_many(["true", {"command": "false", "depends_on": ["build-7"], "queue": "mail"}])
    assert (first.command, second.state, second.depends_on) == ("true", "blocked", (("build-7", "ok"),))
    assert [found.id for found in queue.jobs()] == [second.id, first.id, job.id]
    assert [found.id for found in queue.jobs(limit=1)] == [second.id]
    assert [found.id for found in queue.jobs(state="pending", tag="x")] == ["build-7"]
    assert [found.id for found in queue.jobs(queue="mail")] == [second.id]
    assert list(queue.jobs(limit=0)) == []
    assert queue.stats() == {**dict.fromkeys(queue.stats(), 0), "pending": 2, "blocked": 1}
    store = open_store(cli.url)
    kept = store.views.job("build-7")
    store.close()
    elsewhere = (*INTERNAL, "log_path")  # the server has its own folder for logs
    fields = [name for name in Job.__slots__ if name not in elsewhere]
    assert [getattr(kept, name) for name in fields] == [getattr(job, name) for name in fields]


def test_a_time_is_the_time_of_whoever_asks(queue: Queue) -> None:
    moment = datetime.now(UTC) + timedelta(hours=5)
    naive = moment.astimezone().replace(tzinfo=None)
    for when in (moment, naive, moment.isoformat(), naive.isoformat(sep=" ")):
        assert abs(queue.enqueue("true", run_at=when).run_at - moment.timestamp() * 1000) < 1000
    job = queue.enqueue("true", run_at="in 10m")
    assert 599_000 <= job.run_at - job.created_at <= 601_000
    job = queue.enqueue("true", run_at=60)
    assert 59_000 <= job.run_at - job.created_at <= 61_000


def test_errors_are_the_same(queue: Queue) -> None:
    queue.enqueue("true", id="a")
    with pytest.raises(NotFound, match='there is no job "nope"') as found:
        queue.get("nope")
    assert "queuectl list" in found.value.hint
    for strange in ("", "a/b", "../x", "ä", "x?y=1", "\0"):
        with pytest.raises(NotFound):
            queue.get(strange)
    with pytest.raises(InvalidInput, match='unknown field "comand"') as bad:
        queue.enqueue_many(["true", {"comand": "x"}])
    assert bad.value.hint == 'did you mean "command"?'
    assert bad.value.index == 1
    with pytest.raises(Conflict, match='a job "a" is already there') as taken:
        queue.enqueue_many(["true", {"command": "true", "id": "a"}])
    assert taken.value.index == 1
    with pytest.raises(InvalidInput, match="is not a time"):
        queue.enqueue("true", run_at="soonish")
    with pytest.raises(InvalidInput):
        queue.jobs(state="ded")
    with pytest.raises(NotFound):
        queue.cancel("a", "nope")
    assert queue.get("a").state == "pending"
    with pytest.raises(Conflict, match="not dead"):
        queue.retry("a")
    queue.cancel("a")
    with pytest.raises(Conflict, match="already cancelled"):
        queue.cancel("a")
    assert queue.stats()["cancelled"] == 1
    assert queue.enqueue_many([]) == []


def test_jobs_are_waited_for_and_run_again(queue: Queue, cli: Cli) -> None:
    bad = queue.enqueue("exit 3", max_retries=1)
    good = queue.enqueue('echo \'{"result": [1, {"a": null}]}\' > $QUEUECTL_RESULT; echo done')
    with pytest.raises(TimedOut, match="2 of 2 jobs have not finished in time"):
        queue.wait(bad.id, good.id, timeout=0.1)
    with pytest.raises(NotFound):
        queue.wait(good.id, "nope")
    cli.ok("worker", "start")
    ended, done = queue.wait(bad.id[:6], good.id)
    assert (ended.state, ended.exit_code, ended.attempts) == ("dead", 3, 1)
    assert (done.state, done.stdout, done.result) == ("completed", "done\n", [1, {"a": None}])
    assert done.finished_at
    assert done.started_at
    assert done.finished_at >= done.started_at
    queue.retry(bad.id)
    [ended] = queue.wait(bad.id, timeout=60)
    assert ended.state == "dead"


# -- what only a server can do to us ---------------------------------------------------------------------


@pytest.mark.usefixtures("on_sqlite")
def test_pages_come_as_they_are_needed(far: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAGE", 3)
    ids = [job.id for job in far.enqueue_many(["true"] * 8)]
    found = far.jobs(limit=-1)
    assert [next(found).id for _ in range(2)] == ids[:-3:-1]
    far.enqueue("true")
    far.cancel(ids[0])
    rest = list(found)
    assert [job.id for job in rest] == ids[-3::-1]
    assert rest[-1].state == "cancelled"  # it was read only now
    assert [job.id for job in far.jobs(limit=4)][1:] == ids[:-4:-1]


@pytest.mark.usefixtures("on_sqlite")
def test_a_token_is_needed_and_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEUECTL_TOKEN", raising=False)
    with pytest.raises(Denied, match="wants a token") as missing:
        Queue(served.url).stats()
    assert "QUEUECTL_TOKEN" in missing.value.hint
    with pytest.raises(Denied, match="does not know this token"):
        Queue(served.url, token="x" * 20).stats()
    monkeypatch.setenv("QUEUECTL_TOKEN", served.tokens["viewer"])
    with Queue(served.url) as viewer:
        assert viewer.stats()["pending"] == 0
        with pytest.raises(Denied, match="takes an admin"):
            viewer.enqueue("true")
    for wrong in ("http://", "http://host:port", "http://user:secret@host", "http://host?x=1"):
        with pytest.raises(InvalidInput) as bad:
            Queue(wrong)
        assert "secret" not in str(bad.value)
    with pytest.raises(InvalidInput):
        Queue(served.url, token="a\r\nb")
    with pytest.raises(InvalidInput):
        Queue("here.db", token="x" * 20)


@pytest.mark.usefixtures("on_sqlite")
def test_a_server_that_was_restarted_is_talked_to_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(cli) as served, Queue(served.url, token=served.tokens["admin"]) as queue:
        job = queue.enqueue("true")
        served.restart()
        assert queue.get(job.id) == job
        served.restart()
        assert queue.enqueue("true").id != job.id
        served.restart()
        monkeypatch.setattr(remote, "STALE", 0)
        queue.cancel(job.id)
        served.stop()
        with pytest.raises(StoreUnavailable, match="cannot reach"):
            queue.stats()
        with pytest.raises(StoreUnavailable):
            queue.enqueue("true")


class Middleman:
    """Passes requests on, and swallows one answer to the method that it is told."""

    def __init__(self) -> None:
        self.to = 0
        self.swallow = b""
        self.swallowed = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self.to)) as server:
                self._pass(client, server)

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        while asked := _message(client):
            server.sendall(asked)
            answer = _message(server)
            if self.swallow and asked.startswith(self.swallow):
                self.swallow = b""
                self.swallowed += 1
                return
            client.sendall(answer)

    def close(self) -> None:
        self._socket.close()


def _message(source: socket.socket) -> bytes:
    """One request or answer, the whole of it."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := source.recv(1 << 16)):
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int((lengths or [b"0"])[0]):
        body += source.recv(1 << 16)
    return head + b"\r\n\r\n" + body


@pytest.mark.usefixtures("on_sqlite")
def test_a_lost_answer_makes_no_second_job(cli: Cli) -> None:
    middleman = Middleman()
    with serving(cli, "--allow-host", f"127.0.0.1:{middleman.port}") as served:
        middleman.to = served.port
        with Queue(f"http://127.0.0.1:{middleman.port}", token=served.tokens["admin"]) as queue:
            middleman.swallow = b"POST"
            job = queue.enqueue("true")
            assert middleman.swallowed == 1
            assert [found.id for found in queue.jobs()] == [job.id]
            middleman.swallow = b"GET"
            assert queue.get(job.id) == job
            middleman.swallow = b"POST"
            with pytest.raises(OutcomeUnknown, match="was lost"):
                queue.cancel(job.id)
            assert middleman.swallowed == 3
            assert eventually(lambda: queue.get(job.id).state) == "cancelled"
        middleman.close()
