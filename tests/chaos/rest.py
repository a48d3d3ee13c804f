"""What must hold of the rows of a queue at any moment (`wrong_rows`), and of all it has when it is at rest: nothing
is due, nothing runs, and no worker is left.

Each check returns what is wrong, in sentences. Those that take a `Replay` compare what is stored with what the
recorder has seen.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from queuectl.errors import NotFound
from queuectl.jobs import dependency_rules
from queuectl.jobs.states import FINISHED
from queuectl.store import Store
from queuectl.system.times import now_ms
from queuectl.worker import cgroup
from tests.chaos.invariants import Replay

NO_REASON = "Nothing holds it back: it will be claimed in a moment."

JOBS = "SELECT seq, id, queue, state, run, ready, parked, key, unmet, worker_id FROM jobs ORDER BY seq"
OPEN = """
SELECT child, parent, condition, jobs.state FROM dependencies LEFT JOIN jobs ON jobs.seq = parent
 WHERE dependencies.state = 'open'
"""
EVENTS = "SELECT job, n, state, run, started_at FROM events ORDER BY job, n"
STRAYS = {
    "events": "SELECT job FROM events WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE seq = job)",
    "tags": "SELECT job FROM tags WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE seq = job)",
    "results": "SELECT job FROM results WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE seq = job)",
    "dependencies": "SELECT child FROM dependencies WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE seq = child)",
}


# -- rows ------------------------------------------------------------------------------------------------


def wrong_rows(store: Store) -> list[str]:
    """What is stored at one moment, compared with itself; of a copy, too."""
    with store.engine.read() as tx:
        jobs = tx.rows(JOBS)
        counts = tx.rows("SELECT queue, state, n FROM counts")
        open_ones = tx.rows(OPEN)
        events = tx.rows(EVENTS)
        strays = {table: tx.rows(question) for table, question in STRAYS.items()}
    problems = [f"{len(rows)} {table} of jobs that are gone" for table, rows in strays.items() if rows]
    problems += _wrong_counts([(queue, state) for _, _, queue, state, *_ in jobs], counts)
    problems += _stuck(jobs, open_ones)
    numbers: dict[int, list[int]] = defaultdict(list)
    for job, n, *_ in events:
        numbers[job].append(n)
    problems += [
        f"job {job}: its events are {ns}" for job, ns in numbers.items() if ns != list(range(1, len(ns) + 1))
    ]
    return problems


def damaged(store: Store) -> list[str]:
    findings = [finding for finding in store.engine.checkup() if finding.check == "integrity" and not finding.ok]
    return [f"integrity: {finding.found}" for finding in findings]


def _wrong_counts(jobs: list[tuple[str, str]], counts: list[tuple[str, str, int]]) -> list[str]:
    kept: Counter[tuple[str, str]] = Counter()
    for queue, state, n in counts:
        kept[queue, state] += int(n)
    there = Counter(kind for kind in jobs if kind[1] != "processing")  # these are counted when somebody asks
    return [
        f"counted {kept[kind]} {kind[1]} in {kind[0]}, there are {there[kind]}"
        for kind in sorted(kept.keys() | there.keys())
        if kept[kind] != there[kind]
    ]


def _stuck(jobs: list[tuple], open_ones: list[tuple]) -> list[str]:  # type: ignore[type-arg]
    """Jobs that wait for nothing: parked with no run of their key and nobody of theirs about to run, or blocked by
    nothing that is still to come."""
    running = {key for _, _, _, state, _, _, _, key, *_ in jobs if state == "processing"}
    ready = {(key, queue) for _, _, queue, _, _, is_ready, _, key, *_ in jobs if is_ready}
    waiting: Counter[int] = Counter()
    problems = []
    for child, parent, condition, state in open_ones:
        waiting[child] += 1
        if state is None or dependency_rules.outcome_of(condition, state) != "open":
            problems.append(f"job {child} waits for {parent}, which is {state}, to end {condition}")
    for seq, id, queue, state, _, _, parked, key, unmet, _ in jobs:
        if parked and key not in running and (key, queue) not in ready:
            problems.append(f"{id}: parked, and nothing will let it go")
        if state == "blocked" and unmet != waiting[seq]:
            problems.append(f"{id}: counts {unmet} to wait for, there are {waiting[seq]}")
    return problems


def wrong_history(store: Store, replay: Replay) -> list[str]:
    """What is stored, compared with what was recorded: the jobs, and in their events each of their transitions."""
    with store.engine.read() as tx:
        jobs = {seq: (id, state, run) for seq, id, _, state, run, *_ in tx.rows(JOBS)}
        rows = tx.rows(EVENTS)
    problems = []
    seen = {seq: (job["id"], job["state"], job["run"]) for seq, job in replay.jobs.items()}
    for seq in jobs.keys() ^ seen.keys():
        problems.append(f"job {seq}: stored {jobs.get(seq)}, recorded {seen.get(seq)}")
    events: dict[int, list[tuple[str, int, bool]]] = defaultdict(list)
    for job, _, state, run, started_at in rows:
        events[job].append((state, run, started_at is not None))
    for seq in jobs.keys() & seen.keys():
        if jobs[seq] != seen[seq]:
            problems.append(f"job {seq}: stored {jobs[seq]}, recorded {seen[seq]}")
        problems += [f"{jobs[seq][0]}: {what}" for what in untold(replay.story[seq], events[seq])]
    return problems


def untold(story: list[tuple[str, int]], events: list[tuple[str, int, bool]]) -> list[str]:
    """Transitions without an event, and events of transitions that never were. What is only noted changes nothing."""
    (now, _), *turns = story
    last_ended = 0
    for state, run, ended in events:
        if ended and run <= last_ended:
            return [f"the end of run {run} stands behind that of run {last_ended}"]
        last_ended = run if ended else last_ended
        if turns and (state, run) == turns[0]:
            now, _ = turns.pop(0)
        elif ended or state not in (now, "processing"):
            return [f"its events tell of {state} in run {run}, which never was; next was {turns[:1]}"]
    return [f"its events do not tell of {turns}"] if turns else []


# -- jobs ------------------------------------------------------------------------------------------------


def left_workers(store: Store) -> list[str]:
    """Workers that are registered, though all have left."""
    with store.engine.read() as tx:
        return [f"worker {id} is still registered" for (id,) in tx.rows("SELECT id FROM workers")]


def lost(acknowledged: Iterable[str], replay: Replay) -> list[str]:
    """Jobs whose enqueueing was acknowledged, and that are neither stored nor deleted by a command."""
    there = _stored(replay) | replay.deleted
    return [f"{id}: lost, although it was acknowledged" for id in acknowledged if id not in there]


def without_reason(store: Store) -> list[str]:
    """Unfinished jobs of which `explain` cannot say what they wait for."""
    workers = store.views.workers()
    problems = []
    for id in store.views.unfinished():
        try:
            job = store.views.job(id)
            reasons = store.views.explain(job, workers, now_ms())
        except NotFound:
            continue
        if job.state not in FINISHED and (not reasons or NO_REASON in reasons):
            problems.append(f"{id}: {job.state}, and nothing says why: {reasons}")
    return problems


# -- processes and files ---------------------------------------------------------------------------------


def stray_processes(identity: str, replay: Replay) -> list[str]:
    """Live processes of runs, unless their run has completed: what that leaves behind is left on purpose."""
    problems = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        tags = [one.decode(errors="replace") for one in variables if one.startswith(b"QUEUECTL_RUN=")]
        for tag in tags[:1]:
            if found := re.fullmatch(rf"QUEUECTL_RUN={identity}:(\w+):(\d+):(\d+)", tag):
                run = int(found[2]), int(found[3])
                if replay.ends.get(run) != "completed":
                    problems.append(f"process {pid} of run {run[1]} of job {run[0]} lives: {words.strip()}")
    return problems


def make_old(folder: str) -> None:
    """Let the files in a run folder be old, so that workers clear away what nobody needs: new ones they spare."""
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            os.utime(os.path.join(folder, name), (1, 1))
        except FileNotFoundError:
            pass


def leaked_files(run_dir: str, workers: Iterable[str]) -> list[str]:
    """What workers left behind that have all gone: files in their folder, control groups."""
    left = sorted(os.listdir(run_dir)) if os.path.isdir(run_dir) else []
    problems = [f"left in the run folder: {name}" for name in left]
    groups = [group for worker in sorted(workers) if (group := cgroup.path_of(worker)) and os.path.isdir(group)]
    # One with a process in it is what a completed job has left behind.
    return problems + [f"control group left: {os.path.basename(one)}" for one in groups if not cgroup.members(one)]


def leaked_logs(folder: Path, replay: Replay) -> list[str]:
    """Logs of jobs that were deleted."""
    ids = [path.name.removeprefix("job_").removesuffix(".log") for path in folder.glob("job_*.log")]
    return [f"{id}: deleted, but its log is there" for id in sorted(replay.deleted & {*ids} - _stored(replay))]


def _stored(replay: Replay) -> set[str]:
    return {job["id"] for job in replay.jobs.values()}


def complaints(text: str) -> list[str]:
    """Lines that no user should ever see."""
    return [line for line in text.splitlines() if "Traceback (most" in line or "this is a bug" in line]
