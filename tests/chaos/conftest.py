"""Real faults need real file systems: small ones that fill up, and disks that lose power."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import NoReturn

import pytest

from tests.e2e.conftest import Cli
from tests.e2e.conftest import q as q  # the installed command, on a queue of its own
from tests.postgres import postgres as postgres


@pytest.fixture
def engine_name() -> str:
    """A file, unless a test says otherwise: what can happen to one server has tests of its own."""
    return "sqlite"


def need(command: list[str]) -> None:
    """Run a command that needs a privilege. Without it the test is skipped on a workstation, but fails on CI."""
    if shutil.which(command[0]) is None:
        leave_out(f"there is no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        arguments = [word for word in command[1:] if "/" in word]  # each test has its own: one reason, not many
        said = reduce(lambda text, word: text.replace(word, "…"), arguments, done.stderr.strip())
        leave_out(f"{command[0]} is not permitted: {said.partition(chr(10))[0]}")


def leave_out(reason: str) -> NoReturn:
    """Skip the test, but not where CI promises all that the tests need."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def pids(q: Cli, name: str) -> list[int]:
    """The process ids that jobs have written into a file so far."""
    path = q.folder / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def send(pid: int, number: int) -> None:
    """Signal a process; it may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def lives(pid: int) -> bool:
    """A zombie has no program any more."""
    return os.path.exists(f"/proc/{pid}/exe")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str, int], Path]]:
    """Mount a file system of so many KiB."""
    mounted: list[Path] = []

    def mount(name: str, kilobytes: int) -> Path:
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        need(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=0700", "tmpfs", str(folder)])
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use up all the room there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return filler
