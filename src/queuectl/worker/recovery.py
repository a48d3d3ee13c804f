"""Putting right what dead workers left: end their processes, put their jobs back, then tidy up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from queuectl.errors import Locked, Untrusted
from queuectl.jobs import log_files
from queuectl.jobs.lifecycle import Settlement
from queuectl.jobs.model import Claim, Report
from queuectl.metrics.run_stats import Tally
from queuectl.store import Store
from queuectl.store.store import RECOVERED_AT_ONCE
from queuectl.system import times, wakeup
from queuectl.worker import cgroup, manager_pidfile, progress, run_registry
from queuectl.worker.log import Log
from queuectl.worker.process_tree import Traces, kill_survivors, tag_of

Recovered = tuple[str | None, list[tuple[Claim, Settlement, Report]]]


class Recovery:
    """What a worker does for the dead: as its first act, and with every beat."""

    def __init__(self, store: Store, group: str, tally: Tally, log: Log) -> None:
        self._store = store
        self._group = group
        self._tally = tally  # counts the lost runs, too: who ran them cannot
        self._log = log
        self._unswept = True
        self._locked: set[str] = set()  # workers of whose jobs others have locked some

    def put_back(self, patience: float, everywhere: bool) -> dict[str, str | None]:
        """Recover every worker that no longer answers, or only those of this machine; the order that each of them
        had. One whose processes will not die within `patience` seconds must wait, and with it its jobs."""
        orders = {}
        for worker, claims in self._store.lost_workers(everywhere).items():
            try:
                traces = self._traces_of(worker, claims)
            except Untrusted as error:
                self._log.tell("a lost worker's runs cannot be known, its jobs must wait", by=worker, reason=error)
                continue
            if not kill_survivors(traces, patience):
                self._log.tell("a lost run will not die, its job must wait", by=worker)
                continue
            for found in self._recover(worker, claims):
                orders[worker], recovered = found
                for lost in recovered:
                    self._take_note(worker, *lost)
            if worker in orders and worker not in self._locked:
                run_registry.remove(run_registry.path_of(self._store.engine.run_dir, worker))
        if orders or self._unswept:
            self._sweep()
        return orders

    def _recover(self, worker: str, claims: list[Claim]) -> Iterator[Recovered]:
        """Put back its jobs, many at once or, if others have locked some, one by one: those must wait."""
        if worker not in self._locked:
            try:
                while found := self._store.recover(worker):  # else it has shown itself
                    yield found
                    if len(found[1]) < RECOVERED_AT_ONCE:
                        break
                return
            except Locked:
                self._locked.add(worker)
        waiting = 0
        for claim in claims:
            try:
                if found := self._store.recover(worker, only=claim):
                    yield found
            except Locked:
                waiting += 1
                self._log.tell("job locked by others, it must wait", job=claim.id, run=claim.run, by=worker)
        if not waiting:
            self._locked.discard(worker)

    def _take_note(self, worker: str, claim: Claim, settlement: Settlement, report: Report) -> None:
        self._tally.add(claim.queue, settlement.state, report.duration_ms or 0, claim.wait_ms)
        self._mark_lost(claim)
        progress.remove(progress.path_of(self._store.engine.run_dir, worker, claim))
        self._log.tell("run lost", job=claim.id, run=claim.run, by=worker, next=settlement.state)

    def _traces_of(self, worker: str, claims: list[Claim]) -> Traces:
        """What its board says, and the tags of what the store says it held."""
        engine = self._store.engine
        traces = run_registry.read(run_registry.path_of(engine.run_dir, worker), engine.identity)
        held = {tag_of(worker, claim, engine.identity) for claim in claims}
        since = traces.since if held <= traces.tags else 0  # of a run that is not on the board nothing is known
        return replace(traces, tags=traces.tags | held, since=since)

    def _mark_lost(self, claim: Claim) -> None:
        """Close the lost run's part of its log, if it has one."""
        path = log_files.path_of(self._store.engine.log_dir, claim.id)
        now = times.now_ms()
        try:
            log_files.close_run(
                path, claim.started_at, log_files.end_mark(now, "lost", max(0, now - claim.started_at))
            )
        except OSError as error:
            self._log.tell("log not written", job=claim.id, reason=error)

    def _sweep(self) -> None:
        """Clear away what the dead have left, but for what is needed to end their runs."""
        run_dir = self._store.engine.run_dir
        try:
            left = wakeup.silent(run_dir)
            # Asked after that: who dies now is not among them, and who is, and has runs on record, is among the lost.
            lost, cards = self._store.lost_workers(), manager_pidfile.wanted(run_dir)
            wakeup.remove(run_dir, [name for name in left if wakeup.owner_of(name) not in lost and name not in cards])
            cgroup.sweep(self._group)
        except OSError as error:  # tidiness is no reason to stop
            self._log.tell("upkeep failed", reason=error)
        self._unswept = False
