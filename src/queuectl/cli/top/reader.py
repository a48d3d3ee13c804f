"""Reads the queue in a thread of its own, so that the screen answers while the database does not."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from queuectl.cli.app import whoever_typed_this
from queuectl.cli.top.view import LOG_LINES, MOST_ROWS, Order, Page, Pane, Row, Snapshot, Wanted
from queuectl.errors import NotFound, QueuectlError, StoreReplaced
from queuectl.jobs import log_files
from queuectl.jobs.model import Job, Worker
from queuectl.store import Store, open_store
from queuectl.system import times

PATIENCE = 5.0  # seconds that a locked database is waited for
MOST_LOG_BYTES = 262_144
END_WITHIN = 2.0  # seconds that a worker may take to end a run before we say that it is at it

News = Snapshot | BaseException | str
"""What was read, why it could not be, or what came of an order."""


class Reader(threading.Thread):
    """Looks again and again, and at once when something else is wanted. Nobody else uses its store."""

    def __init__(self, url: str, interval: float, tell: Callable[[News], None]) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._interval = interval
        self._tell = tell  # called from this thread
        # Not a SimpleQueue: if we are stopped (Ctrl-Z) while it waits for its time, it waits for ever afterwards.
        self._asked: queue.Queue[Wanted | Order] = queue.Queue()
        self._store: Store | None = None
        self._ahead = 0  # how far the database's clock is before ours

    def ask(self, what: Wanted | Order) -> None:
        """Have this read from now on, or this done."""
        self._asked.put(what)

    def run(self) -> None:
        try:
            self._go_on()
        except BaseException as error:  # a bug: whoever waits for us must know
            self._tell(error)

    def _go_on(self) -> None:
        wanted: Wanted | None = None
        look_at = time.monotonic()
        while True:
            for asked in self._asked_until(look_at):
                if isinstance(asked, Order):
                    self._tell(self._carried_out(asked))
                else:
                    wanted = asked
            look_at = time.monotonic() + self._interval
            if wanted:
                self._tell(self._looked(wanted))

    def _asked_until(self, deadline: float) -> list[Wanted | Order]:
        """All that was asked, as soon as there is something."""
        try:
            asked = [self._asked.get(timeout=max(0.0, deadline - time.monotonic()))]
        except queue.Empty:
            return []
        while not self._asked.empty():
            asked.append(self._asked.get())
        return asked

    def _opened(self) -> Store:
        if self._store is None:
            self._store = open_store(self._url, patience=PATIENCE)
            self._store.actor = whoever_typed_this()
            self._ahead = self._store.views.clock() - times.now_ms()
        self._store.engine.check_place()  # else we would go on with a file that somebody has moved away
        return self._store

    def _looked(self, wanted: Wanted) -> News:
        try:
            return self._look(wanted)
        except StoreReplaced as error:  # what lies there now is looked at the next time
            if self._store:
                self._store.close()
            self._store = None
            return error
        except QueuectlError as error:
            return error

    def _carried_out(self, order: Order) -> str:
        try:
            return self._carry_out(order)
        except QueuectlError as error:
            return f"Not done: {error.message}. ({error.hint})"

    # -- looking -----------------------------------------------------------------------------------------

    def _look(self, wanted: Wanted) -> Snapshot:
        store = self._opened()
        views = store.views
        now = times.now_ms() + self._ahead
        workers = tuple(views.workers())
        queues = tuple(views.queues()) if wanted.pane in (Pane.QUEUES, Pane.WAITING) else ()
        rows: tuple[Row, ...]
        match wanted.pane:
            case Pane.RUNNING:
                rows = tuple(views.running(wanted.limit))
            case Pane.WAITING:
                rows = tuple(views.upcoming(wanted.limit))
            case Pane.FAILED:
                # The newest jobs need not be those that failed last: so all that may be shown are looked at.
                failed = [job for state in ("failed", "dead") for job in views.jobs(state, limit=MOST_ROWS)]
                rows = tuple(sorted(failed, key=lambda job: -job.updated_at)[: wanted.limit])
            case Pane.FINISHED:
                rows = tuple(views.finished(wanted.limit))
            case Pane.QUEUES:
                rows = queues
            case Pane.WORKERS:
                rows = workers
        page = _page(store, wanted, workers, now) if wanted.job else None
        return Snapshot(wanted, now, views.counts(), workers, rows, queues, page)

    # -- doing -------------------------------------------------------------------------------------------

    def _carry_out(self, order: Order) -> str:
        """Do it; how that went, for people. Raises what the store refuses."""
        store = self._opened()
        if order.what == "retry":
            store.retry([order.job])
            return f"Job {order.job} is pending again."
        if order.what in ("pause", "resume"):
            store.change_queue(order.job, paused=order.what == "pause")
            return f"Queue {order.job} {'is paused' if order.what == 'pause' else 'goes on'}."
        state = store.cancel([order.job])[order.job]
        deadline = time.monotonic() + END_WITHIN
        while state == "processing" and time.monotonic() < deadline:
            time.sleep(0.02)
            state = store.views.states([order.job]).get(order.job, "gone")
        if state == "processing":
            return f"Job {order.job} is being cancelled: its worker ends it."
        if state == "cancelled":
            return f"Job {order.job} cancelled."
        return f"Job {order.job} could not be cancelled any more: it is {state}."


def _page(store: Store, wanted: Wanted, workers: tuple[Worker, ...], now: int) -> Page:
    views = store.views
    try:
        job = views.job(wanted.job)
    except NotFound:
        return Page(wanted.job, None)
    reasons = tuple(store.views.explain(job, workers, now))
    log, remark = _log(job) if wanted.log else ((), "")
    return Page(job.id, job, reasons, log, remark)


def _log(job: Job) -> tuple[tuple[str, ...], str]:
    """The last lines that a job has printed, and a remark on them."""
    if job.log_host:
        remark = f"It ran on {job.log_host}, which has its log: {job.log_path}"
        return tuple(((job.stdout or "") + (job.stderr or "")).splitlines()), remark
    try:
        printed, _ = log_files.read(job.log_path, LOG_LINES, MOST_LOG_BYTES)
    except OSError as error:
        return (), f"Its log cannot be read: {error.strerror}."
    lines = printed.decode("utf-8", "replace").split("\n")
    return tuple(lines if lines[-1] else lines[:-1]), ""
