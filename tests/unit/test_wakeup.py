"""The bell on real pipes: ringing wakes, death is known at once, a stopped worker lives."""

from __future__ import annotations

import os
import resource
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from queuectl.system import private_files, procfs, wakeup
from queuectl.system.wakeup import Bell
from tests.unit.conftest import limited

HOLD_A_BELL = """
import sys
from queuectl.system.wakeup import Bell
bell = Bell(sys.argv[1], sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db.run")


@pytest.fixture
def w1(folder: str) -> Iterator[Bell]:
    own = Bell(folder, "w1")
    yield own
    if os.path.exists(f"/proc/self/fd/{own.fileno()}"):
        own.close()


@pytest.fixture
def other(folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the bell `other`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_BELL, folder, "other"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.communicate()


def rung(own: Bell) -> bool:
    return bool(select.select([own], [], [], 0)[0])


def test_a_ring_wakes_the_worker_until_it_is_cleared(folder: str, w1: Bell) -> None:
    assert not rung(w1)
    assert wakeup.ring_one(folder, "w1")
    assert rung(w1)
    w1.clear()
    assert not rung(w1)


def test_clearing_a_silent_bell_does_not_block(w1: Bell) -> None:
    w1.clear()


def test_a_ring_for_all_wakes_each_and_says_how_many(folder: str, w1: Bell) -> None:
    w2 = Bell(folder, "w2")
    assert wakeup.ring(folder) == 2
    assert rung(w1)
    assert rung(w2)
    w2.close()
    assert wakeup.ring(folder) == 1


def test_a_bell_can_be_rung_more_often_than_its_pipe_holds(folder: str, w1: Bell) -> None:
    for _ in range(70_000):
        wakeup.ring_one(folder, "w1")
    assert rung(w1)
    w1.clear()
    assert not rung(w1)


def test_a_ringer_that_goes_away_does_not_look_like_a_ring(folder: str, w1: Bell) -> None:
    assert wakeup.answers(folder, "w1")
    assert not rung(w1)


def test_a_closed_bell_is_gone(folder: str, w1: Bell) -> None:
    assert wakeup.anyone(folder)
    w1.close()
    assert not wakeup.answers(folder, "w1")
    assert not wakeup.ring_one(folder, "w1")
    assert not wakeup.anyone(folder)
    assert os.listdir(folder) == []


def test_a_killed_process_is_known_to_be_dead_at_once(folder: str, other: subprocess.Popen[bytes]) -> None:
    assert wakeup.answers(folder, "other")
    other.kill()
    other.wait()
    assert not wakeup.answers(folder, "other")
    assert not wakeup.ring_one(folder, "other")
    assert wakeup.ring(folder) == 0
    assert not wakeup.anyone(folder)


def test_a_stopped_process_lives(folder: str, other: subprocess.Popen[bytes]) -> None:
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    assert wakeup.answers(folder, "other")
    assert wakeup.ring_one(folder, "other")


def test_a_zombie_is_dead(folder: str, other: subprocess.Popen[bytes]) -> None:
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet reaped
    assert not wakeup.answers(folder, "other")


def test_a_process_started_by_the_worker_does_not_keep_its_bell_alive(folder: str, w1: Bell) -> None:
    child = subprocess.Popen(["sleep", "1000"], close_fds=False)
    w1.close()
    assert not wakeup.answers(folder, "w1")
    child.kill()
    child.wait()


def test_sweeping_removes_the_pipes_of_the_dead_only(folder: str, w1: Bell, other: subprocess.Popen[bytes]) -> None:
    other.kill()
    other.wait()
    assert sorted(os.listdir(folder)) == ["other", "w1"]
    wakeup.sweep(folder)
    assert os.listdir(folder) == ["w1"]
    assert wakeup.answers(folder, "w1")


def test_a_sweep_at_the_worst_moment_does_not_silence_a_new_bell(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several workers start at once: one makes its pipe while another sweeps, or had looked before."""
    sweeps: list[Callable[[str], list[str] | None]] = [wakeup.silent, wakeup.sweep]
    make, open_file = os.mkfifo, private_files.open_file

    def make_while_another_looks(path: str, mode: int) -> None:
        make(path, mode)
        if sweeps:
            left = sweeps.pop()(folder)
            if left:
                assert left == [".w1"]
                monkeypatch.setattr(private_files, "open_file", open_while_another_sweeps)

    def open_while_another_sweeps(path: str, *args: int) -> int:
        monkeypatch.setattr(private_files, "open_file", open_file)
        opened = open_file(path, *args)
        wakeup.remove(folder, [".w1"])
        return opened

    monkeypatch.setattr(os, "mkfifo", make_while_another_looks)
    own = Bell(folder, "w1")
    assert not sweeps
    assert wakeup.answers(folder, "w1")
    own.close()
    assert os.listdir(folder) == []


