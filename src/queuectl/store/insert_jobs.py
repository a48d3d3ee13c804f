"""Storing new jobs, as a part of a transaction: `Store.enqueue`, and what a schedule or a hook enqueues."""

from __future__ import annotations

from queuectl import settings
from queuectl.errors import Conflict, Duplicate
from queuectl.store import batches, dependencies, uniqueness
from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from queuectl.jobs.job_spec import NewJob
    from queuectl.settings import Config
    from queuectl.store.engine import Engine, Transaction

PROGRESS_EVERY = 1000
FORGOTTEN_AT_ONCE = 100
REMEMBERED = 7 * 86_400_000  # milliseconds: how long a request that named itself is known


def insert(
    tx: Transaction,
    engine: Engine,
    jobs: Sequence[NewJob],
    ids: Sequence[str],
    progress: Callable[[int], None] | None = None,
) -> dict[int, str]:
    """Store jobs; which of them were left out, and who has their key instead."""
    there = uniqueness.decide(tx, jobs, ids)
    new = [(n, id, job) for n, (id, job) in enumerate(zip(ids, jobs, strict=True)) if n not in there]
    links, unmet = dependencies.plan(tx, new)
    cwd = None if all(job.cwd for _, _, job in new) else engine.default_cwd()
    batches.begin(tx, jobs)
    tx.load("jobs", _rows(tx.now, settings.effective(tx.rows(sql.READ_CONFIG)), cwd, new, unmet, progress))
    tags = [{"tag": tag, "id": id} for _, id, job in new for tag in job.tags]
    if tags:
        tx.each(sql.INSERT_TAG, tags)
    tx.each(sql.INSERT_DEPENDENCY, links)
    batches.limit(tx, jobs)
    return there


def _rows(
    now: int,
    config: Config,
    cwd: str | None,
    new: Sequence[tuple[int, str, NewJob]],
    unmet: Mapping[str, int],
    progress: Callable[[int], None] | None,
) -> Iterator[dict[str, object]]:
    """The jobs as rows, with what they left open filled in from the settings."""
    for number, id, job in new:
        if progress and number % PROGRESS_EVERY == 0:
            progress(number)
        timeout = config["job_timeout"] if job.timeout_seconds is None else job.timeout_seconds
        run_at = job.due(now)
        yield {
            "id": id,
            "command": job.command,
            "queue": job.queue,
            "state": "blocked" if id in unmet else "pending",
            "ready": run_at <= now and id not in unmet,
            "unmet": unmet.get(id, 0),
            "priority": job.priority,
            "max_retries": config["max_retries"] if job.max_retries is None else job.max_retries,
            "backoff_base": config["backoff_base"] if job.backoff_base is None else job.backoff_base,
            "retry_on": " ".join(job.retry_on) if job.retry_on else None,
            "no_retry_on": " ".join(job.no_retry_on) if job.no_retry_on else None,
            "timeout_seconds": timeout or None,
            "run_at": run_at,
            "cwd": job.cwd or cwd,
            "env": _json(job.env) if job.env else None,
            "unique_key": job.unique_key,
            "batch": job.batch,
            "key": job.key,
            "key_limit": job.key_limit,
            "notify": " ".join(job.notify) if job.notify else None,
            "created_at": now,
            "updated_at": now,
        }


def refuse_taken(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    """Say which of the chosen ids was the one that is taken."""
    chosen = {index: job.id for index, job in enumerate(jobs) if job.id}
    taken: dict[str, str] = dict(tx.rows(sql.STATES_OF, {"ids": list(chosen.values())}))
    seen: set[str] = set()
    for index, id in chosen.items():
        if id in taken:
            hint = f"look at it: queuectl show {id}"
            raise Duplicate(f'a job "{id}" is already there ({taken[id]})', hint, index)
        if id in seen:
            raise Duplicate(f'the id "{id}" is used twice in this batch', "ids are unique", index)
        seen.add(id)


def answered(tx: Transaction, key: str, fingerprint: str) -> list[str] | None:
    """The jobs that a request with this key was answered with; None if it is ours to answer."""
    tx.run(sql.FORGET_SUBMISSIONS, {"before": tx.now - REMEMBERED, "limit": FORGOTTEN_AT_ONCE})
    if tx.run(sql.TAKE_SUBMISSION, {"key": key, "fingerprint": fingerprint, "now": tx.now}):
        return None
    [(asked, ids)] = tx.rows(sql.SUBMISSION, {"key": key})
    if asked != fingerprint:
        raise Conflict(f'another request has used the idempotency key "{key}"', "use a new key for each request")
    return str(ids).split()


def _json(value: object) -> str:
    import json  # here: most jobs have no environment of their own

    return json.dumps(value)
