"""Whose process is this? Finding everything that runs have started, and ending it, and nothing else.

Two things lead to a run's processes: its mark (see `run_marks`), and its tag in their environment, in case the mark
is missing. Descendants of such a process belong to the run as well.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from queuectl.jobs.model import Claim
from queuectl.system import procfs
from queuectl.worker import cgroup, run_marks

TAG = b"QUEUECTL_RUN"

Table = dict[int, procfs.Process]


class Look:
    """All processes as they were at one moment; their marks and tags are read when they are asked for."""

    def __init__(self) -> None:
        self.processes: Table = procfs.processes()
        self._marks: dict[int, int] = {}
        self._tags: dict[int, str | None] = {}

    def belongs(self, pid: int, to: Traces) -> bool:
        """Does this process carry the mark, or else the tag, of one of these runs?"""
        if pid not in self._marks:
            self._marks[pid] = run_marks.read(pid)
        mark = self._marks[pid]
        return mark in to.marks if mark else self._tag(pid) in to.tags

    def _tag(self, pid: int) -> str | None:
        if pid not in self._tags:
            value = procfs.variable(pid, TAG)
            self._tags[pid] = None if value is None else value.decode("ascii", "replace")
        return self._tags[pid]


class Eyes:
    """One look for all runs that are signalled in the same turn. If a run is over is never decided by it: a process
    may have started another since."""

    def __init__(self) -> None:
        self._look: Look | None = None

    def blink(self) -> None:
        self._look = None

    def look(self) -> Look:
        if self._look is None:
            self._look = Look()
        return self._look


@dataclass(frozen=True)
class Traces:
    """By what the processes of some runs can be known."""

    tags: frozenset[str] = frozenset()
    group: str = ""  # the control group of their worker
    since: int = 0  # no process of theirs is older than this, in the kernel's ticks

    @cached_property
    def marks(self) -> frozenset[int]:
        return frozenset(map(run_marks.of, self.tags))


def tag_of(worker_id: str, claim: Claim, database: str) -> str:
    """Marks every process of a run through its environment. Worker ids are random, so no stranger carries it; and it
    names the very database, so that a worker on a copy of it does not take our processes for its own."""
    return f"{database}:{worker_id}:{claim.seq}:{claim.run}"


def current_worker() -> str | None:
    """The worker whose run we are part of, if any."""
    words = os.environb.get(TAG, b"").decode("ascii", "replace").split(":")
    return words[-3] if len(words) >= 3 else None


def kill_survivors(traces: Traces, patience: float) -> bool:
    """End what a dead worker's runs left behind. True when it is gone; False if something will not die."""
    deadline = time.monotonic() + patience
    while kill_once(traces):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def kill_once(traces: Traces) -> bool:
    """One round of that; False if there was nothing left to end."""
    if not traces.tags:
        return False
    found = find(traces)
    kill(traces, found)
    return bool(found)


def kill(traces: Traces, found: dict[int, int]) -> None:
    """End what was found of these runs. The oldest first: a shell whose command is killed might exit with 0."""
    for pid in sorted(found, key=lambda pid: (found[pid], pid)):
        signal_one(pid, found[pid], signal.SIGKILL)
    if traces.group and cgroup.is_all_in(traces.group, found.keys()):
        cgroup.kill(traces.group)  # all at once, even what belongs to other users


def find(traces: Traces, look: Look | None = None, known: Mapping[int, int] = {}) -> dict[int, int]:
    """The live processes of these runs, as pid and start time. Empty where there is no /proc. `known` are processes
    that belong to them whatever they carry by now."""
    look = look or Look()
    table = {pid: process for pid, process in look.processes.items() if process.started >= traces.since}
    roots = {pid for pid, process in table.items() if known.get(pid) == process.started or look.belongs(pid, traces)}
    return _with_descendants(roots, table)


def signal_one(pid: int, started: int, number: int) -> None:
    """Signal this very process: a pid that has been given to another since is left alone."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return
    try:
        if procfs.start_time(pid) == started:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)


def _with_descendants(found: set[int], table: Table) -> dict[int, int]:
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    family, unasked = set(found), list(found)
    while unasked:
        for child in children.get(unasked.pop(), ()):
            if child not in family:
                family.add(child)
                unasked.append(child)
    return {pid: table[pid].started for pid in family}
