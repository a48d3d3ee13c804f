"""Is this queue well? Each check says what it found and, if that is bad, what to do."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from queuectl.store import Store
from queuectl.times import now_ms, span

NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "fuse.sshfs",
    "glusterfs",
    "ceph",
    "afs",
    "lustre",
)
ROOM_NEEDED = 100 * 1024 * 1024
CLOCK_SLACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    ok: bool
    found: str
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(store: Store) -> Iterator[Finding]:
    """All findings, the good ones too."""
    yield _integrity(store)
    yield from _place(store)
    yield from _workers(store)
    yield _clock(store)


def _integrity(store: Store) -> Finding:
    problems = store.engine.problems()
    if problems:
        advice = "stop the workers, keep a copy of the file, and restore a backup"
        return Finding("integrity", False, "; ".join(problems), advice)
    return Finding("integrity", True, f"the database is sound ({store.engine.url})")


def _place(store: Store) -> Iterator[Finding]:
    path = store.engine.url
    kind = _file_system(path)
    if kind in NETWORK_FILE_SYSTEMS:
        advice = "move the queue to a local disk, or use PostgreSQL: SQLite's locks do not work over a network"
        yield Finding("file system", False, f"the database lies on a network file system ({kind})", advice)
    else:
        yield Finding("file system", True, f"local ({kind or 'unknown kind'})")
    free = os.statvfs(os.path.dirname(path))
    room = free.f_bavail * free.f_frsize
    advice = "" if room >= ROOM_NEEDED else "make room: queuectl prune --older-than 7d, or delete other files"
    yield Finding("disk space", room >= ROOM_NEEDED, f"{room // 1024 // 1024:,} MiB free", advice)
    open_to_others = [
        name
        for name in (path, path + "-wal", path + "-shm", store.engine.log_dir, store.engine.bell_dir)
        if os.path.exists(name) and stat.S_IMODE(os.stat(name).st_mode) & 0o077
    ]
    if open_to_others:
        advice = "commands and output may hold secrets: chmod go-rwx " + " ".join(open_to_others)
        yield Finding("permissions", False, f"{len(open_to_others)} paths can be read by others", advice)
    else:
        yield Finding("permissions", True, "only you can read the queue and its logs")


def _workers(store: Store) -> Iterator[Finding]:
    workers = store.views.workers()
    lost = store.lost_workers()
    if lost:
        held = sum(len(claims) for claims in lost.values())
        found = f"{len(lost)} workers died without a word, holding {held} jobs"
        yield Finding("workers", False, found, "start a worker: it puts them back (queuectl worker start)")
    elif any(worker.alive for worker in workers):
        yield Finding("workers", True, f"{sum(worker.alive for worker in workers)} running")
    else:
        waiting = store.views.counts()
        due = waiting["pending"] + waiting["failed"]
        advice = "start some: queuectl worker start" if due else ""
        yield Finding("workers", not due, f"none running, {due:,} jobs waiting", advice)
    silent_after = 3 * store.config()["lease_timeout"] * 1000
    silent = [worker for worker in workers if worker.alive and now_ms() - worker.heartbeat_at > silent_after]
    if silent:
        names = ", ".join(f"{worker.id} (pid {worker.pid})" for worker in silent)
        longest = span(max(now_ms() - worker.heartbeat_at for worker in silent) / 1000)
        advice = "is it stopped (SIGSTOP) or swapping? kill -CONT it, or kill -9 it: its job will be put back"
        yield Finding("heartbeats", False, f"alive but silent for {longest}: {names}", advice)


def _clock(store: Store) -> Finding:
    newest = max((job.created_at for job in store.views.jobs(limit=1)), default=0)
    ahead = newest - now_ms()
    if ahead > CLOCK_SLACK_MS:
        found = f"the newest job was enqueued {span(ahead / 1000)} in the future"
        return Finding("clock", False, found, "check this machine's clock (timedatectl)")
    return Finding("clock", True, "agrees with the newest job")


def _file_system(path: str) -> str:
    """The kind of the file system a path lies on, from the longest matching mount point."""
    best, kind = "", ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, its_kind, *_ = line.split(" ")
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, its_kind
    except OSError:
        pass
    return kind
