"""`top` in a real terminal: what is seen there, what its keys do to the queue, and that it is left as it was."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pyte
import pytest

from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import QUEUECTL, UNTIL_GO, Cli, kill, lines_in, on_sqlite, refused
from tests.postgres import Server

COLOURS = re.compile(rb"\x1b\[[0-9;]*\b(3[0-7]|9[0-7])(;[0-9;]*)?m")
ENTER, ESCAPE, CTRL_C, CTRL_Z, END = "\r", "\x1b", "\x03", "\x1a", "\x1b[4~"


class Top:
    """A person in front of a terminal in which `queuectl top` runs."""

    def __init__(
        self,
        q: Cli,
        *args: str,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        shell: str = "",
    ) -> None:
        self.sent = b""
        self._master, self.terminal = os.openpty()
        self._emulator = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._emulator)
        self.resize(columns, rows)
        self.attributes = termios.tcgetattr(self.terminal)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *(["bash", "-c", shell] if shell else [QUEUECTL, "top", *args])],
            stdin=self.terminal,
            stdout=self.terminal,
            stderr=self.terminal,
            env={**q.env, "TERM": "screen", "LC_ALL": "C.UTF-8", **(env or {})},
            cwd=q.folder,
        )

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._emulator.resize(rows, columns)

    def press(self, keys: str | bytes) -> None:
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def look(self) -> str:
        """What stands on the screen now."""
        while select.select([self._master], [], [], 0)[0]:
            data = os.read(self._master, 65536)
            self.sent += data
            self._stream.feed(data)
        return "\n".join(line.rstrip() for line in self._emulator.display)

    def shows(self, *texts: str) -> str:
        """Wait until all of these stand there; the screen then."""
        try:
            return eventually(lambda: screen if all(text in (screen := self.look()) for text in texts) else "")
        except AssertionError:
            raise AssertionError(f"{texts} not on the screen:\n{self.look()}") from None

    def no_longer_shows(self, text: str) -> str:
        return eventually(lambda: screen if text not in (screen := self.look()) else "", f"{text} gone")

    def row(self, text: str) -> str:
        """The line with this text, once there is one."""
        return next(line for line in self.shows(text).splitlines() if text in line)

    def ends(self) -> int:
        eventually(lambda: (self.look(), self.process.poll() is not None)[1], "top has ended")
        self.look()
        return self.process.returncode

    def is_left_as_it_was(self) -> None:
        assert termios.tcgetattr(self.terminal) == self.attributes
        on, off = self.sent.rfind(b"\x1b[?1049h"), self.sent.rfind(b"\x1b[?1049l")
        assert 0 <= on < off, "the other screen has been left"
        hidden, visible = self.sent.rfind(b"\x1b[?25l"), self.sent.rfind(b"\x1b[?25h")
        assert 0 <= hidden < visible, "the cursor is to be seen again"

    def hang_up(self) -> None:
        os.close(self._master)
        os.close(self.terminal)

    def close(self) -> None:
        kill(self.process.pid)
        self.process.wait(DEADLINE)
        for end in (self._master, self.terminal):
            try:
                os.close(end)
            except OSError:  # hung up before
                pass


Open = Callable[..., Top]


@pytest.fixture
def top(q: Cli) -> Iterator[Open]:
    """Open a terminal with `top` in it."""
    opened: list[Top] = []

    def open(*args: str, **how: object) -> Top:
        opened.append(Top(q, *args, **how))  # type: ignore[arg-type]
        return opened[-1]

    yield open
    for each in opened:
        each.close()


# -- looking and acting ----------------------------------------------------------------------------------


def test_a_running_job_is_shown_and_cancelled(working: Cli, top: Open) -> None:
    id = working.enqueue(f"echo started; {UNTIL_GO}")
    working.until(id, "processing")
    screen = top()
    row = screen.row(id)
    assert UNTIL_GO[:10] in row
    assert working.worker()["id"] in row
    screen.shows("1/1 busy", "processing 1", "c cancel")
    screen.press("c")
    screen.shows(f"Cancel job {id}, ending its processes?", "y yes")
    assert working.state(id) == "processing"
    screen.press("y")
    eventually(lambda: re.search(f"Job {id} (is being )?cancelled", screen.look()), "a note")
    screen.shows("Nothing is running.")
    assert working.state(id) == "cancelled"
    screen.press("4")
    assert "cancelled" in screen.row(id)


def test_nothing_happens_on_no(working: Cli, top: Open) -> None:
    id = working.enqueue(UNTIL_GO)
    screen = top()
    screen.shows(id)
    screen.press("cn")
    screen.shows("q quit")
    screen.press("?")
    screen.shows("draw everything anew")
    assert working.state(id) == "processing"


def test_a_dead_job_is_retried(working: Cli, top: Open) -> None:
    id = working.enqueue("test -e go || exit 3", max_retries=1)
    working.until(id, "dead")
    (working.folder / "go").touch()
    screen = top()
    screen.press("3")
    assert "exit code 3" in screen.row(id)
    screen.press("r")
    screen.shows(f"Run dead job {id} again?")
    screen.press("y")
    screen.shows(f"Job {id} is pending again.", "Nothing has failed.")
    working.until(id, "completed")


def test_an_order_given_just_before_the_end_is_carried_out(working: Cli, top: Open) -> None:
    id = working.enqueue(UNTIL_GO)
    working.until(id, "processing")
    screen = top()
    screen.shows(id)
    screen.press("cyq")
    assert screen.ends() == 0
    working.until(id, "cancelled")
    assert re.search(f"Job {id} (is being )?cancelled", screen.sent.decode())


def test_what_the_store_refuses_is_said_in_one_line(q: Cli, top: Open) -> None:
    id = q.enqueue("true")
    screen = top("--interval", "1000000")  # it must not notice by itself
    screen.press("2")
    screen.shows(id)
    q.ok("cancel", id)
    screen.press("cy")
    screen.shows(f'Not done: job "{id}" is already cancelled. (only')


def test_a_log_is_shown_and_followed(working: Cli, top: Open) -> None:
    id = working.enqueue(f"seq 100; {UNTIL_GO}; echo the end")
    lines_in(working.logs / f"job_{id}.log", 101)
    screen = top()
    screen.shows(id)
    screen.press("l")
    text = screen.shows(f"Log of {id}", "following", "\n100")
    assert "\n50\n" not in text
    (working.folder / "go").touch()
    screen.shows("the end", "--- END")
    screen.press("q")
    screen.shows("Nothing is running.")


def test_the_page_of_a_job_explains_it(q: Cli, top: Open) -> None:
    id = q.enqueue("echo hello", priority=7)
    screen = top()
    screen.shows("1 job cannot run without a worker", "queuectl worker start")
    screen.press("2")
    assert "a worker" in screen.row(id)
    screen.press(ENTER)
    screen.shows(f"Job {id}", "priority 7", "No worker is running. Start one: queuectl worker start")
    q.ok("worker", "start")
    screen.shows("completed", "Its last output", "hello")
    screen.press(ESCAPE)
    screen.shows("Nothing waits.")


def test_what_waits_is_shown_in_the_order_in_which_it_will_run(q: Cli, top: Open) -> None:
    q.batch(*({"id": f"j{n:04d}", "command": "true"} for n in range(400)))
    q.enqueue("true", id="urgent", priority=5)
    screen = top()
    screen.press("2")
    text = screen.shows("urgent", "1 of 401")
    assert text.index("urgent") < text.index("j0000") < text.index("j0001")
    screen.press(END)
    screen.shows("j0298", "300 of 401")
    screen.press("/j0123" + ENTER)
    screen.shows("j0123", "/j0123", "Esc all")
    assert "j0124" not in screen.look()


def test_what_failed_last_is_shown_first_however_old_the_job_is(working: Cli, top: Open) -> None:
    last = working.enqueue(f"{UNTIL_GO}; exit 1", max_retries=1)
    others = working.batch(*[{"command": "exit 1", "max_retries": 1, "queue": "other"}] * 60)
    working.ok("worker", "start", "--queue", "other", "--concurrency", "4")
    working("wait", *others)
    (working.folder / "go").touch()
    working.until(last, "dead")
    screen = top()
    screen.press("3")
    screen.shows("1 of 61", last)
    assert last in screen.look().splitlines()[4]


def test_queues_and_workers_are_shown(working: Cli, top: Open) -> None:
    working.batch(*({"command": "true", "queue": queue, "run_at": "2040-01-01T00:00:00Z"} for queue in ("a", "b")))
    screen = top()
    screen.press("5")
    screen.shows("\n a ", "\n b ", "Pending")
    screen.press("6")
    assert "idle" in screen.row(working.worker()["id"])


def test_the_pace_is_shown(working: Cli, top: Open) -> None:
    screen = top("--interval", "0.2")
    screen.shows("0 jobs/min")
    working.ok("enqueue", "--lines", "-", stdin="true\n" * 50)
    screen.shows("completed 50")
    eventually(lambda: re.search(r" [1-9][\d.,]* jobs/(s|min)", screen.look()), "a pace")


def test_no_text_of_a_job_acts_on_the_terminal(q: Cli, top: Open) -> None:
    q.batch(
        {"id": "evil", "command": "echo \x1b[2J\x1b]0;owned\x07 \x9b31m 日本 🎉", "run_at": "2040-01-01T00:00:00Z"}
    )
    screen = top(columns=120)
    screen.press("2")
    row = screen.row("evil")
    assert "\\x1b[2J\\x1b]0;owned\\x07" in row
    screen.press(ENTER)
    screen.shows("Command", "\\x1b]0;owned")
    assert b"\x1b]0;" not in screen.sent
    assert b"\x9b31m" not in screen.sent.replace(b"\xc2\x9b", b"")


# -- the terminal ----------------------------------------------------------------------------------------


def test_the_size_may_change_at_any_time(working: Cli, top: Open) -> None:
    id = working.enqueue(UNTIL_GO)
    screen = top()
    screen.shows(id, "Worker", "Tab next pane")
    screen.resize(40, 10)
    text = screen.shows(id, "2 Wait", "q quit")
    assert "Worker" not in text
    screen.resize(1, 1)
    screen.resize(200, 60)
    assert UNTIL_GO in screen.row(id)
    assert screen.process.poll() is None


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (40, 10), (200, 60)], ids=str)
def test_it_starts_at_any_size(working: Cli, top: Open, size: tuple[int, int]) -> None:
    working.enqueue(UNTIL_GO)
    screen = top(columns=size[0], rows=size[1])
    eventually(lambda: [screen.look()] and b"\x1b[H" in screen.sent, "something is drawn")
    screen.press("2q")
    assert screen.ends() == 0
    screen.is_left_as_it_was()


def test_keys_that_make_no_sense_do_nothing(q: Cli, top: Open) -> None:
    screen = top()
    screen.shows("No jobs yet")
    screen.press(b"\xf7\xbf\xbf\xbf\xff\xfe\x00\x1b[99~\x1bO\x1b[<0;1;1M\xe2\x82" + bytes(range(128, 256)))

    def answers() -> bool:
        screen.press("2")  # more than once: half a character takes the next keys with it
        return "Waits for" in screen.look()

    eventually(answers, "keys that do make sense work")


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("q", 0),
        (CTRL_C, 130),
        (signal.SIGINT, 130),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
    ],
    ids=["q", "Ctrl-C", "SIGINT", "SIGTERM", "SIGHUP"],
)
def test_the_terminal_is_left_as_it_was(q: Cli, top: Open, ending: str | signal.Signals, code: int) -> None:
    screen = top()
    screen.shows("No jobs yet")
    assert termios.tcgetattr(screen.terminal) != screen.attributes  # it was changed, so that the test means something
    if isinstance(ending, str):
        screen.press(ending)
    else:
        screen.process.send_signal(ending)
    assert screen.ends() == code
    screen.is_left_as_it_was()
    assert b"Error" not in screen.sent


@on_sqlite
@pytest.mark.parametrize(
    "bug",
    [
        "import queuectl.cli.top.screen as s; s.EMPTY = {}",
        "from queuectl.store.views import Views; Views.explain = None",
    ],
    ids=["drawing", "reading"],
)
def test_the_terminal_is_left_as_it_was_by_a_bug(q: Cli, top: Open, bug: str) -> None:
    id = q.enqueue("true")
    (q.folder / "sitecustomize.py").write_text(bug)
    screen = top(env={"PYTHONPATH": str(q.folder)})
    if "explain" in bug:
        screen.press("2")
        screen.shows(id)
        screen.press(ENTER)
    assert screen.ends() == 1
    screen.is_left_as_it_was()
    assert "this is a bug in queuectl" in screen.look()


def test_it_ends_with_its_terminal(q: Cli, top: Open) -> None:
    screen = top()
    screen.shows("No jobs yet")
    screen.hang_up()
    assert screen.process.wait(DEADLINE) == -signal.SIGHUP


def test_after_ctrl_z_it_goes_on(q: Cli, top: Open) -> None:
    screen = top(shell=f"set -m; {QUEUECTL} top --interval 0.2" + "; read word; fg" * 3)
    screen.shows("No jobs yet")
    for number in range(3):
        screen.press(CTRL_Z)
        eventually(lambda: termios.tcgetattr(screen.terminal) == screen.attributes, "the shell has the terminal")
        stopped = time.monotonic()
        eventually(lambda since=stopped: time.monotonic() > since + 0.5, "longer than two looks")  # type: ignore[misc]
        screen.press("go on\n")
        q.enqueue("true")
        screen.shows(f"pending {number + 1}")


def test_little_is_sent_when_little_changes(working: Cli, top: Open) -> None:
    ids = working.batch(*[{"command": UNTIL_GO}] * 15)
    screen = top()
    screen.shows(ids[0], "pending 14")
    screen.press("2")
    screen.shows(ids[-1], "a free slot")
    already, since = len(screen.sent), time.monotonic()
    for _ in range(3):
        screen.no_longer_shows(re.findall(r"\d\d:\d\d:\d\d", screen.look())[0])
    a_second = (len(screen.sent) - already) / (time.monotonic() - since + 3)
    assert 0 < a_second < 400  # the screen has 1,920 characters


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["colour", "NO_COLOR"])
def test_colours_are_those_of_the_terminal_and_can_be_left_out(
    q: Cli, top: Open, env: dict[str, str], coloured: bool
) -> None:
    q.enqueue("true")
    screen = top(env={"TERM": "screen-256color", **env})
    screen.shows("pending 1")
    assert bool(COLOURS.search(screen.sent)) is coloured
    assert b"38;5" not in screen.sent


@on_sqlite
def test_a_terminal_without_unicode_gets_plain_characters(q: Cli, top: Open) -> None:
    q.enqueue("echo é日本", run_at="2040-01-01T00:00:00Z")
    screen = top(env={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, columns=60)
    screen.press("2")
    assert "echo ???" in screen.row("echo")
    screen.look()
    assert all(byte < 128 for byte in screen.sent)


# -- trouble ---------------------------------------------------------------------------------------------


@on_sqlite
def test_a_lost_file_is_said_and_waited_for(q: Cli, top: Open) -> None:
    id = q.enqueue("true")
    screen = top("--interval", "0.2")
    screen.press("2")
    screen.shows(id)
    away = q.db.with_name("away.db")
    q.db.rename(away)
    text = screen.shows("Trying again: ")
    assert id in text  # what was known stays
    assert not q.db.exists()  # looking makes nothing
    away.rename(q.db)
    screen.no_longer_shows("Trying again: ")
    screen.press("q")
    assert screen.ends() == 0


@on_sqlite
def test_another_queue_in_its_place_is_shown(q: Cli, top: Open) -> None:
    q.enqueue("true", id="first")
    screen = top("--interval", "0.2")
    screen.press("2")
    screen.shows("first")
    for file in q.db.parent.glob("queue.db*"):
        if file.is_file():
            file.rename(file.with_name(f"old-{file.name}"))
    q.enqueue("true", id="second")
    screen.shows("second")
    screen.no_longer_shows("first")


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_a_lost_server_is_said_and_waited_for(q: Cli, top: Open, tmp_path: Path) -> None:
    with Server.start(tmp_path / "server") as server:
        away = Cli(q.folder, server.url())
        id = away.enqueue("true")
        screen = Top(away, "--interval", "0.2")
        try:
            screen.press("2")
            screen.shows(id)
            server.stop("immediate")
            screen.press("3")  # keys work although nobody answers
            screen.shows("3 Failed")
            screen.shows("Trying again: ")
            server.resume()
            screen.no_longer_shows("Trying again: ")
            screen.press("2q")
            assert screen.ends() == 0
            screen.is_left_as_it_was()
        finally:
            screen.close()


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_keys_are_answered_while_the_database_is_not(q: Cli, top: Open) -> None:
    id = q.enqueue("true")
    screen = top("--interval", "0.2")
    screen.press("2")
    screen.shows(id)
    address, _, schema = q.url.partition("?schema=")
    with psycopg.connect(address) as connection:
        connection.execute(f"LOCK TABLE {schema}.jobs, {schema}.workers IN ACCESS EXCLUSIVE MODE".encode())
        screen.shows("Waiting: the database does not answer")
        screen.press("?")
        assert "Waiting: " in screen.shows("draw everything anew") or "Trying again: " in screen.look()
        screen.press("q")
        screen.shows(id)
        connection.rollback()
        screen.shows("no workers")  # the header is as usual
        connection.execute(f"LOCK TABLE {schema}.jobs, {schema}.workers IN ACCESS EXCLUSIVE MODE".encode())
        screen.shows("Waiting: ")
        screen.press("q")
        assert screen.ends() == 0


def test_without_a_terminal_it_says_what_to_use_instead(q: Cli) -> None:
    refused(q("top"), 2, "needs a terminal", "queuectl status --watch", "queuectl status --json")


@on_sqlite
def test_its_input_must_be_a_terminal_too(q: Cli) -> None:
    seen = q.shell("true | script -qec 'queuectl top < /dev/null' /dev/null").out
    assert "needs a terminal" in seen
    assert "\x1b[?1049h" not in seen


@on_sqlite
@pytest.mark.parametrize("term", ["dumb", "", "no-such-terminal", "glasstty"])
def test_a_terminal_that_cannot_be_drawn_on_is_refused_kindly(q: Cli, top: Open, term: str) -> None:
    screen = top(env={"TERM": term}, columns=200)
    assert screen.ends() == 2
    assert re.match(r"Error: .* Hint: .*queuectl status --watch$", screen.look(), re.MULTILINE)
    assert termios.tcgetattr(screen.terminal) == screen.attributes
    assert b"\x1b[?1049h" not in screen.sent


@on_sqlite
def test_a_python_without_curses_is_told_what_to_use(q: Cli, top: Open) -> None:
    (q.folder / "curses.py").write_text("raise ModuleNotFoundError('none here', name='_curses')")
    screen = top(env={"PYTHONPATH": str(q.folder)})
    assert screen.ends() == 2
    assert "built without curses" in screen.look()


@on_sqlite
def test_it_does_not_look_too_often(q: Cli) -> None:
    refused(q("top", "--interval", "0.1"), 2, "--interval")


def test_a_queue_that_cannot_be_opened_is_an_error_as_elsewhere(q: Cli, top: Open) -> None:
    screen = top("--db", str(q.folder))
    assert screen.ends() == 5
    assert "is a folder" in screen.look()
