"""The process: its socket, its limits, its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from queuectl.errors import QueuectlError
from queuectl.web.framing import StrictConnection
from queuectl.web.http_errors import RETRY_AFTER
from queuectl.web.security import LARGEST_BODY

HEADERS_WITHIN = 10.0  # seconds
TAKEN_WITHIN = 30.0  # seconds in which somebody takes something of his answer
MOST_CONNECTIONS = 256
MOST_REFUSED = 64  # beyond those: connections that are told so; any more are reset
LARGEST_HEADERS = 16 * 1024
IDLE_WITHIN = 15  # seconds between two requests on a connection
UNWANTED = 64 * 1024  # bytes of a body that are still taken when its answer has been sent
UNWANTED_WITHIN = 2.0  # seconds
LEAVE_WITHIN = 2.0  # seconds in which the answer can be read before the connection is reset


NO_ROOM = "\r\n".join(
    [
        "HTTP/1.1 503 Service Unavailable",
        "Connection: close",
        f"Retry-After: {RETRY_AFTER}",
        "Content-Type: text/plain",
        "",
        f"all {MOST_CONNECTIONS} connections are in use; try again later\n",
    ]
).encode()


class Patient(H11Protocol):
    """HTTP, but not with everybody at once, and not with those who take for ever to say what they want."""

    _hurry: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _unwanted: int | None = None  # bytes of an unwanted body that may still come
    _leaving: asyncio.TimerHandle | None = None
    _hung_up = False
    conn: StrictConnection

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # The guard says what is too large before that.
        self.conn = StrictConnection(LARGEST_HEADERS, 2 * LARGEST_BODY, UNWANTED)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS + MOST_REFUSED:
            transport.abort()
        elif len(self.connections) > MOST_CONNECTIONS:
            transport.write(NO_ROOM)
            self._hang_up()
        else:
            self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._hung_up:  # older Pythons start to read though that was paused when the connection was made
            return
        if self._unwanted is not None:
            self._unwanted -= len(data)
            if self._unwanted < 0:
                self._hang_up()
                return
        if self._hurry is None and self._idle():
            self._expect_headers()
        super().data_received(data)
        if not self._idle():
            self._relax()
        if self._unwanted is not None and self.conn.their_state is not h11.SEND_BODY:
            self._stay()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # The answer did not wait for the body. A little of it is taken, so that most connections can be kept.
            self._unwanted = UNWANTED
            self._leaving = self.loop.call_later(UNWANTED_WITHIN, self._hang_up)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # another answer is under way, or has been sent
            self.transport.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever waits for the body is told, and answers nothing
            self.cycle.message_event.set()
        super().send_400_response(f"Invalid HTTP request: {self.conn.refused}." if self.conn.refused else msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(TAKEN_WITHIN, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unstick()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        self._unstick()
        self._stay()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        """Is no request under way?"""
        return self.cycle is None or self.cycle.response_complete

    def _expect_headers(self) -> None:
        self._hurry = self.loop.call_later(HEADERS_WITHIN, self.transport.abort)

    def _hang_up(self) -> None:
        """Read no more, and end the connection so that the answer can be read first: a plain close with bytes unread
        resets it at once."""
        self._hung_up = True
        self._stay()
        self._unset_keepalive_if_required()
        self.flow.pause_reading()
        self.transport.write_eof()
        self._leaving = self.loop.call_later(LEAVE_WITHIN, self.transport.abort)

    def _stay(self) -> None:
        self._unwanted = None
        if self._leaving:
            self._leaving.cancel()
            self._leaving = None

    def _unstick(self) -> None:
        if self._stuck:
            self._stuck.cancel()
            self._stuck = None

    def _relax(self) -> None:
        if self._hurry:
            self._hurry.cancel()
            self._hurry = None


class Server(uvicorn.Server):
    """Ends at once when it is told to, even if tabs hang on it."""

    def __init__(self, app: Starlette, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.desk.live.close()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """The socket to serve on; port 0 takes a free one."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections inherit it. A slow stream may take minutes to fill the kernel's send buffer, and only then
            # pauses the transport; the kernel knows at once that the reader's window is closed.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(TAKEN_WITHIN * 1000))
        found.bind(address)
        found.listen(128)
    except OSError as error:
        raise QueuectlError(
            f"cannot listen on {host}, port {port}: {error.strerror}", "choose another with --port, or --port 0"
        ) from None
    return found


def run(app: Starlette, listening: socket.socket) -> None:
    """Serve until a signal says that it is enough."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    config = uvicorn.Config(
        app,
        http=Patient,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_WITHIN,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=LARGEST_HEADERS,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again at its end: it was no accident
        signal.signal(number, lambda *_: None)
    Server(app, config).run(sockets=[listening])
