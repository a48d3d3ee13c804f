"""A worker's board: its live runs on file, for whoever must end them when the worker is dead.

The tag in the environment finds nearly every process of a run. A shell that replaced itself by one with a cleared
environment (`exec env -i …`) has lost it, but not its pid and the moment of its start. Those are on the board, and
are believed only where they mean something: in this boot, this pid namespace, and for this very database.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from queuectl import bell, private, procfs
from queuectl.worker.kin import Traces

SUFFIX = ".runs"  # the dot tells boards from bells
_LINE = 96
_FORGOTTEN_AFTER = 60.0


class Board:
    """The worker's own side. What cannot be written (a full disk) is left out: the tag will have to do."""

    def __init__(self, folder: str, worker_id: str, queue: str, group: str) -> None:
        private.make_folder(folder)
        self.path = path_of(folder, worker_id)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._start = os.write(self._file, f"{queue} {procfs.here()} {group}\n".encode())
        self._lines: dict[int, int] = {}
        self._free: list[int] = []

    def pin(self, pid: int, tag: str, born: tuple[int, int]) -> None:
        line = self._lines[pid] = self._free.pop() if self._free else len(self._lines)
        self._put(line, f"{pid} {born[0]} {born[1]} {tag}")

    def unpin(self, pid: int) -> None:
        line = self._lines.pop(pid)
        self._free.append(line)
        self._put(line, "")

    def remove(self) -> None:
        _unlink(self.path)
        os.close(self._file)

    def _put(self, line: int, text: str) -> None:
        try:
            os.pwrite(self._file, text.ljust(_LINE - 1).encode() + b"\n", self._start + line * _LINE)
        except OSError:
            pass


def path_of(folder: str, worker_id: str) -> str:
    return os.path.join(folder, worker_id + SUFFIX)


def read(path: str, queue: str = "") -> Traces:
    """What a dead worker was running. Empty if there is no board, or none that means anything here; `queue`, if it is
    given, must be the one the board was made for."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            header, *lines = file.read().decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return Traces()
    made_for, place, group = _header(header)
    if place != procfs.here() or (queue and made_for != queue):
        return Traces()
    pinned = [words for line in lines if len(words := line.split()) == 4]
    leaders = {int(pid): (int(first), int(last)) for pid, first, last, _ in pinned}
    return Traces(frozenset(tag for *_, tag in pinned), leaders, group)


def remove(folder: str, worker_id: str) -> None:
    _unlink(path_of(folder, worker_id))


def sweep(folder: str, spare: Collection[str]) -> None:
    """Remove boards that nobody will ask for: of workers that died before they were known to anyone."""
    for name in os.listdir(folder):
        worker_id = name.removesuffix(SUFFIX)
        if name != worker_id not in spare and not bell.answers(folder, worker_id):
            path = os.path.join(folder, name)
            if time.time() - os.stat(path).st_mtime > _FORGOTTEN_AFTER:
                _unlink(path)


def _header(text: str) -> tuple[str, str, str]:
    queue, boot, namespace, group = text.split(" ", 3) if text.count(" ") >= 3 else ("", "", "", "")
    return queue, f"{boot} {namespace}", group


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