def test_a_process_out_of_descriptors_does_not_take_the_living_for_dead(folder: str, w1: Bell) -> None:
    with limited(resource.RLIMIT_NOFILE, 3):
        alive = wakeup.answers(folder, "w1")
    assert alive


def test_a_process_out_of_descriptors_sweeps_nothing_away(folder: str, w1: Bell) -> None:
    with limited(resource.RLIMIT_NOFILE, 3), suppress(OSError):
        wakeup.sweep(folder)
    assert wakeup.answers(folder, "w1")


def test_a_worker_whose_pipe_somebody_removed_lives_as_long_as_its_very_process(folder: str, w1: Bell) -> None:
    os.unlink(w1.path)
    pid, started = os.getpid(), procfs.start_time(os.getpid())
    assert wakeup.answers(folder, "w1", pid, started)
    assert not wakeup.answers(folder, "w1", pid, started + 1)  # the pid is another's by now
    assert not wakeup.answers(folder, "w1")


def test_a_silent_pipe_is_a_dead_worker_whoever_has_its_pid(folder: str, other: subprocess.Popen[bytes]) -> None:
    other.kill()
    other.wait()
    assert not wakeup.answers(folder, "other", os.getpid(), procfs.start_time(os.getpid()))


@pytest.mark.parametrize("left", [".w2", "w2", "w2.runs", "w2.lease", "w2.7.1.result", "7.manager", "junk.txt"])
def test_what_the_dead_left_is_swept_away_at_once(folder: str, w1: Bell, left: str) -> None:
    path = os.path.join(folder, left)
    os.mkfifo(path) if left in (".w2", "w2") else open(path, "x").close()
    for name in ("w1.runs", "w1.lease", "w1.7.1.result"):
        open(os.path.join(folder, name), "x").close()
    assert wakeup.silent(folder) == [left]
    wakeup.sweep(folder)
    assert sorted(os.listdir(folder)) == ["w1", "w1.7.1.result", "w1.lease", "w1.runs"]


def test_where_no_worker_ever_was_nobody_answers(folder: str) -> None:
    assert wakeup.ring(folder) == 0
    assert not wakeup.ring_one(folder, "w1")
    assert not wakeup.answers(folder, "w1")
    assert not wakeup.anyone(folder)
    wakeup.sweep(folder)


def test_a_link_in_the_place_of_a_bell_is_not_followed(folder: str, w1: Bell, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"x")
    os.symlink(target, os.path.join(folder, "planted"))
    assert not wakeup.ring_one(folder, "planted")
    assert target.read_bytes() == b"x"


def test_what_is_no_pipe_and_cannot_be_written_does_not_fail_a_ring(folder: str, w1: Bell) -> None:
    """What is to be announced has been stored."""
    Path(folder, "w2").touch()
    with limited(resource.RLIMIT_FSIZE, 0):
        reached = wakeup.ring(folder)
    assert reached == 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_bells_are_private_whatever_the_umask(folder: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        own = Bell(folder, "w1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(own.path).st_mode) == 0o600
    own.close()
