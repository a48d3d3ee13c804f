"""What is left of the dead in the run folder, and what must stay until their runs are ended."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queuectl.metrics.run_stats import Tally
from queuectl.store import Store
from queuectl.system.wakeup import Bell
from queuectl.worker import manager_pidfile
from queuectl.worker.log import Log
from queuectl.worker.recovery import Recovery
from queuectl.worker.run_registry import Board


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue.db.run"


def sweep(folder: Path, lost_workers: Any) -> set[str]:
    store = SimpleNamespace(engine=SimpleNamespace(run_dir=str(folder)), lost_workers=lost_workers)
    Recovery(cast(Store, store), "", Tally(), Log("test", False))._sweep()
    return set(os.listdir(folder))


def test_a_sweep_leaves_what_the_living_and_the_end_of_lost_runs_need(folder: Path) -> None:
    living = Bell(str(folder), "living")
    for id in ("living", "lost", "dead"):
        Board(str(folder), id, "q", "")
    os.mkfifo(folder / "dead")
    os.mkfifo(folder / ".unborn")
    (folder / "dead.7.1.result").touch()
    (folder / "living.7.1.result").touch()
    manager_pidfile.post(str(folder))
    (folder / "1.manager").write_text("1 another-boot 1")
    own = f"{os.getpid()}.manager"
    assert sweep(folder, lambda: {"lost": []}) == {
        "living", "living.runs", "living.7.1.result", "lost.runs", own,
    }  # fmt: skip
    living.close()


def test_a_worker_that_dies_during_a_sweep_keeps_its_board(folder: Path) -> None:
    """It is not among the lost yet, and its runs are not ended: they must be found."""
    dying = Bell(str(folder), "dying")
    Board(str(folder), "dying", "q", "")

    def lost_workers() -> dict[str, list[object]]:
        os.close(dying._reader)
        os.close(dying._keeper)
        return {}

    assert sweep(folder, lost_workers) == {"dying", "dying.runs"}
    assert sweep(folder, dict) == set()
