"""What lies over the list: a job with its last output, a log, the help. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from queuectl.cli.render import advice
from queuectl.cli.top import view as v
from queuectl.cli.top.panes import lasted, progress, since
from queuectl.cli.top.text_layout import MOST_CELLS, Line, cut, one_line, paragraph, said, wrapped
from queuectl.cli.top.view import Known, View
from queuectl.jobs.model import Job
from queuectl.jobs.states import WAITING
from queuectl.system import times

LEAST_OUTPUT, SHOWN_OUTPUT = 5, 100  # lines on a job's page
MARKS = ("--- START ", "--- END ", "--- CUT ", "--- LOST ")
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
KEYS = {
    "1 … 6, Tab": "panes: running, waiting, failed, finished, queues, workers",
    "↑ ↓ j k": "select; PgUp PgDn and Home End (or g G) go further",
    "Enter": "the job: what is known of it, why it waits, its last output",
    "l": "its log, live; once scrolled, End follows it again",
    "c": "cancel it, ending its processes if it runs",
    "r": "run a dead job again",
    "p": "pause a queue, or let it go on (in the pane of queues)",
    "/": "only jobs whose id, command or queue holds a text; Esc shows all",
    "Ctrl-L": "draw everything anew",
    "q, Esc": "back; in the list q ends top, and nothing but top",
}
REMARKS = (
    "Running: the longest first. Waiting: what runs next first, then what becomes due, then what waits for other "
    f"jobs. Failed and Finished: the latest first. At most {v.MOST_ROWS} jobs are listed.",
    "The pace is that of the last ten seconds, or of the last minute if it is slow. A bar is what has finished "
    "between two looks.",
)
INDENT = 12


def title(view: View, known: Known, room: int) -> Line:
    line = Line(fill="heads")
    if view.page == v.HELP:
        line.put(1, cut("Help", room - 1), "heads")
        return line
    job = v.target(view, known)
    state = job.state if job else ""
    what = "Job" if view.page == v.JOB else "Log of"
    column = line.put(0, one_line(f" {what} {view.job}", max(0, room)), "heads") + 2
    if state and column + len(state) <= room:
        column = line.put(column, state, state) + 2
    place = ""
    if view.page == v.LOG:
        place = "scrolled" if view.scroll else "following" if job and not job.finished else ""
    if place and column + len(place) <= room - 1:
        line.put(room - len(place) - 1, place, "heads")
    return line


def rows(view: View, known: Known, room: int, height: int) -> list[Line]:
    """All of a page but a log. `height`: how much of it can be seen at once."""
    if view.page == v.HELP:
        return list(_help(room))
    page = known.page
    if page is None or page.id != view.job:
        return []
    if page.job is None:
        return [said(1, text) for text in paragraph(f"There is no job {page.id} any more.", room - 2)]
    about = list(_job_rows(page.job, page, known, room))
    output = list(_output(page, room))
    return about + output[-max(LEAST_OUTPUT, height - len(about)) :]


def _help(room: int) -> Iterator[Line]:
    for key, text in KEYS.items():
        yield from _named(key, text, room, "key", "")
    for remark in REMARKS:
        yield Line()
        yield from (said(1, piece, "dim") for piece in paragraph(remark, room - 2))


def _named(name: str, text: str, room: int, name_style: str, style: str) -> Iterator[Line]:
    """A name, and a text beside it; below it where there is no room."""
    beside = room >= 3 * INDENT
    if not beside:
        yield said(1, cut(name, room - 1), name_style)
    start = 1 + INDENT if beside else 1
    for number, line in enumerate(text[:MOST_CELLS].splitlines() or [""]):
        for piece_number, piece in enumerate(paragraph(line, room - start - 1)):
            row = said(1, "" if number or piece_number or not beside else name, name_style)
            row.put(start, piece, style)
            yield row


def _job_rows(job: Job, page: v.Page, known: Known, room: int) -> Iterator[Line]:
    for name, text, style in _facts(job, known):
        yield from _named(name, text, room, "dim", style)
    yield Line()
    for reason in page.reasons:
        for text in paragraph(advice(reason), room - 2, "  "):
            yield said(1, text)
    yield Line()
    yield said(1, cut("Its last output" if page.log else _no_output(page), room - 1), "title")


def _facts(job: Job, known: Known) -> Iterator[tuple[str, str, str]]:
    """What `show` says, without what is beside the point here."""
    yield "Command", job.command, "title"
    error = f" ({job.error})" if job.error not in (None, job.state) else ""
    yield "State", job.state + error, job.state
    yield "Queue", f"{job.queue}, priority {job.priority}" + (f", batch {job.batch}" if job.batch else ""), ""
    lost = f", {job.crashes} lost" if job.crashes else ""
    yield "Attempts", f"{job.attempts} of {job.max_retries} failed{lost}", ""
    if told := progress(job):
        yield "Progress", told, "processing"
    if job.result is not None:
        yield "Result", json.dumps(job.result, ensure_ascii=False), ""
    yield "Enqueued", _moment(job.created_at, known), ""
    if job.state in WAITING:
        due = lasted(job.run_at - known.now + 999)
        yield "Due", times.local(job.run_at) + (f" (in {due})" if job.run_at > known.now else ""), ""
    if job.started_at is not None:
        yield "Started", f"{_moment(job.started_at, known)}, worker {job.worker_id}, run {job.run}", ""
    if job.finished_at is not None:
        yield "Finished", _moment(job.finished_at, known), ""
    if job.duration_ms is not None:
        yield "Took", times.span(job.duration_ms / 1000), ""
    if job.tags:
        yield "Tags", " ".join(job.tags), ""
    yield "Folder", job.cwd or "the worker's", ""


def _moment(moment: int, known: Known) -> str:
    return f"{times.local(moment)} ({since(moment, known)} ago)"


# -- output ----------------------------------------------------------------------------------------------


def log_rows(view: View, known: Known, room: int, count: int) -> list[Line]:
    """The last rows of a log, so many or more if there are."""
    page = known.page
    if page is None or page.id != view.job:
        return []
    if not page.log:
        return [said(1, piece, "dim") for piece in paragraph(_no_output(page), room - 2)]
    rows = [said(1, piece, "dim") for piece in paragraph(page.remark, room - 2)][::-1] if page.remark else []
    for line in reversed(page.log):
        pieces = [said(0, piece, _mark_style(line)) for piece in wrapped(_as_printed(line), room)]
        rows += reversed(pieces)
        if len(rows) >= count:
            break
    return rows[::-1]


def _no_output(page: v.Page) -> str:
    return page.remark or "It has printed nothing" + ("." if page.job and page.job.finished else " yet.")


def _output(page: v.Page, room: int) -> Iterator[Line]:
    for line in page.log[-SHOWN_OUTPUT:]:
        for piece in wrapped(_as_printed(line), room - 2):
            yield said(1, piece, _mark_style(line))


def _mark_style(line: str) -> str:
    return "dim" if line.startswith(MARKS) else ""


def _as_printed(line: str) -> str:
    """What a terminal would show in the end: the last turn of a progress bar, and no codes for colours."""
    return COLOUR_CODES.sub("", line.rstrip("\r").rpartition("\r")[2])
