"""The lists: which columns each has, what stands in them, and how they share the width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from queuectl.cli.render import COLOURS, percent
from queuectl.cli.top.text_layout import Line, one_line, width
from queuectl.cli.top.view import Known, Pane, Row
from queuectl.jobs.model import Job, Queue, Worker
from queuectl.queues.selection import described, serves
from queuectl.system import times

WIDE = 60  # from here on columns stand two blanks apart
LEAST_COMMAND = 20


class Column(NamedTuple):
    """A column: how much room it may take, and what stands in it for a row. Without a `most` it takes what is left.

    Those with the highest `rank` are the first to be left out where there is no room.
    """

    title: str
    cell: Callable[[Any, Known], str]
    least: int
    most: int = 0
    rank: int = 0
    right: bool = False
    style: Callable[[Any, Known], str] | None = None
    usual: str | None = None  # if nothing but this stands in it, it is left out


def heads_and_rows(
    pane: Pane, rows: Sequence[Row], known: Known, room: int, top: int, count: int
) -> tuple[Line, list[Line]]:
    """The titles of a pane's columns, and `count` of its rows, the first of them at `top`."""
    gap = 2 if room >= WIDE else 1
    columns, widths = _layout(COLUMNS[pane], rows, known, room, gap)
    heads, lines = Line(fill="heads"), [Line() for _ in rows[top : top + count]]
    start = 1 if room >= WIDE else 0
    for column, space in zip(columns, widths, strict=True):
        _place(heads, start, space, column.title, column.right, "heads")
        for line, row in zip(lines, rows[top:], strict=False):
            style = column.style(row, known) if column.style else ""
            _place(line, start, space, column.cell(row, known), column.right, style)
        start += space + gap
    return heads, lines


def _place(line: Line, start: int, space: int, text: str, right: bool, style: str) -> None:
    shown = one_line(text, space)
    line.put(start + (space - width(shown) if right else 0), shown, style)


