"""What only the SQLite engine promises: what is on disk, who may read it, and files that are not ours."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from queuectl import doctor
from queuectl.errors import Conflict, StoreReplaced, StoreUnavailable
from queuectl.jobs import log_files
from queuectl.store import Store, migrate, read_queries, sqlite, write_queries
from queuectl.store.sqlite import APPLICATION_ID, DIALECT, SqliteEngine
from queuectl.system.wakeup import Bell
from tests.conftest import Clock
from tests.contract.conftest import enqueue

FULL, NORMAL = 2, 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def pragma(engine: SqliteEngine, name: str) -> object:
    return engine._db.pragma(name)


def make_queue(path: Path) -> None:
    store = Store(SqliteEngine(str(path)))
    enqueue(store, id="kept")
    store.close()


def refused(path: Path) -> StoreUnavailable:
    """The reason why this is not opened, with a hint, and without a change to it."""
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable) as reason:
        SqliteEngine(str(path))
    assert path.read_bytes() == before
    assert reason.value.hint
    assert reason.value.exit_code == 5
    return reason.value


# -- durability ------------------------------------------------------------------------------------------


def test_a_commit_is_on_disk_when_it_returns(path: Path) -> None:
    for _ in ("the first opening", "and later ones"):
        engine = SqliteEngine(str(path))
        assert pragma(engine, "synchronous") == FULL
        assert pragma(engine, "journal_mode") == "wal"
        assert pragma(engine, "foreign_keys") == 1
        engine.close()


def test_a_relaxed_engine_leaves_the_syncing_to_flush(path: Path) -> None:
    engine = SqliteEngine(str(path), durable=False)
    assert pragma(engine, "synchronous") == NORMAL
    assert pragma(engine, "journal_mode") == "wal"
    engine.flush()  # even before anything was written
    Store(engine).set_config("max_retries", "5")
    engine.flush()
    engine.close()


def test_the_driver_is_one_without_the_corruption_bug() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


COMMIT_AND_DIE = """
import os, signal, sys
from queuectl.jobs.job_spec import NewJob
from queuectl.store import open_store
store = open_store(sys.argv[1])
os.write(1, store.enqueue([NewJob("true")])[0].encode())
with store.engine.write() as tx:
    tx.run("UPDATE jobs SET command = 'never committed'")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_acknowledged_survives_kill_9_and_what_was_not_is_gone(path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", COMMIT_AND_DIE, str(path)], stdout=subprocess.PIPE)
    assert killed.returncode == -9
    store = Store(SqliteEngine(str(path)))
    assert store.views.job(killed.stdout.decode()).command == "true"
    assert all(finding.ok for finding in store.engine.checkup() if finding.check == "integrity")
    store.close()


# -- privacy ---------------------------------------------------------------------------------------------


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_files_are_0600_and_folders_0700_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "data"
    with umask(mask):
        store = Store(SqliteEngine(str(folder / "queue.db")))
        id = enqueue(store)
        log_files.append(log_files.path_of(store.engine.log_dir, id), b"secret")
        bell = Bell(store.engine.run_dir, "w1")
        store.engine.backup(str(folder / "copy.db"))
    modes = {str(file.relative_to(folder)): mode(file) for file in folder.rglob("*")}
    assert {name for name, bits in modes.items() if bits == 0o700} == {"logs", "queue.db.run"}
    assert {name for name, bits in modes.items() if bits == 0o600} == {
        "queue.db", "queue.db-wal", "queue.db-shm", "copy.db", f"logs/job_{id}.log", "queue.db.run/w1",
    }  # fmt: skip
    assert len(modes) == 8
    assert mode(folder) == 0o700
    bell.close()
    store.close()


def test_every_folder_that_is_made_on_the_way_is_private(tmp_path: Path) -> None:
    with umask(0):
        SqliteEngine(str(tmp_path / "one" / "two" / "queue.db")).close()
    assert (mode(tmp_path / "one"), mode(tmp_path / "one" / "two")) == (0o700, 0o700)


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    SqliteEngine(str(shared / "queue.db")).close()
    assert mode(shared) == 0o755
    assert mode(shared / "queue.db") == 0o600


# -- files that are not ours -----------------------------------------------------------------------------


def test_a_file_of_a_newer_queuectl_is_refused_untouched(path: Path) -> None:
    make_queue(path)
    with apsw.Connection(str(path)) as db:
        db.pragma("user_version", migrate.NEWEST + 1)
    db.close()
    assert "newer queuectl" in refused(path).message


def test_a_worker_does_no_more_work_on_a_file_that_was_upgraded_under_it(path: Path) -> None:
    engine = SqliteEngine(str(path), durable=False)
    with apsw.Connection(str(path)) as db:
        db.pragma("user_version", migrate.NEWEST + 1)
    db.close()
    with pytest.raises(StoreReplaced, match="newer queuectl"):
        Store(engine).tick("w1", (), 1)
    engine.close()


@pytest.mark.parametrize(
    "content", [b"hello", b"hello world\n" * 1000, b"\0" * 4096, b"SQLite format 3\0" + b"x" * 84]
)
def test_what_is_no_database_is_refused_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path)


