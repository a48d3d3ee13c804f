"""Job logs on disk: where they lie, how a run is marked in them, and reading them while they grow."""

from __future__ import annotations

import os
import time

from queuectl.system import private_files
from queuectl.system.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FOLLOW_INTERVAL = 0.05
REMEMBERED = 4096  # bytes of what was shown last, by which a follower finds its place again
CUT_MARK = b"\n--- CUT here: the log reached its limit, %15d bytes are missing ---\n"


def path_of(folder: str, job_id: str) -> str:
    return os.path.join(folder, f"job_{job_id}.log")


def lost_mark(why: str) -> bytes:
    return f"--- LOST here: output that could not be written ({why}) ---\n".encode()


def start_mark(moment: int, attempt: int, worker_id: str) -> bytes:
    return f"--- START {iso(moment)} attempt={attempt} worker={worker_id} ---\n".encode()


def end_mark(moment: int, rc: str, duration_ms: int) -> bytes:
    return f"--- END {iso(moment)} rc={rc} duration={duration_ms / 1000:.3f}s ---\n".encode()


def open_for_writing(path: str) -> int:
    """Open, or make, a log file that is ours: what others have planted in its place is refused."""
    private_files.make_folder(os.path.dirname(path))
    return private_files.open_file(path, os.O_RDWR | os.O_CREAT)


def close_run(path: str, started: int, mark: bytes) -> None:
    """Put an END mark behind a run that could not do it itself, if that run is in the log at all."""
    printed, _ = read(path)
    if f"--- START {iso(started)} ".encode() not in printed:
        return
    append(path, mark if printed.endswith(b"\n") else b"\n" + mark)


def append(path: str, data: bytes) -> None:
    log = open_for_writing(path)
    try:
        os.pwrite(log, data, os.fstat(log).st_size)
    finally:
        os.close(log)


def remove(folder: str, job_ids: Iterable[str]) -> None:
    try:
        private_files.check_folder(folder)
    except OSError:  # there is none, or it is not ours
        return
    for job_id in job_ids:
        try:
            os.unlink(path_of(folder, job_id))
        except OSError:  # most runs print nothing and have no log
            pass


def read(path: str, tail: int | None = None, most: int | None = None) -> tuple[bytes, int]:
    """The log, or its last `tail` lines, and where it ended when it was read; 0 if nothing was ever printed.

    `most`: so many bytes are enough, whatever the lines: one of them may be as long as the log.
    """
    log = _open_if_there(path)
    if log < 0:
        return b"", 0
    try:
        end = os.fstat(log).st_size
        return (os.pread(log, end, 0) if tail is None else _last_lines(log, end, tail, most or end)), end
    finally:
        os.close(log)


def follow(path: str, start: int, over: Callable[[], bool]) -> Iterator[bytes]:
    """The log from byte `start` on, as it grows, until `over` says that nothing more will come."""
    position, log, shown = start, -1, b""
    try:
        while True:
            last_round = over()  # asked before reading, so that what came just before the end is not missed
            if log < 0 and (log := _open_if_there(path)) >= 0:
                known = min(start, REMEMBERED)
                shown = os.pread(log, known, start - known)
            if log >= 0:
                # Each time: it may be cut while the last piece is being shown.
                while chunk := os.pread(log, 65536, position := _place_after(log, shown, position)):
                    position += len(chunk)
                    shown = (shown + chunk)[-REMEMBERED:]
                    yield chunk
            if last_round:
                return
            time.sleep(FOLLOW_INTERVAL)
    finally:
        if log >= 0:
            os.close(log)


def _place_after(log: int, shown: bytes, position: int) -> int:
    """Where to read on: behind what was shown last, also if the middle was cut in between. What was cut before it
    could be shown is passed over."""
    before = position - len(shown)
    if before >= 0 and os.pread(log, len(shown), before) == shown:
        return position
    size = os.fstat(log).st_size
    data = os.pread(log, size, 0)
    place = data.rfind(shown)
    if place >= 0:
        return place + len(shown)
    cut = data.rfind(CUT_MARK[:20])
    return cut if cut >= 0 else min(position, size)


def _open_if_there(path: str) -> int:
    try:
        return private_files.open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return -1


def _last_lines(log: int, end: int, count: int, most: int) -> bytes:
    """Read backwards in blocks until there are enough lines, or bytes."""
    position, data = end, b""
    while position > 0 and data.count(b"\n") <= count and len(data) < most:
        step = min(65536, position, most - len(data))
        position -= step
        data = os.pread(log, step, position) + data
    return last_lines(data, count)


def last_lines(data: bytes, count: int) -> bytes:
    lines = data.split(b"\n")  # not splitlines: a progress bar full of \r is one line
    ended = lines[-1] == b""
    return b"\n".join(lines[-count - ended :]) if count else b""
