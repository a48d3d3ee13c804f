"""Disks that are full, files that are locked or damaged: a clear error, nothing half-done, and on it goes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from queuectl.errors import StoreUnavailable
from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store, sqlite
from queuectl.store.sqlite import SqliteEngine
from tests.chaos.conftest import fill, lives, need
from tests.conftest import eventually
from tests.e2e.conftest import Cli

SmallDisk = Callable[[str, int], Path]
WAITING_JOB = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo done"


def started(q: Cli) -> bool:
    return (q.folder / "started").exists()


# -- full disks ------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_a_job_and_takes_it_when_there_is_room(q: Cli, small_disk: SmallDisk) -> None:
    q.db = small_disk("data", 2048) / "queue.db"
    q.env["QUEUECTL_DB"] = str(q.db)
    q.enqueue("true", id="before")
    filler = fill(q.db.parent)
    refused = q("enqueue", "-f", "-", "--lines", stdin="echo " + "x" * 200_000 + "\n")
    assert refused.code == 5
    assert "is full" in refused.err
    assert "Hint: make room" in refused.err
    assert refused.err.count("\n") == 1
    filler.unlink()
    assert [job["id"] for job in q.json("list")] == ["before"]
    q.enqueue("true", id="after")
    assert "sound" in q("doctor").out


def test_a_disk_that_fills_up_under_running_jobs_costs_them_nothing(q: Cli, small_disk: SmallDisk) -> None:
    q.db = small_disk("data", 4096) / "queue.db"
    logs = q.folder / "logs"
    q.env.update(QUEUECTL_DB=str(q.db), QUEUECTL_LOG_DIR=str(logs))
    id = q.enqueue(WAITING_JOB)
    q.ok("worker", "start")
    eventually(lambda: started(q), "the job to start")
    filler = fill(q.db.parent)
    (q.folder / "go").touch()
    eventually(lambda: not is_running(q), "the job's process to end")
    eventually(lambda: "is full" in (logs / "workers.log").read_text(), "a settle to fail")
    filler.unlink()
    job = q.until(id, "completed")
    assert (job["attempts"], job["crashes"]) == (0, 0)


def is_running(q: Cli) -> bool:
    """Does a process of this test's job live? Asked of the kernel: the database has no room to tell."""
    mark = f"QUEUECTL_DB={q.db}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            process = Path("/proc") / name
            if mark in (process / "environ").read_bytes() and b"while" in (process / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def test_a_full_log_disk_changes_no_outcome(q: Cli, small_disk: SmallDisk) -> None:
    logs = small_disk("logs", 64)
    q.env["QUEUECTL_LOG_DIR"] = str(logs)
    q.ok("worker", "start")
    fill(logs)
    job = q.until(q.enqueue("head -c 300000 /dev/zero | tr '\\0' x; echo; echo end of it"), "completed")
    assert job["stdout"].endswith("end of it\n")
    q.ok("worker", "stop")


# -- locks -----------------------------------------------------------------------------------------------


@pytest.fixture
def locked(q: Cli) -> Iterator[Callable[[], apsw.Connection]]:
    held: list[apsw.Connection] = []

    def lock() -> apsw.Connection:
        db = apsw.Connection(str(q.db))
        db.set_busy_timeout(10_000)
        db.execute("BEGIN IMMEDIATE")
        held.append(db)
        return db

    yield lock
    for db in held:
        db.close()


def test_a_locked_database_makes_commands_wait_and_then_say_so(q: Cli, locked: Callable[[], apsw.Connection]) -> None:
    running = q.enqueue(WAITING_JOB)
    q.ok("worker", "start")
    eventually(lambda: started(q), "the job to start")
    lock = locked()
    (q.folder / "go").touch()
    refused = q("enqueue", "true")  # waits for all its patience
    assert refused.code == 5
    assert "is locked by another process" in refused.err
    assert q.job(running)["state"] == "processing"  # reading goes on
    lock.execute("ROLLBACK")
    assert q.until(running, "completed")["attempts"] == 0
    assert [job["id"] for job in q.json("list")] == [running]


def test_workers_are_stopped_though_the_database_is_locked(q: Cli, locked: Callable[[], apsw.Connection]) -> None:
    q.ok("worker", "start", "--count", "2")
    workers = q.workers()
    locked()
    stop = q("worker", "stop")
    assert (stop.code, stop.out.startswith("Stopped 1 manager")) == (0, True), stop
    assert "is locked by another process" in stop.err
    for worker in workers:
        assert worker["id"] in stop.err  # it could not even say that it leaves
        assert not lives(worker["pid"])


# -- files that cannot be used ---------------------------------------------------------------------------


def test_a_read_only_file_system_is_refused(q: Cli) -> None:
    q.enqueue("true")
    need(["mount", "--bind", str(q.db.parent), str(q.db.parent)])
    try:
        need(["mount", "-o", "remount,ro,bind", str(q.db.parent)])
        before = q.db.read_bytes()
        done = q("enqueue", "true")
        assert done.code == 5
        assert "cannot be written. Hint: " in done.err
        assert done.err.count("\n") == 1
        assert q("worker", "start").code == 5
        assert q("doctor").code == 1
        assert q.db.read_bytes() == before
    finally:
        subprocess.run(["umount", str(q.db.parent)], check=True)


@pytest.mark.parametrize("command", [["enqueue", "true"], ["status"], ["list"], ["worker", "start"]])
def test_a_damaged_file_is_refused_and_left_as_it_was(q: Cli, command: list[str]) -> None:
    for _ in range(3):
        q.enqueue("true")
    data = bytearray(q.db.read_bytes())
    data[4096 : len(data) - 4096] = os.urandom(len(data) - 8192)
    data[100:200] = bytes(100)  # the root of the schema
    q.db.write_bytes(bytes(data))
    before = q.db.read_bytes()
    done = q(*command)
    assert done.code == 5
    assert done.err.startswith("Error: ")
    assert "Hint: " in done.err
    assert q.db.read_bytes() == before
    assert q("doctor").code == 1
    q.db.unlink()  # nothing for the fixture to stop


def test_a_failing_sync_is_an_error_and_no_job(tmp_path: Path) -> None:
    vfs = BrokenSync()
    store = Store(SqliteEngine(str(tmp_path / "queue.db")))
    store.enqueue([NewJob("true", id="before")])
    vfs.broken = True
    with pytest.raises(StoreUnavailable):
        store.enqueue([NewJob("true", id="during")])
    vfs.broken = False
    store.enqueue([NewJob("true", id="after")])
    assert {job.id for job in store.views.jobs()} == {"before", "after"}
    store.close()
    vfs.unregister()


class BrokenSync(apsw.VFS):
    """The operating system's own files, on a disk that can no longer write."""

    def __init__(self) -> None:
        self.broken = False
        self.base = apsw.vfs_names()[0]
        super().__init__("broken-sync", self.base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return SyncedFile(self, name, flags)


class SyncedFile(apsw.VFSFile):
    def __init__(self, vfs: BrokenSync, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__(vfs.base, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._vfs.broken:
            raise apsw.IOError("the disk is gone")
        super().xSync(flags)


# -- the write-ahead log ---------------------------------------------------------------------------------


def test_the_log_of_the_database_shrinks_when_a_long_reader_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LARGEST_IDLE_WAL", 1_000_000)
    engine = SqliteEngine(str(tmp_path / "queue.db"))
    store, wal = Store(engine), tmp_path / "queue.db-wal"
    reader = apsw.Connection(str(tmp_path / "queue.db"))
    reader.execute("BEGIN; SELECT count(*) FROM jobs").fetchall()
    for _ in range(40):
        store.enqueue([NewJob("echo " + "x" * 1000) for _ in range(100)])
    engine.tidy()
    assert wal.stat().st_size > 1_000_000, "a reader keeps it from shrinking, and tidy does not mind"
    reader.execute("COMMIT")
    engine.tidy()
    assert wal.stat().st_size == 0
    assert store.views.counts()["pending"] == 4000
    reader.close()
    store.close()
