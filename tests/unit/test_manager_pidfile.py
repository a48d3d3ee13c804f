"""A manager's card: found while the manager lives, and believed only where its pid means something."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from queuectl.system import procfs, wakeup
from queuectl.worker import manager_pidfile


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "run")


def test_a_living_manager_is_found_by_its_card(folder: str) -> None:
    assert manager_pidfile.managers(folder) == {}
    manager_pidfile.post(folder)
    assert manager_pidfile.managers(folder) == {os.getpid(): procfs.start_time(os.getpid())}
    [name] = os.listdir(folder)
    assert os.stat(os.path.join(folder, name)).st_mode & 0o777 == 0o600
    manager_pidfile.remove(folder)
    assert manager_pidfile.managers(folder) == {}
    manager_pidfile.remove(folder)


def test_a_card_names_its_queue(folder: str) -> None:
    for name in ("postgresql://me@db/jobs?schema=a", "/srv/\udcff\n/queue.db", ""):
        manager_pidfile.post(folder, name)
        assert (
            manager_pidfile.managers(folder).keys() == manager_pidfile.managers(folder, name).keys() == {os.getpid()}
        )
        assert manager_pidfile.managers(folder, name + "x") == {}


def test_the_card_of_a_dead_manager_is_nobodys(folder: str) -> None:
    pid = os.fork()
    if pid == 0:
        manager_pidfile.post(folder)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert os.listdir(folder) == [f"{pid}{manager_pidfile.SUFFIX}"]
    assert manager_pidfile.managers(folder) == {}


@pytest.mark.parametrize("text", ["{started} another-boot 4026531836", "1 {here}", "", "garbage"])
def test_a_card_from_elsewhere_means_nothing(folder: str, text: str) -> None:
    manager_pidfile.post(folder)
    [path] = Path(folder).iterdir()
    path.write_text(text.format(started=procfs.start_time(os.getpid()), here=procfs.here()))
    assert manager_pidfile.managers(folder) == {}


def test_what_else_lies_there_is_passed_over(folder: str) -> None:
    manager_pidfile.post(folder)
    for name in ("12 (copy).manager", ".manager", "x.manager"):
        Path(folder, name).touch()
    Path(folder, "34.manager").mkdir()
    assert manager_pidfile.managers(folder).keys() == {os.getpid()}
    old = time.time() - 3600
    Path(folder, "a.folder").mkdir()
    for name in os.listdir(folder):
        os.utime(os.path.join(folder, name), (old, old))
    wakeup.sweep(folder, spare=[f"{os.getpid()}.manager"])
    assert sorted(os.listdir(folder)) == sorted(["34.manager", "a.folder", f"{os.getpid()}.manager"])
