"""What the kernel says of processes: of the very process meant, and nothing where nothing can be seen."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuectl import procfs
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
        assert not procfs.has_variable(child.pid, b"TAG=one two")
        child.wait()


def test_a_variable_is_the_whole_entry(child: subprocess.Popen[bytes]) -> None:
    assert procfs.has_variable(child.pid, b"TAG=one two")
    for other in (b"TAG=one", b"TAG=one two ", b"AG=one two", b"TAG=x", b"TAG"):
        assert not procfs.has_variable(child.pid, other)


def test_who_cannot_look_does_not_say_that_nothing_is_there(child: subprocess.Popen[bytes]) -> None:
    for look in (
        lambda: procfs.start_time(child.pid),
        procfs.processes,
        lambda: procfs.has_variable(child.pid, b"x"),
    ):
        with limited(resource.RLIMIT_NOFILE, 3), pytest.raises(OSError, match="Too many open files"):
            look()
