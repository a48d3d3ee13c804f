"""A ledger that jobs write themselves, and the checker that reads it.

Every line is appended by the job with O_APPEND, so the order of the lines is the order of what happened. A run
writes S when it starts, B while it lives (some from a process in a session of its own, to see that those are ended
too), E when it ends. If any line of an older run stands behind the S of a newer one, two runs of a job were alive at
once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from queuectl.store import Store

# $QUEUECTL_RUN ends in the run's number. The beats come from a grandchild that left the session and lost its parent.
SCRIPT = """
say() { echo "$1 $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"; }
say S
if [ -n "$STRAY" ]; then
  ( setsid sh -c 'for i in 1 2 3 4 5 6; do
      sleep 0.02
      echo "B $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"
    done' & )
fi
for i in 1 2 3 4 5 6; do sleep 0.02; say B; done
say E
"""


@dataclass
class Verdict:
    """What was found; `problems` is empty if every promise held."""

    jobs: int = 0
    runs: int = 0
    crashes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass
class Ledger:
    """What the jobs wrote."""

    runs: int = 0
    started: set[tuple[str, int]] = field(default_factory=set)
    ended: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # runs that came to their end
    left: set[tuple[str, int]] = field(default_factory=set)  # runs that left a process behind on purpose (L)
    stayed: set[tuple[str, int]] = field(default_factory=set)  # runs of which that came to its end (D)
    problems: list[str] = field(default_factory=list)  # what was wrong with the order


def read(path: Path) -> Ledger:
    found = Ledger()
    current: dict[str, int] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        kind, job, number = line.split()
        run = int(number)
        if kind == "D":
            found.stayed.add((job, run))
            continue
        if kind == "S":
            found.runs += 1
            found.started.add((job, run))
            if run <= current.get(job, 0):
                found.problems.append(f"{job}: run {run} started after run {current[job]}")
            current[job] = run
        elif run != current.get(job):
            found.problems.append(f"{job}: run {run} still lived after run {current.get(job)} had started")
        if kind == "E":
            found.ended[job].add(run)
        if kind == "L":
            found.left.add((job, run))
    return found


def check(store: Store, ledger: Path, acknowledged: list[str]) -> Verdict:
    """Compare what the jobs wrote with what the queue says."""
    found = read(ledger)
    verdict = Verdict(jobs=len(acknowledged), runs=found.runs, problems=found.problems)
    stored = {job.id: job for job in store.views.jobs(limit=-1)}
    for id in acknowledged:
        if id not in stored:
            verdict.problems.append(f"{id}: lost, although its enqueueing was acknowledged")
            continue
        verdict.crashes += stored[id].crashes
        settled = [event for event in store.views.history(id) if event.state == "completed"]
        if stored[id].state != "completed":
            verdict.problems.append(f"{id}: {stored[id].state}, not completed ({stored[id].error})")
        elif len(settled) != 1:
            verdict.problems.append(f"{id}: completed {len(settled)} times")
        elif settled[0].run not in found.ended[id]:
            verdict.problems.append(f"{id}: completed by run {settled[0].run}, which never came to its end")
    verdict.problems += [f"{finding.check}: {finding.found}" for finding in store.engine.checkup() if
                         finding.check == "integrity" and not finding.ok]  # fmt: skip
    return verdict
