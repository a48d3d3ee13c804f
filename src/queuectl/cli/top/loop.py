"""The loop of `top`: take news and keys, decide, draw."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from dataclasses import replace

from queuectl.cli.top import screen
from queuectl.cli.top.reader import News, Reader
from queuectl.cli.top.terminal import Terminal
from queuectl.cli.top.view import Known, Pace, Snapshot, View, Wanted, press, steady, wanted
from queuectl.errors import QueuectlError

NOTE_SECONDS = 5.0
DOING = {
    "cancel": "Cancelling job",
    "retry": "Retrying job",
    "pause": "Pausing queue",
    "resume": "Resuming queue",
}
AT_ONCE = 0.1  # seconds that a new pane may take to be read before it is drawn without what is in it
OVERDUE = 3.0  # seconds after which we say that nothing new comes


class Watch:
    """One person at one terminal, looking at one queue."""

    def __init__(self, terminal: Terminal, name: str, url: str, interval: float) -> None:
        self._terminal = terminal
        self._interval = interval
        self._news: queue.Queue[News] = queue.Queue()
        self._reader = Reader(url, interval, self._hear)
        self._view = View()
        home = os.path.expanduser("~/")
        self._known = Known("~/" + name[len(home) :] if name.startswith(home) else name)
        self._pace = Pace()
        self._wanted: Wanted | None = None
        self._asked_at = self._read_at = self._awake_since = time.monotonic()
        self._read: Wanted | None = None
        self._clock = 0  # the database's, when it was read
        self._note_until = 0.0
        self._orders = 0  # that nothing has been heard of yet

    def _hear(self, news: News) -> None:
        """Called by the reader's thread."""
        self._news.put(news)
        self._terminal.wake()

    def run(self) -> None:
        self._reader.start()
        while not self._terminal.ended_by:
            columns, rows = self._terminal.size()
            body = screen.frame(rows).body
            self._take_news()
            self._view = screen.limit_scroll(steady(self._view, self._known, body), self._known, columns, rows)
            self._ask(wanted(self._view, body))
            patience = self._asked_at + AT_ONCE - time.monotonic()
            if not self._is_new() or patience <= 0:  # else it would be drawn twice
                self._tell_time()
                self._terminal.draw(screen.draw(self._view, self._known, columns, rows))
                patience = self._interval * 1.5 if self._interval <= 1 else 1.0
            begun = time.monotonic()
            pressed = self._terminal.wait(patience)
            if time.monotonic() > begun + patience + 1:  # we were stopped (Ctrl-Z), not the database
                self._awake_since = time.monotonic()
            for key in pressed:
                if self._pressed(key, body):
                    return

    def _ask(self, what: Wanted) -> None:
        if what != self._wanted:
            self._wanted, self._asked_at = what, time.monotonic()
            self._reader.ask(what)

    def _is_new(self) -> bool:
        """Is what we want to show something that has not been read yet?"""
        want, read = self._wanted, self._read
        return want is not None and (read is None or (want.pane, want.job) != (read.pane, read.job))

    def _pressed(self, key: str, body: int) -> bool:
        """Is it the end?"""
        self._note_until = 0.0
        self._view = steady(self._view, self._known, body)
        self._view, order = press(self._view, key, self._known, body)
        if order is None:
            return False
        if order.what == "redraw":
            self._terminal.redraw()
        elif order.what != "quit":
            self._orders += 1
            self._reader.ask(order)
            self._say(f"{DOING[order.what]} {order.job}…")
        return order.what == "quit"

    # -- news --------------------------------------------------------------------------------------------

    def _take_news(self) -> None:
        while not self._news.empty():
            match self._news.get():
                case Snapshot() as news:
                    self._read, self._clock, self._read_at = news.wanted, news.now, time.monotonic()
                    self._pace.see(self._read_at, news.counts)
                    self._known = replace(
                        self._known.told(news), trouble="", pace=str(self._pace), bars=self._pace.bars
                    )
                case str() as text:
                    self._orders -= 1
                    self._say(text)
                case QueuectlError() as error:
                    self._read = self._wanted  # as well as it could be
                    self._known = replace(self._known, trouble=f"Trying again: {error.message}")
                case BaseException() as error:
                    raise error

    def _say(self, text: str) -> None:
        self._known = replace(self._known, note=text)
        self._note_until = time.monotonic() + NOTE_SECONDS

    def _tell_time(self) -> None:
        now = time.monotonic()
        silent = now - self._read_at
        trouble = self._known.trouble
        if not trouble and now - max(self._read_at, self._awake_since) > OVERDUE + self._interval:
            trouble = "Waiting: the database does not answer"
        self._known = replace(
            self._known,
            now=self._clock + round(silent * 1000),
            clock=time.strftime("%H:%M:%S"),
            trouble=trouble,
            note=self._known.note if now < self._note_until else "",
        )

    def outstanding(self) -> Iterator[str]:
        """What came of orders that were given just before the end: the store answers, sooner or later."""
        while self._orders:
            match self._news.get():
                case str() as text:
                    self._orders -= 1
                    yield text
                case QueuectlError() | Snapshot():
                    pass
                case error:
                    raise error
