"""Is this queue well? Each check says what it found and, if that is bad, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl import times
from queuectl.errors import StoreUnavailable
from queuectl.model import Finding
from queuectl.store import Store, open_store

CLOCK_SLACK_MS = 60_000
PATIENCE = 2.0  # seconds to wait for a lock before saying that there is one
SILENT_AFTER = 1.5  # lease times without a heartbeat; the longest between two is one


def examine(url: str | None) -> Iterator[Finding]:
    """All findings, the good ones too. Speaks up even if the database cannot be opened."""
    try:
        store = open_store(url, patience=PATIENCE)
    except StoreUnavailable as error:
        yield Finding("database", False, error.message, error.hint)
        return
    try:
        yield Finding("database", True, store.engine.name)
        yield _writable(store)
        yield from store.engine.checkup()
        yield from _workers(store)
        yield _heartbeats(store)
        yield _clock(store)
    except StoreUnavailable as error:
        yield Finding("database", False, error.message, error.hint)
    finally:
        store.close()


def _writable(store: Store) -> Finding:
    try:
        store.probe()
    except StoreUnavailable as error:
        return Finding("writing", False, error.message, error.hint)
    return Finding("writing", True, "possible")


def _workers(store: Store) -> Iterator[Finding]:
    lost = store.lost_workers()
    held = sum(len(claims) for claims in lost.values())
    if held:
        found = f"died without a word: {len(lost)}, jobs they hold: {held}"
        yield Finding("lost workers", False, found, "start a worker, it puts them back: queuectl worker start")
    else:
        yield Finding("lost workers", True, f"died idle: {len(lost)}" if lost else "none")
    alive = [worker for worker in store.views.workers() if worker.alive]
    leaving = [worker for worker in alive if worker.stop]
    counts = store.views.counts()
    waiting = counts["pending"] + counts["failed"]
    idle = store.views.any_due() and len(leaving) == len(alive)
    advice = "start some: queuectl worker start" if idle else ""
    stopping = f" ({len(leaving)} stopping)" if leaving else ""
    yield Finding("workers", not idle, f"running: {len(alive)}{stopping}, jobs waiting: {waiting:,}", advice)


def _heartbeats(store: Store) -> Finding:
    """A worker that is alive but no longer beats is stopped, or stuck."""
    limit = SILENT_AFTER * store.config()["lease_timeout"] * 1000
    with store.engine.read() as tx:
        now = tx.now
    silent = [worker for worker in store.views.workers() if worker.alive and now - worker.heartbeat_at > limit]
    if not silent:
        return Finding("heartbeats", True, "regular")
    names = ", ".join(f"{worker.id} (pid {worker.pid})" for worker in silent)
    longest = times.span(max(now - worker.heartbeat_at for worker in silent) / 1000)
    advice = "see workers.log among the job logs; if it is stopped, kill -CONT it; kill -9 puts its jobs back"
    return Finding("heartbeats", False, f"silent for {longest}: {names}", advice)


def _clock(store: Store) -> Finding:
    newest = max((job.created_at for job in store.views.jobs(limit=1)), default=0)
    ahead = newest - times.now_ms()
    if ahead > CLOCK_SLACK_MS:
        found = f"the newest job was enqueued {times.span(ahead / 1000)} in the future"
        return Finding("clock", False, found, "check this machine's clock, for example with timedatectl")
    return Finding("clock", True, "agrees with the newest job")
