"""The run registry: a worker's live runs on file, for the process that must end them when the worker is dead.

A run is registered before its first process starts, with its tag (from which its mark follows, see `run_marks`) and
the moment before which none of its processes can have started. The registry is trusted only in this boot, this pid
namespace, and for this very database.
"""

from __future__ import annotations

import os

from queuectl.system import private_files, procfs
from queuectl.worker.process_tree import Traces

SUFFIX = ".runs"  # the dot tells boards from bells
_LINE = 96


class Board:
    """The worker's own side. What cannot be written (a full disk) is left out: the tag will have to do."""

    def __init__(self, folder: str, worker_id: str, database: str, group: str) -> None:
        private_files.make_folder(folder)
        self.path = path_of(folder, worker_id)
        self._file = private_files.open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        header = f"{database} {procfs.here()} {group}\n".encode()
        self._start = len(header)
        self._lines: dict[int, int] = {}
        self._free: list[int] = []
        self._changed: dict[int, bytes] = {}  # lines not yet written
        self._put(0, header)

    def pin(self, seq: int, since: int, tag: str) -> None:
        """A run of job `seq` is about to start, at the moment `since` in the kernel's ticks."""
        line = self._lines[seq] = self._free.pop() if self._free else len(self._lines)
        self._changed[line] = f"{since} {tag}".encode()

    def unpin(self, seq: int) -> None:
        """It has ended, and that is on record: what it left behind may stay."""
        line = self._lines.pop(seq, None)
        if line is not None:  # it had been started at all
            self._free.append(line)
            self._changed[line] = b""

    def write(self) -> None:
        """Put all changes on file, in one go if they lie together."""
        if not self._changed:
            return
        first, last = min(self._changed), max(self._changed)
        if last - first < len(self._changed):
            together = b"".join(_padded(self._changed[line]) for line in range(first, last + 1))
            self._put(self._start + first * _LINE, together)
        else:
            for line, text in self._changed.items():
                self._put(self._start + line * _LINE, _padded(text))
        self._changed.clear()

    def remove(self) -> None:
        remove(self.path)
        os.close(self._file)

    def _put(self, at: int, data: bytes) -> None:
        try:
            os.pwrite(self._file, data, at)
        except OSError:
            pass


def _padded(text: bytes) -> bytes:
    return text.ljust(_LINE - 1) + b"\n"


def path_of(folder: str, worker_id: str) -> str:
    return os.path.join(folder, worker_id + SUFFIX)


def read(path: str, database: str = "") -> Traces:
    """What a dead worker was running. Empty if there is no board, or none that means anything here; `database`, if it
    is given, must be the one the board was made for. Raises Untrusted: what it names would be killed."""
    try:
        with open(private_files.open_file(path, os.O_RDONLY), "rb") as file:
            header, _, lines = file.read().partition(b"\n")
    except FileNotFoundError:
        return Traces()
    made_for, _, rest = header.decode("utf-8", "replace").partition(" ")
    place = procfs.here() + " "
    if not rest.startswith(place) or (database and made_for != database):
        return Traces()
    runs = [lines[at : at + _LINE].decode("ascii", "replace").split() for at in range(0, len(lines), _LINE)]
    known = {tag: int(since) for since, tag in (run for run in runs if len(run) == 2) if since.isdigit()}
    return Traces(frozenset(known), rest.removeprefix(place), min(known.values(), default=0))


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
