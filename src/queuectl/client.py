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

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from queuectl import newjob
from queuectl.model import Job
from queuectl.store import open_store


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

    Errors are those of `queuectl.errors`: InvalidInput, NotFound, Conflict, StoreUnavailable, TimedOut.
    """

    def __init__(self, url: str | None = None) -> None:
        self._store = open_store(url)

    def enqueue(self, command: str, **fields: Unpack[JobFields]) -> Job:
        """Store one job; when this returns it is on disk.

        >>> with Queue(path) as queue:
        ...     queue.enqueue("make test", id="build-7", timeout_seconds=600, run_at="in 10m").id
        'build-7'
        """
        return self.enqueue_many([{"command": command, **fields}])[0]

    def enqueue_many(self, jobs: Iterable[str | Mapping[str, Any]]) -> list[Job]:
        """Store all of these jobs or none, in one transaction: plain commands, or mappings of the JSON form.

        >>> with Queue(path) as queue:
        ...     [job.command for job in queue.enqueue_many(["true", {"command": "false", "max_retries": 1}])]
        ['true', 'false']
        """
        wanted = [newjob.from_fields(_fields(job)) for job in jobs]
        ids = self._store.enqueue(wanted)
        return [self._store.views.job(id) for id in ids]

    def get(self, id: str) -> Job:
        """The job with this id (or unique beginning of it, or "@last")."""
        return self._store.views.job(id)

    def jobs(
        self, *, state: str | None = None, queue: str | None = None, tag: str | None = None, limit: int = 50
    ) -> Iterator[Job]:
        """Jobs, the newest first. `limit=-1` means all.

        >>> with Queue(path) as queue:
        ...     made = queue.enqueue("true", tags=["nightly"])
        ...     [job.id for job in queue.jobs(tag="nightly")] == [made.id]
        True
        """
        return iter(self._store.views.jobs(state, queue, tag, limit))

    def wait(self, *ids: str, timeout: float | None = None) -> list[Job]:
        """Wait until these jobs have finished, one way or another; TimedOut if that takes too long."""
        names = [self._store.views.resolve(id) for id in ids]
        self._store.views.wait(names, timeout)
        return [self._store.views.job(id) for id in names]

    def cancel(self, *ids: str) -> None:
        """Cancel jobs. A running one is ended by its worker: `wait` tells when that is done."""
        self._store.cancel([self._store.views.resolve(id) for id in ids])

    def retry(self, *ids: str) -> None:
        """Run dead jobs again, with no attempts spent."""
        self._store.retry([self._store.views.resolve(id) for id in ids])

    def stats(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return self._store.views.counts()

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _fields(job: str | Mapping[str, Any]) -> dict[str, Any]:
    fields = {"command": job} if isinstance(job, str) else dict(job)
    for name in ("run_at", "available_at", "next_run_at"):
        if isinstance(moment := fields.get(name), datetime):
            fields[name] = moment.isoformat()
    return fields
