"""Text on a grid of character cells: how much room it takes, cut or wrapped to fit. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from queuectl.cli.render import visible

TAB = 8
MOST_CELLS = 4000  # no terminal is wider, and nobody reads a longer line to its end


@dataclass(slots=True)
class Line:
    """One row of the screen: texts with the column each starts in and its style; `fill` is the style of all of it."""

    spans: list[tuple[int, str, str]] = field(default_factory=list)
    fill: str = ""

    def put(self, column: int, text: str, style: str = "") -> int:
        """Add a text; the column after it."""
        if text:
            self.spans.append((column, text, style))
        return column + width(text)

    def clipped(self, room: int) -> Line:
        """So much of it as fits, and nothing that could act on a terminal, whatever came into it."""
        spans = [(column, cut(visible(text), room - column, ""), style) for column, text, style in self.spans]
        return Line([span for span in spans if span[1]], self.fill)

    def __str__(self) -> str:
        """As it looks, without its styles."""
        text = ""
        for column, part, _ in sorted(self.spans):
            text = cut(text, column, "") + " " * (column - width(text)) + part
        return text.rstrip()


def said(column: int, text: str, style: str = "") -> Line:
    """A line with nothing else in it."""
    line = Line()
    line.put(column, text, style)
    return line


@lru_cache(maxsize=4096)
def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0  # drawn over the one before
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def width(text: str) -> int:
    """How many cells it takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, room: int, mark: str = "…") -> str:
    """So much of it as fits, with a mark if that is not all."""
    if width(text) <= room:
        return text
    return _head(text, room - width(mark)) + mark if room > width(mark) else _head(text, room)


def cut_start(text: str, room: int) -> str:
    """The same, but its end is kept."""
    if width(text) <= room:
        return text
    return "…" + _head(text[::-1], room - 1)[::-1] if room > 1 else ""


def one_line(text: str, room: int) -> str:
    """Text of a stranger, harmless and cut to fit. Looks at no more of it than it must."""
    return cut(visible(text[: 4 * max(0, room) + 4]), room)


def wrapped(text: str, room: int) -> Iterator[str]:
    """A harmless line in pieces that fit; broken anywhere, as terminals do."""
    text = visible(text[:MOST_CELLS].expandtabs(TAB))
    if not text or room < 1:
        yield text[:0]
        return
    while text:
        piece = _head(text, room) or text[0]  # a wide one in a narrow place: it must go somewhere
        yield piece if width(piece) <= room else "?"
        text = text[len(piece) :]


def paragraph(text: str, room: int, indent: str = "") -> Iterator[str]:
    """A harmless sentence in lines, broken between words where possible; further lines are indented."""
    line = ""
    for word in visible(text).split(" "):
        if line.strip() and width(line) + 1 + width(word) > room:
            yield from wrapped(line, room)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    yield from wrapped(line, room)


def _head(text: str, room: int) -> str:
    """So many characters from its start as fit."""
    if text.isascii():
        return text[: max(0, room)]
    taken = 0
    for index, character in enumerate(text):
        taken += _cells(character)
        if taken > room:
            return text[:index]
    return text
