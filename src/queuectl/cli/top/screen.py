"""From a view and what is known of the queue to lines of styled text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from queuectl.cli.render import advice
from queuectl.cli.top import pages
from queuectl.cli.top import view as v
from queuectl.cli.top.panes import WIDE, heads_and_rows
from queuectl.cli.top.text_layout import Line, cut, cut_start, one_line, paragraph, said, width
from queuectl.cli.top.view import Known, Pane, View
from queuectl.system.times import plural

ROOMY = 12  # rows from which there is a line with the counts
EMPTY = {
    Pane.RUNNING: "Nothing is running.",
    Pane.WAITING: "Nothing waits.",
    Pane.FAILED: "Nothing has failed.",
    Pane.FINISHED: "Nothing has finished yet.",
    Pane.QUEUES: "There are no queues.",
}
ROOM_FOR_COUNTS = 96
LEAST_NAME = 14  # cells for the name of the queue
BARS = "▁▂▃▄▅▆▇█"
SHORT = dict(zip(v.PANES, ("Run", "Wait", "Fail", "Fin", "Que", "Wrk"), strict=True))


class Frame(NamedTuple):
    """How the rows of the screen are shared out: is there a line for this, and how many for the list."""

    header: bool
    counts: bool
    tabs: bool
    heads: bool
    body: int
    footer: bool


def frame(height: int) -> Frame:
    counts, heads, tabs, header, footer = (height >= least for least in (ROOMY, 6, 5, 4, 2))
    return Frame(header, counts, tabs, heads, height - sum((counts, heads, tabs, header, footer)), footer)


def draw(view: View, known: Known, room: int, height: int) -> list[Line]:
    """Every line of the screen, from its top."""
    return [line.clipped(room) for line in _lines(view, known, room, frame(height))]


def _lines(view: View, known: Known, room: int, parts: Frame) -> list[Line]:
    if not parts.footer and (view.question or view.typing):
        return [_footer(view, known, room)]  # nobody shall answer what he cannot see
    lines = [_header(known, room)] if parts.header else []
    if parts.counts:
        lines.append(_counts(known, room))
    if known.trouble and lines:
        lines = _trouble(known, room, len(lines))
    if view.page:
        lines += _page(view, known, room, parts)
    else:
        lines += _list(view, known, room, parts)
    if parts.footer:
        lines.append(_footer(view, known, room))
    return lines


# -- above and below -------------------------------------------------------------------------------------


def _header(known: Known, room: int) -> Line:
    """Whose queue, and how it goes. From the right, so much as there is room for; the name takes the rest."""
    line = Line()
    alive = [worker for worker in known.workers if worker.alive]
    slots, busy = sum(worker.concurrency for worker in alive), sum(len(worker.jobs) for worker in alive)
    nobody = "alarm" if known.counts else ""
    parts = [  # from left to right, with what may be left out first
        (5, _bars(known.bars[-max(1, room // 8) :]), "bars"),
        (1, known.pace, ""),
        (4, plural(len(alive), "worker") if alive else "", ""),
        (2, f"{busy}/{slots} busy" if alive else "no workers", "" if alive else nobody),
        (3, known.clock, ""),
    ]
    chosen, column = [], room
    for part in sorted(parts):
        if part[1] and column - width(part[1]) - 2 >= LEAST_NAME:
            column -= width(part[1]) + 2
            chosen.append(part)
    line.put(0, " " + _short_name(known.name, max(0, column - 2)), "title")
    column += 1
    for part in parts:
        if part in chosen:
            column = line.put(column, part[1], part[2]) + 2
    return line


def _trouble(known: Known, room: int, height: int) -> list[Line]:
    """What is wrong, in the place of what would be told otherwise."""
    *texts, last = list(paragraph(known.trouble, room - 2))[: height + 1]
    if len(texts) == height:  # there is more than fits
        texts[-1], last = cut(f"{texts[-1]} {last}", room - 2), ""
    return [said(1, text, "alarm") for text in [*texts, last, ""][:height]]


def _short_name(name: str, room: int) -> str:
    """A path or an address; where there is no room for it, so many of its last names as fit."""
    name = one_line(name, 1000)
    if width(name) > room:
        name = name.rpartition("://")[2]
    first, *rest = name.split("/")
    while width(name) > room and rest:
        first, *rest = rest
        name = "/".join(["…", first, *rest])
    return cut_start(name, room)


def _bars(values: Sequence[float]) -> str:
    highest = max(values, default=0)
    return "".join(BARS[min(7, int(value / highest * 7.999))] for value in values) if highest else ""


def _counts(known: Known, room: int) -> Line:
    """How many jobs are in each state; those that are zero only if there is room for all."""
    line, column = Line(), 1
    texts = {state: f"{state} {n:,}" for state, n in known.counts.items()}
    full = sum(len(text) + 2 for text in texts.values()) < room
    for state, text in texts.items():
        some = known.counts[state] > 0
        if (some or full) and column + len(text) < room:
            column = line.put(column, text, state if some else "dim") + 2
    return line


def _tabs(view: View, known: Known, room: int) -> Line:
    """The panes, with how much is in each as far as there is room for that, and which row is selected."""
    counts = _tab_counts(known)
    number = {pane: f"{number} " for number, pane in enumerate(v.PANES, 1)}
    ways = [
        (2, [f"{number[pane]}{pane} {counts.get(pane, '')}".rstrip() for pane in v.PANES]),
        (2, [f"{number[pane]}{pane}" for pane in v.PANES]),
        (1, [number[pane] + SHORT[pane] for pane in v.PANES]),
        (1, [number[pane].strip() for pane in v.PANES]),
    ]
    needed = [sum(len(text) + gap for text in texts) for gap, texts in ways]
    needed[0] = max(needed[0], ROOM_FOR_COUNTS)  # so that it does not change whenever a count gets longer
    gap, texts = next((way for way, least in zip(ways, needed, strict=True) if least <= room), ways[-1])
    line, column = Line(), 0
    for pane, text in zip(v.PANES, texts, strict=True):
        if column + len(text) + gap <= room:
            around = " " if gap > 1 else ""
            start = column if gap > 1 else column + 1
            line.put(start, around + text + around, "tab" if pane == view.pane else "")
            column += len(text) + gap
    place = _place(view, known)
    if column + len(place) + 2 <= room:
        line.put(room - len(place) - 1, place, "dim")
    return line


def _place(view: View, known: Known) -> str:
    """`3 of 1,203`: the selected row, of all there are."""
    rows = v.shown_rows(view, known)
    if len(rows) < 2:
        return ""
    total = len(rows) if view.filter else max(len(rows), _numbers(known).get(view.pane, 0))
    return f"{min(view.cursor.place, len(rows) - 1) + 1:,} of {total:,}"


def _tab_counts(known: Known) -> dict[Pane, str]:
    return {pane: _short(n) for pane, n in _numbers(known).items()} if known.counts else {}


def _numbers(known: Known) -> dict[Pane, int]:
    """How many rows each pane would have."""
    count = known.counts.get
    return {
        Pane.RUNNING: count("processing", 0),
        Pane.WAITING: count("pending", 0) + count("failed", 0) + count("blocked", 0),
        Pane.FAILED: count("failed", 0) + count("dead", 0),
        Pane.FINISHED: count("completed", 0) + count("dead", 0) + count("cancelled", 0),
        Pane.WORKERS: len(known.workers),
    }


def _short(number: int) -> str:
    """`9999`, `12k`, `3.4M`."""
    if number < 10_000:
        return str(number)
    return f"{number // 1000}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def _footer(view: View, known: Known, room: int) -> Line:
    line = Line()
    if view.question:
        keys = v.keys(view, known)
        long, *short = _question(view, known)
        question = next((text for text in (long, *short) if width(text) <= room - 14), short[-1])
        column = line.put(0, " " + cut(question, max(0, room - 14)), "ask") + 2
    elif view.typing:
        keys = v.keys(view, known)
        text = cut_start(one_line(view.filter, 500), max(0, room - 24))
        column = line.put(line.put(0, f" /{text}", "title"), "▏") + 2
    elif known.note:
        line.put(0, one_line(f" {known.note}", room), "title")
        return line
    else:
        keys = v.keys(view, known)
        column = 1
        if view.filter and not view.page:
            column = line.put(column, one_line(f"/{view.filter}", max(0, room // 4)), "title") + 2
    _put_keys(line, column, keys, room)
    return line


def _put_keys(line: Line, column: int, keys: Sequence[tuple[str, str]], room: int) -> None:
    """The keys that find room. If not all do, the last two stay: help and the way out."""
    shown, gap = list(keys), 2 if room >= WIDE else 1
    while len(shown) > 1 and column + sum(width(key) + 1 + len(label) + gap for key, label in shown) - gap > room:
        shown.pop(-3 if len(shown) > 2 else 0)
    for key, label in shown:
        if column + width(key) + 1 + len(label) <= room:
            column = line.put(line.put(column, key, "key") + 1, label) + gap


def _question(view: View, known: Known) -> list[str]:
    """What is asked, in many words and in few."""
    order = view.question
    assert order is not None
    if order.what == "retry":
        return [f"Run dead job {order.job} again?", f"Retry {order.job}?"]
    job = v.target(view, known)
    running = job is not None and job.id == order.job and job.state == "processing"
    long = f"Cancel job {order.job}" + (", ending its processes?" if running else "?")
    return [long, f"Cancel job {order.job}?", f"Cancel {order.job}?"]


# -- the list --------------------------------------------------------------------------------------------


def _list(view: View, known: Known, room: int, parts: Frame) -> list[Line]:
    rows = v.shown_rows(view, known)
    top = view.cursor.top
    heads, shown = heads_and_rows(view.pane, rows, known, room, top, parts.body)
    place = min(view.cursor.place, len(rows) - 1) - top
    if 0 <= place < len(shown):
        shown[place].fill = "selected"
    if not rows and view.pane in known.rows:
        shown = [said(1, text, "dim") for line in _nothing(view, known) for text in paragraph(line, room - 2)]
    shown = shown[: parts.body]
    lines = [_tabs(view, known, room)] if parts.tabs else []
    if parts.heads:
        lines.append(heads)
    return lines + shown + [Line() for _ in range(parts.body - len(shown))]


def _nothing(view: View, known: Known) -> Iterator[str]:
    """Why a pane is empty, and what to do about it."""
    start = advice("queuectl worker start --count 2")
    waiting = known.counts.get("pending", 0) + known.counts.get("failed", 0)
    if view.filter:
        yield f'Nothing here holds "{view.filter}". Esc shows all.'
    elif view.pane == Pane.WORKERS:
        yield f"No worker is running. Start some: {start}"
    elif not any(known.counts.values()):
        yield "No jobs yet. Add one: " + advice("queuectl enqueue 'echo hello'")
    else:
        yield EMPTY[view.pane]
        if view.pane == Pane.RUNNING and waiting and not any(worker.alive for worker in known.workers):
            yield f"{plural(waiting, 'job')} cannot run without a worker. Start some: {start}"


# -- pages -----------------------------------------------------------------------------------------------


def _page(view: View, known: Known, room: int, parts: Frame) -> list[Line]:
    height = parts.body + parts.heads
    lines = [pages.title(view, known, room)] if parts.tabs else []
    if view.page == v.LOG:
        body = pages.log_rows(view, known, room, view.scroll + height)
        body = body[max(0, len(body) - view.scroll - height) :][:height]
    else:
        body = pages.rows(view, known, room, height)[view.scroll :][:height]
    return lines + body + [Line() for _ in range(height - len(body))]


def limit_scroll(view: View, known: Known, room: int, height: int) -> View:
    """Let nobody scroll past the end of a page."""
    if not view.page or not view.scroll:
        return view
    parts = frame(height)
    shown = parts.body + parts.heads
    lines = (
        pages.log_rows(view, known, room, v.BOTTOM) if view.page == v.LOG else pages.rows(view, known, room, shown)
    )
    most = max(0, len(lines) - shown)
    return replace(view, scroll=min(view.scroll, most)) if view.scroll > most else view
