"""The children of a worker: orphans come to it, and carry the mark of their run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator

import pytest

from queuectl.system import procfs
from queuectl.worker import run_marks
from queuectl.worker.subreaper import Children
from tests.conftest import eventually
from tests.unit.test_process import hand_on_orphans

MARK = run_marks.of(f"test-children-{os.getpid()}")
FOREVER = "sleep 300"


@pytest.fixture
def children() -> Iterator[Children]:
    """The orphans of this process, which are killed when the test is over."""
    found = Children()
    yield found
    while left := found.of_runs((MARK,)):
        for pid in left:
            found.kill(pid)
        list(found.reap())
    hand_on_orphans()


def start(command: str) -> int:
    with run_marks.limits_of_run(MARK, None):
        return os.posix_spawn("/bin/sh", ["/bin/sh", "-c", command], {"PATH": os.environ["PATH"]}, setsid=True)


def reaped(children: Children, pid: int) -> bool:
    return any(found == pid for found, *_ in children.reap())


@pytest.mark.parametrize(
    "command",
    [
        f"{FOREVER} &",
        f"setsid {FOREVER} &",
        f"(setsid {FOREVER} &)",
        f"(env -i setsid /bin/sh -c '{FOREVER} & exit' &)",
        f"nohup setsid sh -c '(setsid {FOREVER} &)' >/dev/null &",
    ],
)
def test_an_orphan_is_found_by_the_mark_of_its_run(children: Children, command: str) -> None:
    shell = start(command)
    assert children.of_runs((MARK,)) != []
    eventually(lambda: reaped(children, shell), "the shell to exit")
    for _ in range(3):
        assert children.of_runs((MARK,)) != []  # at no moment does it look as if nothing were left
        list(children.reap())
    assert children.of_runs((run_marks.of("another run"),)) == []


def test_a_chain_of_processes_is_never_overlooked_and_can_be_ended(children: Children) -> None:
    """Each link starts the next in a session of its own, and exits."""
    chain = 'f() { setsid sh -c "$1" chain "$1" & }; f "$1"'
    shell = start(f"set -- '{chain}'; eval \"$1\"")
    eventually(lambda: reaped(children, shell), "the shell to exit")
    for _ in range(300):
        assert children.of_runs((MARK,)) != []
        list(children.reap())

    def ended() -> bool:
        list(children.reap())
        left = children.of_runs((MARK,))
        for pid in left:
            children.kill(pid)
        return not left

    eventually(ended, "the chain to be broken")


def test_killing_a_child_kills_its_group_and_no_other(children: Children) -> None:
    other = subprocess.Popen(["sleep", "300"], start_new_session=True)
    shell = start(f"{FOREVER} & {FOREVER} & wait")
    eventually(lambda: len([pid for pid in procfs.processes() if run_marks.read(pid) == MARK]) == 3, "all to run")
    children.kill(shell)
    eventually(lambda: not [pid for pid in procfs.processes() if run_marks.read(pid) == MARK], "all to be gone")
    assert other.poll() is None
    other.kill()
    other.wait()


def test_the_worker_does_not_carry_the_mark_nor_the_limits_of_its_runs(children: Children) -> None:
    before = resource.getrlimit(resource.RLIMIT_RSS), resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = before[1]
    with run_marks.limits_of_run(MARK, (soft - 1, hard)):
        shell = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", "ulimit -n > /dev/null; sleep 300"], {}, setsid=True)
    assert run_marks.read(shell) == MARK
    assert resource.prlimit(shell, resource.RLIMIT_NOFILE) == (soft - 1, hard)
    assert (resource.getrlimit(resource.RLIMIT_RSS), resource.getrlimit(resource.RLIMIT_NOFILE)) == before
    assert run_marks.read(os.getpid()) != MARK


def test_a_zombie_still_tells_its_mark_and_one_that_is_reaped_none(children: Children) -> None:
    shell = start("exit 0")
    os.waitid(os.P_PID, shell, os.WEXITED | os.WNOWAIT)
    assert children.of_runs((MARK,)) == [shell]
    list(children.reap())
    assert children.of_runs((MARK,)) == []
    assert run_marks.read(shell) == 0


def test_without_a_list_of_children_the_process_table_tells(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = start(FOREVER)
    assert shell in procfs.children()
    real = open

    def no_list(path: object, *args: object, **options: object) -> object:
        if str(path).endswith("/children"):
            raise FileNotFoundError(path)
        return real(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", no_list)
    assert shell in procfs.children()
    os.kill(shell, signal.SIGKILL)
    os.waitid(os.P_PID, shell, os.WEXITED | os.WNOWAIT)
    assert shell in procfs.children()


def test_marks_of_different_runs_differ_and_are_no_limits() -> None:
    numbers = {run_marks.of(f"db:w1:{seq}:{run}") for seq in range(100) for run in range(100)}
    assert len(numbers) == 10_000
    assert min(numbers) > 1 << 60  # far above any memory
    assert all(run_marks.is_mark(number) for number in numbers)
    assert not run_marks.is_mark(resource.RLIM_INFINITY)
