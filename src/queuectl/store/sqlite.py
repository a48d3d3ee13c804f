"""The engine for one machine: an SQLite file in WAL mode, through apsw."""

from __future__ import annotations

import os
import time

import apsw

from queuectl.errors import (
    Conflict,
    Duplicate,
    InvalidInput,
    QueuectlError,
    StoreReplaced,
    StoreUnavailable,
    Untrusted,
)
from queuectl.store import migrate
from queuectl.system import private_files, wakeup
from queuectl.system.times import now_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from types import TracebackType

    from queuectl.jobs.model import Finding
    from queuectl.store.engine import Holder, Params, Row

APPLICATION_ID = 0x51C71  # marks the file as ours
WRITE = "BEGIN IMMEDIATE"

BESIDE = ("-journal", "-wal", "-shm")  # what SQLite opens beside the file, and believes
SURELY_PAST = 2.0  # seconds
MAY_COME_BACK = 1.0  # seconds for which a missing log is waited for: the files may be on the move, one by one
LOOK_AGAIN_AFTER = 0.01
LARGEST_CACHE = 64 * 1024 * 1024
LARGEST_IDLE_WAL = 64 * 1024 * 1024
CHECKPOINT_AT = 4000  # pages: the same few are written over and over, so a rare checkpoint copies fewer of them

DIALECT = {
    "skip_locked": "",  # one writer at a time: there are no locked rows to skip
    "for_update": "",
    "in_turn": "TRUE",
    "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",  # never reused, or an old fence could fit a new job
    "ascii": "TEXT",
    "clustered": "WITHOUT ROWID",
    "one_of": "IN (",
    "end_of": ")",
    "from_each": "",
    "and_each": "",
}


