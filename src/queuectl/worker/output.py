"""What a run prints: into its log as it comes, and the last characters of each stream for the job's row."""

from __future__ import annotations

import os
from collections.abc import Callable

from queuectl.jobs import log_files

STREAMS = 2  # standard output and standard error


class Output:
    """The output of one run. Its log file is opened on the first byte: most runs print nothing."""

    def __init__(self, open_log: Callable[[], RunLog], tail_limit: int) -> None:
        self._open_log = open_log
        self._tail_limit = tail_limit
        self._tails = [bytearray() for _ in range(STREAMS)]
        self._unwritten = bytearray()
        self._log: RunLog | None = None
        self._gap = False  # something was dropped since the last write that succeeded
        self.problem: str | None = None

    def feed(self, stream: int, data: bytes) -> None:
        self._unwritten += data
        tail = self._tails[stream]
        tail += data
        keep = self._tail_limit * 4  # a character is four bytes at most
        if len(tail) > keep + 65536:
            del tail[: len(tail) - keep]

    def flush(self) -> None:
        """Put on file what has come so far. What cannot be written is dropped: a full log disk never changes a job's
        outcome, and memory is no place to wait in."""
        if not self._unwritten:
            return
        try:
            if self._log is None:
                self._log = self._open_log()
            if self._gap:
                self._log.write(b"\n" + log_files.lost_mark(self.problem or ""))
                self._gap = False
            self._log.write(bytes(self._unwritten))
        except OSError as error:
            self.problem = error.strerror or str(error)
            self._gap = True
        self._unwritten.clear()

    def close(self, end_mark: Callable[[], bytes]) -> None:
        self.flush()
        if self._log is not None:
            try:
                self._log.close((log_files.lost_mark(self.problem or "") if self._gap else b"") + end_mark())
            except OSError as error:
                self.problem = error.strerror or str(error)

    def tail(self, stream: int) -> str:
        if not self._tails[stream]:
            return ""
        # PostgreSQL cannot store NUL in text; like any byte that is no UTF-8 it becomes a replacement mark.
        text = self._tails[stream].decode("utf-8", "replace").replace("\0", "\ufffd")
        return text[-self._tail_limit :] if self._tail_limit else ""


class RunLog:
    """One run's part of the job's log file, never larger than its limit.

    The first half is kept for good. When the second half is full, its older half is dropped, the newer one moves
    up, and a mark says how much is missing: the start and the end survive, and no memory is held.
    """

    def __init__(self, path: str, start_mark: bytes, limit: int) -> None:
        self._file = log_files.open_for_writing(path)
        self._end = os.fstat(self._file).st_size
        try:
            self._put(start_mark)
        except OSError:
            os.close(self._file)
            raise
        self._cut_at = self._end + limit // 2
        self._limit = self._end + limit
        self._missing = 0

    def write(self, data: bytes) -> None:
        while data:
            room = self._limit - self._end
            self._put(data[:room])
            data = data[room:]
            if data:
                self._drop_middle()

    def close(self, end_mark: bytes) -> None:
        try:
            if self._end and os.pread(self._file, 1, self._end - 1) != b"\n":
                self._put(b"\n")
            self._put(end_mark)
        finally:
            os.close(self._file)

    def _put(self, data: bytes) -> None:
        while data:
            written = os.pwrite(self._file, data, self._end)
            self._end += written
            data = data[written:]

    def _drop_middle(self) -> None:
        keep = (self._limit - self._cut_at) // 2
        newest = os.pread(self._file, keep, self._end - keep)
        skipped = len(log_files.CUT_MARK % 0) if self._missing else 0
        self._missing += self._end - keep - self._cut_at - skipped
        self._end = self._cut_at
        self._put(log_files.CUT_MARK % self._missing)
        self._put(newest)
        os.ftruncate(self._file, self._end)
