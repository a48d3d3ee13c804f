"""What a run prints: bounded on disk and in memory, with an honest mark where something is missing."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.jobs import log_files
from queuectl.settings import SETTINGS
from queuectl.worker.output import Output, RunLog
from tests.unit.conftest import limited

START = b"--- START now attempt=1 worker=w1 ---\n"
END = b"--- END now rc=0 duration=0.001s ---\n"
SMALLEST = int(SETTINGS["log_max_bytes"].at_least)
CUT_BEGINS, CUT_ENDS = log_files.CUT_MARK.split(b"%15d")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job_x.log"


def a_run(log: Path, data: bytes, limit: int = SMALLEST, chunk: int = 65536) -> bytes:
    """Write one run's output in pieces; what lies between its marks afterwards."""
    before = log.read_bytes() if log.exists() else b""
    run = RunLog(str(log), START, limit)
    for at in range(0, len(data), chunk):
        run.write(data[at : at + chunk])
    run.close(END)
    written = log.read_bytes()
    assert written.startswith(before + START)
    assert written.endswith(END)
    return written[len(before + START) : -len(END)]


def cut_open(body: bytes) -> tuple[bytes, int, bytes]:
    """The start, how many bytes are said to be missing, and the end."""
    start, _, rest = body.partition(CUT_BEGINS)
    number, _, end = rest.partition(CUT_ENDS)
    return start, int(number), end


