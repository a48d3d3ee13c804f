"""What is on the screen and what a key does to it. Pure: no terminal, no clock, no database."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from queuectl.jobs.model import Job, Queue, Worker
from queuectl.jobs.states import FINISHED

MOST_ROWS = 300
LOG_LINES = 1000
LONGEST_FILTER = 100
SEARCHED = 4000  # characters of a command
RECENTLY, LATELY = 10.0, 60.0  # seconds over which "a second" and "a minute" are taken
BOTTOM = 2**31  # the last row, whichever that is

Row = Job | Queue | Worker


class Pane(StrEnum):
    RUNNING = "Running"
    WAITING = "Waiting"
    FAILED = "Failed"
    FINISHED = "Finished"
    QUEUES = "Queues"
    WORKERS = "Workers"


PANES = list(Pane)
NEWEST_FIRST = (Pane.FAILED, Pane.FINISHED)
HELP, JOB, LOG = "help", "job", "log"


class Order(NamedTuple):
    """What is to be done, and to which job; or to which queue, if it is to pause or to go on."""

    what: str  # quit, cancel, retry, pause, resume, redraw
    job: str = ""


class Cursor(NamedTuple):
    """Which row is selected. Without an id it is whatever is in that place; `top` is the first row that is shown."""

    id: str = ""
    place: int = 0
    top: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """What the person has chosen to see."""

    pane: Pane = Pane.RUNNING
    cursors: Mapping[Pane, Cursor] = field(default_factory=dict)
    filter: str = ""
    typing: bool = False  # the filter
    question: Order | None = None
    pages: tuple[str, ...] = ()  # what lies over the list, the uppermost last
    job: str = ""  # the one the pages are about
    scroll: int = 0  # of the uppermost page: lines from its start, in a log from its end

    @property
    def page(self) -> str:
        return self.pages[-1] if self.pages else ""

    @property
    def cursor(self) -> Cursor:
        return self.cursors.get(self.pane, Cursor())


@dataclass(frozen=True, slots=True)
class Page:
    """One job, as read for its page."""

    id: str
    job: Job | None  # None: it is not there any more
    reasons: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    remark: str = ""  # on the log


class Wanted(NamedTuple):
    """What must be read to draw a view."""

    pane: Pane
    limit: int
    job: str = ""
    log: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was read of the queue at one moment."""

    wanted: Wanted
    now: int
    counts: Mapping[str, int]
    workers: tuple[Worker, ...]
    rows: tuple[Row, ...]
    queues: tuple[Queue, ...] = ()
    page: Page | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """All that the screen knows of the queue."""

    name: str
    now: int = 0
    clock: str = ""  # the time of day
    counts: Mapping[str, int] = field(default_factory=dict)
    workers: tuple[Worker, ...] = ()
    queues: tuple[Queue, ...] = ()
    rows: Mapping[Pane, tuple[Row, ...]] = field(default_factory=dict)
    page: Page | None = None
    pace: str = ""
    bars: tuple[float, ...] = ()
    trouble: str = ""  # why nothing new comes
    note: str = ""

    def told(self, news: Snapshot) -> Known:
        page = news.page
        if page and self.page and page.id == self.page.id and not news.wanted.log:
            page = replace(page, log=self.page.log, remark=self.page.remark)
        return replace(
            self,
            counts=news.counts,
            workers=news.workers,
            queues=news.queues or self.queues,
            rows={**self.rows, news.wanted.pane: news.rows},
            page=page or self.page,
        )


