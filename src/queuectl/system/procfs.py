"""What the kernel says of processes, from /proc. Where there is none, nothing is known: no process, no start time."""

from __future__ import annotations

import os
import time

_TICKS = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x00200000
_EXEC_TAKES = 50  # looks, a tenth of a millisecond apart
_LISTS_AT_MOST = 50  # of processes: on a machine that starts new ones all the time there is always another
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# Only this means "no such process". Any other error (no file handles left, say) is raised: who cannot see must not
# conclude that nothing is there.
_GONE = (FileNotFoundError, ProcessLookupError)


_spare: list[int] = []
_SPARES = 3  # a folder, a file and a pidfd


def keep_elbow_room() -> None:
    """Hold some file handles back, so that a process that has used up all others can still look around."""
    while len(_spare) < _SPARES:
        _spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


class elbow_room:  # noqa: N801  (used like a function)
    """`with elbow_room():` there are file handles to look with, if they were held back before."""

    def __enter__(self) -> None:
        self._held = bool(_spare)
        while _spare:
            os.close(_spare.pop())

    def __exit__(self, *_: object) -> None:
        try:
            if self._held:
                keep_elbow_room()
        except OSError:  # somebody was quicker; what could be had is held
            pass


class Process:
    """A live process. Pid and start time together name it for ever; a pid alone is given out again."""

    __slots__ = ("parent", "session", "started")

    def __init__(self, started: int, parent: int, session: int) -> None:
        self.started = started
        self.parent = parent
        self.session = session


def process(pid: int) -> Process | None:
    """The process with this pid; None if there is none, or only a zombie. (A process whose first thread has ended
    looks like a zombie while its other threads go on.)"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except _GONE:
        return None
    if fields[0] in b"ZX" and int(fields[17]) <= 1:
        return None
    return Process(started=int(fields[19]), parent=int(fields[1]), session=int(fields[3]))


def processes() -> dict[int, Process]:
    """All live processes by their pids. Where there is no /proc, none.

    The list is read again until it shows no new pid: a process that exits before we come to it may have started
    another after the list was read, and that one is on the next.
    """
    found: dict[int, Process] = {}
    seen: set[str] = set()
    for _ in range(_LISTS_AT_MOST):
        new = [name for name in _listed() if name not in seen]
        if not new:
            break
        seen.update(new)
        found.update((int(name), process) for name in new if (process := _visible(int(name))))
    return found


def _listed() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []


def children() -> list[int]:
    """The direct children of this process, dead ones that were not reaped included. Nothing is missing as long as
    this process has one thread and reaps none meanwhile: the kernel adds new ones at the end of its list."""
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without this file, or no /proc
        return [int(pid) for pid in _listed() if _parent(pid) == own]


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (*_GONE, PermissionError):
        return 0


def _visible(pid: int) -> Process | None:
    """Under `hidepid` other users' processes cannot be looked at; they are not ours to end, either."""
    try:
        return process(pid)
    except PermissionError:
        return None


def start_time(pid: int) -> int:
    """When it was started, in the kernel's own count; 0 if it is not there."""
    found = _visible(pid)
    return found.started if found else 0


def files(pid: int) -> tuple[int, int] | None:
    """How many files a process has open, and how many it may; None if that is not known."""
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii") as file:
            limit = next(line.split()[3] for line in file if line.startswith("Max open files"))
        return len(os.listdir(f"/proc/{pid}/fd")), int(limit)
    except (OSError, StopIteration, ValueError):  # gone, another user's, or without a limit
        return None


def ticks() -> int:
    """Now, in the count of `started`."""
    return int(time.clock_gettime(_SINCE_BOOT) * _TICKS)


def variable(pid: int, name: bytes) -> bytes | None:
    """What this process had in its environment under that name when it was started."""
    try:
        entries = _environment(pid).split(b"\0")
    except (*_GONE, PermissionError):  # another user's processes are not ours to know
        return None
    return next((entry[len(name) + 1 :] for entry in entries if entry.startswith(name + b"=")), None)


def _environment(pid: int) -> bytes:
    """In the midst of an exec a process has neither arguments nor environment yet; a moment later it has."""
    for _ in range(_EXEC_TAKES):
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = file.read()
        if found:
            return found
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            settled = file.read(1) != b""
        if settled or _is_kernels(pid):
            with open(f"/proc/{pid}/environ", "rb") as file:  # again: it may just have come
                return file.read()
        time.sleep(0.0001)
    return b""


def _is_kernels(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as file:
        state, *_, flags = file.read().rpartition(b")")[2].split()[:7]
    return state in b"ZX" or bool(int(flags) & _KERNEL_THREAD)


def here() -> str:
    """Names the world in which our pids mean something: this boot of this machine, and our pid namespace. Nothing, if
    that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
