"""What the runs of a worker say of themselves, in a file each, on its way to the store.

The files lie beside the worker's bell and bear its name: what a dead one leaves is swept away with its other things.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuectl.errors import Untrusted
from queuectl.jobs import run_report
from queuectl.jobs.model import Claim
from queuectl.store import Store
from queuectl.system import private_files
from queuectl.worker.log import Log

if TYPE_CHECKING:
    from queuectl.worker.process import Run

LOOK_EVERY = 1.0  # seconds; and a run that is younger is not looked at
SURELY_PAST = 2.0  # seconds after which a file's time stamp tells it from what was written since
NEVER = float("inf")


@dataclass(slots=True)
class _Known:
    """What we know of one run's file."""

    stamp: tuple[int, int, int] = (0, 0, 0)
    report: str = ""
    saved: str = ""


_NOTHING = _Known()


class Reports:
    def __init__(self, store: Store, worker_id: str, log: Log) -> None:
        self._store = store
        self._worker_id = worker_id
        self._log = log
        self._looked_at = 0.0
        self._known: dict[int, _Known] = {}  # by the job's number, of runs that have said something

    def due(self, runs: Mapping[int, Run]) -> float:
        """When to look again, on the monotonic clock; the runs stand in the order in which they began."""
        for run in runs.values():
            return max(run.began, self._looked_at) + LOOK_EVERY
        return NEVER

    def pass_on(self, runs: Iterable[Run]) -> None:
        """Save what is new. What cannot be saved (StoreUnavailable) is still new at the next look."""
        self._looked_at = time.monotonic()
        news = [
            (run.claim, report)
            for run in runs
            if run.began + LOOK_EVERY <= self._looked_at and (report := self._look(run)) is not None
        ]
        if news:
            saved = self._store.report(self._worker_id, news)
            for claim, report in news:
                if claim.seq in saved:
                    self._known[claim.seq].saved = report

    def _look(self, run: Run) -> str | None:
        """What it says, if that is new. What is only half written will be whole the next time, or at its end."""
        try:
            file = os.lstat(run.result_path)
            known = self._known.setdefault(run.claim.seq, _Known())
            stamp = (file.st_ino, file.st_mtime_ns, file.st_size)
            if stamp != known.stamp or time.time() - file.st_mtime <= SURELY_PAST:
                said, _ = _read(run.result_path)
                known.stamp = stamp
                known.report = run_report.dumped(said) if said else known.report
        except OSError:
            return None
        return known.report if known.report != known.saved else None

    def last(self, run: Run) -> str | None:
        """What a run that has ended says, if that is new, and what is wrong with it. Its file is gone then."""
        known = self._known.pop(run.claim.seq, _NOTHING)
        try:
            said, problem = _read(run.result_path)
        except FileNotFoundError:  # most runs say nothing; this one may have taken its file away
            return known.report if known.report != known.saved else None
        except Untrusted:
            said, problem = {}, "it is not a regular file"
        except OSError as error:
            said, problem = {}, (error.strerror or str(error)).lower()
        remove(run.result_path)
        if problem:
            self._log.tell("result not read", job=run.claim.id, run=run.claim.run, reason=problem)
            said = run_report.unread(said or run_report.loaded(known.report), problem)
        report = run_report.dumped(said)
        return report if said and report != known.saved else None


def path_of(folder: str, worker_id: str, claim: Claim) -> str:
    """Where this very run may write; nobody else does."""
    return f"{folder}/{worker_id}.{claim.seq}.{claim.run}.result"  # the dots tell it from a bell


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # most runs have none; or it is a folder, and not ours
        pass


def _read(path: str) -> tuple[run_report.Said, str]:
    file = private_files.open_file(path, os.O_RDONLY, written_by_job=True)
    try:
        start = max(0, os.fstat(file).st_size - run_report.LARGEST)
        data = os.pread(file, run_report.LARGEST, start)
    finally:
        os.close(file)
    return run_report.read(data.partition(b"\n")[2] or b"?" if start else data, cut=start > 0)
