"""A log on a page: whole, in parts, and as it grows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from queuectl.jobs import log_files
from queuectl.jobs.model import Event
from queuectl.web import ansi, log_pages
from queuectl.web.http_errors import Malformed
from queuectl.web.log_pages import LONGEST_LINE, MOST_LINES, Cursor, Line, Part, after, at_end, from_line, from_place


class Tab:
    """What a browser does with the parts that it is given."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.anew = 0
        self.show(at_end(path, ()))

    def show(self, part: Part) -> None:
        self.lines, self.at = list(part.lines), str(part.cursor)

    def look(self) -> None:
        part = after(self.path, Cursor.read(self.at))
        if part is None:
            self.anew += 1
            self.show(at_end(self.path, ()))
        elif part.lines:
            self.lines = [line for line in self.lines if line.kind != "open"] + part.lines
        if part:
            self.at = str(part.cursor)


def texts(lines: list[Line]) -> list[tuple[int | None, str]]:
    return [(line.number, str(line.text).rstrip("\n")) for line in lines]


CHUNKS = st.lists(
    st.sampled_from(
        [b"a", b"\n", b"\r", b"\r\n", b"10%\r20%\r", b"\x1b[31m", b"\x1b[0m", b"\xc3\xa9", b"\xff", b"<b>", b"\n\n",
         b"x" * 30, "é".encode() * 30, b"\n--- START x ---\n"]
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


@given(st.lists(CHUNKS.map(b"".join), min_size=1, max_size=6))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whoever_follows_sees_what_a_reader_of_the_whole_sees(tmp_path: Path, chunks: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_pages, "LONGEST_LINE", 50)
        follow(tmp_path, chunks)


def follow(tmp_path: Path, chunks: list[bytes]) -> None:
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    tab = Tab(str(path))
    for chunk in chunks:
        with path.open("ab") as file:
            file.write(chunk)
        tab.look()
        tab.look()  # the second time there is nothing new
    assert tab.anew == 0
    assert texts(tab.lines) == texts(at_end(str(path), ()).lines)


def test_the_last_lines_have_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    part = at_end(str(path), ())
    assert texts(part.lines)[0] == (5001 - MOST_LINES, f"line {5001 - MOST_LINES}")
    assert texts(part.lines)[-1] == (5000, "line 5000")
    earlier = from_line(str(path), 17)
    assert texts(earlier.lines)[0] == (17, "line 17")
    assert len(earlier.lines) == MOST_LINES
    assert earlier.more
    assert earlier.cursor.line == 17 + MOST_LINES
    assert from_line(str(path), 4999).lines[-1].number == 5000
    assert not from_line(str(path), 4999).more
    assert from_line(str(path), 5001).lines == part.lines  # there is no such line


def test_a_large_log_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes((b"x" * 999 + b"\n") * 4000)
    largest = 0
    pread = os.pread

    def watched(file: int, size: int, at: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return pread(file, size, at)

    monkeypatch.setattr(os, "pread", watched)
    part = at_end(str(path), ())
    assert [part.lines[0].number, part.lines[-1].number] == [4001 - 524, 4000]
    from_line(str(path), 2000)
    assert 0 < largest <= log_pages.MOST_BYTES


def test_a_line_without_end_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" + "é".encode() * (LONGEST_LINE - 1) + b"\nnext\n")
    lines = texts(at_end(str(path), ()).lines)
    assert [number for number, _ in lines] == [1, None, 2]
    assert "".join(text for _, text in lines[:2]) == "x" + "é" * (LONGEST_LINE - 1)


LONG = {
    "text": b"0123456789" * 1_000_000,
    "accents": "é".encode() * 400_000,
    "colours": b"\x1b[31mred\x1b[0m" * 60_000,
    "written over": b"abc\r" * 150_000,
    "written over and long": b"abc\r" * 150_000 + b"x" * 600_000 + b"abc\r" * 150_000,
}


@pytest.mark.parametrize("end", [b"", b"\n", b"\n--- END x ---\n"], ids=["no end", "last", "with a mark"])
@pytest.mark.parametrize("line", LONG.values(), ids=LONG.keys())
def test_the_end_of_a_line_that_is_too_long_is_shown(tmp_path: Path, line: bytes, end: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"--- START x ---\n" + line + end)
    part = at_end(str(path), ())
    mark, *shown = part.lines
    assert (mark.number, mark.kind) == (2, "cut")
    left_out = int("".join(filter(str.isdigit, mark.text)))
    assert len(line) - log_pages.MOST_BYTES <= left_out <= len(line) - log_pages.MOST_BYTES + 100
    if b"END" in end:
        assert shown.pop() == Line(3, Markup("--- END x ---"), "bound")
    assert {line.number for line in shown} == {None}
    text = "".join(line.text.striptags() for line in shown)
    assert text.endswith(seen(line)[-3:])
    if b"\r" not in line:
        assert text == seen(line[left_out:])


@pytest.mark.parametrize("line", LONG.values(), ids=LONG.keys())
def test_a_line_that_is_too_long_can_be_read_to_its_end(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + line + b"\nthird\n")
    part = from_line(str(path), 1)
    parts = [part]
    while part.more:
        at = Cursor.read(str(part.cursor))
        part = from_place(str(path), at) if at.inside else from_line(str(path), at.line)
        assert part.lines
        assert part.cursor.start > at.start
        parts.append(part)
    lines = [line for part in parts for line in part.lines]
    assert [line.number for line in lines if line.number] == [1, 2, 3]
    text = "".join(line.text.striptags() for line in lines[1:-1])
    assert text.endswith(seen(line)[-3:])
    if b"\r" not in line:
        assert text == seen(line)
    assert text.count("x") >= line.count(b"x") - LONGEST_LINE  # the last piece was written over


def seen(line: bytes) -> str:
    return str(ansi.painted(line.decode())[0].striptags())


def test_a_place_in_a_log_that_is_another_one_now_is_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1_000_000)
    part = from_line(str(path), 1)
    assert part.cursor.inside
    path.write_bytes(b"y" * 900_000 + b"\nthe end\n")
    assert from_place(str(path), part.cursor).lines[-1].text == "the end"


def test_a_log_whose_middle_was_cut_is_shown_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(1000)))
    tab = Tab(str(path))
    path.write_bytes(b"line 0\n" + log_files.CUT_MARK % 17 + b"line 999\n")
    tab.look()
    assert tab.anew == 1
    assert texts(tab.lines) == texts(at_end(str(path), ()).lines)
    # It may have grown beyond where we were before we look again.
    path.write_bytes(b"line 0\n" + log_files.CUT_MARK % 9999 + b"".join(b"other %d\n" % n for n in range(1000)))
    tab.look()
    assert tab.anew == 2
    assert texts(tab.lines)[-1][1] == "other 999"