def numbered(size: int) -> bytes:
    """Output in which every place is different, and no line is a mark."""
    return b"".join(b"%07d\n" % n for n in range(size // 8 + 1))[:size]


# -- the run's part of the log ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 8, SMALLEST - 8, SMALLEST])
def test_output_within_the_limit_is_kept_whole(log: Path, size: int) -> None:
    body = a_run(log, numbered(size))
    assert body == numbered(size) + (b"\n" if size % 8 else b"")


def test_a_run_that_ends_in_the_middle_of_a_line_gets_its_mark_on_a_line_of_its_own(log: Path) -> None:
    assert a_run(log, b"no newline") == b"no newline\n"


def test_beyond_the_limit_the_start_and_the_end_are_kept_and_the_cut_is_marked(log: Path) -> None:
    data = numbered(10 * SMALLEST)
    start, missing, end = cut_open(a_run(log, data))
    assert start == data[: SMALLEST // 2]
    assert end.startswith(data[len(start) + missing :])
    assert len(end) >= SMALLEST // 4


def test_one_byte_too_many_is_enough_for_a_cut(log: Path) -> None:
    start, missing, end = cut_open(a_run(log, numbered(SMALLEST) + b"\n"))
    assert len(start) + missing + len(end) == SMALLEST + 1


def test_every_log_is_bounded_and_its_cut_tells_exactly_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "job_h.log"

    @settings(deadline=None, max_examples=150)
    @given(st.integers(0, 40_000), st.integers(SMALLEST, 5000), st.sampled_from([7, 100, 1023, 4096, 65536]))
    def check(size: int, limit: int, chunk: int) -> None:
        log.unlink(missing_ok=True)
        data = numbered(size)
        body = a_run(log, data, limit, chunk).removesuffix(b"\n")
        assert len(body) <= limit
        if size <= limit:
            assert body == data.removesuffix(b"\n")
            return
        start, missing, end = cut_open(body)
        assert start == data[: limit // 2]
        assert end == data[len(start) + missing :].removesuffix(b"\n")

    check()


def test_the_file_never_passes_its_bound_not_even_in_between(tmp_path: Path) -> None:
    log = tmp_path / "job_p.log"

    @settings(deadline=None, max_examples=30)
    @given(st.integers(SMALLEST, 3 * SMALLEST), st.lists(st.integers(1, 3000), max_size=20))
    def check(limit: int, sizes: list[int]) -> None:
        log.unlink(missing_ok=True)
        run = RunLog(str(log), START, limit)
        for size in sizes:
            run.write(b"x" * size)
            assert log.stat().st_size <= len(START) + limit
        run.close(END)
        assert log.stat().st_size <= len(START) + limit + 1 + len(END)

    check()


def test_the_runs_of_a_job_append_to_one_log_and_each_has_its_own_limit(log: Path) -> None:
    first = a_run(log, numbered(SMALLEST))
    second = a_run(log, numbered(5 * SMALLEST))
    assert log.read_bytes() == START + first + END + START + second + END


def test_gigabytes_are_never_held_in_memory_or_on_disk(log: Path) -> None:
    """A hundred times the limit in one write: the file never passes its bound, even in between."""
    with limited(resource.RLIMIT_FSIZE, len(START) + SMALLEST + 1 + len(END)):
        body = a_run(log, numbered(100 * SMALLEST), chunk=1 << 30)
    _, missing, _ = cut_open(body)
    assert missing > 98 * SMALLEST


def test_nothing_is_written_through_a_planted_link(log: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    log.symlink_to(target)
    output = Output(lambda: RunLog(str(log), START, SMALLEST), 10)
    output.feed(0, b"hello")
    output.close(lambda: END)
    assert target.read_bytes() == b"precious"
    assert output.problem
    assert output.tail(0) == "hello"


def test_a_log_goes_on_when_the_cause_of_a_gap_is_gone(log: Path) -> None:
    output = Output(lambda: RunLog(str(log), START, SMALLEST), 100)
    output.feed(0, b"one\n")
    with limited(resource.RLIMIT_NOFILE, 3):
        output.flush()
    output.feed(0, b"two\n")
    output.close(lambda: END)
    gap = b"\n--- LOST here: output that could not be written (Too many open files) ---\n"
    assert log.read_bytes() == START + gap + b"two\n" + END
    assert output.tail(0) == "one\ntwo\n"


# -- a run's output as a whole ---------------------------------------------------------------------------


def an_output(log: Path, tail: int = 10) -> Output:
    return Output(lambda: RunLog(str(log), START, SMALLEST), tail)


def test_a_run_that_prints_nothing_makes_no_file(log: Path) -> None:
    output = an_output(log)
    output.flush()
    output.close(lambda: END)
    assert not log.exists()
    assert (output.tail(0), output.tail(1), output.problem) == ("", "", None)


def test_both_streams_go_to_the_log_in_the_order_they_came_and_have_tails_of_their_own(log: Path) -> None:
    output = an_output(log)
    for stream, data in ((0, b"out 1\n"), (1, b"err 1\n"), (0, b"out 2\n")):
        output.feed(stream, data)
    output.close(lambda: END)
    assert log.read_bytes() == START + b"out 1\nerr 1\nout 2\n" + END
    assert output.tail(0) == "t 1\nout 2\n"
    assert output.tail(1) == "err 1\n"


def test_what_was_flushed_can_be_read_while_the_run_goes_on(log: Path) -> None:
    output = an_output(log)
    output.feed(0, b"one\n")
    output.flush()
    assert log.read_bytes() == START + b"one\n"


def test_a_limit_of_nothing_keeps_no_tail(log: Path) -> None:
    output = an_output(log, tail=0)
    output.feed(0, b"hello")
    assert output.tail(0) == ""


@pytest.mark.parametrize(
    ("data", "tail"),
    [
        (b"a\0b", "a\ufffdb"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("é".encode()[:1], "\ufffd"),
        ("x" + "🎉" * 20 + "y", "🎉" * 9 + "y"),
        ("🎉" * 30_000 + "y", "🎉" * 9 + "y"),
    ],
)
def test_a_tail_is_text_whatever_was_printed(log: Path, data: bytes | str, tail: str) -> None:
    output = an_output(log)
    output.feed(0, data.encode() if isinstance(data, str) else data)
    assert output.tail(0) == tail


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.binary(max_size=50)
        | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))
        | st.integers(1, 40_000).map(lambda n: ("🎉é." * n).encode()[: n * 2]),
        max_size=8,
    ),
    st.integers(0, 3000),
)
def test_the_tail_is_the_last_characters_of_all_that_was_printed(chunks: list[bytes], limit: int) -> None:
    output = Output(lambda: RunLog("/nowhere/job_x.log", START, SMALLEST), limit)
    for chunk in chunks:
        output.feed(0, chunk)
    everything = b"".join(chunks).decode("utf-8", "replace").replace("\0", "\ufffd")
    assert output.tail(0) == (everything[-limit:] if limit else "")
    output.tail(0).encode()


# -- a disk that is full ---------------------------------------------------------------------------------


def test_a_log_that_cannot_be_written_is_a_note_and_no_error(log: Path) -> None:
    output = an_output(log)
    with limited(resource.RLIMIT_FSIZE, 0):
        output.feed(0, b"hello")
        output.flush()
        output.feed(0, b" again")
        output.close(lambda: END)
    assert output.problem
    assert output.tail(0) == "ello again"


def test_a_disk_that_fills_up_in_the_middle_keeps_what_fitted(log: Path) -> None:
    output = an_output(log)
    output.feed(0, b"one\n")
    output.flush()
    with limited(resource.RLIMIT_FSIZE, log.stat().st_size):
        output.feed(0, b"two\n")
        output.flush()
        output.close(lambda: END)
    assert output.problem
    assert log.read_bytes() == START + b"one\n"


def test_a_log_that_cannot_be_written_leaves_no_descriptor_open(log: Path) -> None:
    before = os.listdir("/proc/self/fd")
    output = an_output(log)
    with limited(resource.RLIMIT_FSIZE, 0):
        output.feed(0, b"hello")
        output.flush()
        output.close(lambda: END)
    assert os.listdir("/proc/self/fd") == before
