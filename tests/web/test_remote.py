"""`Queue("http://…")` is like any other: the same tests, for a queue at hand and one behind a server."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

import queuectl
from queuectl import Queue
from queuectl.client import http_client
from queuectl.errors import Conflict, Denied, InvalidInput, NotFound, OutcomeUnknown, StoreUnavailable, TimedOut
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.model import INTERNAL, Job
from queuectl.store import open_store
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import Cli, on_sqlite
from tests.e2e.conftest import engine_name as engine_name
from tests.e2e.conftest import q as q
from tests.interrupts import Interrupt, Interrupter
from tests.web.conftest import Served, serving


@pytest.fixture
def cli(q: Cli) -> Cli:
    """On both engines."""
    return q


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
    assert job.run_at - job.created_at == 600_000
    job = queue.enqueue("true", run_at=60)
    assert job.run_at - job.created_at == 60_000


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


@on_sqlite  # the engine does not matter
def test_pages_come_as_they_are_needed(far: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "PAGE", 3)
    ids = [job.id for job in far.enqueue_many(["true"] * 8)]
    found = far.jobs(limit=-1)
    assert [next(found).id for _ in range(2)] == ids[:-3:-1]
    far.enqueue("true")
    far.cancel(ids[0])
    rest = list(found)
    assert [job.id for job in rest] == ids[-3::-1]
    assert rest[-1].state == "cancelled"  # it was read only now
    assert [job.id for job in far.jobs(limit=4)][1:] == ids[:-4:-1]


@on_sqlite  # the engine does not matter
def test_a_token_is_needed_and_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEUECTL_TOKEN", raising=False)
    with pytest.raises(Denied, match="wants a token") as missing:
        Queue(served.url).stats()
    with pytest.raises(Denied, match="does not know this token") as wrong_one:
        Queue(served.url, token="x" * 20).stats()
    for hint in (missing.value.hint, wrong_one.value.hint):
        assert "QUEUECTL_TOKEN" in hint
        assert "queuectl serve" in hint
        assert ".serve/token" in hint
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


@on_sqlite  # the engine does not matter
def test_a_server_that_was_restarted_is_talked_to_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(cli) as served, Queue(served.url, token=served.tokens["admin"]) as queue:
        job = queue.enqueue("true")
        served.restart()
        assert queue.get(job.id) == job
        served.restart()
        assert queue.enqueue("true").id != job.id
        served.restart()
        monkeypatch.setattr(http_client, "STALE", 0)
        queue.cancel(job.id)
        served.stop()
        with pytest.raises(StoreUnavailable, match="cannot reach"):
            queue.stats()
        with pytest.raises(StoreUnavailable):
            queue.enqueue("true")


@on_sqlite  # the engine does not matter
@pytest.mark.parametrize("name", ["enqueue", "cancel", "get"])
def test_a_call_that_is_interrupted_at_any_moment_hides_nothing(
    far: Queue, cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", deque[object](maxlen=0).append)
    acts: dict[str, tuple[Callable[[str], object], str]] = {
        "enqueue": (lambda job: far.enqueue("true", id=job), "pending"),
        "cancel": (far.cancel, "cancelled"),
        "get": (lambda job: far.get("job-0"), ""),
    }
    act, state = acts[name]
    interrupter = Interrupter(*(os.path.dirname(module.__file__ or "") for module in (queuectl, http.client)))
    far.enqueue("true", id="job-0" if name != "enqueue" else "any")
    moments = interrupter.moments(partial(act, "job-0"))
    told: Counter[str] = Counter()
    store = open_store(cli.url)
    if name == "cancel":
        store.enqueue([NewJob("true", id=f"job-{moment}") for moment in moments])
    for moment in moments:
        try:
            interrupter.interrupt(partial(act, f"job-{moment}"), moment)
            outcome = "returned"
        except Interrupt:
            outcome = "interrupted"
        except OutcomeUnknown:
            outcome = "unknown"
        happened = store.views.states([f"job-{moment}"]).get(f"job-{moment}", "") == state
        assert outcome == "unknown" or happened is (outcome == "returned" or not state), moment
        told[outcome] += 1
    store.close()
    assert told["interrupted"] > 10, told
    assert (told["unknown"] > 0) is bool(state), told


@on_sqlite  # the engine does not matter
def test_threads_share_a_queue_and_one_that_waits_keeps_no_other_waiting(far: Queue) -> None:
    first = far.enqueue("true")
    with ThreadPoolExecutor(8) as threads:
        waits = [threads.submit(far.wait, first.id, timeout=60) for _ in range(4)]
        eventually(lambda: all(wait.running() for wait in waits))
        made = list(threads.map(lambda number: far.enqueue("true", id=f"job-{number}").id, range(40)))
        assert made == [f"job-{number}" for number in range(40)]
        assert not any(wait.done() for wait in waits)
        far.cancel(first.id)
        assert [job.state for wait in waits for job in wait.result()] == ["cancelled"] * 4
    assert far.stats()["pending"] == 40


@on_sqlite  # the engine does not matter
def test_a_child_process_has_a_connection_of_its_own(far: Queue) -> None:
    far.enqueue("true")
    for number in range(3):
        child = os.fork()
        if not child:
            done = far.enqueue("true", id=f"child-{number}").state == "pending" if number else True
            far.close()
            os._exit(0 if done else 1)
        answers = [far.enqueue("true", id=f"parent-{number}-{n}").id for n in range(5)]
        assert answers == [f"parent-{number}-{n}" for n in range(5)]
        assert os.waitpid(child, 0)[1] == 0
    assert far.stats()["pending"] == 18


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


@on_sqlite  # the engine does not matter
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


# -- answers that are none -------------------------------------------------------------------------------


class Stub:
    """Says what it is told to, one answer for each request, and hangs up after each; the last one from then on."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            client, _ = self._socket.accept()
            with client:
                if not (asked := _message(client)):
                    return
                self.asked.append(asked)
                try:
                    client.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                except OSError:  # it has heard enough
                    pass

    def close(self) -> None:
        socket.create_connection(self._socket.getsockname()).close()
        self._thread.join()
        self._socket.close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.close()


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"


