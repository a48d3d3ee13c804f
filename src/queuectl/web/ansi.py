"""What programs print for terminals, as markup: colours become classes, and nothing else can act. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup, escape

from queuectl.system.escaping import visible

# The sixteen colours as xterm has them, to find the nearest of them for any other one.
_SIXTEEN = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255),
    (255, 255, 255),
)  # fmt: skip
_STEPS = (0, 95, 135, 175, 215, 255)  # of a channel in the cube of 216 colours

_CONTROL = re.compile(r"\x1b\[([0-9;:<=>?]*)([ -/]*)([@-~])")
_HARMLESS = "ABCDEFGHJKLMPSTXZ@`abdefhlrsu"  # moves the cursor, erases, scrolls, sets modes
_WORDS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_ENDS = {22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,)}


class Style(NamedTuple):
    """How text looks until something else is said."""

    fg: int | None = None  # of the sixteen
    bg: int | None = None
    marks: tuple[int, ...] = ()  # 1 bold, 2 dim and so on, as SGR numbers them

    @property
    def sgr(self) -> str:
        """The parameters that bring it about; `read` understands them."""
        colours = [_code(self.fg, 30)] * (self.fg is not None) + [_code(self.bg, 40)] * (self.bg is not None)
        return ";".join(map(str, [*self.marks, *colours]))

    @classmethod
    def read(cls, sgr: str) -> Style:
        return _changed(cls(), sgr) if sgr else cls()

    @property
    def classes(self) -> str:
        fg, bg = (self.bg, self.fg) if 7 in self.marks else (self.fg, self.bg)
        colours = ([] if fg is None else [f"f{fg}"]) + ([] if bg is None else [f"b{bg}"])
        return " ".join([_WORDS[mark] for mark in self.marks] + colours)


PLAIN = Style()


def painted(line: str, style: Style = PLAIN) -> tuple[Markup, Style]:
    """A line without its end as markup, and the style in which the next one begins.

    Of a line that was written over, as progress bars do, the last version is what is seen.
    """
    hidden, _, seen = line.rstrip("\r").rpartition("\r")
    *_, (_, look) = _runs(hidden, style)  # its colours still hold
    parts: list[tuple[str, Style]] = []
    for text, look in _runs(seen, look):  # noqa: B020  the last one is what the line ends with
        if text and parts and parts[-1][1] == look:
            parts[-1] = (parts[-1][0] + text, look)
        elif text:
            parts.append((text, look))
    return Markup("").join(_span(text, look) for text, look in parts), look


def overwritten(line: bytes) -> int:
    """How many bytes at the beginning of a line nobody sees any more, because it was written over."""
    return line.rstrip(b"\r").rfind(b"\r") + 1


def _runs(line: str, style: Style) -> Iterator[tuple[str, Style]]:
    """Text and the style it has; the last is the style at the end."""
    position = 0
    for match in _CONTROL.finditer(line):
        yield line[position : match.start()], style
        position = match.end()
        parameters, between, final = match.groups()
        if final == "m" and not between and parameters[:1] not in ("<", "=", ">", "?"):
            style = _changed(style, parameters)
        elif final not in _HARMLESS or between:
            yield match[0], style
    yield line[position:], style


def _span(text: str, style: Style) -> Markup:
    classes = style.classes
    return Markup('<span class="{}">{}</span>').format(classes, _shown(text)) if classes else _shown(text)


def _shown(text: str) -> Markup:
    """Escaped, with what cannot be seen spelled out, as the command line does it on a terminal."""
    if text.isprintable():
        return escape(text)
    return Markup("").join(
        escape("".join(group)) if plain else Markup('<span class="ctl">{}</span>').format(visible("".join(group)))
        for plain, group in itertools.groupby(text, lambda c: c.isprintable() or c == "\t")
    )


# -- SGR -------------------------------------------------------------------------------------------------


def _changed(style: Style, parameters: str) -> Style:
    words = iter((parameters or "0").split(";"))
    for word in words:
        number, *sub = (_number(part) for part in word.split(":"))
        if number in (38, 48):
            colour = _colour(iter(sub[:1] + sub[-3:] if len(sub) > 3 else sub) if sub else map(_number, words))
            style = style if colour is None else _coloured(style, number, colour)
        else:
            style = _after(style, 24 if number == 4 and sub == [0] else number)
    return style


def _number(text: str) -> int:
    return int(text) if text.isdigit() and text.isascii() and len(text) < 4 else 0 if not text else -1


def _after(style: Style, number: int) -> Style:
    if number == 0:
        return PLAIN
    if number in _WORDS or number == 21:
        return style._replace(marks=tuple(sorted({*style.marks, 4 if number == 21 else number})))
    if number in _ENDS:
        return style._replace(marks=tuple(mark for mark in style.marks if mark not in _ENDS[number]))
    for first, bright in ((30, 0), (40, 0), (90, 8), (100, 8)):
        if first <= number < first + 8:
            return _coloured(style, 38 if first in (30, 90) else 48, number - first + bright)
    if number == 39:
        return style._replace(fg=None)
    return style._replace(bg=None) if number == 49 else style


def _coloured(style: Style, which: int, colour: int) -> Style:
    return style._replace(fg=colour) if which == 38 else style._replace(bg=colour)


def _colour(numbers: Iterator[int]) -> int | None:
    """The nearest of the sixteen to what follows a 38 or 48; None if that is no colour."""
    match next(numbers, None):
        case 5:
            return _of_256(next(numbers, -1))
        case 2:
            channels = [next(numbers, -1) for _ in range(3)]
            return _nearest(*channels) if all(0 <= channel < 256 for channel in channels) else None
    return None


def _of_256(number: int) -> int | None:
    if not 0 <= number < 256:
        return None
    if number < 16:
        return number
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return _nearest(grey, grey, grey)
    red, rest = divmod(number - 16, 36)
    return _nearest(_STEPS[red], _STEPS[rest // 6], _STEPS[rest % 6])


def _nearest(red: int, green: int, blue: int) -> int:
    def distance(index: int) -> int:
        r, g, b = _SIXTEEN[index]
        return int((r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2)

    return min(range(16), key=distance)


def _code(colour: int | None, first: int) -> int:
    colour = colour or 0
    return first + colour if colour < 8 else first + 60 + colour - 8
