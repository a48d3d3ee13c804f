"""Is this queue well? Each check says what it found and, if that is bad, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.errors import StoreUnavailable, Untrusted
from queuectl.jobs.model import Finding
from queuectl.store import Store, open_store
from queuectl.store.factory import files_of, folders_of
from queuectl.system import private_files, procfs, times

CLOCK_SLACK_MS = 60_000
PATIENCE = 2.0  # seconds to wait for a lock before saying that there is one
FULL = 0.7  # of a worker's file handles
SILENT_AFTER = 1.5  # lease times without a heartbeat; the longest between two is one


def examine(url: str | None) -> Iterator[Finding]:
    """All findings, the good ones too. Speaks up even if the database cannot be opened."""
    try:
        store = open_store(url, patience=PATIENCE)
    except StoreUnavailable as error:
        yield Finding("database", False, error.message, error.hint)
        if isinstance(error, Untrusted):
            yield from _ownership(*files_of(url))
        return
    try:
        yield Finding("database", True, store.engine.name)
        yield _writable(store)
        files = [] if store.engine.leased else files_of(store.engine.url)[0]
        yield from _ownership(files, folders_of(store.engine.run_dir, store.engine.log_dir))
        yield from store.engine.checkup()
        yield from _workers(store)
        yield _heartbeats(store)
        yield _file_handles(store)
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


def _ownership(files: list[str], folders: list[str]) -> Iterator[Finding]:
    """What others could have written is not used; say which files those are, and what to do."""
    found = [
        Finding("ownership", False, error.message, error.hint) for error in private_files.untrusted(files, folders)
    ]
    yield from found or [Finding("ownership", True, "nobody else can write to the files of the queue")]


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


def _file_handles(store: Store) -> Finding:
    """A process that a completed job left running holds its output open, and each such stream takes a handle."""
    used = [
        (*handles, worker)
        for worker in store.views.workers()
        if worker.here and (handles := procfs.files(worker.pid))
    ]
    short = [
        f"worker {worker.id} has {open_ones:,} of {limit:,}"
        for open_ones, limit, worker in used
        if open_ones > limit * FULL
    ]
    if not short:
        return Finding("file handles", True, f"workers with enough: {len(used)}")
    advice = "let processes that jobs leave running write to a file (server >server.log 2>&1 &), or raise ulimit -n"
    return Finding("file handles", False, ", ".join(short), advice)


def _clock(store: Store) -> Finding:
    newest = max((job.created_at for job in store.views.jobs(limit=1)), default=0)
    ahead = newest - times.now_ms()
    if ahead > CLOCK_SLACK_MS:
        found = f"the newest job was enqueued {times.span(ahead / 1000)} in the future"
        return Finding("clock", False, found, "check this machine's clock, for example with timedatectl")
    return Finding("clock", True, "agrees with the newest job")
