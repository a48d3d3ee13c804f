"""The process: its socket, its limits, its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from queuectl.errors import QueuectlError

HEADERS_WITHIN = 10.0  # seconds
TAKEN_WITHIN = 30.0  # seconds in which somebody takes something of his answer
MOST_CONNECTIONS = 256
LARGEST_HEADERS = 16 * 1024
IDLE_WITHIN = 15  # seconds between two requests on a connection


class Patient(H11Protocol):
    """HTTP, but not with everybody at once, and not with those who take for ever to say what they want."""

    _hurry: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._hurry is None and self._idle():
            self._expect_headers()
        super().data_received(data)
        if not self._idle():
            self._relax()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(TAKEN_WITHIN, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unstick()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        self._unstick()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        """Is no request under way?"""
        return self.cycle is None or self.cycle.response_complete

    def _expect_headers(self) -> None:
        self._hurry = self.loop.call_later(HEADERS_WITHIN, self.transport.abort)

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
