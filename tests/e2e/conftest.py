"""The installed command, on a queue of its own, with real workers that are gone when the test is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually

QUEUECTL = str(Path(sys.executable).parent / "queuectl")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Cli:
    """`queuectl`, as a user types it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "data" / "queue.db"
        self.logs = folder / "data" / "logs"
        self.env = {**os.environ, "QUEUECTL_DB": str(self.db), "HOME": str(folder), "TZ": "UTC", "QUEUECTL_DEBUG": ""}

    def __call__(self, *args: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [QUEUECTL, *args],
            input=data if data is not None else b"",
            capture_output=True,
            env={**self.env, **(env or {})},
            cwd=self.folder,
            timeout=120,
        )
        return Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

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

    def enqueue(self, command: str, **fields: Any) -> str:
        return self.ok("enqueue", "--quiet", json.dumps({"command": command, **fields})).strip()

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

    def workers(self) -> list[dict[str, Any]]:
        workers = self.json("worker", "list")
        assert isinstance(workers, list)
        return [worker for worker in workers if worker["state"] != "lost"]


@pytest.fixture
def q(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path)
    yield cli
    if cli.db.exists():
        managers = {worker["manager_pid"] for worker in cli.workers()}
        cli.ok("config", "set", "kill_grace", "0.2")
        cli.ok("worker", "stop", "--now")
        eventually(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in managers), "managers gone")
