"""What can be wrong with an SQLite file and the place it lies in."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import apsw

from queuectl.errors import Untrusted
from queuectl.jobs.model import Finding
from queuectl.system import wakeup

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
LARGE_WAL = 256 * 1024 * 1024
FIRST_SOUND_VERSION = (3, 51, 3)


def checkup(db: apsw.Connection, path: str, log_dir: str, run_dir: str) -> Iterator[Finding]:
    yield version(apsw.sqlite_lib_version())
    yield _integrity(db)
    yield _file_system(path)
    yield from _room({path, log_dir} if os.path.isdir(log_dir) else {path})
    yield _permissions([path, path + "-wal", path + "-shm", log_dir, run_dir])
    yield _wal(path + "-wal")
    yield _bells(run_dir)


def version(text: str) -> Finding:
    """Several processes that write and checkpoint can corrupt a database of the older versions."""
    ok = tuple(int(part) for part in text.split(".")[:3]) >= FIRST_SOUND_VERSION
    advice = "" if ok else "upgrade apsw: older versions can corrupt a database in WAL mode"
    return Finding("SQLite version", ok, text, advice)


def _integrity(db: apsw.Connection) -> Finding:
    try:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(10)")]
        found += [f"row {row[1]} of {row[0]} points nowhere" for row in db.execute("PRAGMA foreign_key_check")]
    except apsw.Error as error:
        found = [str(error)]
    problems = [line for line in found if line != "ok"]
    if problems:
        advice = "stop the workers, remove the file with its -wal and -shm, and copy a backup into its place"
        return Finding("integrity", False, "; ".join(problems[:3]), advice)
    return Finding("integrity", True, "sound")


def _file_system(path: str) -> Finding:
    kind = file_system_of(path)
    if kind in NETWORK_FILE_SYSTEMS:
        advice = "move the queue to a local disk: SQLite's locks do not work over a network"
        return Finding("file system", False, f"a network file system ({kind})", advice)
    return Finding("file system", True, kind or "of an unknown kind")


def file_system_of(path: str, mounts: str = "/proc/self/mounts") -> str:
    """The kind of the file system a path lies on: that of the longest matching mount point."""
    best, kind = "", ""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as table:
            for line in table:
                _, point, its_kind, *_ = line.split(" ")
                if f"{path}/".startswith(point.rstrip("/") + "/") and len(point) >= len(best):
                    best, kind = point, its_kind
    except OSError:
        pass
    return kind


def _room(paths: set[str]) -> Iterator[Finding]:
    for path in sorted(paths):
        free = os.statvfs(path)
        room = free.f_bavail * free.f_frsize
        ok = room >= ROOM_NEEDED
        advice = "" if ok else "make room, for example with queuectl prune --older-than 7d"
        yield Finding("disk space", ok, f"{room // 1024 // 1024:,} MiB free under {path}", advice)


def _permissions(paths: list[str]) -> Finding:
    """Commands and output may hold secrets."""
    exposed = [path for path in paths if os.path.exists(path) and stat.S_IMODE(os.stat(path).st_mode) & 0o077]
    if exposed:
        return Finding(
            "permissions", False, f"open to others: {' '.join(exposed)}", "chmod go-rwx " + " ".join(exposed)
        )
    return Finding("permissions", True, "only the owner can read the queue and its logs")


def _wal(path: str) -> Finding:
    size = os.path.getsize(path) if os.path.exists(path) else 0
    ok = size < LARGE_WAL
    advice = "" if ok else "some process reads for very long and keeps it from shrinking: find it with fuser, end it"
    return Finding("write-ahead log", ok, f"{size // 1024 // 1024:,} MiB", advice)


def _bells(folder: str) -> Finding:
    try:
        stale = [name for name in wakeup.silent(folder) if "." not in name]
    except Untrusted:  # which has a finding of its own
        stale = []
    advice = "the next worker that starts removes them: queuectl worker start" if stale else ""
    return Finding("stale locks", not stale, f"{len(stale)} left by dead workers" if stale else "none", advice)
