"""A worker's bell: one named pipe that says both "wake up" and "I am alive".

Whoever has news writes a byte into it. Whoever wants to know if the worker lives opens it for writing: the
kernel refuses with ENXIO as soon as no process holds the reading end, so a killed worker is known to be gone
at once, a stopped one (SIGSTOP) is known to live, and no clock and no reusable pid is involved. (Only if somebody has
removed the pipe of a living worker, its pid and start time answer instead.)
"""

from __future__ import annotations

import errno
import os
import time

from queuectl import private, procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_HIDDEN = "."  # no bell that can be rung has a dot in its name
_NEW_FOR = 60.0  # seconds; later, what has no bell was left by a worker that died in its first moment
_RING = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Bell:
    """The worker's own end. Closing it, or dying, tells everyone."""

    def __init__(self, folder: str, worker_id: str) -> None:
        private.make_folder(folder)
        self.path = os.path.join(folder, worker_id)
        # Made under another name: a pipe that nobody reads yet would be taken for a dead worker's.
        hidden = os.path.join(folder, _HIDDEN + worker_id)
        os.mkfifo(hidden, 0o600)
        self._reader = os.open(hidden, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        # Our own writer keeps the pipe from reporting end-of-file each time a ringer closes his.
        self._keeper = os.open(hidden, _RING)
        os.rename(hidden, self.path)

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
        names = os.listdir(folder)
    except OSError:  # nobody to wake; what was to be announced is stored all the same
        return 0
    return sum(ring_one(folder, name) for name in names if "." not in name)


def ring_one(folder: str, worker_id: str) -> bool:
    """Wake one worker. False if it is dead."""
    try:
        pipe = os.open(os.path.join(folder, worker_id), _RING)
    except OSError:  # ENXIO: nobody reads, the worker is gone; ENOENT: it left in good order
        return False
    try:
        os.write(pipe, b"!")
    except BlockingIOError:  # full of unheard rings: it will wake up all the same
        pass
    except BrokenPipeError:  # it died this very moment
        return False
    finally:
        os.close(pipe)
    return True


def answers(folder: str, worker_id: str, pid: int = 0, pid_started: int = 0) -> bool:
    """Does this worker live? It is not woken by the question.

    If somebody has removed its pipe, the very process (pid and start time) is looked for instead.
    """
    try:
        os.close(os.open(os.path.join(folder, worker_id), _RING))
    except FileNotFoundError:
        return pid_started != 0 and procfs.start_time(pid) == pid_started
    except OSError as error:
        return error.errno != errno.ENXIO  # out of file handles, no permission: we do not know, so it is not dead
    return True


def anyone(folder: str) -> bool:
    """Does any worker live?"""
    try:
        return any(answers(folder, name) for name in os.listdir(folder) if "." not in name)
    except OSError:
        return False


def silent(folder: str) -> list[str]:
    """What the dead have left here: their pipes, and what else bears their names."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [name for name in names if _is_left(folder, name)]


def sweep(folder: str, spare: Collection[str] = ()) -> None:
    """Remove what the dead have left, but for some that is still wanted."""
    for name in silent(folder):
        if name not in spare:
            try:
                os.unlink(os.path.join(folder, name))
            except OSError:  # somebody was quicker; or it is no file, and not ours
                pass


def _is_left(folder: str, name: str) -> bool:
    if "." in name:  # a pipe in the making, or a board: whoever it belongs to may not have a bell yet
        old = _age(os.path.join(folder, name)) > _NEW_FOR
        return old and not answers(folder, name.strip(_HIDDEN).partition(".")[0])
    return not answers(folder, name)


def _age(path: str) -> float:
    try:
        return time.time() - os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
