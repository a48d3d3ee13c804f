"""What only a hand-made request brings: a length that can be understood in two ways, a body without end."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import DEADLINE
from tests.e2e.conftest import Cli
from tests.web.conftest import Served, serving
from tests.web.test_limits import rss_kb

MIB = 1 << 20
ENDLESS = 300 * MIB
FEW = 16 * MIB  # what the buffers of both kernels hold, and what is read before it is given up
SECOND = b"GET /health HTTP/1.1\r\nHost: smuggled.example\r\n\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    cli = Cli(tmp_path_factory.mktemp("raw"))
    cli.db.parent.mkdir(mode=0o700)
    with serving(cli) as served:
        yield served


def head(served: Served, request: str, *lines: str, role: str | None = "admin") -> bytes:
    token = [f"Authorization: Bearer {served.tokens[role]}"] if role else []
    return "\r\n".join([request, f"Host: 127.0.0.1:{served.port}", *token, *lines, "", ""]).encode("latin-1")


def exchange(served: Served, said: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", served.port), DEADLINE) as line:
        with contextlib.suppress(ConnectionError):
            line.sendall(said)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := line.recv(65536):
                answer += piece
        return answer


AMBIGUOUS = {
    "length and chunks": ["Content-Length: 5", "Transfer-Encoding: chunked"],
    "chunks and length": ["Transfer-Encoding: chunked", "Content-Length: 5"],
    "no length and chunks": ["Content-Length: 0", "Transfer-Encoding: chunked"],
    "two lengths": ["Content-Length: 5", "Content-Length: 6"],
    "the same length twice": ["Content-Length: 5", "Content-Length: 5"],
    "a list of lengths": ["Content-Length: 5, 5"],
    "a negative length": ["Content-Length: -5"],
    "a length with a sign": ["Content-Length: +5"],
    "a hexadecimal length": ["Content-Length: 0x5"],
    "a length with a space in it": ["Content-Length: 5 5"],
    "a length with an underscore": ["Content-Length: 1_0"],
    "a fraction": ["Content-Length: 5.0"],
    "an empty length": ["Content-Length: "],
    "other digits": ["Content-Length: \xb5"],
    "a length of many digits": [f"Content-Length: {'9' * 30}"],
    "a length that is continued": ["Content-Length: 5", " 5"],
    "any header that is continued": ["X-Long: a", "\tb", "Content-Length: 0"],
    "a first line that is continued": [" X: y"],
    "a space before the colon": ["Content-Length : 5"],
    "chunks twice": ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
    "chunks in chunks": ["Transfer-Encoding: chunked, chunked"],
    "another encoding": ["Transfer-Encoding: gzip, chunked"],
    "no encoding": ["Transfer-Encoding: identity"],
    "nearly chunks": ["Transfer-Encoding: xchunked"],
    "chunks that are continued": ["Transfer-Encoding:", " chunked"],
    "a NUL in a header": ["X-Nul: a\0b"],
    "a bare CR": ["X-Bare: a\rContent-Length: 5"],
}


@pytest.mark.parametrize("lines", AMBIGUOUS.values(), ids=AMBIGUOUS)
@pytest.mark.parametrize("role", ["admin", None], ids=["admin", "stranger"])
def test_a_length_that_can_be_understood_in_two_ways_is_refused(
    served: Served, lines: list[str], role: str | None
) -> None:
    body = b"0\r\n\r\n"
    answer = exchange(served, head(served, "POST /logout HTTP/1.1", *lines, role=role) + body + SECOND)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1, "what followed was taken for another request"
    assert b"connection: close" in answer.lower()


def test_the_second_request_on_a_connection_is_held_to_the_same(served: Served) -> None:
    fine = head(served, "POST /logout HTTP/1.1", "Content-Length: 0")
    bad = head(served, "POST /logout HTTP/1.1", *AMBIGUOUS["length and chunks"])
    answer = exchange(served, fine + fine + bad + b"0\r\n\r\n" + SECOND)
    assert [line.split()[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1")] == [
        b"303", b"303", b"400"
    ]  # fmt: skip


def test_chunks_need_http_1_1(served: Served) -> None:
    answer = exchange(served, head(served, "POST /logout HTTP/1.0", "Transfer-Encoding: chunked") + b"0\r\n\r\n")
    assert b" 400 " in answer.splitlines()[0]


def test_a_refusal_says_why(served: Served) -> None:
    answer = exchange(served, head(served, "POST /logout HTTP/1.1", *AMBIGUOUS["length and chunks"]))
    assert b"Content-Length and Transfer-Encoding" in answer


@pytest.mark.parametrize(
    "chunk", [b"-1\r\nx", b"+5\r\nhello\r\n", b"0x5\r\nhello\r\n", b"f" * 30 + b"\r\nx", b"5\r\nhelloX"]
)
def test_a_chunk_of_no_size_is_refused(served: Served, chunk: bytes) -> None:
    answer = exchange(served, head(served, "POST /logout HTTP/1.1", "Transfer-Encoding: chunked") + chunk + SECOND)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_what_is_plain_is_understood(served: Served) -> None:
    ok = head(served, "POST /logout HTTP/1.1", "Content-Length: 5", "Connection: close") + b"a=b&c"
    chunked = head(served, "POST /logout HTTP/1.1", "Transfer-Encoding: Chunked", "Connection: close")
    for said in (ok, chunked + b"5;x=y\r\na=b&c\r\n0\r\nX: y\r\n\r\n"):
        assert exchange(served, said).startswith(b"HTTP/1.1 303 ")


# -- bodies without end ----------------------------------------------------------------------------------


def pour(served: Served, said: bytes, chunked: bool) -> tuple[int, bytes]:
    """Send a body that does not end; how much of it was taken, and what came back."""
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n" if chunked else b"x" * 65536
    taken, answer, deadline = 0, b"", time.monotonic() + DEADLINE
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.sendall(said)
        line.setblocking(False)
        while taken < ENDLESS:
            readable, writable, _ = select.select([line], [line], [], 0.1)
            assert time.monotonic() < deadline, f"not cut off; it took {taken} bytes"
            try:
                if readable and (came := line.recv(65536)):
                    answer += came
                elif readable:
                    readable = []
                if writable:
                    taken += line.send(piece)
            except BlockingIOError:
                continue
            except ConnectionError:
                break
    return taken, answer


UNWANTED = [
    ("POST /api/v1/jobs", None, 401),
    ("POST /logout", None, 401),
    ("POST /nothing", None, 404),
    ("PUT /health", None, 405),
    ("BREW /health", None, 405),
    ("GET /health", None, 200),
    ("GET /api/v1/jobs", "admin", 200),
    ("GET /live?page=/", "admin", 200),
    ("POST /login", None, 413),
    ("POST /api/v1/jobs", "admin", 413),
    ("POST /nothing", "admin", 413),
]


def test_a_body_that_nobody_wants_is_not_read(served: Served) -> None:
    before = rss_kb(served.process.pid)

    def check(case: tuple[tuple[str, str | None, int], bool]) -> None:
        (request, role, status), chunked = case
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {ENDLESS}"
        said = head(served, f"{request} HTTP/1.1", length, "Content-Type: application/json", role=role)
        taken, answer = pour(served, said, chunked)
        assert taken < FEW, case
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (case, answer[:100])
        # Else a client would use the connection again, and its next request would get no answer.
        assert b"\r\nconnection: close\r\n" in answer.lower(), (case, answer[:500])

    cases = [(case, chunked) for case in UNWANTED for chunked in (False, True)]
    with ThreadPoolExecutor(len(cases)) as threads:  # each waits for its end
        for done in [threads.submit(check, case) for case in cases]:
            done.result()
    assert rss_kb(served.process.pid) - before < 50_000
    with served.http() as program:
        assert program.get("/health").status_code == 200


def test_a_strangers_body_that_drips_is_given_up(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.sendall(head(served, "POST /logout HTTP/1.1", "Content-Length: 1000", role=None))
        deadline = time.monotonic() + DEADLINE
        with contextlib.suppress(ConnectionError):
            while True:
                assert time.monotonic() < deadline, "still open"
                line.sendall(b"x")
                if select.select([line], [], [], 0.1)[0] and not line.recv(65536):
                    time.sleep(0.1)  # it has said all; does it still listen?


def test_a_small_body_that_nobody_wants_costs_no_connection(served: Served) -> None:
    refused = head(served, "POST /nothing HTTP/1.1", "Content-Length: 5", role=None)
    with socket.create_connection(("127.0.0.1", served.port), DEADLINE) as line:
        for _ in range(3):
            line.sendall(refused)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += line.recv(65536)
            assert b" 404 " in answer.splitlines()[0]
            assert b"connection: close" not in answer.lower()
            line.sendall(b"hello")
            length = int(answer.lower().partition(b"content-length:")[2].split()[0])
            body = answer.partition(b"\r\n\r\n")[2]
            while len(body) < length:
                body += line.recv(65536)