@pytest.mark.parametrize("version", [0, migrate.NEWEST, migrate.NEWEST + 1])
@pytest.mark.parametrize("mark", [0, 0xBEEF])
@pytest.mark.parametrize("table", ["notes", "jobs"])
def test_another_programs_database_is_refused_untouched(path: Path, version: int, mark: int, table: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(f"CREATE TABLE {table} (id TEXT)")
    db.pragma("user_version", version)
    db.pragma("application_id", mark)
    db.close()
    refused(path)


def test_a_damaged_queue_is_refused_or_found_out_and_not_written_to(path: Path) -> None:
    make_queue(path)
    data = bytearray(path.read_bytes())
    data[100:200] = b"\xff" * 100  # the header of the first page's b-tree
    path.write_bytes(data)
    with pytest.raises(StoreUnavailable):
        enqueue(Store(SqliteEngine(str(path))))
    assert path.read_bytes() == bytes(data)


def test_an_empty_file_becomes_a_queue(path: Path) -> None:
    path.touch()
    make_queue(path)
    assert path.stat().st_size > 0


def test_a_folder_is_no_database(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnavailable) as reason:
        SqliteEngine(str(path))
    assert str(path) in reason.value.message


@pytest.mark.parametrize("place", ["/dev/null/queue.db", "/proc/nowhere/queue.db"])
def test_a_place_where_nothing_can_be_made_is_refused(place: str) -> None:
    with pytest.raises(StoreUnavailable) as reason:
        SqliteEngine(place)
    assert reason.value.hint


def test_a_relative_path_in_a_folder_that_was_removed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreUnavailable):
        SqliteEngine("queue.db")


