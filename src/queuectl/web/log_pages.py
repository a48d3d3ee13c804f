"""A part of a job's log, line by line, for a page: read in pieces, and taken up again where the last look ended."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from queuectl.jobs import full_log
from queuectl.jobs.model import Event, Job
from queuectl.system import private_files
from queuectl.web import ansi
from queuectl.web.http_errors import Malformed

MOST_LINES = 2000
MOST_BYTES = 512 * 1024
LONGEST_LINE = 16 * 1024  # of the file; what is longer is shown in several
PIECE = 1 << 18
PROOF = 64  # bytes
MARKS = (b"--- START ", b"--- END ", b"--- CUT ", b"--- LOST ")


class Line(NamedTuple):
    number: int | None  # None: it continues the one before, or does not stand in the file
    text: Markup
    kind: str = ""  # `bound` begins or ends a run, `silent` is a run that printed nothing, `open` may still grow


class Cursor(NamedTuple):
    """Where to go on. Of a file that is not the one we saw it knows so."""

    start: int = 0  # the byte where the next line begins, or the one that has not ended
    seen: int = 0  # the size of the file
    line: int = 1
    inside: int = 0  # 1: in the middle of a line that was too long
    proof: int = 0  # a checksum of what stood before `seen`
    sgr: str = ""

    def __str__(self) -> str:
        return ".".join([*map(str, self[:5]), self.sgr.replace(";", "-")])

    @classmethod
    def read(cls, text: str) -> Cursor:
        *numbers, sgr = text.split(".")
        if len(numbers) != 5 or not all(word.isascii() and word.isdigit() and len(word) < 16 for word in numbers):
            raise Malformed("this is no place in a log", "take it from the page")
        start, seen, line, inside, proof = map(int, numbers)
        return cls(start, seen, line, inside, proof, sgr.replace("-", ";"))


class Part(NamedTuple):
    lines: list[Line]
    cursor: Cursor
    more: bool = False  # the file goes on behind it
    trouble: str = ""

    @property
    def first(self) -> int:
        return next((line.number for line in self.lines if line.number), 1)


EMPTY = Part([], Cursor())


def at_end(path: str, history: Sequence[Event]) -> Part:
    """The last lines. If that is all there is, the runs that printed nothing are told, too."""
    with _Log(path) as log:
        start = max(0, log.size - MOST_BYTES)
        data = log.read(start, log.size)
        if start:  # not in the middle of a line, unless that would hide much
            cut = data.find(b"\n", 0, -1) + 1
            cut = cut if 0 < cut <= LONGEST_LINE else _first_whole_character(data)
            start, data = start + cut, data[cut:]
        if (lines := data.split(b"\n")) and len(lines) > MOST_LINES + 1:
            cut = len(data) - len(b"\n".join(lines[-MOST_LINES - 1 :]))
            start, data = start + cut, data[cut:]
        if start:
            line, begin = log.line_at(start)
            part = log.part(data, Cursor(start, line=line, inside=int(begin < start)), to_the_end=True)
            return part if begin == start else part._replace(lines=[_left_out(line, start - begin), *part.lines])
        return log.whole(data, history)


def from_line(path: str, number: int) -> Part:
    """So many lines from this one on; the last ones if there is no such line."""
    with _Log(path) as log:
        start = log.find(number)
        if start is None:
            return at_end(path, ())
        return log.part_from(Cursor(start, line=number))


def from_place(path: str, cursor: Cursor) -> Part:
    """So many lines from where another part ended; the last ones if the log is another one now."""
    with _Log(path) as log:
        if log.size <= cursor.start or log.proof(cursor.seen) != cursor.proof:
            return at_end(path, ())
        return log.part_from(cursor)


def after(path: str, cursor: Cursor) -> Part | None:
    """What came since; None if the log is another one now: its middle was cut, or it was begun anew."""
    with _Log(path) as log:
        if log.size < cursor.seen or log.size - cursor.start > MOST_BYTES or log.proof(cursor.seen) != cursor.proof:
            return None
        if log.size == cursor.seen:
            return Part([], cursor)
        return log.part(log.read(cursor.start, log.size), cursor, to_the_end=True)


def of_tails(job: Job) -> Part:
    """What the row keeps of the last run, for those who cannot read its log."""
    lines = [line for text in (job.stdout, job.stderr) if text for line in text.removesuffix("\n").split("\n")]
    shown, style = [], ansi.PLAIN
    for number, line in enumerate(lines, 1):
        text, style = ansi.painted(line, style)
        shown.append(Line(number, text))
    return Part(shown, Cursor())


def size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


class _Log:
    """An open log. Nothing is there if nobody has printed yet."""

    def __init__(self, path: str) -> None:
        self.trouble = ""
        try:
            self._file = private_files.open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            self._file = -1
        except OSError as error:
            self._file, self.trouble = -1, error.strerror or str(error)
        self.size = 0 if self._file < 0 else os.fstat(self._file).st_size

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)

    def read(self, start: int, end: int) -> bytes:
        """Less than that if the log is cut while we read; then the next look notices."""
        return os.pread(self._file, end - start, start) if self._file >= 0 and end > start else b""

    def proof(self, at: int) -> int:
        return zlib.crc32(self.read(max(0, at - PROOF), at))

    def line_at(self, offset: int) -> tuple[int, int]:
        """The number of the line at this byte, and where it begins."""
        line, begin = 1, 0
        for at in range(0, offset, PIECE):
            data = self.read(at, min(at + PIECE, offset))
            line += data.count(b"\n")
            begin = at + data.rindex(b"\n") + 1 if b"\n" in data else begin
        return line, begin

    def find(self, number: int) -> int | None:
        """Where a line begins, if there are so many."""
        line = 1
        for at in range(0, self.size, PIECE):
            data = self.read(at, at + PIECE)
            if line + data.count(b"\n") < number:
                line += data.count(b"\n")
                continue
            position = 0
            for _ in range(number - line):
                position = data.index(b"\n", position) + 1
            return at + position if at + position < self.size else None
        return None

    def part_from(self, cursor: Cursor) -> Part:
        start = cursor.start
        data = self.read(start, start + MOST_BYTES)
        lines = data.split(b"\n", MOST_LINES)
        if len(lines) > MOST_LINES:
            data = data[: len(data) - len(lines[-1])]
        return self.part(data, cursor, to_the_end=start + len(data) >= self.size)

    def part(self, data: bytes, cursor: Cursor, to_the_end: bool) -> Part:
        lines, cursor = _lines(data, cursor, to_the_end)
        seen = cursor.seen
        return Part(lines, cursor._replace(proof=self.proof(seen)), not to_the_end, self.trouble)

    def whole(self, data: bytes, history: Sequence[Event]) -> Part:
        """The file from its beginning, with the runs that left no trace in it."""
        shown: list[Line] = []
        cursor = Cursor()
        found = full_log.parts(history, data)
        for number, (silent, part) in enumerate(found):
            if silent:
                shown += [Line(None, ansi.painted(text)[0], "silent") for text in _texts(part.splitlines())]
            else:
                last = all(silent for silent, _ in found[number + 1 :])
                lines, cursor = _lines(part, cursor, last)
                shown += lines
        return Part(shown, cursor._replace(proof=self.proof(cursor.seen)), trouble=self.trouble)


def _left_out(number: int, size: int) -> Line:
    return Line(number, Markup("… the first {:,} bytes of this line are not shown").format(size), "cut")


def _texts(lines: Iterable[bytes]) -> list[str]:
    return [line.decode("utf-8", "replace") for line in lines]


def _lines(data: bytes, cursor: Cursor, to_the_end: bool) -> tuple[list[Line], Cursor]:
    """Data as lines, and where to go on. A line that has not ended is shown only at the end of the file, where it
    comes again, or if it is too long."""
    start, _, number, inside, _, _ = cursor
    style = ansi.Style.read(cursor.sgr)
    shown: list[Line] = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        line = data[position : end if end >= 0 else len(data)]
        goes_on = end < 0 and not to_the_end
        if goes_on and len(line) <= LONGEST_LINE:
            break
        hidden = _first_too_long(line)
        if hidden >= 0:
            piece = line[: hidden + _whole_characters(line[hidden:])]
        else:
            piece = line[: line.rindex(b"\r") + 1] if goes_on else line
            hidden = ansi.overwritten(piece)
        too_long = goes_on or len(piece) < len(line)
        before = ansi.painted(piece[:hidden].decode("utf-8", "replace"), style)[1]
        text, style = ansi.painted(piece[hidden:].decode("utf-8", "replace"), before)
        kind = "bound" if not inside and piece.startswith(MARKS) else ""
        if end < 0 and not too_long:
            shown.append(Line(None if inside else number, text, "open"))
            position, style = position + hidden, before
            break
        shown.append(Line(None if inside else number, text, kind))
        inside = int(too_long)
        number += not too_long
        position += len(piece) + (not too_long)
    seen = start + len(data)
    return shown, Cursor(start + position, seen, number, inside, 0, style.sgr)


def _first_too_long(line: bytes) -> int:
    """Where the first stretch begins that is too long for one line of a page, though nothing was written over it; -1
    if there is none."""
    start = 0
    for stretch in line.split(b"\r") if len(line) > LONGEST_LINE else ():
        if len(stretch) > LONGEST_LINE:
            return start
        start += len(stretch) + 1
    return -1


def _first_whole_character(data: bytes) -> int:
    """Where to begin in the middle of a line: in front of a character, and of an escape sequence."""
    cut = 32
    while cut < 36 and b"\x80" <= data[cut : cut + 1] < b"\xc0":
        cut += 1
    escape = data.rfind(b"\x1b", 0, cut)
    return escape if escape >= 0 else cut


def _whole_characters(line: bytes) -> int:
    """Where a long line can be cut: in front of a character, and of an escape sequence."""
    cut = LONGEST_LINE
    while cut and line[cut] & 0xC0 == 0x80:
        cut -= 1
    escape = line.rfind(b"\x1b", cut - 32, cut)
    return escape if escape > 0 else cut or LONGEST_LINE
