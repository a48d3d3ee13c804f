"""HTTP/1.1 requests whose length can be understood in one way only. What a proxy could take for two requests where we
see one (request smuggling) is refused. The standard lets a server repair some of it, and h11 does."""

from __future__ import annotations

import math
import re

import h11

_END_OF_HEAD = re.compile(rb"\n\r?\n")
_OPTIONAL_SPACE = b" \t"


class StrictConnection(h11.Connection):
    """The server's side of a connection, for requests of bounded size."""

    def __init__(self, largest_headers: int, largest_body: int, unwanted: int) -> None:
        super().__init__(h11.SERVER, largest_headers)
        self._largest_body = largest_body
        self._unwanted = unwanted  # bytes of a body that are still taken when its answer has been sent
        self._length = 0.0  # of this request's body, as it was announced
        self._body = 0  # bytes of it so far
        self.refused = ""
        """Why the last request was refused, if it was here."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            self._body = 0
            self._refuse(ambiguity(self.trailing_data[0]))
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._length = next((int(value) for name, value in event.headers if name == b"content-length"), math.inf)
        if isinstance(event, h11.Data):
            self._body += len(event.data)
            self._refuse("the body is too large" if self._body > self._largest_body else "")
        return event

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]  # overloaded for no use of ours
        data = super().send(event)
        unread = self._length - self._body if self.their_state is h11.SEND_BODY else 0
        if data and isinstance(event, h11.Response) and unread > self._unwanted:
            # The client must not use this connection again. h11 is not told: it would close it at once, and with
            # bytes unread that resets it before the answer has been read.
            return data.removesuffix(b"\r\n") + b"connection: close\r\n\r\n"
        return data

    def _refuse(self, why: str) -> None:
        if why:
            self.refused = why
            raise h11.RemoteProtocolError(why)


def ambiguity(received: bytes) -> str:
    """What is wrong with how the request at the start of these bytes says its length; "" if nothing is, or if its
    headers have not all come yet."""
    end = _END_OF_HEAD.search(received)
    if end is None:
        return ""
    first, *lines = [line.removesuffix(b"\r") for line in received[: end.start()].split(b"\n")]
    if any(line.startswith((b" ", b"\t")) for line in lines):
        return "a header is continued on a second line"
    fields = [
        (name.lower(), value.strip(_OPTIONAL_SPACE)) for name, _, value in (line.partition(b":") for line in lines)
    ]
    lengths = [value for name, value in fields if name == b"content-length"]
    encoded = any(name == b"transfer-encoding" for name, _ in fields)
    if lengths and encoded:
        return "Content-Length and Transfer-Encoding are both given"
    if len(lengths) > 1:
        return "Content-Length is given twice"
    if lengths and not lengths[0].isdigit():
        return "Content-Length is not a number of bytes"
    if encoded and first.endswith(b"HTTP/1.0"):
        return "Transfer-Encoding is given with HTTP/1.0"
    return ""
