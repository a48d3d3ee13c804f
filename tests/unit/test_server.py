"""What the server does with a connection, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from queuectl.web.server import MOST_CONNECTIONS, NO_ROOM, Patient


class Wire(asyncio.Transport):
    """Remembers what was written; refuses anything after the end, as asyncio does."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = False

    def write(self, data: Any) -> None:
        assert not self.ended
        self.written += bytes(data)

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_connection_that_was_refused_serves_no_request_even_if_one_is_read() -> None:
    served = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(True)

    async def refuse() -> Wire:
        config = uvicorn.Config(app, http=Patient)
        config.load()
        state = ServerState()
        state.connections.update(Patient(config, state, {}) for _ in range(MOST_CONNECTIONS))
        one, wire = Patient(config, state, {}), Wire()
        one.connection_made(wire)
        one.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.gather(*state.tasks)
        one.connection_lost(None)
        return wire

    wire = asyncio.run(refuse())
    assert (wire.written, wire.ended, served) == (NO_ROOM, True, [])