def test_who_falls_far_behind_goes_on_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n")
    tab = Tab(str(path))
    with path.open("ab") as file:
        file.write(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    tab.look()
    assert tab.lines[-1].number == 20_002
    assert len(tab.lines) == MOST_LINES


def test_a_progress_bar_is_not_read_from_its_beginning_each_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[32m" + b"".join(b"%d%%\r" % n for n in range(5000)))
    part = at_end(str(path), ())
    assert texts(part.lines) == [(1, '<span class="f2">4999%</span>')]
    assert part.cursor.start == path.stat().st_size - len(b"4999%\r")
    assert part.cursor.sgr == "32"


def test_runs_that_printed_nothing_are_told_and_not_numbered(tmp_path: Path) -> None:
    path = tmp_path / "log"
    printed = log_files.start_mark(3000, 2, "w") + b"hello\n" + log_files.end_mark(4000, "0", 1000)
    path.write_bytes(printed)
    history = [
        Event(1000, "processing", 1, "w", "started", "started"),
        Event(2000, "failed", 1, "w", "run_ended", "exit code 1", "exited", exit_code=1, duration_ms=1000),
        Event(3000, "processing", 2, "w", "started", "started"),
        Event(4000, "completed", 2, "w", "run_ended", "exit code 0", "exited", exit_code=0, duration_ms=1000),
    ]
    part = at_end(str(path), history)
    assert [(line.number, line.kind) for line in part.lines] == [
        (None, "silent"), (None, "silent"), (1, "bound"), (2, ""), (3, "bound"),
    ]  # fmt: skip
    assert "rc=1" in part.lines[1].text
    assert part.cursor.seen == len(printed)
    nothing = at_end(str(tmp_path / "none"), history[:2])
    assert [line.kind for line in nothing.lines] == ["silent", "silent"]


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "log").symlink_to(tmp_path / "secret")
    part = at_end(str(tmp_path / "log"), ())
    assert part.lines == []
    assert part.trouble


@pytest.mark.parametrize("text", ["", "1", "1.2.3.4.5", "a.1.1.0.1.", "-1.1.1.0.1.", "1.1.1.0.9999999999999999999."])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        Cursor.read(text)


def test_a_place_far_behind_the_end_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\n")
    assert after(str(tmp_path / "log"), Cursor.read("999999999.4.7.0.1.31-1")) is None
    proof = at_end(str(tmp_path / "log"), ()).cursor.proof
    assert after(str(tmp_path / "log"), Cursor.read(f"999999999.4.7.0.{proof}.31")) == Part(
        [], Cursor(999999999, 4, 7, 0, proof, "31")
    )
