"""Streams without end (live pages, followed logs, waiting): bounded in number; ordinary requests find room."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from queuectl.store import Store
from queuectl.web.streams import MOST_OF_ONE_CLIENT, MOST_STREAMS
from tests.conftest import DEADLINE, eventually
from tests.web.conftest import Served, enqueue
from tests.web.test_limits import connected_ports, is_closed, rss_kb


class Streams:
    """Requests for streams, each on a connection of its own."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.opened: list[socket.socket] = []

    def open(self, path: str, who: str, buffer: int = 0) -> socket.socket:
        connection = socket.socket()
        self.opened.append(connection)
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(DEADLINE)
        connection.connect(("127.0.0.1", self._served.port))
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._served.port}\r\n{who}\r\n\r\n"
        with contextlib.suppress(ConnectionError):
            connection.sendall(head.encode())
        return connection

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()


@pytest.fixture
def streams(served: Served) -> Iterator[Streams]:
    with contextlib.closing(Streams(served)) as streams:
        yield streams


def bearer(served: Served, role: str = "viewer") -> str:
    return f"Authorization: Bearer {served.tokens[role]}"


def logged_in(served: Served) -> str:
    """The cookie of a session of its own: another client."""
    with served.session("viewer") as browser:
        return "Cookie: " + "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def answer(connection: socket.socket) -> tuple[int, dict[str, str]]:
    """The status and the headers; 0: no answer at all."""
    head = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
            head += piece
    if not head:
        return 0, {}
    first, *lines = head.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, _, value in pairs}


def assert_prompt(served: Served) -> None:
    """Pages, the API and the health check answer as if nobody else were there."""
    with served.http() as program:
        for path in ("/health", "/", "/jobs", "/api/v1/stats"):
            began = time.monotonic()
            assert program.get(path).status_code == 200
            assert time.monotonic() - began < 5, path
        assert program.post("/api/v1/jobs", json={"command": "true"}).status_code == 201


KINDS = ["/live?page=/", "/api/v1/jobs/waiting/log?follow=1", "/api/v1/jobs/waiting/wait?timeout=60"]


@pytest.mark.parametrize("path", KINDS)
def test_a_client_gets_only_so_many_streams(served: Served, store: Store, streams: Streams, path: str) -> None:
    enqueue(store, id="waiting")
    before = rss_kb(served.process.pid)
    held = [streams.open(path, bearer(served)) for _ in range(MOST_OF_ONE_CLIENT)]
    if "wait" not in path.rpartition("/")[2]:  # that one answers at its end
        assert {answer(one)[0] for one in held} == {200}
    refused = eventually(lambda: _refused(streams, path, bearer(served)))
    assert refused["retry-after"].isdigit()
    assert refused["content-type"] == "application/problem+json"
    assert refused["connection"] == "close"
    for _ in range(300):  # refused ones do not keep their connections either
        assert answer(streams.open(path, bearer(served)))[0] == 429
    assert_prompt(served)
    assert answer(streams.open("/live?page=/jobs", bearer(served, "operator")))[0] == 200  # others are not concerned
    assert rss_kb(served.process.pid) - before < 50_000
    streams.close()
    eventually(lambda: not _refused(streams, "/live?page=/", bearer(served)), "closed streams give their place back")


def _refused(streams: Streams, path: str, who: str) -> dict[str, str]:
    """The headers of a refusal; none, if it was not refused."""
    connection = streams.open(path, who)
    connection.settimeout(3)
    try:
        status, headers = answer(connection)
    except TimeoutError:  # it waits
        return {}
    assert status in (200, 429)
    return headers if status == 429 else {}


def test_all_clients_together_get_only_so_many_streams(served: Served, streams: Streams) -> None:
    clients = [logged_in(served) for _ in range(MOST_STREAMS // MOST_OF_ONE_CLIENT + 1)]
    before = rss_kb(served.process.pid)
    every = [streams.open(f"/live?page=/jobs?n={n}", client) for n in range(MOST_OF_ONE_CLIENT) for client in clients]
    answers = [answer(one) for one in every]
    assert [status for status, _ in answers].count(200) == MOST_STREAMS
    assert {status for status, _ in answers} == {200, 429}
    assert all(headers["retry-after"].isdigit() for status, headers in answers if status == 429)
    assert_prompt(served)
    assert rss_kb(served.process.pid) - before < 80_000


def test_a_flood_of_connections_is_refused_in_words(served: Served, streams: Streams) -> None:
    """As long as there is room for an answer; what comes beyond that is cut off."""
    flood = [streams.open("/live?page=/", bearer(served)) for _ in range(600)]
    statuses = [answer(one)[0] for one in flood]
    assert set(statuses) <= {200, 429, 503, 0}
    assert statuses.count(200) == MOST_OF_ONE_CLIENT
    eventually(lambda: _prompt_again(served), "ordinary requests are answered")


def _prompt_again(served: Served) -> bool:
    try:
        assert_prompt(served)
    except httpx.TransportError:
        return False
    return True


def test_a_stream_whose_reader_takes_nothing_is_cut_off(served: Served, store: Store, streams: Streams) -> None:
    for n in range(100):
        enqueue(store, "x" * 1500, id=f"long{n}")
    silent = [streams.open("/live?page=/jobs", bearer(served), buffer=2048) for _ in range(5)]
    taking = streams.open("/live?page=/jobs", bearer(served))
    ports = {one.getsockname()[1] for one in silent}
    end = time.monotonic() + 3 * DEADLINE
    while ports & connected_ports(served):
        assert time.monotonic() < end, "streams that nobody reads are still there"
        enqueue(store, "y" * 1500)
        is_closed(taking)
        time.sleep(0.2)
    assert not is_closed(taking)
