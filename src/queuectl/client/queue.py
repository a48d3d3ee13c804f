"""The Python API: a thin, typed face of the store.

>>> queue = Queue(path)
>>> job = queue.enqueue("echo hello", priority=5, tags=["demo"])
>>> job.state
'pending'
>>> queue.stats()["pending"]
1
>>> queue.cancel(job.id)
>>> queue.get(job.id).state
'cancelled'
>>> queue.close()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, TypeVar, Unpack

from queuectl.client.shared_connection import SharedConnection
from queuectl.errors import InvalidInput
from queuectl.jobs.model import Job
from queuectl.store import Store, enqueue_fields, open_store
from queuectl.store.engine import Engine
from queuectl.store.views import wait_until_finished

T = TypeVar("T")


class JobFields(TypedDict, total=False):
    """What a job may be given besides its command. What is left out takes the queue's default."""

    id: str
    queue: str
    priority: int
    max_retries: int
    backoff_base: float
    timeout_seconds: float
    run_at: str | float | datetime  # a time, a delay in seconds, or what `--at` understands
    cwd: str
    env: Mapping[str, str]
    tags: list[str]
    batch: str
    max_fails: int
    key: str
    key_limit: int
    retry_on: list[int | str]
    no_retry_on: list[int | str]
    unique_key: str
    on_duplicate: str  # refuse, skip or replace
    notify: list[str]  # names of hooks
    depends_on: list[str | dict[str, str]]  # ids, or {"id": …, "condition": "ok", "fail" or "any"}


class Queue:
    """A queue, by its address: a path, a URL, or None for the one the command line would use.

    `http://host:port` is a queue behind `queuectl serve`; it takes a token, else what QUEUECTL_TOKEN says.

    Errors are those of `queuectl.errors`: InvalidInput, NotFound, Conflict, StoreUnavailable, TimedOut, Denied.

    Threads may share a Queue: their calls are carried out one after the other. A thread in `wait` lets others take
    their turns. A child process (`os.fork`, multiprocessing) gets a connection of its own with its first call.

    A signal handler or another thread may raise an exception in the middle of a call (Ctrl-C, an alarm). No lock is
    kept then, and the Queue can be used again. The exception is passed on if nothing was stored. If it came while a
    change was being committed or later, OutcomeUnknown is raised, a kind of StoreUnavailable, with the exception as
    its `__cause__`: look if the change is stored before you repeat it. With an `id` of your own, `enqueue` is safe to
    repeat: a job that is there already is refused (Conflict). A signal handler cannot use the Queue it interrupts.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self._there: Backend
        if url is not None and url.startswith(("http://", "https://")):
            from queuectl.client.http_client import Remote  # here: most queues are at hand

            self._there = Remote(url, token)
        elif token is not None:
            raise InvalidInput("a token is only for http://…", "leave it out")
        else:
            self._there = Local(url)

    def enqueue(self, command: str, **fields: Unpack[JobFields]) -> Job:
        """Store one job; when this returns it is on disk.

        >>> with Queue(path) as queue:
        ...     queue.enqueue("make test", id="build-7", timeout_seconds=600, run_at="in 10m").id
        'build-7'
        """
        return self.enqueue_many([{"command": command, **fields}])[0]

    def enqueue_many(self, jobs: Iterable[str | Mapping[str, Any]]) -> list[Job]:
        """Store all of these jobs or none, in one transaction: plain commands, or mappings of the JSON form. A server
        (`http://…`) refuses more than 10,000 of them, or 1 MiB, at once.

        >>> with Queue(path) as queue:
        ...     [job.command for job in queue.enqueue_many(["true", {"command": "false", "max_retries": 1}])]
        ['true', 'false']
        """
        return self._there.enqueue([_fields(job) for job in jobs])

    def get(self, id: str) -> Job:
        """The job with this id (or unique beginning of it, or "@last")."""
        return self._there.get(id)

    def jobs(
        self, *, state: str | None = None, queue: str | None = None, tag: str | None = None, limit: int = 50
    ) -> Iterator[Job]:
        """Jobs, the newest first. `limit=-1` means all.

        >>> with Queue(path) as queue:
        ...     made = queue.enqueue("true", tags=["nightly"])
        ...     [job.id for job in queue.jobs(tag="nightly")] == [made.id]
        True
        """
        return self._there.jobs(state, queue, tag, limit)

    def wait(self, *ids: str, timeout: float | None = None) -> list[Job]:
        """Wait until these jobs have finished, one way or another; TimedOut if that takes too long."""
        return self._there.wait(ids, timeout)

    def cancel(self, *ids: str) -> None:
        """Cancel jobs. A running one is ended by its worker: `wait` tells when that is done."""
        self._there.cancel(ids)

    def retry(self, *ids: str) -> None:
        """Run dead jobs again, with no attempts spent."""
        self._there.retry(ids)

    def stats(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return self._there.counts()

    def close(self) -> None:
        self._there.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Backend(Protocol):
    """Where a queue is: `Local`, or `remote.Remote`. The same is asked of both, and errors are the same; only a
    server refuses what is too much at once (see `Queue.enqueue_many`)."""

    def enqueue(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]: ...
    def get(self, id: str) -> Job: ...
    def jobs(self, state: str | None, queue: str | None, tag: str | None, limit: int) -> Iterator[Job]: ...
    def wait(self, ids: Sequence[str], timeout: float | None) -> list[Job]: ...
    def cancel(self, ids: Sequence[str]) -> None: ...
    def retry(self, ids: Sequence[str]) -> None: ...
    def counts(self) -> dict[str, int]: ...
    def close(self) -> None: ...


class Local:
    """A queue whose database is at hand."""

    def __init__(self, url: str | None) -> None:
        self._shared: SharedConnection[Engine] = SharedConnection(lambda: open_store(url).engine)

    def _call(self, act: Callable[[Store], T]) -> T:
        return self._shared.call(lambda engine: act(Store(engine)))

    def enqueue(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        def act(store: Store) -> list[Job]:
            stored = store.views.reader()
            enqueue_fields.enqueue(store, jobs, several=len(jobs) > 1, before_commit=stored)
            return stored.jobs()

        return self._call(act)

    def get(self, id: str) -> Job:
        return self._call(lambda store: store.views.job(id))

    def jobs(self, state: str | None, queue: str | None, tag: str | None, limit: int) -> Iterator[Job]:
        return iter(self._call(lambda store: store.views.jobs(state, queue, tag, limit)))

    def wait(self, ids: Sequence[str], timeout: float | None) -> list[Job]:
        names = self._call(lambda store: [store.views.resolve(id) for id in ids])
        # Look by look: between two of them other threads have their turns.
        wait_until_finished(lambda left: self._call(lambda store: store.views.states(left)), names, timeout)
        return self._call(lambda store: [store.views.job(id) for id in names])

    def cancel(self, ids: Sequence[str]) -> None:
        self._call(lambda store: store.cancel([store.views.resolve(id) for id in ids]))

    def retry(self, ids: Sequence[str]) -> None:
        self._call(lambda store: store.retry([store.views.resolve(id) for id in ids]))

    def counts(self) -> dict[str, int]:
        return self._call(lambda store: store.views.counts())

    def close(self) -> None:
        self._shared.close()


def _fields(job: str | Mapping[str, Any]) -> dict[str, Any]:
    fields = {"command": job} if isinstance(job, str) else dict(job)
    for name in ("run_at", "available_at", "next_run_at"):
        if isinstance(moment := fields.get(name), datetime):
            fields[name] = moment.isoformat()  # without a zone: the time of this machine
    return fields
