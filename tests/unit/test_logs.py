"""Job logs on disk: private, never through a link, read from the end, followed while they grow."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.errors import QueuectlError
from queuectl.jobs import log_files

NOW = 1_800_000_000_000


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows a log looks again at once."""
    monkeypatch.setattr(log_files, "FOLLOW_INTERVAL", 0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job_x.log"


def scripted(*steps: Callable[[], object]) -> Callable[[], bool]:
    """An `over` that lets something happen each time it is asked, and then says that nothing more will come."""
    left: Iterator[Callable[[], object]] = iter(steps)

    def over() -> bool:
        for step in left:
            step()
            return False
        return True

    return over


def append(log: Path, data: bytes) -> Callable[[], object]:
    return lambda: log_files.append(str(log), data)


# -- writing ---------------------------------------------------------------------------------------------


def test_a_log_lies_in_its_folder_under_the_jobs_name() -> None:
    assert log_files.path_of("/data/logs", "k3f9x2m7qa") == "/data/logs/job_k3f9x2m7qa.log"


def test_the_marks_are_those_of_the_contract() -> None:
    assert log_files.start_mark(NOW, 2, "w1") == b"--- START 2027-01-15T08:00:00.000Z attempt=2 worker=w1 ---\n"
    assert log_files.end_mark(NOW, "0", 1500) == b"--- END 2027-01-15T08:00:00.000Z rc=0 duration=1.500s ---\n"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_log_and_its_folder_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "logs" / "job_x.log"
    before = os.umask(umask)
    try:
        log_files.append(str(path), b"secret\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_appending_keeps_what_is_there(log: Path) -> None:
    log_files.append(str(log), b"one\n")
    log_files.append(str(log), b"two\n")
    assert log.read_bytes() == b"one\ntwo\n"


def test_a_planted_link_is_refused_and_its_target_left_alone(log: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    log.symlink_to(target)
    for act in (
        lambda: log_files.append(str(log), b"x"),
        lambda: log_files.read(str(log)),
        lambda: list(follow(log)),
    ):
        with pytest.raises((OSError, QueuectlError)):
            act()
    assert target.read_bytes() == b"precious"


def follow(log: Path, over: Callable[[], bool] = lambda: True, start: int = 0) -> Iterator[bytes]:
    return log_files.follow(str(log), start, over)


def test_a_link_to_nowhere_is_refused_too(log: Path, tmp_path: Path) -> None:
    log.symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="a symbolic link"):
        log_files.append(str(log), b"x")
    assert not (tmp_path / "new").exists()


def test_a_planted_pipe_is_refused_at_once(log: Path) -> None:
    os.mkfifo(log)
    with pytest.raises(OSError, match="not a regular file"):
        log_files.append(str(log), b"x")


def test_a_planted_pipe_does_not_keep_a_reader_waiting_for_ever(log: Path) -> None:
    os.mkfifo(log)
    code = (
        "import sys; from queuectl import logs; logs.read(sys.argv[1]); list(logs.follow(sys.argv[1], 0, lambda: 1))"
    )
    subprocess.run([sys.executable, "-c", code, log], capture_output=True, timeout=20)


def test_removing_takes_the_logs_that_are_there_and_nothing_behind_a_link(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    log_files.append(log_files.path_of(str(tmp_path), "a"), b"x")
    os.symlink(target, log_files.path_of(str(tmp_path), "b"))
    log_files.remove(str(tmp_path), ["a", "b", "never-ran"])
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


# -- reading ---------------------------------------------------------------------------------------------


def test_a_job_that_printed_nothing_has_no_log(log: Path) -> None:
    assert log_files.read(str(log)) == (b"", 0)
    assert log_files.read(str(log), tail=5) == (b"", 0)


@pytest.mark.parametrize(
    ("data", "tail", "shown"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 0, b""),
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"a\nb\nunfinished", 2, b"b\nunfinished"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"a\n" + b"x" * 200_000 + b"\nb\n", 2, b"x" * 200_000 + b"\nb\n"),
        (b"\xff\xfe\0\n\x1b[31m", 1, b"\x1b[31m"),
    ],
)
def test_the_tail_is_the_last_lines(log: Path, data: bytes, tail: int, shown: bytes) -> None:
    log.write_bytes(data)
    assert log_files.read(str(log), tail)[0] == shown


def test_the_tail_can_be_limited_to_so_many_bytes(log: Path) -> None:
    log.write_bytes(b"a\n" + b"x" * 1_000_000 + b"\nb\n")
    data, end = log_files.read(str(log), 100, most=300_000)
    assert (len(data), end) == (300_000, 1_000_005)
    assert data.endswith(b"xx\nb\n")
    assert log_files.read(str(log), 1, most=300_000)[0] == b"b\n"


def test_the_whole_log_is_every_byte(log: Path) -> None:
    log.write_bytes(bytes(range(256)) * 1000)
    assert log_files.read(str(log)) == (bytes(range(256)) * 1000, 256_000)


def test_a_progress_bar_is_one_line(log: Path) -> None:
    log.write_bytes(b"start\n10%\r50%\r100%\r\nend\n")
    assert log_files.read(str(log), 2)[0] == b"10%\r50%\r100%\r\nend\n"


def test_the_tail_agrees_with_a_plain_count_of_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "job_y.log"

    @settings(deadline=None)
    @given(
        st.lists(st.sampled_from([b"a", b"\n", b"bc\n", b"x" * 40_000, b"\xff\n"]), max_size=30), st.integers(0, 8)
    )
    def check(parts: list[bytes], tail: int) -> None:
        path.write_bytes(b"".join(parts))
        lines = b"".join(parts).split(b"\n")
        lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        assert log_files.read(str(path), tail)[0] == b"".join(
            lines[len(lines) - tail :] if tail < len(lines) else lines
        )

    check()


# -- following -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False], ids=["what was shown is there", "what was shown was cut"])
def test_following_finds_its_place_again_when_the_middle_is_cut(log: Path, kept: bool) -> None:
    """The log is as long as before, and holds something else."""
    lines = [b"line %06d\n" % number for number in range(3000)]
    head, cut = lines[:200], log_files.CUT_MARK % 1000
    log.write_bytes(b"".join(lines[:1500]))
    over = iter([False, True])
    following = follow(log, over=lambda: next(over))
    first = b""
    while not first.endswith(lines[1499]):
        first += next(following)
    rest = lines[1000:] if kept else lines[1800:]
    log.write_bytes(b"".join([*head, cut, *rest]))
    second = b"".join(following)
    assert second == b"".join(lines[1500:] if kept else [cut, *rest])


def test_following_a_finished_job_shows_its_log_and_ends(log: Path) -> None:
    log.write_bytes(b"all of it\n")
    assert b"".join(follow(log)) == b"all of it\n"
    assert b"".join(follow(log, start=4)) == b"of it\n"


def test_following_shows_what_comes_as_it_comes(log: Path) -> None:
    log.write_bytes(b"one\n")
    chunks = follow(log, scripted(lambda: None, append(log, b"two\n"), append(log, b"three\n")))
    assert list(chunks) == [b"one\n", b"two\n", b"three\n"]


def test_a_log_that_appears_later_is_followed_from_its_start(log: Path) -> None:
    over = scripted(lambda: None, lambda: None, append(log, b"late\n"))
    assert b"".join(follow(log, over)) == b"late\n"


def test_what_is_written_just_before_the_end_is_not_missed(log: Path) -> None:
    def over() -> bool:
        log_files.append(str(log), b"last words\n")
        return True

    assert b"".join(follow(log, over)) == b"last words\n"


def test_a_job_that_never_prints_is_followed_to_its_end(log: Path) -> None:
    assert list(follow(log, scripted(lambda: None, lambda: None))) == []


def test_a_log_that_shrinks_is_followed_on_from_its_new_end(log: Path) -> None:
    log.write_bytes(b"x" * 1000)
    cut = lambda: os.truncate(log, 10)  # noqa: E731
    chunks = list(follow(log, scripted(lambda: None, cut, append(log, b"after the cut\n"))))
    assert chunks == [b"x" * 1000, b"after the cut\n"]


def test_a_large_log_comes_in_pieces(log: Path) -> None:
    log.write_bytes(b"x" * 1_000_000)
    chunks = list(follow(log))
    assert b"".join(chunks) == b"x" * 1_000_000
    assert max(map(len, chunks)) <= 65536


def test_whoever_stops_following_leaves_no_descriptor_open(log: Path) -> None:
    log.write_bytes(b"x")
    before = os.listdir("/proc/self/fd")
    watching = follow(log, lambda: False)
    next(watching)
    watching.close()  # type: ignore[attr-defined]
    assert os.listdir("/proc/self/fd") == before
