"""A real HTTP server on loopback that keeps what was posted to it, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest


class Post(NamedTuple):
    path: str
    headers: dict[str, str]  # their names in lower case
    body: bytes


class Receiver(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = [200]  # one after the other; the last one from then on
        self.headers: dict[str, str] = {}
        self.text = b""
        self.posts: list[Post] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        statuses = self.server.statuses
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.posts.append(Post(self.path, headers, body))
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
