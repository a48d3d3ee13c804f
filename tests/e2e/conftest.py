"""The installed command, on a queue of its own, with real workers that are gone when the test is over."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import psycopg
import pytest

from tests.conftest import DEADLINE, eventually
from tests.e2e.warm import Warm
from tests.postgres import Server
from tests.postgres import postgres as postgres

QUEUECTL = str(Path(sys.executable).parent / "queuectl")
GROUPS = {"config", "dlq", "queue", "schedule", "worker"}  # commands of two words
NOT_INHERITED = ("NO_COLOR", "PYTHONUNBUFFERED", "QUEUECTL_LOG_DIR", "XDG_DATA_HOME")

# A job that goes on until the test makes the file `go` in the queue's folder.
UNTIL_GO = "while [ ! -e go ]; do sleep 0.05; done"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Cli:
    """`queuectl`, as a user types it."""

    tried: ClassVar[set[object]] = set()
    warm: ClassVar[Warm | None] = None

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.db = folder / "data" / "queue.db"  # where the queue is, if it is a file
        self.url = url or str(self.db)
        self.logs = folder / "data" / "logs"
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        own = {"QUEUECTL_DB": self.url, "HOME": str(folder), "TZ": "UTC", "TERM": "xterm", "QUEUECTL_DEBUG": ""}
        if url:
            own["QUEUECTL_LOG_DIR"] = str(self.logs)
        self.env = {**inherited, **own}

    def __call__(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        into: str | None = None,
    ) -> Result:
        """Run it; `into` is a file that its standard output goes to."""
        stdout = None if into is None else os.open(into, os.O_WRONLY)
        try:
            code, out, err = self._run(
                args,
                stdin.encode() if isinstance(stdin, str) else stdin or b"",
                {**self.env, **(env or {})},
                cwd or self.folder,
                stdout,
            )
        finally:
            if stdout is not None:
                os.close(stdout)
        return Result(code, out.decode(errors="replace"), err.decode(errors="replace"))

    def _run(
        self, args: tuple[str, ...], stdin: bytes, env: Mapping[str, str], cwd: Path, stdout: int | None
    ) -> tuple[int, bytes, bytes]:
        """In an interpreter of its own if it is the first of its kind, for the others see `Warm`."""
        kind = (*args[: 2 if args[:1] and args[0] in GROUPS else 1], "://" in self.url)
        if kind in Cli.tried:
            if Cli.warm is None:
                Cli.warm = Warm(QUEUECTL, env)
            if Cli.warm.fits(args, env):
                return Cli.warm.run(args, stdin, env, cwd, 120, stdout)
        Cli.tried.add(kind)
        done = subprocess.run(
            [QUEUECTL, *args],
            input=stdin,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            timeout=120,
        )
        return done.returncode, done.stdout or b"", done.stderr

    def ok(self, *args: str, stdin: str | bytes | None = None) -> str:
        """Run a command that must succeed; what it printed."""
        result = self(*args, stdin=stdin)
        assert result.code == 0, f"queuectl {' '.join(args)}: {result}"
        assert "Traceback" not in result.err
        return result.out

    def json(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--json"))

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on."""
        return subprocess.Popen(
            [QUEUECTL, *args], env=self.env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def shell(self, script: str) -> Result:
        """Run a line of shell in which `queuectl` is the installed command."""
        path = f"{Path(QUEUECTL).parent}:{self.env['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            env={**self.env, "PATH": path},
            cwd=self.folder,
            timeout=120,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def on_terminal(self, *args: str, typed: str = "", env: Mapping[str, str] | None = None) -> str:
        """What a person sees who runs this command in a terminal and types this."""
        screen, process = self.in_terminal(QUEUECTL, *args, env=env)
        os.write(screen, typed.encode())
        seen = read_until(screen, None)
        os.close(screen)
        process.wait(DEADLINE)
        return seen.decode(errors="replace").replace("\r\n", "\n")

    def in_terminal(self, *command: str, env: Mapping[str, str] | None = None) -> tuple[int, subprocess.Popen[bytes]]:
        """Start a command in a terminal of its own; what a person at it types and sees, and the process."""
        screen, terminal = os.openpty()
        process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**self.env, **(env or {})},
            cwd=self.folder,
        )
        os.close(terminal)
        return screen, process

    def enqueue(self, command: str, **fields: Any) -> str:
        return self.ok("enqueue", "--quiet", json.dumps({"command": command, **fields})).strip()

    def batch(self, *jobs: Mapping[str, Any]) -> list[str]:
        """Store jobs in one transaction; their ids."""
        lines = "".join(json.dumps(job) + "\n" for job in jobs)
        return self.ok("enqueue", "--quiet", "-", stdin=lines).split()

    def job(self, id: str) -> dict[str, Any]:
        job = self.json("show", id)
        assert isinstance(job, dict)
        return job

    def state(self, id: str) -> str:
        return str(self.job(id)["state"])

    def until(self, id: str, state: str) -> dict[str, Any]:
        """The job, once it is in this state."""
        eventually(lambda: self.state(id) == state, f"{id} {state}")
        return self.job(id)

    def finished(self, id: str) -> dict[str, Any]:
        """The job, once it has come to its end, whichever that is."""
        self("wait", id)
        return self.job(id)

    def history(self, id: str) -> list[dict[str, Any]]:
        events = self.json("history", id)
        assert isinstance(events, list)
        return events

    def runs(self, id: str) -> int:
        """How often it was started."""
        return [event["reason"] for event in self.history(id)].count("started")

    def workers(self) -> list[dict[str, Any]]:
        workers = self.json("worker", "list")
        assert isinstance(workers, list)
        return [worker for worker in workers if worker["state"] != "lost"]

    def worker(self) -> dict[str, Any]:
        """The only one there is."""
        [worker] = self.workers()
        return worker

    def contents(self) -> list[Any]:
        """All jobs and settings, to the last column, as they are stored."""
        return [row for table in ("jobs", "tags", "config") for row in self.rows_of(table)]

    def rows_of(self, table: str, columns: str = "*") -> list[Any]:
        if self.url != str(self.db):
            address, _, schema = self.url.partition("?schema=")
            with psycopg.connect(address) as connection:
                return connection.execute(f"SELECT {columns} FROM {schema}.{table} ORDER BY 1, 2".encode()).fetchall()
        with closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)) as database:
            return database.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()

    def end_all(self) -> None:
        """Kill whatever still works for this queue, known by the home folder it was given."""
        eventually(lambda: not [kill(pid) for pid in processes_with(f"HOME={self.folder}")], "all processes gone")


