"""The board: what a successor learns from it, and when it must not believe it."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

import pytest

from queuectl import bell, procfs
from queuectl.bell import Bell
from queuectl.worker import board
from queuectl.worker.board import Board
from queuectl.worker.kin import Traces, kill_survivors
from tests.unit.conftest import limited


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "run")


def test_a_board_tells_what_is_pinned_to_it(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "/sys/a group")
    own.pin(1, 11, (5, 6), "q:w1:1:1")
    own.pin(2, 12, (7, 7), "q:w1:2:1")
    own.unpin(1)
    own.unpin(99)
    own.pin(3, 13, (8, 9), "q:w1:3:9")
    own.write()
    expected = Traces(frozenset(["q:w1:2:1", "q:w1:3:9"]), {12: (7, 7), 13: (8, 9)}, "/sys/a group")
    assert board.read(own.path, "queue-1") == board.read(own.path) == expected
    own.remove()
    assert board.read(own.path) == Traces()


def test_a_board_does_not_grow_with_the_runs(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "")
    for pid in range(1, 1001):
        own.pin(pid, pid, (1, 1), "t")
        if pid > 3:
            own.unpin(pid - 3)
        if pid % 2:
            own.write()
    own.write()
    assert os.path.getsize(own.path) < 1000
    assert board.read(own.path).leaders.keys() == {998, 999, 1000}


@pytest.mark.parametrize(
    "header",
    [
        "queue-2 {here} ",
        "queue-1 another-boot 4026531836 ",
        "queue-1 {boot} 1 ",
        "",
        "garbage",
    ],
)
def test_a_board_from_elsewhere_means_nothing(folder: str, header: str) -> None:
    own = Board(folder, "w1", "queue-1", "")
    own.pin(1, os.getpid(), (0, 1 << 62), "t")
    own.write()
    path = Path(own.path)
    _, rest = path.read_text().split("\n", 1)
    path.write_text(header.format(here=procfs.here(), boot=procfs.here().split()[0]) + "\n" + rest)
    assert board.read(own.path, "queue-1") == Traces()


def test_a_pid_that_belongs_to_another_by_now_is_left_alone(folder: str) -> None:
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        started = procfs.start_time(stranger.pid)
        own = Board(folder, "w1", "queue-1", "")
        for born in ((started - 9, started - 1), (started + 1, started + 9)):
            own.pin(1, stranger.pid, born, "t")
            own.write()
            assert kill_survivors(board.read(own.path), 5)
        assert stranger.poll() is None
        own.pin(1, stranger.pid, (started, started), "t")
        own.write()
        assert kill_survivors(board.read(own.path), 5)
        assert stranger.wait() == -9
    finally:
        stranger.kill()
        stranger.wait()


def test_a_line_that_could_not_be_written_spoils_no_other(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "")
    with limited(resource.RLIMIT_FSIZE, os.path.getsize(own.path)):
        own.pin(1, 11, (5, 6), "t1")
        own.write()
    own.pin(2, 12, (7, 8), "t2")
    own.write()
    assert board.read(own.path) == Traces(frozenset(["t2"]), {12: (7, 8)})
    own.unpin(1)


def test_only_boards_that_nobody_will_ask_for_are_swept(folder: str) -> None:
    for id in ("alive", "lost", "new", "forgotten"):
        Board(folder, id, "queue-1", "")
        if id != "new":
            os.utime(board.path_of(folder, id), (time.time() - 3600,) * 2)
    own = Bell(folder, "alive")
    bell.sweep(folder, spare=["lost.runs"])
    left = {name for name in os.listdir(folder) if name.endswith(board.SUFFIX)}
    assert left == {"alive.runs", "lost.runs", "new.runs"}
    own.close()
    bell.sweep("/no/such/folder")


def test_changes_that_lie_apart_are_written_all_the_same(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "")
    for seq in range(1, 10):
        own.pin(seq, seq, (1, 1), f"t{seq}")
    own.write()
    own.unpin(2)
    own.unpin(8)
    own.write()
    assert board.read(own.path).leaders.keys() == {1, 3, 4, 5, 6, 7, 9}
