"""Output for people: nothing acts on the terminal, and columns line up."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.cli import render
from queuectl.cli.render import (
    StatusLine,
    ago,
    emit_list,
    paint,
    percent,
    reported,
    table,
    terminal_width,
    visible,
    visible_lines,
)
from queuectl.system.times import plural

NOW = 1_800_000_000_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 60) -> Terminal:
    """Let standard output be a colour terminal from now on."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(render, "terminal_width", lambda stream=1: width)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


# -- control characters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本 🎉", "plain é 日本 🎉"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\0\x07\x7f\x9b", "\\x00\\x07\\x7f\\x9b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),  # right-to-left override
        ("\u200b\ufeff", "\\u200b\\ufeff"),
        ("\udcff", "\\udcff"),
        ("", ""),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_output_of_several_lines_keeps_its_line_ends_and_tabs_only() -> None:
    assert visible_lines("a\n\tb\x1b[2J\r\n\nc\0") == "a\n\tb\\x1b[2J\\r\n\nc\\x00"
    assert visible_lines("") == ""


@settings(deadline=None)
@given(st.text(st.characters()))
def test_no_text_can_act_on_a_terminal(text: str) -> None:
    assert visible(text).isprintable()
    assert all(c.isprintable() or c in "\n\t" for c in visible_lines(text))
    visible(text).encode()


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" ")))
def test_harmless_text_is_left_as_it_is(text: str) -> None:
    assert visible(text) == visible_lines(text) == text


# -- tables ----------------------------------------------------------------------------------------------


def test_columns_line_up_and_the_last_has_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    table(["Job ID", "N"], [["a", "1"], ["longer-id", "22"]])
    assert capsys.readouterr().out.splitlines() == ["Job ID     N", "a          1", "longer-id  22"]


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    table(["Job ID", "N"], [])
    assert capsys.readouterr().out == "Job ID  N\n"


def test_a_cell_cannot_break_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    table(["Command", "N"], [["echo a\necho b\x1b[2J", "1"]])
    assert capsys.readouterr().out.splitlines()[1:] == ["echo a\\necho b\\x1b[2J  1"]


def test_nothing_is_cut_or_coloured_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    table(["State", "Command"], [["dead", "x" * 500]], stretch=["Command"])
    assert capsys.readouterr().out.splitlines()[1] == "dead   " + "x" * 500


def test_on_a_terminal_the_long_column_is_shortened_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    table(["Job ID", "Command"], [["job1", "x" * 500], ["job2", "short"]], stretch=["Command"])
    _, first, second = terminal.getvalue().splitlines()
    assert first == "job1    " + "x" * 51 + "…"
    assert len(first) == 60
    assert second == "job2    short"


def test_a_column_in_the_middle_can_be_the_one_to_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    table(["A", "B", "C"], [["aaaa", "x" * 500, "cccc"]], stretch=["B"])
    row = terminal.getvalue().splitlines()[1]
    assert len(row) == 60
    assert row.endswith("…  cccc")


def test_a_terminal_too_narrow_for_anything_still_shows_something(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch, width=5)
    table(["Job ID", "Command"], [["job1", "x" * 500]], stretch=["Command"])
    assert "x" * 11 + "…" in terminal.getvalue()


# -- colours ---------------------------------------------------------------------------------------------


def test_a_state_is_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    assert paint("dead", "31") == "\x1b[31mdead\x1b[0m"
    table(["State", "N"], [["dead", "1"]])
    header, row = terminal.getvalue().splitlines()
    assert header == "\x1b[1mState  N\x1b[0m"
    assert row == "\x1b[31mdead\x1b[0m   1"


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    on_a_terminal(monkeypatch)
    monkeypatch.setenv(variable, value)
    assert paint("dead", "31") == "dead"


def test_a_pipe_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert paint("dead", "31") == "dead"


def test_no_colour_is_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    assert paint("text", None) == "text"


# -- the rest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (None, "-"),
        (NOW, "now"),
        (NOW - 999, "now"),
        (NOW + 999, "now"),
        (NOW - 200_000, "3m 20s ago"),
        (NOW + 5000, "in 5s"),
    ],
)
def test_a_moment_is_told_from_now(moment: int | None, text: str) -> None:
    assert ago(moment, NOW) == text


def test_a_number_has_its_noun() -> None:
    assert [plural(n, "job") for n in (0, 1, 2000)] == ["0 jobs", "1 job", "2,000 jobs"]


def test_a_list_is_an_array_or_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    records: list[dict[str, object]] = [{"id": "a", "error": "é\n"}, {"id": "b", "error": None}]
    emit_list(records, jsonl=False)
    assert json.loads(capsys.readouterr().out) == records
    emit_list(records, jsonl=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == records


def test_where_there_is_no_terminal_there_is_a_width() -> None:
    assert terminal_width() > 0


def test_progress_is_shown_on_a_terminal_for_long_work_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for total, shown in ((10, False), (5000, True)):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        with render.Progress("Storing", total) as progress:
            progress.step(total)
        assert bool(screen.getvalue()) is shown
    assert "5,000 of 5,000" in screen.getvalue()


def test_progress_is_silent_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with render.Progress("Storing", 1_000_000) as progress:
        progress.step(500_000)
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("queue.db", "queue.db"),
        ("sqlite:///queue.db", "sqlite:///queue.db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me@host/db?schema=x", "postgresql://me@host/db?schema=x"),
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me:s@c:r@t@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?password=secret", "postgresql://host/db"),
        ("postgresql://host/db?user=me&password=secret&schema=x", "postgresql://host/db?user=me&schema=x"),
    ],
)
def test_a_password_is_never_shown(address: str, shown: str) -> None:
    assert render.without_password(address) == shown


# -- what runs say of themselves -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("progress", "shown"),
    [(0, "0%"), (40, "40%"), (2.3, "2.3%"), (33.333, "33.3%"), (99.96, "99.9%"), (99.99999, "99.9%"), (100, "100%")],
)
def test_progress_is_never_shown_as_more_than_it_is(progress: float, shown: str) -> None:
    assert percent(progress) == shown


def test_progress_and_message_in_a_few_words() -> None:
    assert reported(40, "halfway") == "40% halfway"
    assert reported(0, None) == "0%"
    assert reported(None, "halfway") == "halfway"
    assert reported(None, None) == ""


def test_a_status_line_changes_is_cut_and_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch, width=10)
    monkeypatch.setattr(sys, "stderr", screen)
    with StatusLine() as line:
        line.show("")
        line.show("one")
        line.show("one")
        line.show("\x1b[2J and much more")
    assert screen.getvalue().split("\r\x1b[K") == ["", "one", "\\x1b[2J …", ""]


@pytest.mark.parametrize("what", ["a pipe", "a dumb terminal"])
def test_there_is_no_status_line_where_none_can_be_erased(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    screen = on_a_terminal(monkeypatch)
    if what == "a pipe":
        screen.isatty = lambda: False  # type: ignore[method-assign]
    monkeypatch.setenv("TERM", "dumb" if what == "a dumb terminal" else "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with StatusLine() as line:
        line.show("one")
    assert screen.getvalue() == ""
