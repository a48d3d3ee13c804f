"""Whose process is this? Finding everything a run has started, and ending it, and nobody else.

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

TAG = "QUEUECTL_RUN"

Table = dict[int, procfs.Process]


@dataclass(frozen=True, slots=True)
class Traces:
    """By what the processes of some runs can be known."""

    tags: frozenset[str] = frozenset()
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)  # pid: started between these two ticks
    group: str = ""  # where their worker lived, alone with its runs


def tag_of(worker_id: str, claim: Claim, queue: str = "") -> str:
    """Marks every process of a run through its environment. Worker ids are random, so no stranger carries it; and
    `queue` names the very database, so that nobody who works on a copy of it takes our processes for his."""
    return f"{queue}:{worker_id}:{claim.seq}:{claim.run}".lstrip(":")


def current_worker() -> str | None:
    """The worker whose run we are part of, if any."""
    words = os.environ.get(TAG, "").split(":")
    return words[-3] if len(words) >= 3 else None


def kill_survivors(traces: Traces, patience: float = 5.0) -> bool:
    """End what a dead worker's runs left behind. True when it is gone; False if something will not die."""
    deadline = time.monotonic() + patience
    while kill_once(traces):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def kill_once(traces: Traces) -> bool:
    """One round of that; False if there was nothing left to end."""
    if not traces.tags and not traces.leaders:
        return False
    found = _survivors(traces)
    if cgroup.members(traces.group) <= found.keys():
        cgroup.kill(traces.group)  # all at once, even what belongs to other users
    for pid, started in found.items():
        signal_one(pid, started, signal.SIGKILL)
    return bool(found)


def _survivors(traces: Traces) -> dict[int, int]:
    table = procfs.processes()
    leaders = {pid for pid, (first, last) in traces.leaders.items() if _is_born(table, pid, first, last)}
    found = leaders | {pid for pid, process in table.items() if process.session in leaders}
    found |= {pid for pid in table if _tag(pid) in traces.tags}
    since = min((first for first, _ in traces.leaders.values()), default=0)
    return _with_descendants(found | hidden(table, traces.group, since, traces.tags), table)


def members(
    tag: str,
    session: int | None,
    known: dict[int, int],
    leader_reaped: bool = False,
    group: str = "",
    since: int = 0,
) -> dict[int, int]:
    """The live processes of a run, as pid and start time: tagged ones, those known before, those of its session,
    their descendants, and what hides in the group that the run has for itself. Empty where there is no /proc."""
    table = procfs.processes()
    if leader_reaped and session in table:
        session = None  # a pid is given out again only when its session is empty: this one is a stranger's
    found = {
        pid
        for pid, process in table.items()
        if known.get(pid) == process.started or process.session == session or _tag(pid) == tag
    }
    return _with_descendants(found | hidden(table, group, since, frozenset([tag])), table)


def hidden(table: Table, group: str, since: int, tags: frozenset[str]) -> set[int]:
    """The processes of a group that have shed their tag. What stems from an older process, or from another run (which
    was free to leave it behind), is not meant."""

    def meant(pid: int) -> bool:
        tag = _tag(pid)
        if table[pid].started < since or (tag is not None and tag not in tags):
            return False
        return table[pid].parent not in inside or meant(table[pid].parent)

    inside = (cgroup.members(group) & table.keys()) - {os.getpid()}
    return {pid for pid in inside if meant(pid)}


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


def _tag(pid: int) -> str | None:
    value = procfs.variable(pid, TAG.encode())
    return None if value is None else value.decode("ascii", "replace")


def _with_descendants(found: set[int], table: Table) -> dict[int, int]:
    grown = True
    while grown:
        more = {pid for pid, process in table.items() if process.parent in found} - found
        found |= more
        grown = bool(more)
    return {pid: table[pid].started for pid in found}
