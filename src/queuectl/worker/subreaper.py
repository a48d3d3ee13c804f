"""The direct children of a worker or manager: what it started, and the orphans that the kernel hands to it.

Being a child subreaper, it becomes the parent of every descendant whose own parent dies. So as long as a process of a
run lives, an ancestor of it, or the process itself, is a direct child of the worker; and a direct child stays on the
kernel's list, dead or alive, until we reap it. If no direct child carries a run's mark, nothing of the run is left.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Container, Iterator

from queuectl.system import procfs
from queuectl.worker import run_marks
from queuectl.worker.process_tree import TAG

Reaped = tuple[int, int, resource.struct_rusage]


class Children:
    """The children of this very process; not to be used after a fork."""

    def __init__(self) -> None:
        adopt_orphans()
        self._marks: dict[int, int] = {}  # of children that were not reaped yet: their pids belong to nobody else

    def reap(self) -> Iterator[Reaped]:
        """Reap every child that has died: pid, status and what it used."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._marks.pop(pid, None)
            yield pid, status, used

    def of_runs(self, wanted: Container[int]) -> list[int]:
        """The children, dead ones that were not reaped included, that carry one of these marks."""
        return [pid for pid in procfs.children() if self._mark(pid) in wanted]

    def has_unmarked(self) -> bool:
        """Is there a child without any mark? What it has started may carry one all the same."""
        return any(not self._mark(pid) for pid in procfs.children())

    def kill(self, pid: int) -> None:
        """Kill a child and its process group. Until it is reaped, neither number can mean another process."""
        try:
            group = os.getpgid(pid)
            os.kill(pid, 9)
            if group != os.getpgrp():
                os.killpg(group, 9)  # at once, so that no member can start another meanwhile
        except (ProcessLookupError, PermissionError):  # dead; or it runs as another user
            pass

    def _mark(self, pid: int) -> int:
        if pid not in self._marks:
            mark = run_marks.read(pid)
            if not mark and (tag := procfs.variable(pid, TAG)):
                mark = run_marks.of(tag.decode("ascii", "replace"))
            self._marks[pid] = mark
        return self._marks[pid]


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents die (Linux; elsewhere they go to PID 1)."""
    if sys.platform == "linux":
        import ctypes

        pr_set_child_subreaper = 36
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