def refused(result: Result, code: int, *words: str) -> None:
    """One line that says what is wrong and what to do, the exit code, and nothing else."""
    assert (result.code, result.out) == (code, ""), result
    assert re.fullmatch(r"Error: .+ Hint: .+\n", result.err), result
    assert "Traceback" not in result.err
    assert "bug in queuectl" not in result.err
    for word in words:
        assert word in result.err, result


# -- processes -------------------------------------------------------------------------------------------


def processes_with(variable: str) -> list[int]:
    """The live processes that have this in their environment."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if variable in _environment(pid)]


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def status_of(pid: int) -> tuple[str, int] | None:
    """A process' state letter and parent; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def alive(pid: int) -> bool:
    status = status_of(pid)
    return status is not None and status[0] not in "ZX"


def parent_of(pid: int) -> int | None:
    status = status_of(pid)
    return status and status[1]


def gone(*pids: int) -> None:
    """Wait until none of these processes lives."""
    eventually(lambda: not any(map(alive, pids)), f"{pids} gone")


def children_of(pid: int) -> dict[int, str]:
    """The processes whose parent this is, with their states; the dead but not yet buried included."""
    found = {child: status_of(child) for child in map(int, filter(str.isdigit, os.listdir("/proc")))}
    return {child: status[0] for child, status in found.items() if status and status[1] == pid}


def kill(pid: int) -> int:
    """End a process at once; it may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return pid


def lines_in(path: Path, count: int = 1) -> list[str]:
    """The lines of a file, once a job has written that many."""

    def read() -> list[str]:
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [line.rstrip("\n") for line in lines if line.endswith("\n")]

    return eventually(lambda: found if len(found := read()) >= count else [], f"{count} lines in {path.name}")


def pids_in(path: Path, count: int = 1) -> list[int]:
    """The process ids that jobs have written into a file, one a line."""
    return [int(line) for line in lines_in(path, count)]


def read_until(source: int | IO[bytes] | None, text: bytes | None) -> bytes:
    """What comes through a pipe or appears on a terminal, up to this text; None means up to its end."""
    assert source is not None
    fd = source if isinstance(source, int) else source.fileno()
    end, seen = time.monotonic() + DEADLINE, b""
    while text is None or text not in seen:
        ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"not within {DEADLINE:g} s: {text!r}; seen: {seen!r}"
        try:
            chunk = os.read(fd, 65536)
        except OSError:  # how Linux says end-of-file on a terminal
            chunk = b""
        if not chunk:
            assert text is None, f"ended before {text!r}; seen: {seen!r}"
            break
        seen += chunk
    return seen


# -- fixtures --------------------------------------------------------------------------------------------


on_sqlite = pytest.mark.parametrize("engine_name", ["sqlite"])  # for what only a file can be or suffer


@pytest.fixture(params=["sqlite", "postgres"])
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def q(tmp_path: Path, engine_name: str, request: pytest.FixtureRequest) -> Iterator[Cli]:
    if engine_name == "sqlite":
        cli = Cli(tmp_path)
        yield cli
        cli.end_all()
        return
    server: Server = request.getfixturevalue("postgres")
    schema = f"test_{uuid.uuid4().hex}"
    cli = Cli(tmp_path, server.url(schema))
    yield cli
    cli.end_all()
    server.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def working(q: Cli) -> Cli:
    """A queue with one worker."""
    q.ok("worker", "start")
    return q