@contextmanager
def somebody_else() -> Iterator[Path]:
    """Without root's power to write everywhere, in a folder that others can look into."""
    with tempfile.TemporaryDirectory(prefix="queuectl-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextmanager
def without_privileges() -> Iterator[None]:
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_read_only_file_is_refused_untouched(folder_mode: int) -> None:
    with somebody_else() as folder:
        make_queue(folder / "queue.db")
        (folder / "queue.db").chmod(0o444)
        before = (folder / "queue.db").read_bytes()
        folder.chmod(folder_mode)
        with without_privileges(), pytest.raises(StoreUnavailable) as reason:
            enqueue(Store(SqliteEngine(str(folder / "queue.db"))))
        assert reason.value.hint
        assert (folder / "queue.db").read_bytes() == before


def test_a_file_one_may_not_read_and_a_folder_one_may_not_write_are_refused() -> None:
    with somebody_else() as folder:
        make_queue(folder / "queue.db")
        (folder / "queue.db").chmod(0)
        folder.chmod(0o555)
        with without_privileges():
            for name in ("queue.db", "new.db", "sub/new.db"):
                with pytest.raises(StoreUnavailable) as reason:
                    SqliteEngine(str(folder / name))
                assert reason.value.hint


# -- opening at the same time ----------------------------------------------------------------------------

OPEN_AND_STORE = """
import sys
from queuectl.jobs.job_spec import NewJob
from queuectl.store import open_store
print("ready", flush=True)
sys.stdin.readline()
open_store(sys.argv[1]).enqueue([NewJob("true")])
"""


def test_eight_processes_may_be_the_first_at_once(tmp_path: Path) -> None:
    for attempt in range(3):
        path = tmp_path / f"new{attempt}" / "queue.db"
        openers = [
            subprocess.Popen(
                [sys.executable, "-c", OPEN_AND_STORE, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for _ in range(8)
        ]
        for opener in openers:
            assert opener.stdout
            opener.stdout.readline()
        for opener in openers:
            assert opener.stdin
            opener.stdin.write(b"go\n")
            opener.stdin.flush()
        problems = [opener.communicate(timeout=60)[1].decode() for opener in openers]
        assert [opener.returncode for opener in openers] == [0] * 8, problems
        store = Store(SqliteEngine(str(path)))
        assert store.views.counts()["pending"] == 8
        store.close()


def test_a_folder_that_another_process_makes_at_the_same_moment_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    look = os.path.isdir

    def not_there_yet(name: str) -> bool:
        if name == str(folder) and not folder.exists():
            folder.mkdir()
            return False
        return look(name)

    monkeypatch.setattr(os.path, "isdir", not_there_yet)
    SqliteEngine(str(folder / "queue.db")).close()


@pytest.mark.parametrize("look", range(1, 7))
def test_another_first_opening_between_two_of_our_looks_does_not_make_the_file_foreign(
    path: Path, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    looks = iter(range(1, 100))

    class Watched(apsw.Connection):
        def pragma(self, *args: Any, **options: Any) -> Any:
            found = super().pragma(*args, **options)
            if next(looks) == look:
                monkeypatch.undo()
                with suppress(StoreUnavailable):  # our locks may keep it out
                    SqliteEngine(str(path), patience=0.01).close()
            return found

    monkeypatch.setattr(apsw, "Connection", Watched)
    SqliteEngine(str(path)).close()


# -- migrations ------------------------------------------------------------------------------------------


def learn_next_version(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Be a program whose schema is one version further."""
    newest = migrate.NEWEST + 1
    shutil.copytree(migrate.FOLDER, folder)
    (folder / f"{newest:04}_more.sql").write_text(script)
    monkeypatch.setattr(migrate, "FOLDER", str(folder))
    monkeypatch.setattr(migrate, "NEWEST", newest)


def test_a_newer_program_brings_the_file_to_its_schema_and_keeps_the_jobs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_queue(path)
    learn_next_version(monkeypatch, tmp_path / "next", "CREATE TABLE more (id TEXT);")
    store = Store(SqliteEngine(str(path)))
    assert pragma_of(store, "user_version") == migrate.NEWEST
    assert pragma_of(store, "application_id") == APPLICATION_ID
    assert store.views.job("kept").state == "pending"
    store.close()
    monkeypatch.undo()
    assert "newer queuectl" in refused(path).message  # by the program of before


def test_a_queue_of_the_first_schema_keeps_its_jobs_history_and_counts(path: Path) -> None:
    """Every schema that was ever in use must lead to the newest."""
    db = apsw.Connection(str(path))
    for number, script in migrate.scripts_after(0, "sqlite"):
        if number == 1:
            for spot, words in DIALECT.items():
                script = script.replace(f"{{{spot}}}", words)
            db.execute(script)
    columns = "id, command, queue, state, ready, priority, max_retries, backoff_base, run_at, created_at, updated_at"
    states = {"a": "completed", "b": "pending", "c": "dead", "d": "pending"}
    for id, state in states.items():
        db.execute(
            f"INSERT INTO jobs ({columns}, finished_at) VALUES (?, 'true', ?, ?, ?, 0, 3, 2, 1, 1, 1, ?)",
            (id, "mail" if id == "d" else "default", state, state == "pending", None if state == "pending" else 9),
        )
    states["e"] = "processing"
    db.execute(
        f"INSERT INTO jobs ({columns}, run, worker_id, started_at) "
        "VALUES ('e', 'true', 'mail', 'processing', FALSE, 0, 3, 2, 1, 1, 1, 1, 'w1', 2)"
    )
    for job, reason in ((1, "started"), (3, "started"), (5, "started"), (1, "exit code 0"), (3, "exit code 1")):
        db.execute(
            "INSERT INTO events (job, at, state, run, reason, duration_ms) VALUES (?, 2, 'x', 1, ?, ?)",
            (job, reason, None if reason == "started" else 1),
        )
    db.pragma("user_version", 1)
    db.pragma("application_id", APPLICATION_ID)
    db.close()
    store = Store(SqliteEngine(str(path)))
    assert {job.id: job.state for job in store.views.jobs()} == states
    assert [event.reason for event in store.views.history("a")] == ["enqueued", "started", "exit code 0"]
    assert [event.reason for event in store.views.history("c")] == ["enqueued", "started", "exit code 1"]
    assert [event.reason for event in store.views.history("e")] == ["enqueued", "started"]
    found = {state: n for state, n in store.views.counts().items() if n}
    assert found == {"completed": 1, "pending": 2, "dead": 1, "processing": 1}
    assert store.retry(["c"]) == ["c"]
    assert store.views.counts()["pending"] == 3
    assert all(finding.ok for finding in store.engine.checkup() if finding.check == "integrity")
    store.close()


def test_a_migration_that_fails_leaves_the_old_schema_whole(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_queue(path)
    learn_next_version(
        monkeypatch, tmp_path / "next", "CREATE TABLE more (id TEXT);\nINSERT INTO nowhere VALUES (1);"
    )
    with pytest.raises(StoreUnavailable):
        SqliteEngine(str(path))
    monkeypatch.undo()
    store = Store(SqliteEngine(str(path)))
    assert store.views.job("kept").state == "pending"
    with store.engine.read() as tx:
        assert tx.rows("SELECT name FROM sqlite_schema WHERE name = 'more'") == []
    store.close()


def pragma_of(store: Store, name: str) -> object:
    with store.engine.read() as tx:
        return tx.rows(f"PRAGMA {name}")[0][0]


# -- locks, replacement, backup --------------------------------------------------------------------------


def test_a_locked_database_is_waited_for_and_then_said_to_be_locked(path: Path, clock: Clock) -> None:
    first = SqliteEngine(str(path))
    second = Store(SqliteEngine(str(path), patience=0.01))
    for act in (second.probe, lambda: enqueue(second)):
        with first.write(), pytest.raises(StoreUnavailable, match="locked"):
            act()
        act()
    second.close()
    first.close()


def test_a_time_is_taken_when_the_lock_is_ours(path: Path, clock: Clock) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    transaction = engine.write()
    clock.advance(5)
    with transaction as tx:
        assert tx.now == clock.now
    engine.close()


def test_an_engine_notices_what_others_commit_and_rests_when_nobody_does(path: Path) -> None:
    mine, other = SqliteEngine(str(path)), SqliteEngine(str(path))
    mine.changed()
    assert not mine.changed()
    enqueue(Store(mine))
    assert not mine.changed()
    enqueue(Store(other))
    assert mine.changed()
    assert not mine.changed()
    long_ago = time.time() - 60
    os.utime(f"{path}-wal", (long_ago, long_ago))
    assert not mine.changed()
    enqueue(Store(other))
    assert mine.changed()
    mine.close()
    other.close()


def test_an_engine_notices_that_its_file_was_replaced_or_removed(path: Path) -> None:
    engine = SqliteEngine(str(path))
    path.rename(path.with_name("old.db"))
    with pytest.raises(StoreUnavailable):
        engine.changed()
    path.touch()
    with pytest.raises(StoreReplaced):
        engine.changed()
    engine.close()


def test_who_asks_is_told_that_the_file_was_moved_even_if_nothing_is_written(path: Path) -> None:
    make_queue(path)
    engine = SqliteEngine(str(path))
    engine.check_place()
    away = path.with_name("old.db")
    path.rename(away)
    with pytest.raises(StoreUnavailable):
        engine.check_place()
    away.rename(path)
    engine.check_place()
    engine.close()


BESIDE = [("-wal",), ("-shm",), ("-wal", "-shm")]


@pytest.fixture
def in_use(path: Path) -> Iterator[Store]:
    """A worker's store, in whose log is a job that somebody else enqueued."""
    store = Store(SqliteEngine(str(path), durable=False))
    other = Store(SqliteEngine(str(path)))
    enqueue(other, id="acknowledged")
    other.close()
    yield store
    store.close()


def remove(path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        os.unlink(f"{path}{name}")


@pytest.mark.parametrize("names", BESIDE, ids=" ".join)
@pytest.mark.parametrize("act", ["write", "changed", "flush", "check_place"])
def test_a_worker_notices_that_a_file_beside_its_database_was_removed(
    path: Path, in_use: Store, names: tuple[str, ...], act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_use.engine.flush()
    remove(path, names)
    with pytest.raises(StoreUnavailable, match="was removed while it was in use") as first:
        getattr(in_use.engine, act)()
    assert not isinstance(first.value, StoreReplaced), "it may be on the move, and come back"
    monkeypatch.setattr(sqlite, "MAY_COME_BACK", 0)
    with pytest.raises(StoreReplaced, match="was removed while it was in use"):
        getattr(in_use.engine, act)()


def test_a_log_that_was_on_the_move_is_used_again(path: Path, in_use: Store) -> None:
    away = path.with_name("away")
    os.rename(f"{path}-wal", away)
    with pytest.raises(StoreUnavailable):
        in_use.probe()
    os.rename(away, f"{path}-wal")
    in_use.probe()
    in_use.engine.flush()


def test_another_log_in_the_place_of_ours_is_noticed_at_once(path: Path, in_use: Store) -> None:
    os.rename(f"{path}-wal", path.with_name("away"))
    path.with_name("queue.db-wal").touch(mode=0o600)
    for act in (in_use.probe, in_use.engine.flush, in_use.engine.changed):
        with pytest.raises(StoreReplaced, match="was replaced while it was in use"):
            act()


@pytest.mark.parametrize("names", BESIDE, ids=" ".join)
def test_what_was_acknowledged_is_saved_from_a_log_that_was_removed(
    path: Path, tmp_path: Path, in_use: Store, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody still has it open: as soon as that one notices, all of it is in the database itself."""
    monkeypatch.setattr(sqlite, "MAY_COME_BACK", 0)
    remove(path, names)
    with pytest.raises(StoreReplaced):
        in_use.engine.check_place()
    if "-wal" not in names:
        shutil.copy(f"{path}-wal", tmp_path / "copy.db-wal")
    shutil.copy(path, tmp_path / "copy.db")
    copy = Store(SqliteEngine(str(tmp_path / "copy.db")))
    assert copy.views.job("acknowledged").command == "true"
    assert [finding.found for finding in copy.engine.checkup() if finding.check == "integrity"] == ["sound"]
    copy.close()


@pytest.mark.parametrize("names", [("-wal",), ("-shm",), ("-wal", "-shm"), ("",)], ids=" ".join)
def test_nobody_opens_a_queue_whose_files_were_removed_under_a_worker(
    path: Path, in_use: Store, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be written by two who do not know of each other's locks."""
    monkeypatch.setattr(doctor, "PATIENCE", 0.05)
    worker = Bell(in_use.engine.run_dir, "w1")
    remove(path, names)
    with pytest.raises(StoreUnavailable, match="were removed while workers use them"):
        SqliteEngine(str(path), patience=0.05)
    [finding] = doctor.examine(str(path))
    assert not finding.ok
    assert "were removed while workers use them" in finding.found
    in_use.close()
    worker.close()
    SqliteEngine(str(path), patience=0.05).close()


def test_a_queue_that_was_removed_as_a_whole_may_be_made_anew_at_once(path: Path, in_use: Store) -> None:
    worker = Bell(in_use.engine.run_dir, "w1")
    remove(path, ("", "-wal", "-shm"))
    SqliteEngine(str(path), patience=0.05).close()
    worker.close()


def test_in_a_folder_that_others_can_add_files_to_ours_stay_in_their_places(tmp_path: Path) -> None:
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    made = []
    for id in ("one", "two"):
        store = Store(SqliteEngine(str(folder / "queue.db")))
        enqueue(store, id=id)
        store.close()
        made.append({file.name: (file.stat().st_ino, mode(file)) for file in folder.iterdir()})
    assert made[0] == made[1]
    assert made[0].keys() == {"queue.db", "queue.db-journal", "queue.db-wal", "queue.db-shm"}
    assert {bits for _, bits in made[0].values()} == {0o600}
    assert (folder / "queue.db-wal").stat().st_size == 0, "what a backup in the place of the database must not meet"
    (folder / "queue.db").rename(tmp_path / "moved.db")
    moved = Store(SqliteEngine(str(tmp_path / "moved.db")))
    assert {job.id for job in moved.views.jobs()} == {"one", "two"}
    moved.engine.backup(str(folder / "queue.db"))
    moved.close()
    restored = Store(SqliteEngine(str(folder / "queue.db")))
    assert {job.id for job in restored.views.jobs()} == {"one", "two"}
    enqueue(restored, id="three")
    restored.close()
    assert sorted(file.name for file in folder.iterdir()) == sorted(made[0])


def test_a_backup_is_a_queue_of_its_own_and_replaces_nothing(path: Path, tmp_path: Path) -> None:
    make_queue(path)
    store = Store(SqliteEngine(str(path)))
    copy = tmp_path / "copy.db"
    store.engine.backup(str(copy))
    enqueue(store, id="later")
    restored = Store(SqliteEngine(str(copy)))
    assert [job.id for job in restored.views.jobs()] == ["kept"]
    restored.close()
    before = copy.read_bytes()
    with pytest.raises(Conflict):
        store.engine.backup(str(copy))
    assert copy.read_bytes() == before
    with pytest.raises(StoreUnavailable):
        store.engine.backup(str(tmp_path / "no" / "such" / "folder"))
    store.close()


def test_a_backup_in_the_place_of_the_queue_gets_a_log_to_write_ahead_again(path: Path, tmp_path: Path) -> None:
    engine = SqliteEngine(str(path))
    engine.backup(str(tmp_path / "backup.db"))
    engine.close()
    restored = SqliteEngine(str(tmp_path / "backup.db"), durable=False)
    assert pragma(restored, "journal_mode") == "wal"
    Store(restored).set_config("max_retries", "5")
    restored.flush()
    restored.close()


def test_a_backup_during_a_transaction_of_another_has_none_of_it(path: Path, tmp_path: Path) -> None:
    make_queue(path)
    store, other = Store(SqliteEngine(str(path))), SqliteEngine(str(path))
    with other.write() as tx:
        tx.run("UPDATE jobs SET command = 'half done'")
        store.engine.backup(str(tmp_path / "copy.db"))
    copy = Store(SqliteEngine(str(tmp_path / "copy.db")))
    assert copy.views.job("kept").command == "true"
    for engine in (store.engine, other, copy.engine):
        engine.close()


# -- how statements find their rows ----------------------------------------------------------------------


SQL = {**vars(write_queries), **vars(read_queries)}


def plan_of(path: Path, sql: str) -> list[str]:
    engine = SqliteEngine(str(path))
    text, _ = engine.text(sql)
    params = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z_]+)", text))
    plan = [str(row[3]) for row in engine._db.execute("EXPLAIN QUERY PLAN " + text, params)]
    engine.close()
    return plan


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("PROMOTE_DUE", "jobs_waiting"),
        ("NEXT_DUE", "jobs_waiting"),
        ("READY_QUEUES", "jobs_ready"),
        ("READY_JOBS", "jobs_ready"),
        ("AHEAD_OF", "jobs_ready"),
        ("DUE_SINCE", "jobs_ready"),
        ("OVERDUE_SINCE", "jobs_waiting"),
        ("HELD_BY", "jobs_running"),
        ("RUNNING", "jobs_running"),
        ("CLAIM", "PRIMARY KEY (rowid=?)"),
        ("SETTLE", "PRIMARY KEY (rowid=?)"),
        ("CANCEL_WAITING", "PRIMARY KEY (rowid=?)"),
        ("REQUEST_CANCEL", "PRIMARY KEY (rowid=?)"),
        ("RETRY_DEAD", "PRIMARY KEY (rowid=?)"),
        ("PARK", "jobs_ready_key"),
        ("ANY_PARKED", "jobs_parked"),
        ("PARKED_QUEUES", "jobs_parked"),
        ("PARKED_WITH", "jobs_parked"),
        ("PARKED_KEYS", "jobs_parked"),
        ("COUNT_DEAD_IN", "jobs_batch_dead"),
        ("LOCK_WAITING_IN", "jobs_batch_unfinished"),
        ("LAST_UNFINISHED_IN", "jobs_batch_unfinished"),
        ("KEYS_TAKEN", "jobs_unique"),
        ("WEIGHTS", "PRIMARY KEY (rowid=?)"),
        ("LET_GO", "PRIMARY KEY (rowid=?)"),
        ("RUNNING_WITH", "jobs_running_key"),
        ("RUNNING_OF_KEY", "jobs_running_key"),
        ("RUNNING_IN", "jobs_running"),
        ("NEXT_PARKED", "jobs_parked"),
        ("ANY_OVERDUE", "jobs_waiting"),
        ("UNFINISHED_FIRING", "(id=?)"),
        ("LOCK_PRUNABLE", "jobs_finished"),
        ("RECENT_FINISHED", "jobs_finished"),
        ("FINISHED_SINCE", "jobs_finished"),
        ("LIST_ALL", "PRIMARY KEY (rowid>?)"),
        ("LIST_STATE", "jobs_by_state"),
        ("LIST_RUNNING", "jobs_running"),
        ("LONGEST_RUNNING", "jobs_running"),
        ("NEXT_READY", "jobs_ready"),
        ("NEXT_WAITING", "jobs_waiting"),
        ("NEXT_BLOCKED", "jobs_by_state"),
        ("LAST_FINISHED", "jobs_finished"),
        ("NEWS", "jobs_waiting and jobs_running"),
        ("DEAD_JOBS", "jobs_by_state"),
        ("UNFINISHED", "jobs_"),
        ("GET_JOB", "(id=?)"),
        ("FIND_EXACT", "(id=?)"),
        ("FIND_PREFIX", "(id>? AND id<?)"),
        ("STATES_OF", "(id=?)"),
        ("ENDED", "PRIMARY KEY (rowid=?)"),
        ("LAST_TAGGED", "PRIMARY KEY (rowid=?)"),
    ],
)
def test_a_statement_finds_its_jobs_through_its_own_index(path: Path, name: str, index: str) -> None:
    """Else its cost would grow with the number of jobs, as that of a claim with every job that waits."""
    plan = [line for line in plan_of(path, SQL[name]) if " jobs" in line]
    indexes = index.split(" and ")
    for each in indexes:
        assert any(each in line for line in plan), plan
    one_row = ("PRIMARY KEY (rowid=?)", "(id=?)")
    rest = [line for line in plan if not any(each in line for each in indexes)]
    assert [line for line in rest if not line.endswith(one_row)] == []


@pytest.mark.parametrize(
    "name",
    ["PROMOTE_DUE", "READY_JOBS", "PARK", "PARKED_WITH", "NEXT_PARKED", "DUE_SINCE", "OVERDUE_SINCE",
     "LOCK_PRUNABLE", "RECENT_FINISHED", "HISTORY", "LIST_ALL", "NEXT_READY", "NEXT_WAITING",
     "NEXT_BLOCKED", "LAST_FINISHED", "LOCK_WAITING_IN"],
)  # fmt: skip
def test_nothing_is_sorted_that_an_index_already_has_in_order(path: Path, name: str) -> None:
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan_of(path, SQL[name])


@pytest.mark.parametrize("name", ["TALLIES_EVER", "TALLIES_SINCE", "FORGET_TALLIES"])
def test_tallies_are_found_by_their_span(path: Path, name: str) -> None:
    found = [line for line in plan_of(path, SQL[name]) if " tallies" in line]
    assert found
    assert all("USING PRIMARY KEY (span=?" in line for line in found), found
