"""What the kernel says of processes: of the very process meant, and nothing where nothing can be seen."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuectl.system import procfs
from tests.conftest import eventually
from tests.unit.conftest import limited


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose name does its best to confuse, and which carries a tag."""
    program = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    process = subprocess.Popen([program, "1000"], start_new_session=True, env={"TAG": "one two", "OTHER": "TAG=x"})
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_its_start_parent_and_session(child: subprocess.Popen[bytes]) -> None:
    found = procfs.process(child.pid)
    assert found
    assert (found.parent, found.session) == (os.getpid(), child.pid)
    assert found.started == procfs.start_time(child.pid) >= procfs.start_time(os.getpid())
    assert procfs.processes()[child.pid].started == found.started


def test_a_zombie_and_the_gone_are_not_there(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    for _ in ("a zombie", "then gone"):
        assert procfs.process(child.pid) is None
        assert procfs.start_time(child.pid) == 0
        assert child.pid not in procfs.processes()
        assert procfs.variable(child.pid, b"TAG") is None
        child.wait()


def test_a_variable_is_found_by_its_whole_name(child: subprocess.Popen[bytes]) -> None:
    assert procfs.variable(child.pid, b"TAG") == b"one two"
    assert procfs.variable(child.pid, b"OTHER") == b"TAG=x"
    for other in (b"TA", b"AG", b"TAGS", b"TAG=one"):
        assert procfs.variable(child.pid, other) is None


def test_a_process_in_the_midst_of_an_exec_is_looked_at_again() -> None:
    """Hundreds of processes, each looked at from its first moment on: none is seen without its environment."""
    for _ in range(300):
        pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {"TAG": "here"})
        found = procfs.variable(pid, b"TAG")
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        assert found == b"here"


def test_kernel_threads_and_cleared_environments_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared = subprocess.Popen(["/bin/sleep", "1000"], env={})
    eventually(lambda: Path(f"/proc/{cleared.pid}/cmdline").read_bytes(), "it to have started")
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it was waited for"))
    try:
        assert procfs.variable(cleared.pid, b"TAG") is None
        if os.path.exists("/proc/2/stat"):
            assert procfs.variable(2, b"TAG") is None
    finally:
        cleared.kill()
        cleared.wait()


def test_a_process_whose_first_thread_has_ended_still_lives() -> None:
    leave = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(1000,)).start(); "
    leave += "ctypes.CDLL(None).pthread_exit(None)"
    process = subprocess.Popen([sys.executable, "-c", leave])
    try:
        status = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z", "its first thread to end")
        assert process.pid in procfs.processes()
    finally:
        process.kill()
        process.wait()


def test_a_start_falls_between_the_ticks_around_it() -> None:
    first = procfs.ticks()
    process = subprocess.Popen(["sleep", "1000"])
    last = procfs.ticks()
    try:
        assert first <= procfs.start_time(process.pid) <= last
    finally:
        process.kill()
        process.wait()


def test_what_may_not_be_looked_at_is_not_ours(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's processes, where /proc is mounted with hidepid."""
    look = procfs.process

    def refuse(pid: int) -> procfs.Process | None:
        if pid == child.pid:
            raise PermissionError
        return look(pid)

    monkeypatch.setattr(procfs, "process", refuse)
    found = procfs.processes()
    assert os.getpid() in found
    assert child.pid not in found
    assert procfs.start_time(child.pid) == 0


def test_who_cannot_look_does_not_say_that_nothing_is_there(child: subprocess.Popen[bytes]) -> None:
    for look in (
        lambda: procfs.start_time(child.pid),
        procfs.processes,
        lambda: procfs.variable(child.pid, b"x"),
    ):
        with limited(resource.RLIMIT_NOFILE, 3), pytest.raises(OSError, match="Too many open files"):
            look()
