"""From an address to a queue: which kind of database it is, and where the user's own lies."""

from __future__ import annotations

import os

from queuectl import newjob
from queuectl.errors import InvalidInput
from queuectl.store.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queuectl.store.engine import Engine

PATIENCE_SECONDS = 10.0


def open_store(
    url: str | None = None, durable: bool = True, patience: float = PATIENCE_SECONDS, create: bool = True
) -> Store:
    """The queue at this address: `--db`, else QUEUECTL_DB, else the user's own.

    `patience` is how long a locked database is waited for. Without `create` a file that is gone is not made anew.
    """
    address = url if url is not None else os.environ.get("QUEUECTL_DB") or default_path()
    return Store(_engine(address, durable, patience, create))


def is_shared(url: str) -> bool:
    """Is this the address of a queue for many machines?"""
    return url.startswith(("postgresql://", "postgres://"))


def preload(url: str) -> None:
    """Load the code that talks to the database without opening one, for processes that are about to fork."""
    import queuectl.store.views

    if is_shared(url):
        import queuectl.store.postgres
    else:
        import queuectl.store.sqlite  # noqa: F401


def default_path() -> str:
    return os.path.join(data_folder(), "queue.db")


def data_folder() -> str:
    """Where this user's queues are kept."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    if data.startswith("~"):
        raise InvalidInput("there is no home folder to keep the queue in", "say where: --db PATH, or set QUEUECTL_DB")
    return os.path.join(data, "queuectl")


def _engine(url: str, durable: bool, patience: float, create: bool) -> Engine:
    scheme, separator, rest = url.partition("://")
    if is_shared(url):
        newjob.text("--db", url)
        return _postgres(url, patience)
    if not separator and url.startswith(("postgres:", "postgresql:", "host=", "dbname=", "service=")):
        raise InvalidInput(
            f'"{url.split("=")[0].split(":")[0]}…" is no address of a queue', "write postgresql://user@host/name"
        )
    if separator and scheme != "sqlite":
        raise InvalidInput(
            f'"{scheme}://" is not a kind of database this version knows',
            "give a path, or postgresql://user@host/name",
        )
    from queuectl.store.sqlite import SqliteEngine

    path = rest.removeprefix("/") if separator else url  # as elsewhere: sqlite:///a is ./a, sqlite:////a is /a
    newjob.text("--db", path)
    if not path or path.endswith("/"):
        raise InvalidInput(f'"{url}" names no file', "give a path, for example --db ./queue.db")
    return SqliteEngine(os.path.expanduser(path), durable=durable, patience=patience, create=create)


def _postgres(url: str, patience: float) -> Engine:
    try:
        from queuectl.store.postgres import PostgresEngine
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        import sys

        raise InvalidInput(
            "PostgreSQL needs the package psycopg, which is not installed",
            f"{sys.executable} -m pip install 'psycopg[binary]'",
        ) from None
    return PostgresEngine(url, patience=patience)
