"""Limits for responses that stay open: live pages, followed logs and requests that wait for a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from queuectl.errors import TooManyRequests
from queuectl.web.auth import User

MOST_STREAMS = 128  # half of all connections: ordinary requests find room beside them
MOST_OF_ONE_CLIENT = 32


class Client(NamedTuple):
    """A browser session, or a token used from one address."""

    user: str
    origin: str


def client_of(request: Request) -> Client:
    user: User = request.state.user
    return Client(user.name, user.session or (request.client.host if request.client else ""))


class StreamLimits:
    """Counts the open streams of each client."""

    def __init__(self) -> None:
        self._open: Counter[Client] = Counter()

    @contextmanager
    def take(self, client: Client) -> Iterator[None]:
        """Count a stream as open for as long as the block runs. Raises TooManyRequests beyond a limit."""
        if self._open[client] >= MOST_OF_ONE_CLIENT:
            raise TooManyRequests(
                f"{MOST_OF_ONE_CLIENT} streams of this client are open", "close one of them, or try again later"
            )
        if self._open.total() >= MOST_STREAMS:
            raise TooManyRequests(f"{MOST_STREAMS} streams are open, which is the limit", "try again later")
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]


class LimitedStream(StreamingResponse):
    """A stream that counts against the limits from its first byte until it ends, however it ends."""

    def __init__(
        self,
        limits: StreamLimits,
        client: Client,
        content: AsyncIterator[str] | AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._limits = limits
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not in the endpoint: a generator that was never started never reaches its finally.
        with self._limits.take(self._client):
            await super().__call__(scope, receive, send)
