"""A wire between clients and a PostgreSQL server that breaks when it is told to, also in the moment of a commit."""

from __future__ import annotations

import socket
import threading
from enum import Enum

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # comes alone: the client has waited for the answer to what it sent before
SORRY = b"SFATAL\x00VFATAL\x00C08P01\x00Mserver conn crashed?\x00\x00"  # what pgbouncer says then


class Fault(Enum):
    """What befalls a commit."""

    UNSENT = "cut off before the server hears of it"
    UNANSWERED = "cut off before the client hears that it has happened"
    EXCUSED = "the same, with the words of a pooler that has lost the server"
    LATE = "cut off, and the server hears of it only when `release` says so"
    SILENT = "nothing comes through any more, and neither side is told"

    def __str__(self) -> str:
        return self.name.lower()


class Proxy:
    """Passes everything on to a server on 127.0.0.1. `with` ends it and cuts every connection."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._fault: Fault | None = None
        self._words = b""
        self.begun = 0  # transactions so far
        self.caught = threading.Event()  # the fault has happened
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exc: object) -> None:
        _hang_up(self._door)
        self.cut()

    def spoil(self, fault: Fault, words: bytes = b"") -> None:
        """Let this happen to the next commit of a transaction in which these words were sent."""
        with self._lock:
            self._fault, self._words = fault, words
            self.caught.clear()

    def fate(self, said: bytes) -> Fault | None:
        """What befalls the commit of a transaction in which this was said."""
        with self._lock:
            fault = self._fault if self._words in said else None
            if fault:
                self._fault = None
            return fault

    def cut(self) -> None:
        """Cut every connection."""
        for link in self._taken():
            link.close()

    def release(self) -> None:
        """Let the server hear of the commit that came too late for its client."""
        for link in self._taken():
            link.release()

    def _taken(self) -> list[Link]:
        with self._lock:
            links, self._links = self._links, []
        return links

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:  # closed
                return
            try:
                link = Link(self, client, socket.create_connection(("127.0.0.1", self._server_port)))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._links.append(link)
            link.start()


class Link:
    """One connection of a client, and the one to the server that stands for it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._fault: Fault | None = None

    def start(self) -> None:
        for pump in (self._to_server, self._to_client):
            threading.Thread(target=pump, daemon=True).start()

    def close(self) -> None:
        _hang_up(self._client)
        _hang_up(self._server)

    def release(self) -> None:
        if self._fault is Fault.LATE:
            self._server.sendall(COMMIT)

    def _to_server(self) -> None:
        said = b""  # in this transaction
        try:
            while chunk := self._client.recv(65536):
                if chunk[5:].startswith(b"BEGIN"):
                    self._proxy.begun += 1
                    said = b""
                said += chunk
                if chunk.endswith(COMMIT):
                    self._fault = self._proxy.fate(said)
                match self._fault:
                    case None | Fault.UNANSWERED | Fault.EXCUSED:
                        self._server.sendall(chunk)
                    case Fault.UNSENT:
                        self._break()
                    case Fault.LATE:
                        _hang_up(self._client)
                        self._proxy.caught.set()
                    case Fault.SILENT:
                        self._proxy.caught.set()
        except OSError:  # cut
            pass
        if self._fault not in (Fault.LATE, Fault.SILENT):
            self.close()

    def _to_client(self) -> None:
        try:
            while chunk := self._server.recv(65536):
                match self._fault:
                    case None:
                        self._client.sendall(chunk)
                    case Fault.UNANSWERED:
                        self._break()
                    case Fault.EXCUSED:
                        self._client.sendall(b"E" + (len(SORRY) + 4).to_bytes(4, "big") + SORRY)
                        self._break()
        except OSError:  # cut
            pass
        self.close()

    def _break(self) -> None:
        self.close()
        self._proxy.caught.set()


def _hang_up(end: socket.socket) -> None:
    """So that whoever waits in it wakes up, on both sides."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:  # hung up before
        pass
    end.close()
