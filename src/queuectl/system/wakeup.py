"""A worker's bell: one named pipe that says both "wake up" and "I am alive".

Whoever has news writes a byte into it. Whoever wants to know if the worker lives opens it for writing: the
kernel refuses with ENXIO as soon as no process holds the reading end, so a killed worker is known to be gone
at once, a stopped one (SIGSTOP) is known to live, and no clock and no reusable pid is involved. (Only if somebody has
removed the pipe of a living worker, its pid and start time answer instead.)
"""

from __future__ import annotations

import errno
import os
import stat

from queuectl.errors import Untrusted
from queuectl.system import private_files, procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_HIDDEN = "."  # no bell that can be rung has a dot in its name


class Bell:
    """The worker's own end, the first file that it makes in this folder and the last that it removes: without it, all
    others that bear its name are swept away. Closing it, or dying, tells everyone."""

    def __init__(self, folder: str, worker_id: str) -> None:
        private_files.make_folder(folder)
        self.path = os.path.join(folder, worker_id)
        while not self._make(os.path.join(folder, _HIDDEN + worker_id)):
            pass

    def _make(self, hidden: str) -> bool:
        """False if another worker has swept it away meanwhile: nobody could tell it from a dead worker's."""
        os.mkfifo(hidden, 0o600)
        ends = []
        try:
            ends.append(private_files.open_file(hidden, os.O_RDONLY, stat.S_IFIFO))
            # Our own writer keeps the pipe from reporting end-of-file each time a ringer closes its end.
            ends.append(private_files.open_file(hidden, os.O_WRONLY, stat.S_IFIFO))
            os.rename(hidden, self.path)  # now that somebody reads it
        except OSError as error:
            for end in ends:
                os.close(end)
            if isinstance(error, FileNotFoundError):
                return False
            _remove(hidden)
            raise
        self._reader, self._keeper = ends
        return True

    def fileno(self) -> int:
        return self._reader

    def clear(self) -> None:
        """Forget the rings so far."""
        try:
            while len(os.read(self._reader, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        _remove(self.path)
        os.close(self._keeper)
        os.close(self._reader)


def ring(folder: str) -> int:
    """Wake every worker that listens in this folder; how many there were."""
    try:
        names = _names(folder)
    except OSError:  # nobody to wake; what was to be announced is stored all the same
        return 0
    return sum(ring_one(folder, name) for name in names if "." not in name)


def ring_one(folder: str, worker_id: str) -> bool:
    """Wake one worker. False if it is dead."""
    try:
        pipe = _open(folder, worker_id)
    except OSError:  # ENXIO: nobody reads, the worker is gone; ENOENT: it left in good order
        return False
    try:
        os.write(pipe, b"!")
    except BlockingIOError:  # full of unheard rings: it will wake up all the same
        pass
    except OSError:  # it died this very moment; or it is no pipe, and cannot be written
        return False
    finally:
        os.close(pipe)
    return True


def answers(folder: str, worker_id: str, pid: int = 0, pid_started: int = 0) -> bool:
    """Does this worker live? It is not woken by the question.

    If somebody has removed its pipe, the very process (pid and start time) is looked for instead. Raises Untrusted if
    others can write to this folder: what lies there says nothing.
    """
    try:
        private_files.check_folder(folder)
        return _is_read(folder, worker_id)
    except FileNotFoundError:
        return pid_started != 0 and procfs.start_time(pid) == pid_started


def anyone(folder: str) -> bool:
    """Does any worker live? Where others can write, none does."""
    try:
        return any(not _is_left(folder, name) for name in _names(folder) if "." not in name)
    except Untrusted:
        return False


def silent(folder: str) -> list[str]:
    """What the dead have left here: their pipes, and what else bears their names."""
    return [name for name in _names(folder) if _is_left(folder, name)]


def owner_of(name: str) -> str:
    """The worker whose file this is."""
    return name.removeprefix(_HIDDEN).partition(".")[0]


def sweep(folder: str, spare: Collection[str] = ()) -> None:
    """Remove what the dead have left, but for some that is still wanted."""
    remove(folder, (name for name in silent(folder) if name not in spare))


def remove(folder: str, names: Iterable[str]) -> None:
    for name in names:
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:  # somebody was quicker; or it is no file, and not ours
            pass


def _names(folder: str) -> list[str]:
    try:
        private_files.check_folder(folder)
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _is_left(folder: str, name: str) -> bool:
    """Is its worker dead? A worker has its pipe before any other file, so the pipe tells of all of them."""
    try:
        return not _is_read(folder, name if name.startswith(_HIDDEN) else owner_of(name))
    except FileNotFoundError:
        return True


def _is_read(folder: str, name: str) -> bool:
    """Does a process hold the reading end of this pipe?"""
    try:
        os.close(_open(folder, name))
    except FileNotFoundError:
        raise
    except Untrusted:
        return False
    except OSError as error:
        return error.errno != errno.ENXIO  # out of file handles, no permission: we do not know, so it is not dead
    return True


def _open(folder: str, name: str) -> int:
    """The writing end of a pipe; the folder has been checked."""
    return private_files.open_file(os.path.join(folder, name), os.O_WRONLY, stat.S_IFIFO, in_checked_folder=True)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
