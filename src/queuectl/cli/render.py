"""Output for people and for machines: tables, colours, times, JSON. Loads next to nothing."""

from __future__ import annotations

import os
import sys

from queuectl.jobs import job_spec
from queuectl.system import times
from queuectl.system.escaping import visible as visible  # all commands take it from here
from queuectl.system.escaping import visible_lines as visible_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Any

COLOURS = {
    "pending": "33",
    "processing": "36",
    "completed": "32",
    "failed": "35",
    "dead": "31",
    "cancelled": "90",
    "blocked": "34",
    "lost": "31",
    "busy": "36",
    "idle": "32",
    "stopping": "33",
}
BOLD, DIM = "1", "2"
NARROWEST = 12
MOST_LISTED = 20


def paint(text: str, colour: str | None) -> str:
    """Colour, on a terminal that wants it."""
    if not colour or not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")


_address = ""


def remember_address(db: str | None) -> None:
    """Have the commands that hints name act on the queue that was given with --db."""
    global _address
    if db is not None:
        _address = f"--db {job_spec.quote([without_password(db)])} "


def without_password(address: str) -> str:
    """An address as it may be shown."""
    place, mark, options = address.partition("?")
    scheme, separator, rest = place.partition("://")
    login, at, host = rest.rpartition("@")
    kept = "&".join(option for option in options.split("&") if not option.startswith("password="))
    return (
        scheme + separator + login.partition(":")[0] + at + host + mark * bool(kept) + kept if separator else address
    )


def advice(text: str) -> str:
    """A hint that can be copied and run. A command that names a queue of its own is left alone."""
    if not _address:
        return text
    return text.replace("queuectl ", f"queuectl {_address}").replace(f"{_address}--db ", "--db ")


def note(text: str) -> None:
    """A remark beside the output, on standard error."""
    sys.stdout.flush()
    sys.stderr.write(visible(advice(text)) + "\n")
    sys.stderr.flush()


def emit_json(data: Any) -> None:
    import json

    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def emit_list(records: Iterable[dict[str, Any]], jsonl: bool) -> None:
    """A JSON array, or one object a line."""
    import json

    if not jsonl:
        emit_json(list(records))
        return
    for record in records:
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], stretch: Sequence[str] = ()) -> None:
    """Aligned columns. Those named in `stretch` are shortened to fit the terminal; nothing is cut in a pipe."""
    cells = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    if sys.stdout.isatty():
        elastic = [index for index, header in enumerate(headers) if header in stretch]
        excess = sum(widths) + 2 * (len(widths) - 1) - terminal_width()
        while excess > 0 and elastic and widths[widest := max(elastic, key=widths.__getitem__)] > NARROWEST:
            widths[widest] -= 1
            excess -= 1
    say(paint(_aligned(headers, widths), BOLD))
    for row in cells:
        say(_aligned(row, widths, colours=True))


def _aligned(cells: Sequence[str], widths: Sequence[int], colours: bool = False) -> str:
    parts = []
    for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        short = _cut(cell, width)
        padding = " " * (width - len(short)) if index < len(widths) - 1 else ""
        parts.append((paint(short, COLOURS.get(cell)) if colours else short) + padding)
    return "  ".join(parts)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def terminal_width(stream: int = 1) -> int:
    try:
        return os.get_terminal_size(stream).columns or 100
    except OSError:
        return 100


def ago(moment: int | None, now: int | None = None) -> str:
    """`3m 20s ago`, or `in 5s`."""
    if moment is None:
        return "-"
    seconds = ((now or times.now_ms()) - moment) / 1000
    if abs(seconds) < 1:
        return "now"
    return f"{times.span(seconds)} ago" if seconds > 0 else f"in {times.span(-seconds)}"


def listed(names: Sequence[str]) -> str:
    """Names for one line; of many only the first."""
    return ", ".join(names[:MOST_LISTED]) + (f" and {len(names) - MOST_LISTED:,} more" * (len(names) > MOST_LISTED))


def percent(progress: float) -> str:
    """Never more than it is: 99.96 is not yet all of it."""
    return f"{int(round(progress * 10, 6)) / 10:g}%"  # rounded: 2.3 * 10 is a little less than 23


def reported(progress: float | None, message: str | None) -> str:
    """What a run says of itself in a few words: `40% halfway`."""
    return " ".join(([] if progress is None else [percent(progress)]) + ([message] if message else []))


class StatusLine:
    """A line on standard error that changes, and is erased in the end; nothing if that is no terminal."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._text = ""

    def show(self, text: str) -> None:
        if self.live and text != self._text:
            self._text = text
            sys.stderr.write("\r\x1b[K" + _cut(visible(text), terminal_width(2) - 1))
            sys.stderr.flush()

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show("")


class Progress:
    """A bar on standard error while long work goes on; nothing if that is no terminal or the work is short."""

    def __init__(self, what: str, total: int, short: int = 5000) -> None:
        self._what = what
        self._total = total
        self._shown = total >= short and sys.stderr.isatty()

    def step(self, done: int) -> None:
        if self._shown:
            filled = 30 * done // max(1, self._total)
            bar = "█" * filled + "░" * (30 - filled)
            sys.stderr.write(f"\r{self._what} {bar} {done:,} of {self._total:,}")
            sys.stderr.flush()

    def __enter__(self) -> Progress:
        self.step(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
