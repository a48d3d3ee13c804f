"""Posting, to a real server on loopback: what counts as an answer, where it leads, and how long it may take."""

from __future__ import annotations

import itertools
import socket
import ssl
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuectl.errors import InvalidInput, QueuectlError
from queuectl.hooks import webhook_client
from tests.conftest import DEADLINE
from tests.receiver import Receiver
from tests.receiver import receiver as receiver

HEADERS = {"webhook-id": "x", "content-type": "application/json"}
BODY = b'{"a": 1}'


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], object]], int]]:
    """Start a server that does this with its first caller; its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(DEADLINE)
    threads: list[threading.Thread] = []

    def start(do: Callable[[socket.socket], object]) -> int:
        def once() -> None:
            try:
                line, _ = listener.accept()
                with line:
                    line.settimeout(DEADLINE)
                    do(line)
            except OSError:  # nobody calls, or the caller has hung up
                pass

        threads.append(threading.Thread(target=once))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield start
    for thread in threads:
        thread.join()
    listener.close()


def post(url: str, allow_private: bool = True) -> webhook_client.Answer:
    return webhook_client.post(url, HEADERS, BODY, allow_private)


def take(line: socket.socket) -> None:
    """Read all of a request: a server that closes a connection with some of it unread resets the connection."""
    request = b""
    while not request.endswith(BODY):
        piece = line.recv(65536)
        if not piece:
            raise ConnectionError
        request += piece


def test_it_posts_the_body_with_its_headers(receiver: Receiver) -> None:
    answer = post(receiver.url + "/hook?a=b")
    assert (answer.status, answer.ok) == (200, True)
    [got] = receiver.posts
    assert (got.path, got.body) == ("/hook?a=b", b'{"a": 1}')
    assert got.headers["webhook-id"] == "x"
    assert got.headers["host"] == f"127.0.0.1:{receiver.server_port}"
    assert got.headers["content-length"] == "8"


@pytest.mark.parametrize(("status", "ok"), [(200, True), (204, True), (299, True), (400, False), (500, False)])
def test_only_a_two_hundred_is_good(receiver: Receiver, status: int, ok: bool) -> None:
    receiver.statuses, receiver.text = [status], b"so\n it   goes"
    answer = post(receiver.url)
    assert (answer.status, answer.ok) == (status, ok)
    assert ("so it goes" in str(answer)) is (not ok)


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [302], {"Location": receiver.url + "/elsewhere"}
    answer = post(receiver.url)
    assert not answer.ok
    assert "redirects are not followed" in str(answer)
    assert [got.path for got in receiver.posts] == ["/"]


def test_a_private_address_is_not_even_called(receiver: Receiver) -> None:
    with pytest.raises(InvalidInput, match="private address"):
        post(receiver.url, allow_private=False)
    assert receiver.posts == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.1", "127.1"])
def test_other_spellings_of_an_address_are_seen_through(receiver: Receiver, host: str) -> None:
    with pytest.raises(InvalidInput, match=r"private address"):
        post(f"http://{host}:{receiver.server_port}/", allow_private=False)
    assert receiver.posts == []


def found(*addresses: str, port: int = 80) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]


def test_one_private_address_among_public_ones_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found("8.8.8.8", "10.0.0.1"))
    monkeypatch.setattr(webhook_client, "_call", None)
    with pytest.raises(InvalidInput, match=r'"two.example" \(10.0.0.1\) is a private address'):
        post("http://two.example/", allow_private=False)


OUTSIDE = "8.8.8.8"
_connected: list[Any] | None = None  # addresses that this process has connected to, while somebody wants to know


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _connected is not None and event == "socket.connect":
        _connected.append(args[1])
        if args[1][0] == OUTSIDE:  # nothing leaves this machine
            raise ConnectionRefusedError(111, "Connection refused")


@pytest.fixture
def connected() -> Iterator[list[Any]]:
    """Every address that a socket of this process is connected to, whichever code does it."""
    global _connected
    if _note not in _hooks:
        sys.addaudithook(_note)  # for good: there is no way to remove one
        _hooks.append(_note)
    _connected = []
    yield _connected
    _connected = None


_hooks: list[object] = []


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0"])
def test_it_calls_the_very_address_that_was_checked(
    receiver: Receiver, connected: list[Any], monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """DNS rebinding: a name server that gives another answer the second time is not asked a second time."""
    port = receiver.server_port
    answers = [found(OUTSIDE, port=port), *(found(inside, port=port) for _ in range(5))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.pop(0))
    with pytest.raises(QueuectlError, match=r"no answer from rebinding.example:\d+: connection refused"):
        post(f"http://rebinding.example:{port}/", allow_private=False)
    assert connected == [(OUTSIDE, port)]
    assert len(answers) == 5
    assert receiver.posts == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/", "http://127.1:{port}/", "http://2130706433:{port}/", "http://0x7f.0.0.1:{port}/",
        "http://0177.0.0.1:{port}/", "http://0:{port}/", "http://0.0.0.0:{port}/", "http://localhost:{port}/",
        "http://127.0.0.1.:{port}/", "http://[::1]:{port}/", "http://[::]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::ffff:7f00:1]:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://169.254.169.254/",
        "http://[fe80::1]/", "http://[fd00:ec2::254]/", "http://example.com@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}@example.com/", "http://example.com:80@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}\\@example.com/", "http://%31%32%37.0.0.1:{port}/", "http://①②⑦.0.0.1:{port}/",
        "http://127.0.0.1:{port}#@example.com/", "http://127.0.0.1:{port}?@example.com/", "http:/127.0.0.1:{port}/",
        "http:127.0.0.1:{port}", "http:///127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http://127.0.0.1%00.example.com/",
        "http://127.0.0.1%2eexample.com/", "http://[127.0.0.1]:{port}/", "http://[::1%25lo]:{port}/",
    ],
)  # fmt: skip
def test_no_spelling_of_a_url_leads_inside(receiver: Receiver, connected: list[Any], url: str) -> None:
    with pytest.raises(QueuectlError) as refused:
        post(url.format(port=receiver.server_port), allow_private=False)
    assert isinstance(refused.value, InvalidInput) or "not known" in str(refused.value)
    assert connected == []
    assert receiver.posts == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_leads_inside(receiver: Receiver, connected: list[Any], status: int) -> None:
    receiver.statuses, receiver.headers = [status], {"Location": "http://169.254.169.254/latest/meta-data/"}
    assert not post(receiver.url).ok
    assert connected == [("127.0.0.1", receiver.server_port)]
    assert len(receiver.posts) == 1


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_of_the_environment_is_called(
    receiver: Receiver, connected: list[Any], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1/")
    assert post(receiver.url).ok
    assert connected == [("127.0.0.1", receiver.server_port)]


def test_the_second_address_is_tried_if_the_first_does_not_answer(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.2", 0)) as closed:
        refuses = closed.getsockname()[0]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: found(refuses, "127.0.0.1", port=receiver.server_port)
    )
    assert post(f"http://two.example:{receiver.server_port}/").ok


def test_nobody_there(serve: Callable[..., int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(QueuectlError, match=f"no answer from 127.0.0.1:{port}: connection refused") as error:
        post(f"http://127.0.0.1:{port}/")
    assert error.value.exit_code == 1


def test_a_name_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with pytest.raises(QueuectlError, match=r"no answer from nobody.invalid"):
        post("http://nobody.invalid/")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 xyz ?\r\n\r\n",
        CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"-1\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"-" + b"f" * 20 + b"\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_answer(serve: Callable[..., int], answer: bytes) -> None:
    def talk(line: socket.socket) -> None:
        take(line)
        line.sendall(answer)

    port = serve(talk)
    with pytest.raises(QueuectlError, match="no answer from"):
        post(f"http://127.0.0.1:{port}/")


OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {  # how an answer begins, and what then comes without end
    "before the status": (b"", b"\r\n"),
    "status": (b"HTTP/1.1 200 ", b"o"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers of an interim answer": (b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n"),
    "headers": (OK, b"X: " + b"y" * 1000 + b"\r\n"),
    "header": (OK + b"X: ", b"y"),
    "chunk of size -1": (CHUNKED + b"-1\r\n", b"x"),
    "chunk of size -5": (CHUNKED + b"-5\r\n", b"x"),
    "size of a chunk": (CHUNKED, b"0"),
    "extension of a chunk": (CHUNKED + b"5;", b"x"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
}
FEW = 16 << 20  # bytes that the buffers of both kernels may hold


@pytest.mark.parametrize(("start", "endless"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_not_read_for_long(serve: Callable[..., int], start: bytes, endless: bytes) -> None:
    sent = 0
    piece = endless * (65536 // len(endless))

    def talk(line: socket.socket) -> None:
        nonlocal sent
        take(line)
        line.sendall(start)
        while sent < 10 * FEW:
            sent += line.send(piece)

    port = serve(talk)
    tracemalloc.start()
    with pytest.raises(QueuectlError, match="no answer from"):
        post(f"http://127.0.0.1:{port}/")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sent < FEW
    assert most < 1 << 20


@pytest.mark.parametrize(("start", "endless"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_that_drips_is_cut_off(
    serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch, start: bytes, endless: bytes
) -> None:
    """Byte by byte: each comes in time, all of them never do."""
    monkeypatch.setattr(webhook_client, "ANSWER_WITHIN", 0.3)

    def drip(line: socket.socket) -> None:
        take(line)
        line.sendall(start)
        for byte in itertools.cycle(endless):
            line.sendall(bytes([byte]))
            time.sleep(0.02)

    with pytest.raises(QueuectlError, match="no answer from"):
        post(f"http://127.0.0.1:{serve(drip)}/")


def test_a_receiver_that_takes_nothing_is_cut_off(serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "ANSWER_WITHIN", 0.3)
    over = threading.Event()
    port = serve(lambda line: over.wait(60))
    with pytest.raises(QueuectlError, match="it took too long"):
        webhook_client.post(f"http://127.0.0.1:{port}/", HEADERS, b"x" * (32 << 20), allow_private=True)
    over.set()


def test_a_name_server_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "CONNECT_WITHIN", 0.2)
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found(OUTSIDE) * over.wait(60))
    began = time.monotonic()
    with pytest.raises(QueuectlError, match=r"no answer from slow.example: it took too long"):
        post("http://slow.example/")
    assert time.monotonic() - began < 30
    over.set()


def test_a_body_in_chunks_is_read_as_far_as_it_is_shown(serve: Callable[..., int]) -> None:
    """Also if it never ends: what is shown of it is there."""

    def talk(line: socket.socket) -> None:
        take(line)
        line.sendall(b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            line.sendall(b"4\r\nwhy \r\n")

    assert "why why why" in str(post(f"http://127.0.0.1:{serve(talk)}/"))


def test_a_handshake_that_never_comes_is_cut_off(serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "CONNECT_WITHIN", 0.3)
    over = threading.Event()
    port = serve(lambda line: over.wait(60))
    with pytest.raises(QueuectlError, match="it took too long"):
        post(f"https://127.0.0.1:{port}/")
    over.set()


def test_a_long_answer_is_not_read_to_its_end(serve: Callable[..., int]) -> None:
    def talk(line: socket.socket) -> None:
        take(line)
        line.sendall(b"HTTP/1.1 500 Oops\r\n\r\n")
        while True:
            line.sendall(b"x" * 65536)

    answer = post(f"http://127.0.0.1:{serve(talk)}/")
    assert answer.status == 500
    assert len(str(answer)) < 300


def test_a_certificate_that_nobody_vouches_for_is_refused(
    serve: Callable[..., int], certificate: tuple[str, str]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    port = serve(lambda line: context.wrap_socket(line, server_side=True))
    with pytest.raises(QueuectlError, match=r"self.signed certificate"):
        post(f"https://127.0.0.1:{port}/")


def test_tls_is_for_the_name_in_the_url_and_not_for_the_address(
    serve: Callable[..., int], certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate says hook.example: it is good for that name, wherever it leads, and for no other."""
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, port, **__: found("127.0.0.1", port=port))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    def answer(line: socket.socket) -> None:
        with context.wrap_socket(line, server_side=True) as secured:
            take(secured)
            secured.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    assert post(f"https://hook.example:{serve(answer)}/").status == 204
    with pytest.raises(QueuectlError, match="hostname mismatch"):
        post(f"https://other.example:{serve(answer)}/")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for hook.example that vouches for itself, and its key."""
    import shutil
    import subprocess

    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    made, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example",
         "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key
