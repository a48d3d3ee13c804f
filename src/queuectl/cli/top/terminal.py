"""A terminal through curses: draws only what has changed, tells which keys were pressed, and is left as it was."""

from __future__ import annotations

import curses
import os
import select
import signal
import sys
import termios
from collections.abc import Sequence
from types import FrameType, TracebackType

from queuectl.cli.render import COLOURS
from queuectl.cli.top.text_layout import Line
from queuectl.errors import InvalidInput

INSTEAD = "see the queue with queuectl status --watch"
ESCAPE_WITHIN = "100"  # milliseconds in which the rest of a key's sequence must come; after that it was Esc
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEYS = {
    curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_LEFT: "left", curses.KEY_RIGHT: "right",
    curses.KEY_PPAGE: "pgup", curses.KEY_NPAGE: "pgdn", curses.KEY_HOME: "home", curses.KEY_END: "end",
    curses.KEY_ENTER: "enter", curses.KEY_BTAB: "backtab", curses.KEY_BACKSPACE: "backspace", curses.KEY_DC: "",
    "\n": "enter", "\r": "enter", "\t": "tab", "\x1b": "esc", "\x7f": "backspace", "\b": "backspace",
    "\x0c": "redraw", "\x15": "erase", "\x02": "pgup", "\x06": "pgdn", "\x10": "up", "\x0e": "down",
}  # fmt: skip
# For terminals that have nothing but ASCII.
PLAIN = str.maketrans("…↑↓▏▁▂▃▄▅▆▇█░", "~^v_..::++##-")


class Terminal:
    """Takes over the terminal while the block lasts. Wakes up for signals too, and if another thread says `wake`."""

    def __init__(self) -> None:
        self.ended_by = 0  # the signal that told us to leave
        self._spoilt = False  # others may have written on the screen
        self._ears, self._mouth = os.pipe()
        self._before: list[tuple[signal.Signals, object]] = []
        self._styles: dict[str, int] = {}
        for end in (self._ears, self._mouth):
            os.set_blocking(end, False)

    def __enter__(self) -> Terminal:
        _check()
        self._attributes = termios.tcgetattr(0)
        signal.set_wakeup_fd(self._mouth, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGWINCH, signal.SIGCONT):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self._before.append((number, signal.signal(number, self._heard)))
        os.environ.setdefault("ESCDELAY", ESCAPE_WITHIN)
        try:
            self._screen = curses.initscr()
            self._set_up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _set_up(self) -> None:
        curses.noecho()
        curses.cbreak()
        self._screen.keypad(True)
        self._screen.nodelay(True)
        self._screen.leaveok(True)
        try:
            curses.curs_set(0)
        except curses.error:  # a terminal that cannot hide it
            pass
        self._encoding = self._screen.encoding
        self._plain = self._encoding.lower().replace("-", "") != "utf8"
        self._choose_styles()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it as it was found."""
        try:
            curses.endwin()
            termios.tcsetattr(0, termios.TCSADRAIN, self._attributes)
        except (curses.error, termios.error):  # it is gone
            pass
        signal.set_wakeup_fd(-1)
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _choose_styles(self) -> None:
        """The sixteen colours that the terminal's owner has chosen, on his own background."""
        bold, dim, reverse = curses.A_BOLD, curses.A_DIM, curses.A_REVERSE
        self._styles = {"dim": dim, "title": bold, "key": bold, "bars": 0, "ask": bold,
                        "heads": curses.A_UNDERLINE, "tab": reverse | bold, "selected": reverse,
                        "alarm": bold}  # fmt: skip
        self._styles |= dict.fromkeys(COLOURS, 0)
        if os.environ.get("NO_COLOR") or not curses.has_colors():
            return
        curses.start_color()
        curses.use_default_colors()
        for state, code in COLOURS.items():
            colour = int(code) - 30 if int(code) < 90 else int(code) - 82
            self._styles[state] = self._colour(colour) if colour < curses.COLORS else dim
        self._styles |= {"bars": self._colour(2), "alarm": self._colour(1) | bold, "ask": self._colour(3) | bold,
                         "key": self._colour(6) | bold}  # fmt: skip

    def _colour(self, number: int) -> int:
        try:
            curses.init_pair(number + 1, number, -1)
            return curses.color_pair(number + 1)
        except curses.error:
            return 0

    # -- showing -----------------------------------------------------------------------------------------

    def size(self) -> tuple[int, int]:
        """Columns and rows, as they are now."""
        try:
            columns, rows = os.get_terminal_size(1)
        except OSError:
            columns, rows = 0, 0
        if columns and rows and self._screen.getmaxyx() != (rows, columns):
            curses.resizeterm(rows, columns)
        rows, columns = self._screen.getmaxyx()
        return columns, rows

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these. What stands there already is not sent again."""
        for row, line in enumerate(lines):
            fill = self._styles.get(line.fill, 0)
            try:
                self._screen.move(row, 0)
                self._screen.clrtoeol()  # also what a misjudged character has pushed over the edge above
                if fill:
                    self._screen.chgat(row, 0, -1, fill)
            except curses.error:  # it has become smaller meanwhile
                return
            for column, text, style in line.spans:
                # A selected row is one bar, without the colours in it.
                self._put(row, column, text, fill if line.fill == "selected" else fill | self._styles.get(style, 0))
        if self._spoilt:
            self._screen.redrawwin()
            self._spoilt = False
        self._screen.refresh()

    def _put(self, row: int, column: int, text: str, style: int) -> None:
        if self._plain:
            text = text.translate(PLAIN).encode(self._encoding, "replace").decode(self._encoding)
        try:
            self._screen.addstr(row, column, text, style)
        except curses.error:  # the last cell of the screen: it is drawn, but the cursor has nowhere to go
            pass

    def redraw(self) -> None:
        """Send everything again the next time, whatever stands there."""
        self._spoilt = True

    # -- listening ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """End the wait of the other thread."""
        try:
            os.write(self._mouth, b"\0")
        except OSError:  # full of such calls already, or closed
            pass

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys, news, a signal or this time to pass; the keys that were pressed."""
        ready, _, _ = select.select([0, self._ears], [], [], seconds)
        if self._ears in ready:
            os.read(self._ears, 4096)
        pressed = []
        while (key := self._key()) is not None:
            pressed.append(key)
        if 0 in ready and not pressed:
            self._check_line()
        return [KEYS.get(key, key if isinstance(key, str) else "") for key in pressed]

    def _key(self) -> str | int | None:
        try:
            return self._screen.get_wch()
        except curses.error:
            return None
        except (ValueError, OverflowError):  # bytes that are no character
            return ""

    def _check_line(self) -> None:
        """A terminal that is gone is always ready, and never has a key."""
        try:
            termios.tcgetattr(0)
        except termios.error:
            self.ended_by = self.ended_by or signal.SIGHUP

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if number in ENDING:
            self.ended_by = self.ended_by or number
        elif number == signal.SIGCONT:
            self._spoilt = True


def _check() -> None:
    """Refuse what cannot be drawn on, before anything is changed."""
    term = os.environ.get("TERM", "")
    if term in ("", "dumb"):
        raise InvalidInput(f"top cannot draw on this terminal (TERM={term or 'is not set'})", INSTEAD)
    try:
        curses.setupterm(term, sys.__stdout__.fileno())  # type: ignore[union-attr]
        able = curses.tigetstr("cup")
    except curses.error:
        able = None
    if not able:
        hint = f"try TERM=xterm queuectl top; or {INSTEAD}"
        raise InvalidInput(f'this machine does not know how to draw on a terminal called "{term}"', hint)