def _layout(
    columns: Sequence[Column], rows: Sequence[Row], known: Known, room: int, gap: int
) -> tuple[list[Column], list[int]]:
    """The columns that have something to say and find room, and how wide they are. All rows count, not only those in
    sight, so that nothing moves sideways while one scrolls."""
    said = {column: [column.cell(row, known) for row in rows] for column in columns}
    shown = [column for column in columns if column.usual is None or set(said[column]) - {column.usual}]
    room -= 1 if room >= WIDE else 0

    def natural(column: Column) -> int:
        widest = max((width(one_line(text, column.most)) for text in said[column]), default=0)
        return max(column.least, width(column.title), min(widest, column.most))

    widths = {column: natural(column) for column in shown if column.most}
    while len(shown) > 1:
        left = room - sum(widths.values()) - gap * (len(shown) - 1)
        elastic = [column.least for column in shown if not column.most]
        if left >= (max(elastic[0], room // 3) if elastic else 0):
            break
        last = max(shown, key=lambda column: column.rank)
        shown.remove(last)
        widths.pop(last, None)
    left = max(0, room - sum(widths.values()) - gap * (len(shown) - 1))
    return shown, [min(widths.get(column, left), max(0, room)) for column in shown]


# -- cells -----------------------------------------------------------------------------------------------


def lasted(milliseconds: int) -> str:
    """`4s`, `3m 20s`: whole seconds, so that what grows does so calmly."""
    seconds = max(0, milliseconds) // 1000
    return times.span(float(seconds)) if seconds else "0s"


def since(moment: int | None, known: Known) -> str:
    return "-" if moment is None else lasted(known.now - moment)


def progress(job: Job, room: int = 10) -> str:
    """`██████░░░░  60% packing`, if the job says how far it is."""
    if job.progress is None:
        return job.message or ""
    filled = int(room * job.progress / 100)
    return f"{'█' * filled}{'░' * (room - filled)} {percent(job.progress):>4} {job.message or ''}".rstrip()


def waits_for(job: Job, known: Known) -> str:
    """In a few words what a job that does not run waits for. (`explain` knows more.)"""
    if job.state == "blocked":
        before = [id for id, _ in job.depends_on]
        return f"job {before[0]}" if len(before) == 1 else f"{len(before)} jobs"
    if job.run_at > known.now:
        return ("retry in " if job.state == "failed" else "in ") + lasted(job.run_at - known.now + 999)
    rules = next((queue.rules for queue in known.queues if queue.name == job.queue), None)
    if rules and rules.paused:
        return "queue is paused"
    if job.parked:
        return f"key {job.key}"
    able = [worker for worker in known.workers if worker.alive and not worker.stop]
    able = [worker for worker in able if serves(worker.queues, job.queue)]
    if not able:
        return "a worker"
    if all(len(worker.jobs) >= worker.concurrency for worker in able):
        return "a free slot"
    return "its turn" if rules is None or not rules.limits else f"its turn: {rules.limits}"


def _attempt(job: Job, known: Known) -> str:
    """Which try this is, or will be."""
    return f"{job.attempts + 1}/{max(1, job.max_retries, job.attempts + 1)}"


def _failures(job: Job, known: Known) -> str:
    return f"{job.attempts}/{max(1, job.max_retries)}"


def _command(job: Job, known: Known) -> str:
    return f"(ending) {job.command}" if job.cancel_requested else job.command


def _lost(job: Job, known: Known) -> str:
    alive = any(worker.alive for worker in known.workers if worker.id == job.worker_id)
    return "" if alive or job.state != "processing" else "lost"


def _state_style(row: Job | Worker, known: Known) -> str:
    return row.state if row.state in COLOURS else ""


def _wait_style(job: Job, known: Known) -> str:
    what = waits_for(job, known)
    if what in ("a worker", "queue is paused"):
        return "dead"
    return job.state if job.state in ("failed", "blocked") else ""


def _host(job: Job, known: Known) -> str:
    """Where it runs, if there is a choice."""
    if len({worker.host for worker in known.workers}) < 2:
        return ""
    return next((worker.host for worker in known.workers if worker.id == job.worker_id), "")


def _count(state: str, title: str, rank: int) -> Column:
    def style(queue: Queue, known: Known) -> str:
        return state if queue.jobs.get(state) else "dim"

    return Column(title, lambda queue, known: f"{queue.jobs.get(state, 0):,}", 7, 12, rank, right=True, style=style)


ID = Column("Job", lambda job, known: job.id, 10, 24, rank=1)
QUEUE = Column("Queue", lambda job, known: job.queue, 5, 16, rank=6, usual="default")
PRIORITY = Column("Prio", lambda job, known: str(job.priority), 4, 6, rank=8, right=True, usual="0")
COMMAND = Column("Command", _command, LEAST_COMMAND)
STATE = Column("State", lambda job, known: job.state, 9, 9, rank=4, style=_state_style)

COLUMNS: dict[Pane, list[Column]] = {
    Pane.RUNNING: [
        ID,
        Column("Elapsed", lambda job, known: lasted(known.now - (job.started_at or known.now)), 7, 7, 2, right=True,
               style=lambda *_: "processing"),
        QUEUE,
        Column("Try", _attempt, 3, 7, rank=7),
        Column("Worker", lambda job, known: job.worker_id or "", 10, 10, rank=5, style=_lost),
        Column("Host", _host, 4, 16, rank=9, usual=""),
        Column("Progress", lambda job, known: progress(job), 15, 30, rank=3, usual=""),
        COMMAND,
    ],
    Pane.WAITING: [
        ID,
        Column("Waits for", waits_for, 12, 20, rank=2, style=_wait_style),
        QUEUE,
        PRIORITY,
        Column("Try", _attempt, 3, 7, rank=7),
        Column("Age", lambda job, known: since(job.created_at, known), 7, 7, rank=9, right=True),
        COMMAND,
    ],
    Pane.FAILED: [
        ID,
        STATE._replace(least=6, most=6),
        Column("Ago", lambda job, known: since(job.updated_at, known), 7, 7, rank=5, right=True),
        Column("Tries", _failures, 5, 7, rank=7),
        QUEUE,
        Column("Error", lambda job, known: job.error or "", 12, 32, rank=2),
        COMMAND._replace(least=12),
    ],
    Pane.FINISHED: [
        ID,
        STATE,
        Column("Ago", lambda job, known: since(job.finished_at, known), 7, 7, rank=5, right=True),
        Column("Took", lambda job, known: "-" if job.duration_ms is None else times.span(job.duration_ms / 1000),
               7, 7, rank=3, right=True),
        QUEUE,
        Column("Worker", lambda job, known: job.worker_id or "", 10, 10, rank=9),
        COMMAND,
    ],
    Pane.QUEUES: [
        Column("Queue", lambda queue, known: queue.name, 12, 32),
        _count("processing", "Running", 1),
        _count("pending", "Pending", 2),
        _count("failed", "Failed", 4),
        _count("dead", "Dead", 3),
        _count("blocked", "Blocked", 5),
        _count("completed", "Completed", 6),
        _count("cancelled", "Cancelled", 7),
        Column("Paused", lambda queue, known: "paused" if queue.rules.paused else "", 6, 6, rank=2, usual="",
               style=lambda *_: "dead"),
        Column("Limits", lambda queue, known: queue.rules.limits, 6, 30, rank=2, usual=""),
    ],
    Pane.WORKERS: [
        Column("Worker", lambda worker, known: worker.id, 10, 10),
        Column("State", lambda worker, known: worker.state, 8, 8, rank=1, style=_state_style),
        Column("Slots", lambda worker, known: f"{len(worker.jobs)}/{worker.concurrency}", 5, 9, rank=2, right=True),
        Column("Queues", lambda worker, known: described(worker.queues), 6, 20, rank=5),
        Column("Host", lambda worker, known: worker.host, 4, 20, rank=6),
        Column("PID", lambda worker, known: str(worker.pid), 7, 10, rank=7, right=True),
        Column("Up", lambda worker, known: lasted(known.now - worker.started_at), 7, 7, rank=4, right=True),
        Column("Jobs", lambda worker, known: " ".join(worker.jobs), 10, rank=3),
    ],
}  # fmt: skip
