"""Those who are slow, those who are many, those who never stop: the server bounds them, the queue does not notice."""

from __future__ import annotations

import contextlib
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import apsw
import httpx
import pytest

from tests.conftest import eventually
from tests.e2e.conftest import Cli
from tests.web.conftest import Served, serving


def rss_kb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def connect(served: Served, said: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", served.port))
    with contextlib.suppress(ConnectionError):
        found.sendall(said)
    return found


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_slow_ones_are_cut_off_and_disturb_nobody(served: Served, cli: Cli) -> None:
    cli.ok("enqueue", "true")
    before = rss_kb(served.process.pid)
    half = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nX-Slow: ".encode()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(served, half if n % 2 else b"")) for n in range(200)]
        with served.http() as program:
            assert program.get("/health").status_code == 200
        cli.ok("worker", "start", "--count", "1")
        try:
            cli.ok("wait", "--all", "--timeout", "60s")
        finally:
            cli.ok("worker", "stop")
        assert rss_kb(served.process.pid) - before < 50_000
        eventually(lambda: all(is_closed(connection) for connection in slow), "all slow ones are cut off")
        assert rss_kb(served.process.pid) - before < 50_000


def test_those_who_dawdle_on_a_second_request_are_cut_off_too(served: Served) -> None:
    whole = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode()
    with connect(served, whole) as connection:
        eventually(lambda: b"ok\n" in connection.recv(65536))
        connection.sendall(whole[:20])
        eventually(lambda: is_closed(connection), "the second request never came")


def test_there_are_only_so_many_connections_at_once(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(connect(served)) for _ in range(300)]
        answers = [connection.recv(65536) for connection in many[256:]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
        assert all(b"\r\nRetry-After: 5\r\n" in answer for answer in answers)
        eventually(lambda: all(is_closed(connection) for connection in many[256:]), "those too many are sent away")
    with served.http() as program:
        eventually(lambda: _answers(program), "the others have gone, and it answers again")


def _answers(program: httpx.Client) -> bool:
    try:
        return program.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def test_a_slow_body_is_given_up(served: Served) -> None:
    head = (
        f"POST /logout HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 1000\r\n"
        f"Authorization: Bearer {served.tokens['admin']}\r\n\r\nslow"
    )
    with connect(served, head.encode()) as connection:
        assert b" 408 " in eventually(lambda: connection.recv(65536))


def test_those_who_take_nothing_of_their_answer_are_cut_off(served: Served, cli: Cli) -> None:
    log = cli.logs / "job_big.log"
    cli.ok("enqueue", "--id", "big", "true")
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"x" * 50_000_000)
    said = (
        f"GET /api/v1/jobs/big/log?raw=1 HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
        f"Authorization: Bearer {served.tokens['viewer']}\r\n\r\n"
    )
    with connect(served, said.encode()) as connection:
        port = connection.getsockname()[1]
        eventually(lambda: port not in connected_ports(served), "it was cut off without having read a byte")


def connected_ports(served: Served) -> set[int]:
    """The ports of those who are connected to the server."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in list(table)[1:]]
    here = f":{served.port:04X}"
    return {int(row[2].partition(":")[2], 16) for row in rows if row[1].endswith(here) and row[3] == "01"}


def _waiting(served: Served) -> int:
    """How many threads the server has at work."""
    return len(os.listdir(f"/proc/{served.process.pid}/task"))


def test_locked_writes_do_not_keep_readers_waiting(served: Served, cli: Cli) -> None:
    with closing(apsw.Connection(str(cli.db))) as db, ThreadPoolExecutor(40) as threads:
        db.execute("BEGIN IMMEDIATE")

        def change(_: int) -> int:
            with served.http() as program:
                return program.post("/api/v1/jobs", json={"command": "true"}).status_code

        changes = [threads.submit(change, n) for n in range(40)]
        eventually(lambda: _waiting(served) >= 8, "writes wait for the lock, as many as may")
        answered = 0
        with served.http() as program:
            while not any(one.done() for one in changes):
                assert program.get("/health").status_code == 200
                answered += 1
        assert answered > 5
        assert {one.result() for one in changes} == {503}
        db.execute("ROLLBACK")
        assert change(0) == 201


def test_headers_are_bounded(served: Served) -> None:
    head = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n".encode()
    with connect(served, head + b"X-Large: " + b"x" * 2_000_000) as connection:
        assert b" 400 " in eventually(lambda: connection.recv(65536))


@pytest.mark.parametrize("death", ["server", "queue"])
def test_server_and_queue_do_not_depend_on_each_other(cli: Cli, death: str) -> None:
    cli.ok("worker", "start", "--count", "1")
    try:
        with serving(cli) as served:
            if death == "server":
                served.process.kill()
                served.process.wait()
            else:
                cli.ok("worker", "stop")
                with served.http() as program:
                    assert program.get("/").status_code == 200
        if death == "server":
            assert "\nstill here\n" in cli.ok("enqueue", "--wait", "echo still here")
    finally:
        cli("worker", "stop")
