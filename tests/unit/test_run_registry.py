"""The board: what a successor learns from it, and when it must not believe it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from queuectl.system import procfs, wakeup
from queuectl.system.wakeup import Bell
from queuectl.worker import run_registry
from queuectl.worker.process_tree import Traces
from queuectl.worker.run_registry import Board
from tests.unit.conftest import limited


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "run")


def test_a_board_tells_what_is_pinned_to_it(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "/sys/a group")
    own.pin(1, 5, "q:w1:1:1")
    own.pin(2, 7, "q:w1:2:1")
    own.unpin(1)
    own.unpin(99)
    own.pin(3, 8, "q:w1:3:9")
    own.write()
    expected = Traces(frozenset(["q:w1:2:1", "q:w1:3:9"]), "/sys/a group", since=7)
    assert run_registry.read(own.path, "queue-1") == run_registry.read(own.path) == expected
    own.remove()
    assert run_registry.read(own.path) == Traces()


def test_a_board_does_not_grow_with_the_runs(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "")
    for seq in range(1, 1001):
        own.pin(seq, 1, f"t{seq}")
        if seq > 3:
            own.unpin(seq - 3)
        if seq % 2:
            own.write()
    own.write()
    assert os.path.getsize(own.path) < 1000
    assert run_registry.read(own.path).tags == {"t998", "t999", "t1000"}


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
    own.pin(1, 0, "t")
    own.write()
    path = Path(own.path)
    _, rest = path.read_text().split("\n", 1)
    path.write_text(header.format(here=procfs.here(), boot=procfs.here().split()[0]) + "\n" + rest)
    assert run_registry.read(own.path, "queue-1") == Traces()


def test_a_line_that_could_not_be_written_spoils_no_other(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "")
    with limited(resource.RLIMIT_FSIZE, os.path.getsize(own.path)):
        own.pin(1, 5, "t1")
        own.write()
    own.pin(2, 7, "t2")
    own.write()
    assert run_registry.read(own.path) == Traces(frozenset(["t2"]), since=7)
    own.unpin(1)


def test_only_boards_that_nobody_will_ask_for_are_swept(folder: str) -> None:
    own = Bell(folder, "alive")
    for id in ("alive", "lost", "forgotten"):
        Board(folder, id, "queue-1", "")
    wakeup.sweep(folder, spare=["lost.runs"])
    left = {name for name in os.listdir(folder) if name.endswith(run_registry.SUFFIX)}
    assert left == {"alive.runs", "lost.runs"}
    own.close()
    wakeup.sweep("/no/such/folder")


def test_changes_that_lie_apart_are_written_all_the_same(folder: str) -> None:
    own = Board(folder, "w1", "queue-1", "")
    for seq in range(1, 10):
        own.pin(seq, 1, f"t{seq}")
    own.write()
    own.unpin(2)
    own.unpin(8)
    own.write()
    assert run_registry.read(own.path).tags == {f"t{seq}" for seq in (1, 3, 4, 5, 6, 7, 9)}
