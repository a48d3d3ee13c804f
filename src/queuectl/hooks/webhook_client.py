"""Posting a webhook: one look-up, one address that was checked, no redirects, and no longer than it may take.

The standard library's plain means, because no proxy, no redirect and no second look-up may lead it elsewhere.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from queuectl.errors import QueuectlError
from queuectl.hooks import webhook_signing
from queuectl.hooks.webhook_signing import Target

CONNECT_WITHIN = 10.0  # seconds, the TLS handshake included
ANSWER_WITHIN = 15.0  # for all of it
READ = 2048  # bytes of an answer's body, for an error's text
LARGEST_ANSWER = 64 * 1024  # bytes that are read of an answer, whatever it says of its length
GONE = 410

Address = tuple[int, tuple[Any, ...]]
"""A family of addresses, and one of it."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    reason: str
    text: str
    seconds: float

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def __str__(self) -> str:
        said = f": {self.text}" if self.text and not self.ok else ""
        moved = " (redirects are not followed)" if 300 <= self.status < 400 else ""
        return f"{self.status} {self.reason}".rstrip() + moved + said


def post(url: str, headers: Mapping[str, str], body: bytes, allow_private: bool = False) -> Answer:
    """Send it, and tell what came back, whatever that is. Raises if nothing did."""
    began = time.monotonic()
    target = webhook_signing.target(url)
    addresses = _look_up(target, began + CONNECT_WITHIN)
    if not allow_private:
        webhook_signing.refuse_private(target.host, [str(place[0]) for _, place in addresses])
    try:
        line = _connect(target, addresses, began + CONNECT_WITHIN)
    except OSError as error:
        raise _unreachable(target, error) from error
    # A time-out of the socket's own begins anew with every byte.
    cut = threading.Timer(began + ANSWER_WITHIN - time.monotonic(), _hang_up, [line])
    cut.daemon = True
    cut.start()
    try:
        answer = _exchange(line, target, headers, body, began)
        if answer.seconds >= ANSWER_WITHIN:  # cut off: what has come may look like all of it
            raise TimeoutError
        return answer
    except (OSError, http.client.HTTPException) as error:
        late = time.monotonic() - began >= ANSWER_WITHIN
        raise _unreachable(target, TimeoutError() if late else error) from error
    finally:
        cut.cancel()
        line.close()


def _look_up(target: Target, deadline: float) -> list[Address]:
    """All addresses of its host. In a thread of its own, as a look-up cannot be given up."""
    found: list[list[Address] | Exception] = []

    def look_up() -> None:
        try:
            answer = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            found.append([(family, place) for family, *_, place in answer])
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    result = found[0] if found else TimeoutError()
    if isinstance(result, Exception):
        raise _unreachable(target, result) from result
    return result


def _connect(target: Target, addresses: list[Address], deadline: float) -> socket.socket:
    """A line to the first of these that takes the call."""
    refused: OSError = TimeoutError()
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            line = _call(address, left)
        except OSError as error:
            refused = error
            continue
        try:
            line.settimeout(max(0.01, deadline - time.monotonic()))
            if target.scheme == "https":
                line = ssl.create_default_context().wrap_socket(line, server_hostname=target.host)
            line.settimeout(ANSWER_WITHIN)
        except BaseException:
            line.close()
            raise
        return line
    raise refused


def _call(address: Address, timeout: float) -> socket.socket:
    """Connect to this very address. (socket.create_connection would look it up again.)"""
    family, place = address
    line = socket.socket(family, socket.SOCK_STREAM)
    try:
        line.settimeout(timeout)
        line.connect(place)
    except BaseException:
        line.close()
        raise
    return line


def _exchange(line: socket.socket, target: Target, headers: Mapping[str, str], body: bytes, began: float) -> Answer:
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = line
    wanted = {"host": target.authority, **headers, "connection": "close"}
    connection.request("POST", target.path, body, wanted)
    response = http.client.HTTPResponse(_Bounded(line), method="POST")  # type: ignore[arg-type]
    try:
        response.begin()
        text = response.read(READ).decode(errors="replace")
    except (ValueError, OverflowError):  # a chunk of less than nothing
        raise http.client.HTTPException("its answer has no length") from None
    return Answer(response.status, response.reason, " ".join(text.split())[:200], time.monotonic() - began)


class _Bounded(io.RawIOBase):
    """What is read of an answer, up to a limit. http.client itself bounds lines, but neither their number nor a chunk
    whose size it misreads: it takes -1 for "all there is"."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._left = LARGEST_ANSWER

    def makefile(self, mode: str) -> io.BufferedReader:
        """As of a socket; but it does not keep the socket open."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            raise http.client.HTTPException(f"its answer has more than {LARGEST_ANSWER >> 10} KiB")
        count = self._line.recv_into(buffer, min(len(buffer), self._left))
        self._left -= count
        return count


def _hang_up(line: socket.socket) -> None:
    try:
        socket.socket.shutdown(line, socket.SHUT_RDWR)  # as a plain socket: the other thread is at its TLS
    except OSError:
        pass


def _unreachable(target: Target, error: Exception) -> QueuectlError:
    if isinstance(error, TimeoutError):
        what = "it took too long"
    elif isinstance(error, ssl.SSLCertVerificationError):
        what = error.verify_message
    else:
        what = str(getattr(error, "strerror", None) or error or type(error).__name__)
    return QueuectlError(f"no answer from {target.authority}: {what.lower()}", "check the address, and who is there")
