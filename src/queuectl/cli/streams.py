"""The standard streams of a command. Once it has changed something, its exit code says so, whether or not its answer
can be written. Loads nothing."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from _typeshed import ReadableBuffer

SHORT = 4096  # bytes of an answer of which a reader that has gone has taken nothing
_changed = ""


def changed(what: str) -> None:
    """Say what was changed, in words that "…, but the answer could not be written" can follow."""
    global _changed
    _changed = what


class OutputLost(OSError):
    """Standard output cannot be written, and nothing has been changed."""


class _Stream(io.BufferedWriter):
    """A stream that knows what to do when it cannot be written. (Its raw file stays one of C: an interrupt between a
    write of it and the note that it was done would have it done twice.)"""

    def write(self, data: ReadableBuffer, /) -> int:
        left = memoryview(data)
        size = left.nbytes
        while True:
            try:
                super().write(left)
                return size
            except BlockingIOError as full:  # somebody who shares it has made it non-blocking
                left = left[full.characters_written :]
                _wait_until_writable(self.fileno())
            except OSError as error:
                self._fail(error)
                return size

    def flush(self) -> None:
        while True:
            try:
                return super().flush()
            except BlockingIOError:
                _wait_until_writable(self.fileno())
            except OSError as error:
                return self._fail(error)

    def _fail(self, error: OSError) -> None:
        """What cannot be said on standard error is left unsaid."""


class _Output(_Stream):
    """Standard output. What cannot be written after a change is remembered, and the command goes on."""

    _size = 0
    lost: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        self._size += memoryview(data).nbytes
        return super().write(data)

    def _fail(self, error: OSError) -> None:
        gone = isinstance(error, BrokenPipeError)
        if _changed and not (gone and self._size > SHORT):
            self.lost = self.lost or error
        elif gone:  # its reader has seen enough
            raise error
        else:
            raise OutputLost(error.errno, error.strerror) from error


def prepare() -> None:
    """Open what was closed by the caller (`2>&-`): else a database would be opened in its place."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _text(_Output(io.FileIO(1, "w", closefd=False)), sys.stdout)
    sys.stderr = _text(_Stream(io.FileIO(2, "w", closefd=False)), sys.stderr)
    sys.stderr.reconfigure(line_buffering=True)


def unsaid() -> str:
    """What could not be answered, in a sentence; "" if all was said."""
    lost = sys.stdout.buffer.lost if isinstance(sys.stdout.buffer, _Output) else None
    return f"{_changed}, but the answer could not be written: {lost.strerror}." if lost else ""


def _text(stream: _Stream, before: TextIO | None) -> io.TextIOWrapper:
    encoding = (before and before.encoding) or "utf-8"
    return io.TextIOWrapper(stream, encoding, "backslashreplace", line_buffering=stream.isatty())


def _wait_until_writable(fd: int) -> None:
    import select  # hardly ever needed

    select.select([], [fd], [])