class SqliteEngine:
    """One connection to the queue's file, which is made if it is not there.

    A `durable` engine's commit returns when the data is on disk. A relaxed one's is atomic and visible at once,
    but survives a power cut only after `flush`; workers use it to share one sync among many runs.
    """

    leased = False
    place = ""
    log_place: str | None = None

    def __init__(
        self,
        path: str,
        clock: Callable[[], int] = now_ms,
        durable: bool = True,
        patience: float = 10.0,
        create: bool = True,
    ) -> None:
        self.path = path
        self._clock = clock
        self._patience = patience
        self._durable = durable
        self._texts: dict[str, tuple[str, list[str]]] = {}
        self._wal = -1
        self._written = (0, 0.0)
        self._data_version = -1
        self._held: dict[str, tuple[int, int]] = {}  # the files that we have open
        self._missing_since: float | None = None
        self.commits = 0
        try:
            self.path = self.url = self.name = private_files.resolve(path)
            folder = os.path.dirname(self.path)
            self.log_dir = os.path.abspath(os.environ.get("QUEUECTL_LOG_DIR") or os.path.join(folder, "logs"))
            self.run_dir = self.path + ".run"
            self._log_path = self.path + "-wal"
            if create:
                if not os.path.isdir(folder):
                    private_files.make_folder(folder)
                _make_file(self.path)
            self._shared = private_files.is_shared(folder)
            self._check_files()
            file = os.stat(self.path)
            self.identity = f"{file.st_dev:x}-{file.st_ino:x}"
            self._db = apsw.Connection(self.path)
            self._db.set_busy_timeout(round(patience * 1000))
            # Else SQLite plans a statement anew, at ten times its cost, whenever a parameter has another value.
            self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(self._shared))  # see _hold_files
            self._prepare()
        except BaseException as error:
            if hasattr(self, "_db"):
                self._db.close()  # an error keeps us alive for as long as somebody looks at it, and our locks with us
            if isinstance(error, apsw.Error | OSError) and not isinstance(error, Untrusted):
                raise self._explain(error) from error
            raise

    def write(self, at_once: bool = False) -> SqliteTransaction:
        self.check_place()
        return SqliteTransaction(self, WRITE, check_version=not self._durable)

    def read(self) -> SqliteTransaction:
        return SqliteTransaction(self, "BEGIN")

    def flush(self) -> None:
        try:
            if self._wal < 0:
                self._wal = os.open(self._log_path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.fdatasync(self._wal)
        except OSError as error:
            self.check_place()  # which knows more, if it is gone
            raise self._explain(error) from error
        self.check_place()  # else something else was synced

    def changed(self) -> bool:
        """An idle worker asks each second, so the write-ahead log's time stamp is looked at first, the cheapest way
        to see that nothing has happened. SQLite is asked only if something has, perhaps by ourselves."""
        self.check_place()
        try:
            log = os.stat(self._log_path)
        except OSError as error:
            raise self._explain(error) from error
        try:
            if self._written == (log.st_ino, log.st_mtime):
                return False
            version, self._data_version = self._data_version, self._db.pragma("data_version")
        except apsw.Error as error:
            raise self._explain(error) from error
        # A time stamp is coarse: what is written in the very moment we look must be seen the next time.
        past = time.time() - log.st_mtime > SURELY_PAST
        self._written = (log.st_ino, log.st_mtime) if past else (0, 0.0)
        return version != self._data_version

    def announce(self) -> int:
        return wakeup.ring(self.run_dir)

    def listen(self) -> None:
        return None  # the bell is enough on one machine

    def is_here(self, place: str) -> bool:
        return True

    def is_alive(self, holder: Holder, now: int) -> bool:
        return wakeup.answers(self.run_dir, *holder[:3])

    def default_cwd(self) -> str | None:
        try:
            folder = os.getcwd()
            folder.encode()
        except FileNotFoundError:  # removed under us; the worker's own folder will have to do
            return None
        except UnicodeEncodeError:
            raise InvalidInput("the name of this folder is not valid UTF-8", "give another: --cwd FOLDER") from None
        return folder

    def backup(self, path: str) -> None:
        import tempfile

        try:
            path = os.path.abspath(path)
            folder, name = os.path.split(path)
            private_files.resolve(path)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise Conflict(f'"{path}" is already there', "choose another name, or remove it first") from None
        except Untrusted:
            raise
        except OSError as error:
            raise StoreUnavailable(f'cannot write "{path}": {error.strerror}', "choose another place") from None
        try:
            # In a folder that is ours alone: in /tmp others could put files beside it that SQLite would believe.
            with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=folder) as own:
                made = os.path.join(own, name)
                _make_file(made)
                self._copy_to(made)
                os.replace(made, path)
        except BaseException as error:
            os.unlink(path)
            if isinstance(error, apsw.Error | OSError):
                raise StoreUnavailable(f'cannot write "{path}": {error}', "is there room?") from error
            raise

    def _copy_to(self, path: str) -> None:
        target = apsw.Connection(path)
        with target.backup("main", self._db, "main") as copy:
            copy.step(-1)  # at one go: steps start anew whenever somebody writes, and readers block nobody
        target.execute("DELETE FROM workers")  # they are not the copy's
        target.pragma("journal_mode", "delete")
        target.close()

    def checkup(self) -> Iterator[Finding]:
        from queuectl.store import sqlite_health

        return sqlite_health.checkup(self._db, self.path, self.log_dir, self.run_dir)

    def tidy(self) -> None:
        """Shrink a write-ahead log that a long reader has let grow, if nobody is in the way just now."""
        try:
            if os.path.getsize(self.path + "-wal") > LARGEST_IDLE_WAL:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (apsw.Error, OSError):
            pass  # next time

    def compact(self) -> None:
        try:
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except apsw.Error:
            pass  # others are using it, or the disk is full: new jobs will take the space

    def roll_back(self) -> None:
        if self._db.in_transaction:  # a full disk may have rolled it back already
            try:
                self._db.execute("ROLLBACK")
            except apsw.Error:
                pass  # the error that brought us here says more

    def close_in_child(self) -> None:
        """SQLite must not be given the same file again while it takes the parent's locks for its own. Closing it here
        takes none of them away."""
        self.close()

    def close(self) -> None:
        self._db.close()
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1

    # -- the files ---------------------------------------------------------------------------------------

    def _check_files(self) -> None:
        """Refuse what others have put beside the database, and wait until no worker uses files that are gone: whoever
        made new ones would write the database at the same time as it, without a common lock."""
        began = time.monotonic()
        while self._is_torn():
            waited = time.monotonic() - began
            if self._shared and waited > MAY_COME_BACK:  # another process may just be making them
                raise Untrusted(
                    f'"{self.path}" has no log beside it, and others can put one there',
                    "move it into a folder that only you can write to",
                )
            if waited > self._patience:
                raise StoreUnavailable(
                    f'files of the database "{self.path}" were removed while workers use them',
                    "they notice it and start over: try again in some seconds",
                )
            wakeup.ring(self.run_dir)
            time.sleep(LOOK_AGAIN_AFTER)

    def _is_torn(self) -> bool:
        database, _, log, index = (private_files.check_file(self.path + end, self._shared) for end in ("", *BESIDE))
        if database is None:
            return False
        if database.st_size and self._shared:
            _make_file(self.path + BESIDE[0])  # see _keep_files
            private_files.check_file(self.path + BESIDE[0], self._shared)
            return not (log and index)
        complete = (log and index) if database.st_size else not (log or index)
        return not complete and wakeup.anyone(self.run_dir)

    def _hold_files(self) -> None:
        """Take note of what SQLite has opened, before any of it is believed or written into the database."""
        for path in (self.path, self._log_path, self.path + "-shm"):
            file = private_files.check_file(path, self._shared)
            if file is None:
                raise Untrusted(f'"{path}" was removed in the moment it was opened', "try again")
            self._held[path] = (file.st_dev, file.st_ino)
        if self._shared:
            self._keep_files()

    def _keep_files(self) -> None:
        """Where others can add files (/tmp), let ours stay for good, with an empty journal: else others could
        put theirs into the place while nobody uses the queue."""
        import array

        yes = array.array("i", [1])
        self._db.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, yes.buffer_info()[0])
        self._db.pragma("journal_size_limit", LARGEST_IDLE_WAL)  # without a limit a log that stays is not emptied
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        _make_file(self.path + BESIDE[0])
        private_files.check_file(self.path + BESIDE[0], self._shared)

    def check_place(self) -> None:
        """Raise if a file that we have open was moved away or removed: whoever finds another in its place works on
        that, and what we write is lost."""
        for path, held in self._held.items():
            try:
                file = os.stat(path)
            except OSError as error:
                if path == self.path or not isinstance(error, FileNotFoundError):
                    raise self._explain(error) from error
                raise self._missed(path) from None
            if (file.st_dev, file.st_ino) != held:
                raise StoreReplaced(
                    f'another database lies at "{self.path}" now'
                    if path == self.path
                    else f'"{path}" was replaced while it was in use',
                    "restart the workers",
                )
        self._missing_since = None

    def _missed(self, path: str) -> QueuectlError:
        """What was committed is in a log without a name now. Nobody makes another while a worker lives, so it can
        still be written into the database; then all must open it anew."""
        now = time.monotonic()
        self._missing_since = self._missing_since or now
        what = f'"{path}" was removed while it was in use'
        if now - self._missing_since < MAY_COME_BACK:
            return StoreUnavailable(what, "put it back, or try again in some seconds")
        if not os.path.lexists(self._log_path):
            try:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except apsw.Error:
                pass  # whoever closes it last tries again
        return StoreReplaced(what, "restart the workers")

    # -- opening -----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        with self.read():  # one look at one moment: another process may be making the same file
            mark = self._db.pragma("application_id")
            version = self._db.pragma("user_version")
            empty = mark == 0 and not self._db.execute("SELECT 1 FROM sqlite_schema").fetchone()
            has_log = self._db.pragma("journal_mode") == "wal"
        if has_log:
            self._hold_files()
        if mark != APPLICATION_ID and not empty:
            raise StoreUnavailable(f'"{self.path}" is not a queuectl database', "give another file with --db")
        if version != migrate.NEWEST:
            migrate.check(version, self.path)
            self._migrate()
        elif not has_log:  # a backup in the queue's place
            self._switch_to_wal()
        self._db.pragma("foreign_keys", True)
        self._db.wal_autocheckpoint(CHECKPOINT_AT)
        if self._durable:
            self._db.pragma("synchronous", "full")  # not left to how this SQLite was built
            self._db.pragma("cache_size", -LARGEST_CACHE // 1024)  # for batches: it grows only as far as it is used
        else:
            self._db.pragma("synchronous", "normal")

    def _migrate(self) -> None:
        """Bring the file to this program's schema in one transaction."""
        self._switch_to_wal()
        with SqliteTransaction(self, WRITE):
            version = self._db.pragma("user_version")  # again, now that nobody else can be at it
            for number, script in migrate.scripts_after(version, "sqlite"):
                self._db.execute(self.text(script)[0])
                self._db.pragma("user_version", number)
            self._db.pragma("application_id", APPLICATION_ID)

    def _switch_to_wal(self) -> None:
        """SQLite does not wait for its turn here, so we do: others may be opening the new file as well."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._db.pragma("journal_mode", "wal")
                self._db.pragma("user_version")  # the first read makes its files
                self._hold_files()
                return
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    # -- running statements ------------------------------------------------------------------------------

    def text(self, sql: str) -> tuple[str, list[str]]:
        """The statement in SQLite's own words, and the names of its list parameters."""
        known = self._texts.get(sql)
        if known is None:
            lists = []
            text, *rest = sql.split("{")
            for part in rest:
                spot, _, after = part.partition("}")
                kind, _, name = spot.partition(":")
                if kind == "among":
                    lists.append(name)
                    text += f"IN (SELECT value FROM json_each(:{name})){after}"
                else:
                    text += (f":{name}" if kind == "each" else DIALECT[kind]) + after
            known = self._texts[sql] = (text, lists)
        return known

    def _explain(self, error: Exception) -> QueuectlError:
        """The driver's error in the user's words."""
        where = f'"{self.path}"'
        match error:
            case apsw.BusyError() | apsw.LockedError():
                what, hint = (
                    f"the database {where} is locked by another process",
                    f"try again; see who it is: fuser -v {self.path}",
                )
            case _ if os.path.isdir(self.path):
                what, hint = f"{where} is a folder", "give a file in it with --db"
            case apsw.NotADBError():
                what, hint = f"{where} is not an SQLite database", "give another file with --db"
            case apsw.CorruptError():
                what, hint = f"the database {where} is damaged", "look with queuectl doctor; restore a backup"
            case _ if isinstance(error, apsw.FullError) or self._is_full():
                what, hint = f"the disk under {where} is full", "make room, then try again"
            case _ if isinstance(error, apsw.ReadOnlyError | PermissionError) or self._is_read_only():
                what, hint = f"{where} cannot be written", "check its owner and mode, or give another file with --db"
            case _:
                what = f"cannot use the database {where}: {getattr(error, 'strerror', None) or error}"
                hint = "check the path, or give another file with --db"
        return StoreUnavailable(what, hint)

    def _is_full(self) -> bool:
        """SQLite calls some of the errors of a full disk I/O errors."""
        try:
            room = os.statvfs(os.path.dirname(self.path))
        except OSError:
            return False
        return room.f_bavail * room.f_frsize < 65536

    def _is_read_only(self) -> bool:
        place = self.path if os.path.exists(self.path) else os.path.dirname(self.path)
        return os.path.exists(place) and not os.access(place, os.W_OK)

    # Used by SqliteTransaction alone.
    def execute(self, sql: str, params: Params) -> apsw.Cursor:
        text, lists = self._texts.get(sql) or self.text(sql)
        if lists:
            import json

            params = {**params, **{name: json.dumps(params[name]) for name in lists}}
        return self._db.execute(text, params)


def _make_file(path: str) -> None:
    """0600 from its first moment, whatever the umask."""
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.fchmod(file, 0o600)  # a umask may also take too much away
    os.close(file)


class SqliteTransaction:
    """One atomic unit on an SqliteEngine."""

    def __init__(self, engine: SqliteEngine, begin: str, check_version: bool = False) -> None:
        self._engine = engine
        self._check_version = check_version
        self._db = engine._db
        self._begin = begin
        self.now = 0

    def __enter__(self) -> SqliteTransaction:
        try:
            self._db.execute(self._begin)
            if self._check_version and self._db.pragma("user_version") != migrate.NEWEST:
                self._engine.roll_back()
                path = self._engine.path
                raise StoreReplaced(f'"{path}" was upgraded by a newer queuectl', "restart the workers with that one")
        except apsw.Error as error:
            self._engine.roll_back()
            raise self._engine._explain(error) from error
        self.now = self._engine._clock()  # after the lock is ours: time spent waiting for it has passed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._engine.commits += self._begin == WRITE
                self._db.execute("COMMIT")
                return
        except apsw.Error as failed:
            error = failed
        self._engine.roll_back()
        if isinstance(error, apsw.Error):
            raise self._engine._explain(error) from error

    def run(self, sql: str, params: Params = {}) -> int:
        self._engine.execute(sql, params).fetchall()
        return self._db.changes()

    def rows(self, sql: str, params: Params = {}) -> list[Row]:
        return self._engine.execute(sql, params).fetchall()

    def each(self, sql: str, many: Sequence[Params]) -> None:
        self._db.executemany(self._engine.text(sql)[0], many)

    def missed(self, sql: str, many: Sequence[Params]) -> list[Params]:
        return [row for row in many if not self.run(sql, row)]

    def load(self, table: str, many: Iterable[Params]) -> None:
        rows = iter(many)
        first = next(rows, None)
        if first is None:
            return
        insert = f"INSERT INTO {table} ({', '.join(first)}) VALUES ({', '.join('?' * len(first))})"
        try:
            self._db.execute(insert, tuple(first.values()))
            self._db.executemany(insert, (tuple(row.values()) for row in rows))  # by place: names cost 1 µs a row
        except apsw.ConstraintError as error:
            if "UNIQUE" in str(error):
                raise Duplicate(str(error)) from error
            raise

    def number_after(self, seq: int) -> None:
        self._db.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'jobs'", (seq,))

    def alone_with(self, names: Sequence[str], patiently: bool = False) -> Collection[str]:
        return names

    def alone(self, tables: Iterable[str]) -> None:
        pass  # one writer at a time: we are
