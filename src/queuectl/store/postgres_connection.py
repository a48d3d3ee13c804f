"""The way to a PostgreSQL server: its address, connections that do not keep anybody waiting, and a line for news."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from queuectl.errors import InvalidInput
from queuectl.store.engine import Row

EXAMPLE = "postgresql://user@host:5432/database"
OPTIONS = {"schema": "queuectl", "notify": "on", "fsync": "on"}  # what an address may say to us, not to libpq
CHANNEL = "queuectl"
ANSWERS = 10  # a statement may take so many times as long as we are patient
# A cut connection is noticed within seconds, not within the quarter of an hour that TCP would wait.
WATCHFUL: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


# The same on the server's side: with a client that cannot be reached any more, its locks and its connection go.
WATCHED = {
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
CHECKED = "client_connection_check_interval"  # since PostgreSQL 14, and not on every system
CHECK_EVERY = 5_000


class Address:
    """`postgresql://user@host/database?schema=…&notify=off`, with libpq's own options and ours told apart."""

    def __init__(self, url: str) -> None:
        base, _, query = url.partition("?")
        options = parse_qsl(query, keep_blank_values=True)
        own = {**OPTIONS, **{key: value for key, value in options if key in OPTIONS}}
        rest = urlencode([(key, value) for key, value in options if key not in OPTIONS])
        for option in ("notify", "fsync"):
            if own[option] not in ("on", "off"):
                raise InvalidInput(f'"{own[option]}" does not fit "{option}" in the address', "it takes on or off")
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", own["schema"]):
            raise InvalidInput(f'"{own["schema"]}" is no name for a schema', "use lower-case letters, digits and _")
        self.schema = own["schema"]
        self.pooled = own["notify"] == "off"  # each transaction may get another connection
        self.fsync_may_be_off = own["fsync"] == "off"
        self._conninfo = f"{base}?{rest}" if rest else base
        try:
            self._parts = conninfo_to_dict(self._conninfo)
        except psycopg.ProgrammingError as error:  # its words may hold the password, but for the name of an option
            wrong = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
            what = f'a PostgreSQL address has no option "{wrong[1]}"' if wrong else "this is no PostgreSQL address"
            raise InvalidInput(what, f"write {EXAMPLE}; a % or @ in a password is written %25 or %40") from None

    @property
    def plain(self) -> str:
        """As other programs understand it; without the password."""
        part = self._parts.get
        user = f"{part('user')}@" if part("user") else ""
        port = f":{part('port')}" if part("port") else ""
        return f"postgresql://{user}{part('host') or ''}{port}/{part('dbname') or ''}"

    def __str__(self) -> str:
        """As people may see it: without the password."""
        return self.plain + (f"?schema={self.schema}" if self.schema != OPTIONS["schema"] else "")

    def connect(self, patience: float) -> Connection:
        connection = Connection.connect(
            self._conninfo,
            autocommit=True,
            connect_timeout=self._parts.get("connect_timeout") or max(2, round(patience)),
            prepare_threshold=None if self.pooled else 5,
            application_name="queuectl",
            **WATCHFUL,
        )
        connection.patience = patience * ANSWERS
        return connection


class Connection(psycopg.Connection[Row]):
    """Gives up on an answer that does not come, so that a worker is never stuck in a question."""

    patience = 100.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        if timeout is not None:  # psycopg's own, when it looks for notifications
            return super().wait(gen, interval, timeout)
        return super().wait(_until(gen, time.monotonic() + self.patience, self), interval)


def _until(gen: Any, end: float, connection: Connection) -> Any:
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() > end:
                connection.pgconn.finish()
                raise psycopg.OperationalError("no answer from the server")
            state = gen.send(ready)
    except StopIteration as done:
        return done.value


def set_up(db: Connection, settings: Mapping[str, object]) -> None:
    """Give a session of our own these settings, in one exchange, and let the server watch over it."""
    settings = {**settings, **WATCHED}
    try:
        checked = {CHECKED: CHECK_EVERY} if db.info.server_version >= 140000 else {}
        db.execute(_set({**settings, **checked}), prepare=False)
    except errors.InvalidParameterValue:  # the server's system cannot check
        db.execute(_set(settings), prepare=False)


def _set(settings: Mapping[str, object]) -> bytes:
    return "".join(f"SET {name} TO {value}; " for name, value in settings.items()).encode()


class Line:
    """What a worker's own connection brings unasked. It may break at any time: polling goes on below it."""

    def __init__(self, db: Connection, identity: str) -> None:
        self._db = db
        self._identity = identity
        self._heard = False
        db.add_notify_handler(lambda note: self._take(note.pid, note.payload))  # of what comes with an answer
        db.execute(f"LISTEN {CHANNEL}".encode())
        self._file = os.dup(db.fileno())  # libpq closes its own as soon as the connection is lost

    def fileno(self) -> int:
        return self._file

    def hear(self) -> bool:
        """Take what has come; is any of it for us? Raises OSError if the line is dead."""
        try:
            self._db.pgconn.consume_input()
            while note := self._db.pgconn.notifies():
                self._take(note.be_pid, note.extra.decode())
        except psycopg.Error as error:
            raise ConnectionError(str(error)) from error
        heard, self._heard = self._heard, False
        return heard

    def _take(self, sender: int, queue: str) -> None:
        self._heard |= queue == self._identity and sender != self._db.info.backend_pid

    def close(self) -> None:
        """Forget it. The connection is not ours to close."""
        os.close(self._file)


def is_passing(error: psycopg.OperationalError) -> bool:
    """Is the server about to be there, or about to have a connection for us? One that refuses a password, or knows no
    such database, stays with that."""
    text = str(error)
    return any(words in text for words in ("starting up", "shutting down", "Connection refused", "not yet accepting",
                                           "No such file", "closed the connection", "recovery", "too many clients",
                                           "too many connections", "remaining connection slots"))  # fmt: skip


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
