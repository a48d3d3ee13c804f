"""Whose process is this? Finding everything that runs have started, and ending it, and nobody else.

Three marks lead to a run's processes: its tag in their environment, which children inherit; its leader's pid with the
moment of its start, and its session; and the control group of its worker, if the system grants one.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field

from queuectl import procfs
from queuectl.model import Claim
from queuectl.worker import cgroup

TAG = b"QUEUECTL_RUN"

Table = dict[int, procfs.Process]


class Look:
    """All processes as they were at one moment, and their tags, which are read when somebody asks."""

    def __init__(self) -> None:
        self.processes: Table = procfs.processes()
        self._tags: dict[int, str | None] = {}

    def tag(self, pid: int) -> str | None:
        if pid not in self._tags:
            value = procfs.variable(pid, TAG)
            self._tags[pid] = None if value is None else value.decode("ascii", "replace")
        return self._tags[pid]


class Eyes:
    """One look for all who want to know in the same turn. What it does not show can be trusted however old it is:
    where no process of a run was left, none can have come since."""

    def __init__(self) -> None:
        self._look: Look | None = None

    def blink(self) -> None:
        self._look = None

    def look(self) -> Look:
        if self._look is None:
            self._look = Look()
        return self._look


@dataclass(frozen=True, slots=True)
class Traces:
    """By what the processes of some runs can be known."""

    tags: frozenset[str] = frozenset()
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)  # pid: started between these two ticks
    group: str = ""  # where their worker lived, alone with its runs
    sessions: frozenset[int] = frozenset()  # theirs for certain, even if the leader is gone

    @property
    def since(self) -> int:
        """No process of theirs is older than this; 0 if that is not known."""
        known = len(self.leaders) >= len(self.tags)
        return min(first for first, _ in self.leaders.values()) if self.leaders and known else 0


def tag_of(worker_id: str, claim: Claim, database: str) -> str:
    """Marks every process of a run through its environment. Worker ids are random, so no stranger carries it; and it
    names the very database, so that nobody who works on a copy of it takes our processes for his."""
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


def kill_once(traces: Traces, adopter: int = 0) -> bool:
    """One round of that; False if there was nothing left to end."""
    if not traces.tags and not traces.leaders:
        return False
    found = find(traces, adopter=adopter)
    if traces.group and cgroup.is_all_in(traces.group, found.keys()):
        cgroup.kill(traces.group)  # all at once, even what belongs to other users
    for pid, started in found.items():
        signal_one(pid, started, signal.SIGKILL)
    return bool(found)


def find(traces: Traces, known: dict[int, int] = {}, adopter: int = 0, look: Look | None = None) -> dict[int, int]:
    """The live processes of these runs, as pid and start time: those the marks lead to, those `known` before, and
    their descendants. `adopter` is the manager whose children they become when their own parents die. Empty where
    there is no /proc."""
    look = look or Look()
    table = {pid: process for pid, process in look.processes.items() if process.started >= traces.since}
    leaders = {pid for pid, (first, last) in traces.leaders.items() if _is_born(table, pid, first, last)}
    sessions = leaders | {pid for pid in traces.sessions if pid not in table}
    found = {
        pid
        for pid, process in table.items()
        if known.get(pid) == process.started
        or process.session in sessions
        or (adopter == process.parent != 0 and process.session in traces.leaders and process.session not in table)
        or look.tag(pid) in traces.tags
    }
    return _with_descendants(found | _hidden(table, traces, look), table)


def _hidden(table: Table, traces: Traces, look: Look) -> set[int]:
    """The processes of the group that have shed their tag. What stems from an older process, or from another run
    (which was free to leave it behind), is not meant."""
    inside = cgroup.members(traces.group) - {os.getpid()} if traces.since else set()
    spared = {pid for pid in inside if pid not in table or look.tag(pid) not in (None, *traces.tags)}
    family = _with_descendants(spared & table.keys(), table).keys()
    return {pid for pid in inside - spared - family if table[pid].parent not in spared}


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


def _is_born(table: Table, pid: int, first: int, last: int) -> bool:
    return pid in table and first <= table[pid].started <= last and table[pid].session == pid


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
