"""What a database must offer the store. The SQL is the store's; what differs between databases is here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from queuectl.jobs.model import Finding

Params = Mapping[str, Any]
Row = tuple[Any, ...]
Holder = tuple[str, int, int, str, int]
"""What tells if a worker lives: its id, its pid, that one's start, where that means something, its lease's end."""


class Transaction(Protocol):
    """One atomic unit; commits on a clean exit, leaves nothing behind on an error."""

    now: int
    """The moment of this transaction on the database's clock, in milliseconds."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, sql: str, params: Params = {}) -> int:
        """Execute; the number of rows changed."""
        ...

    def rows(self, sql: str, params: Params = {}) -> list[Row]:
        """Execute; all rows it returns."""
        ...

    def each(self, sql: str, many: Sequence[Params]) -> None:
        """Execute a statement with {each:…} for all of these."""
        ...

    def missed(self, sql: str, many: Sequence[Params]) -> list[Params]:
        """The same; those for which it found no row."""
        ...

    def load(self, table: str, many: Iterable[Params]) -> None:
        """Insert rows, as fast as this database can. Raises Duplicate if a unique value is taken.

        A job may bring its own seq; those that come later get larger ones.
        """
        ...

    def number_after(self, seq: int) -> None:
        """Give jobs that come later larger numbers than this."""
        ...

    def alone_with(self, names: Sequence[str], patiently: bool = False) -> Collection[str]:
        """Those of these things that nobody else is at until this transaction ends; patiently: all, after a wait."""
        ...

    def alone(self, tables: Iterable[str]) -> None:
        """Keep others from writing to these until this transaction ends."""
        ...


class Line(Protocol):
    """Brings news from other machines to a waiting worker."""

    def fileno(self) -> int: ...
    def hear(self) -> bool:
        """Take what has come; is it for us? Raises OSError if the line is dead."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """A database holding one queue."""

    url: str
    """Its address, perhaps with a password in it."""
    name: str
    """How people name it; never with a password."""
    leased: bool
    """Are there other machines that can only judge a worker by its heartbeat?"""
    place: str
    """Where this process' pid means something, if there are several such places."""
    identity: str
    """Names this very database: a copy of it has another."""
    log_dir: str
    log_place: str | None
    """The machine and folder of the logs that are written here, for readers on other machines."""
    run_dir: str
    """Where this machine's workers keep their bells and boards."""
    commits: int
    """How many write transactions have begun to commit."""

    def write(self, at_once: bool = False) -> Transaction:
        """A transaction that changes something. Where rows are locked one by one, it raises Locked if another one
        holds a lock for long; with `at_once`, for longer than a moment."""
        ...

    def read(self) -> Transaction:
        """A consistent view for reading; takes no lock that a writer would wait for."""
        ...

    def flush(self) -> None:
        """Put on disk what transactions of a relaxed engine (`durable=False`) have committed."""
        ...

    def changed(self) -> bool:
        """Has anyone else committed since this was last asked? May say yes too often, never too seldom.

        Raises StoreReplaced if the database we hold open is no longer the one at this address.
        """
        ...

    def check_place(self) -> None:
        """Raise if what we hold open is not, or no longer, what lies at this address."""
        ...

    def listen(self) -> Line | None:
        """A line on which news comes that no bell can bring; None if there is none."""
        ...

    def is_here(self, place: str) -> bool:
        """Is that this machine, where the kernel knows of its workers?"""
        ...

    def is_alive(self, holder: Holder, now: int) -> bool:
        """Does this worker live? `now` is a transaction's."""
        ...

    def announce(self) -> int:
        """Wake the workers, after a commit they should know of; how many could be reached."""
        ...

    def default_cwd(self) -> str | None:
        """The folder a job runs in if it names none."""
        ...

    def backup(self, path: str) -> None: ...
    def checkup(self) -> Iterator[Finding]:
        """What can be wrong with this kind of database and where it lies; the good findings too."""
        ...

    def tidy(self) -> None:
        """Regular small upkeep; called by workers, never fails."""
        ...

    def compact(self) -> None:
        """Give back the space of deleted rows, if that is possible just now; never fails."""
        ...

    def roll_back(self) -> None:
        """End the transaction that an interrupted call has left open; nothing if there is none."""
        ...

    def close(self) -> None: ...
    def close_in_child(self) -> None:
        """Let go of the connection in a child process. The parent process goes on with it, and notices nothing."""
        ...
