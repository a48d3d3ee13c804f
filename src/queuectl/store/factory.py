"""From an address to a queue: which kind of database it is, and where the user's own lies."""

from __future__ import annotations

import os

from queuectl.errors import InvalidInput
from queuectl.jobs import job_spec
from queuectl.store.store import Store
from queuectl.system import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queuectl.store.engine import Engine

PATIENCE_SECONDS = 10.0
WORKER_LOCK_PATIENCE = 0.25  # seconds: others must not keep a worker from its heartbeats, its runs and other jobs


def open_store(
    url: str | None = None, durable: bool = True, patience: float = PATIENCE_SECONDS, create: bool = True
) -> Store:
    """The queue at this address: `--db`, else QUEUECTL_DB, else the user's own.

    `patience` is how long a locked database is waited for. Without `create` a file that is gone is not made anew.
    One that is not `durable` is a worker's.
    """
    return Store(_engine(_chosen(url), durable, patience, create))


def whereabouts(url: str | None = None) -> tuple[str, list[str]]:
    """How this queue is named (never with a password), and the folders in which its managers of this host may have
    left their pidfiles. The database is not asked."""
    url = _chosen(url)
    if not is_shared(url):
        path = private_files.resolve(_file(url))
        return path, [f"{path}.run"]
    from queuectl.store.postgres_connection import Address

    try:
        folders = [os.path.join(data_folder(), name, "run") for name in os.listdir(data_folder())]
    except OSError:
        folders = []
    return str(Address(url)), [folder for folder in folders if os.path.isdir(folder)]


def files_of(url: str | None) -> tuple[list[str], list[str]]:
    """The files and the folders of a queue that is a file, whether it can be opened or not."""
    from queuectl.store.sqlite import BESIDE

    path = os.path.abspath(_file(_chosen(url)))
    log_dir = os.environ.get("QUEUECTL_LOG_DIR") or os.path.join(os.path.dirname(path), "logs")
    return [path, *(path + end for end in BESIDE)], folders_of(f"{path}.run", os.path.abspath(log_dir))


def folders_of(run_dir: str, log_dir: str) -> list[str]:
    return [run_dir, serve_folder(run_dir), log_dir]


def serve_folder(run_dir: str) -> str:
    """Where `serve` keeps its secrets: beside the folder of the bells, for what workers do not know in that one they
    clear away."""
    return os.path.splitext(run_dir)[0] + ".serve"


def _chosen(url: str | None) -> str:
    return url if url is not None else os.environ.get("QUEUECTL_DB") or default_path()


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
    scheme, separator, _ = url.partition("://")
    if is_shared(url):
        job_spec.text("--db", url)
        return _postgres(url, durable, patience)
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

    return SqliteEngine(_file(url), durable=durable, patience=patience, create=create)


def _file(url: str) -> str:
    """The path in the address of an SQLite database. As elsewhere: sqlite:///a is ./a, sqlite:////a is /a."""
    path = url.removeprefix("sqlite://").removeprefix("/") if url.startswith("sqlite://") else url
    job_spec.text("--db", path)
    if not path or path.endswith("/"):
        raise InvalidInput(f'"{url}" names no file', "give a path, for example --db ./queue.db")
    return os.path.expanduser(path)


def _postgres(url: str, durable: bool, patience: float) -> Engine:
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
    if durable:
        return PostgresEngine(url, patience=patience)
    return PostgresEngine(url, patience=patience, lock_patience=WORKER_LOCK_PATIENCE)