class Pace:
    """How fast jobs finish: told how many have, again and again."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self._begun = 0.0
        self._added: deque[tuple[float, int, float]] = deque(maxlen=1000)

    def see(self, moment: float, counts: Mapping[str, int]) -> None:
        total = sum(counts[state] for state in FINISHED)
        if self._last is None:
            self._begun = moment
        elif moment > self._last[0]:
            added = max(0, total - self._last[1])  # fewer than before: some were pruned or retried
            self._added.append((moment, added, moment - self._last[0]))
        self._last = (moment, total)

    def _in_the_last(self, seconds: float) -> float | None:
        if not self._added:
            return None
        now = self._added[-1][0]
        finished = sum(added for moment, added, _ in self._added if moment > now - seconds)
        return finished / min(seconds, now - self._begun)

    def __str__(self) -> str:
        """`12.3 jobs/s`, or `8 jobs/min` if it is less than one a second."""
        a_second, lately = self._in_the_last(RECENTLY), self._in_the_last(LATELY)
        if a_second is None or lately is None:
            return ""
        if a_second >= 1:
            return f"{a_second:,.0f} jobs/s" if a_second >= 100 else f"{a_second:.1f} jobs/s"
        return f"{lately * 60:,.0f} jobs/min"

    @property
    def bars(self) -> tuple[float, ...]:
        """Jobs a second between the looks, the newest last."""
        return tuple(added / seconds for _, added, seconds in self._added)


# -- what is selected ------------------------------------------------------------------------------------


def id_of(row: Row) -> str:
    return row.name if isinstance(row, Queue) else row.id


def shown_rows(view: View, known: Known) -> Sequence[Row]:
    """The rows of the pane that fit the filter."""
    rows = known.rows.get(view.pane, ())
    text = view.filter.casefold()
    return [row for row in rows if text in _searched(row)] if text else rows


def _searched(row: Row) -> str:
    match row:
        case Job():
            return f"{row.id}\n{row.command[:SEARCHED]}\n{row.queue}".casefold()
        case Queue():
            return row.name.casefold()
        case Worker():
            return f"{row.id}\n{row.host}\n{' '.join(row.queues)}".casefold()


def selected(view: View, known: Known) -> Row | None:
    rows = shown_rows(view, known)
    return rows[min(view.cursor.place, len(rows) - 1)] if rows else None


def target(view: View, known: Known) -> Job | None:
    """The job that keys act on: the page's, or the selected one."""
    if view.page in (JOB, LOG):
        page = known.page
        return page.job if page and page.id == view.job else None
    row = selected(view, known)
    return row if isinstance(row, Job) and not view.page else None


def steady(view: View, known: Known, body: int) -> View:
    """Keep the selection on its row when rows have moved, and in sight. `body`: how many rows are in sight."""
    rows = shown_rows(view, known)
    if view.pane not in known.rows:
        return view
    id, place, top = view.cursor
    if id:
        place = next((place for place, row in enumerate(rows) if id_of(row) == id), place)
    found = max(0, min(place, len(rows) - 1))
    if place < BOTTOM:
        at_top = not id and not place and view.pane in NEWEST_FIRST  # there one wants to see what is new
        place, id = found, id_of(rows[found]) if rows and not at_top else ""
    top = max(0, min(top, found, len(rows) - body), found - body + 1)
    return replace(view, cursors={**view.cursors, view.pane: Cursor(id, place, top)})


def wanted(view: View, body: int) -> Wanted:
    """What to read. Few rows until somebody goes beyond them."""
    few = 2 * body
    limit = MOST_ROWS if view.filter or view.cursor.place >= body else min(few, MOST_ROWS)
    about_a_job = JOB in view.pages or LOG in view.pages
    log = view.page == JOB or (view.page == LOG and not view.scroll)  # what one reads must not run away
    return Wanted(view.pane, max(1, limit), view.job if about_a_job else "", about_a_job and log)


# -- keys ------------------------------------------------------------------------------------------------


def keys(view: View, known: Known) -> list[tuple[str, str]]:
    """The keys that work now, and what they do; the last two are those one cannot do without."""
    if view.question:
        return [("y", "yes"), ("n", "no")]
    if view.typing:
        return [("Enter", "keep"), ("Esc", "clear")]
    job = target(view, known)
    acts = []
    if job and not job.finished:
        acts.append(("c", "cancel"))
    if job and job.state == "dead":
        acts.append(("r", "retry"))
    if view.page == HELP:
        return [("↑↓", "scroll"), ("q", "back")]
    if view.page:
        other = ("l", "log") if view.page == JOB else ("Enter", "job")
        follow = [("End", "follow")] if view.page == LOG and view.scroll else []
        return [other, *acts, *follow, ("↑↓", "scroll"), ("?", "help"), ("q", "back")]
    row = selected(view, known)
    looks = [("Enter", "job"), ("l", "log")] if _job_of(row) else []
    if isinstance(row, Queue):
        acts.append(("p", "resume" if row.rules.paused else "pause"))
    clear = [("Esc", "all")] if view.filter else []
    return [*looks, *acts, *clear, ("/", "filter"), ("Tab", "next pane"), ("?", "help"), ("q", "quit")]