def said(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return HEAD + b"Content-Length: %d\r\n\r\n" % size + body


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN = {
    "at once": said(b"", 5000),
    "in its middle": said(b'{"id": ', 5000),
    "after what looks like all": said(b"{}", 5000),
    "in a chunk": CHUNKED + b"ff\r\n{}",
    "between chunks": CHUNKED + b"2\r\n{}\r\n",
    "in a chunk of less than nothing": CHUNKED + b"-5\r\n{}\r\n0\r\n\r\n",
}


def job_json(**fields: Any) -> dict[str, Any]:
    now = "2026-11-15T10:33:24.123Z"
    lists: dict[str, Any] = {name: [] for name in ("tags", "retry_on", "no_retry_on", "notify", "depends_on")}
    numbers = dict.fromkeys(("priority", "attempts", "crashes", "snoozes", "max_retries"), 0)
    texts = {"id": "a", "command": "true", "queue": "default", "state": "pending", "log_path": "/x"}
    times = dict.fromkeys(("run_at", "created_at", "updated_at"), now)
    rest = dict.fromkeys(name for name in Job.__slots__ if name not in INTERNAL)
    return {**rest, **lists, **numbers, **texts, **times, "env": {}, **fields}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_breaks_off_is_asked_for_again(stub: Stub, broken: bytes) -> None:
    whole = json.dumps(job_json()).encode()
    page = json.dumps({"jobs": [job_json()], "next": None}).encode()
    with Queue(stub.url) as queue:
        asks: list[tuple[Callable[[], list[Job]], bytes]] = [
            (lambda: [queue.get("a")], whole),
            (lambda: [queue.enqueue("true")], whole),
            (lambda: list(queue.jobs()), page),
        ]
        for ask, answer in asks:
            stub.asked, stub.answers = [], [broken, said(answer)]
            assert [job.id for job in ask()] == ["a"]
            first, second = stub.asked
            assert first == second, "with the same key"
        stub.asked, stub.answers = [], [broken]
        with pytest.raises(StoreUnavailable, match="broke off") as lost:
            queue.get("a")
        assert not isinstance(lost.value, OutcomeUnknown)
        with pytest.raises(OutcomeUnknown, match="was lost"):
            queue.enqueue("true")
        assert len(stub.asked) == 4
        for steer in (queue.cancel, queue.retry):
            stub.asked = []
            with pytest.raises(OutcomeUnknown, match="was lost"):
                steer("a")
            assert len(stub.asked) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_that_is_too_large_is_not_cut(stub: Stub, chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(job_json()).encode()
    fits = text + b" " * ((1 << 20) - len(text))
    monkeypatch.setattr(http_client, "LARGEST", 1 << 20)

    def answer(body: bytes) -> bytes:
        return CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else said(body)

    with Queue(stub.url) as queue:
        stub.answers = [answer(fits)]
        assert queue.get("a").id == "a"
        stub.answers = [answer(fits + b" "), answer(fits)]
        with pytest.raises(StoreUnavailable, match="larger than 1 MiB") as large:
            queue.get("a")
        assert "smaller limit" in large.value.hint
        assert queue.get("a").id == "a", "the next answer is not the rest of that one"


STRANGE: list[Any] = [
    {}, [], "hi", 5, True, None, {"job": {}}, {"jobs": [{}]}, {"jobs": {}}, {"jobs": 5}, {"jobs": "ab", "next": None},
    {"jobs": {"a": "b"}}, {"jobs": [job_json()], "next": 5}, {"done": "yes"}, {"job": job_json(id=None)},
    *(job_json(**{name: value}) for name, value in {"id": None, "state": 5, "tags": "ab", "env": [], "attempts": "1",
      "created_at": "soonish", "started_at": 5, "depends_on": [5]}.items()),
    {name: value for name, value in job_json().items() if name != "notify"},
]  # fmt: skip


@pytest.mark.parametrize("body", [*map(json.dumps, STRANGE), "[" * 100_000, '{"a":' * 100_000, "{", "9" * 5000])
def test_what_is_not_from_queuectl_is_not_taken_for_it(stub: Stub, body: str) -> None:
    stub.answers = [said(body.encode())]
    with Queue(stub.url) as queue:
        for ask in (
            lambda: queue.get("a"),
            lambda: queue.enqueue("true"),
            lambda: queue.enqueue_many(["true", "true"]),
            lambda: queue.jobs(),
            lambda: queue.wait("a"),
            lambda: queue.cancel("a"),
            lambda: queue.retry("a"),
            lambda: queue.stats(),
        ):
            with pytest.raises(StoreUnavailable, match="answered 200, not like queuectl") as strange:
                ask()
            assert strange.value.hint


def test_all_new_jobs_are_in_the_answer(stub: Stub) -> None:
    stub.answers = [said(json.dumps({"jobs": [job_json()]}).encode())]
    with Queue(stub.url) as queue, pytest.raises(StoreUnavailable, match="not like queuectl"):
        queue.enqueue_many(["true", "true"])


def refused(status: int, **more: str) -> bytes:
    body = json.dumps({"detail": "the database is locked", "hint": "try again", **more}).encode()
    head = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Type: application/problem+json\r\n" % status
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_what_may_have_happened_is_not_told_as_a_failure(stub: Stub) -> None:
    gateway = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    changes: list[Callable[[Queue], Any]] = [lambda queue: queue.enqueue("true"), lambda queue: queue.cancel("a")]
    for change in changes:
        for answer, unknown in (
            (refused(503), False),
            (refused(503, outcome="unknown"), True),
            (gateway % 502, True),
            (gateway % 413, False),
            (said(b"{}"), True),
        ):
            stub.answers = [answer]
            with Queue(stub.url) as queue, pytest.raises(StoreUnavailable) as error:
                change(queue)
            assert isinstance(error.value, OutcomeUnknown) is unknown, answer


def test_a_request_whose_answer_was_lost_may_have_happened_whatever_the_second_says(stub: Stub) -> None:
    stub.answers = [said(b"", 5000), refused(503)]
    with Queue(stub.url) as queue, pytest.raises(OutcomeUnknown, match="was lost"):
        queue.enqueue("true")
    assert len(stub.asked) == 2


def test_waiting_goes_on_by_asking_if_the_server_lets_nobody_else_wait(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "CROWDED", 0.01)
    running, completed = (said(json.dumps(job_json(state=state)).encode()) for state in ("processing", "completed"))
    stub.answers = [running, refused(429), running, refused(429), completed]
    with Queue(stub.url) as queue:
        [job] = queue.wait("a", timeout=DEADLINE)
    assert job.state == "completed"
    paths = [asked.split()[1].partition(b"?")[0].rpartition(b"/")[2] for asked in stub.asked]
    assert paths == [b"a", b"wait", b"a", b"wait", b"a"]


def test_an_answer_to_a_change_that_is_too_large_was_an_answer(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "LARGEST", 100)
    stub.answers = [said(json.dumps(job_json()).encode())]
    with Queue(stub.url) as queue, pytest.raises(OutcomeUnknown, match="larger than"):
        queue.enqueue("true")