def press(view: View, key: str, known: Known, body: int) -> tuple[View, Order | None]:
    """What a key makes of the view, and what is to be done. Keys are characters, or names such as `up`."""
    if key == "redraw":
        return view, Order("redraw")
    if view.question:
        return _answer(view, key)
    if view.typing:
        return _type(view, key), None
    if key == "?" and view.page != HELP:
        return replace(view, pages=(*view.pages, HELP), scroll=0), None
    job = target(view, known)
    if key == "c" and job and not job.finished:
        return replace(view, question=Order("cancel", job.id)), None
    if key == "r" and job and job.state == "dead":
        return replace(view, question=Order("retry", job.id)), None
    if view.page:
        return _in_page(view, key, body), None
    return _in_list(view, key, known, body)


def _answer(view: View, key: str) -> tuple[View, Order | None]:
    if key in ("y", "Y"):
        return replace(view, question=None), view.question
    return replace(view, question=None), None  # whatever else was meant, it was not yes


def _type(view: View, key: str) -> View:
    match key:
        case "esc":
            return replace(view, typing=False, filter="")
        case "enter":
            return replace(view, typing=False)
        case "backspace":
            return replace(view, filter=view.filter[:-1])
        case "erase":
            return replace(view, filter="")
        case _ if len(key) == 1 and key.isprintable() and len(view.filter) < LONGEST_FILTER:
            return replace(view, filter=view.filter + key)
    return view


def _in_page(view: View, key: str, body: int) -> View:
    up = 1 if view.page == LOG else -1  # a log is scrolled from its end
    match key:
        case "q" | "esc" | "left" | "backspace":
            return replace(view, pages=view.pages[:-1], scroll=0)
        case "l" if view.page == JOB:
            return replace(view, pages=(*view.pages, LOG), scroll=0)
        case "enter" if view.page == LOG:
            return replace(view, pages=(JOB,), scroll=0)
        case "up" | "k":
            return replace(view, scroll=max(0, view.scroll + up))
        case "down" | "j":
            return replace(view, scroll=max(0, view.scroll - up))
        case "pgup":
            return replace(view, scroll=max(0, view.scroll + up * max(1, body - 1)))
        case "pgdn" | " ":
            return replace(view, scroll=max(0, view.scroll - up * max(1, body - 1)))
        case "home" | "g":
            return replace(view, scroll=BOTTOM if view.page == LOG else 0)
        case "end" | "G":
            return replace(view, scroll=0 if view.page == LOG else BOTTOM)
    return view


def _in_list(view: View, key: str, known: Known, body: int) -> tuple[View, Order | None]:
    pane = PANES.index(view.pane)
    match key:
        case "q":
            return view, Order("quit")
        case "1" | "2" | "3" | "4" | "5" | "6":
            return replace(view, pane=PANES[int(key) - 1]), None
        case "tab" | "right":
            return replace(view, pane=PANES[(pane + 1) % len(PANES)]), None
        case "backtab" | "left":
            return replace(view, pane=PANES[pane - 1]), None
        case "/":
            return replace(view, typing=True), None
        case "esc":
            return replace(view, filter=""), None
        case "p" if isinstance(row := selected(view, known), Queue):
            return view, Order("resume" if row.rules.paused else "pause", row.name)
        case "enter" | "l":
            row = selected(view, known)
            id = _job_of(row)
            if row is None or not id:
                return view, None
            kept = {**view.cursors, view.pane: view.cursor._replace(id=id_of(row))}
            return replace(view, pages=(JOB if key == "enter" else LOG,), job=id, scroll=0, cursors=kept), None
    return _moved(view, key, known, body), None


def _job_of(row: Row | None) -> str:
    """The job that a row is about; a worker's row is about what it runs."""
    if isinstance(row, Worker):
        return row.jobs[0] if row.jobs else ""
    return row.id if isinstance(row, Job) else ""


def _moved(view: View, key: str, known: Known, body: int) -> View:
    rows = shown_rows(view, known)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -max(1, body - 1), "pgdn": max(1, body - 1),
             " ": max(1, body - 1), "home": -BOTTOM, "g": -BOTTOM}  # fmt: skip
    top = view.cursor.top
    if key in ("end", "G"):
        return replace(view, cursors={**view.cursors, view.pane: Cursor("", BOTTOM, top)})
    if key not in steps or not rows:
        return view
    place = min(view.cursor.place, len(rows) - 1) + steps[key]
    place = max(0, min(place, len(rows) - 1))
    id = "" if key in ("home", "g") else id_of(rows[place])
    return replace(view, cursors={**view.cursors, view.pane: Cursor(id, place, top)})
