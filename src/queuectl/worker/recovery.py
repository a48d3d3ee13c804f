"""Putting right what dead workers left: end their processes, put their jobs back, then tidy up."""

from __future__ import annotations

from dataclasses import replace

from queuectl import bell, logs, times
from queuectl.model import Claim
from queuectl.store import Store
from queuectl.tally import Tally
from queuectl.worker import board, card, cgroup, reports
from queuectl.worker.kin import Traces, kill_survivors, tag_of
from queuectl.worker.log import Log


class Recovery:
    """What a worker does for the dead: as its first act, and with every beat."""

    def __init__(self, store: Store, group: str, tally: Tally, log: Log) -> None:
        self._store = store
        self._group = group
        self._tally = tally  # counts the lost runs, too: who ran them cannot
        self._log = log
        self._unswept = True

    def put_back(self, patience: float, everywhere: bool) -> dict[str, str | None]:
        """Recover every worker that no longer answers, or only those of this machine; the order that each of them
        had. One whose processes will not die within `patience` seconds must wait, and with it its jobs."""
        orders = {}
        for worker, claims in self._store.lost_workers(everywhere).items():
            if not kill_survivors(self._traces_of(worker, claims), patience):
                self._log.tell("a lost run will not die, its job must wait", by=worker)
                continue
            found = self._store.recover(worker)
            if found is None:  # it has shown itself
                continue
            orders[worker], recovered = found
            for claim, settlement, report in recovered:
                self._tally.add(claim.queue, settlement.state, report.duration_ms or 0, claim.wait_ms)
                self._mark_lost(claim)
                reports.remove(reports.path_of(self._store.engine.run_dir, worker, claim))
                self._log.tell("run lost", job=claim.id, run=claim.run, by=worker, next=settlement.state)
            board.remove(board.path_of(self._store.engine.run_dir, worker))
        if orders or self._unswept:
            self._sweep()
        return orders

    def _traces_of(self, worker: str, claims: list[Claim]) -> Traces:
        """What its board says, and the tags of what the store says it held."""
        engine = self._store.engine
        traces = board.read(board.path_of(engine.run_dir, worker), engine.identity)
        return replace(traces, tags=traces.tags | {tag_of(worker, claim, engine.identity) for claim in claims})

    def _mark_lost(self, claim: Claim) -> None:
        """Close the lost run's part of its log, if it has one."""
        path = logs.path_of(self._store.engine.log_dir, claim.id)
        now = times.now_ms()
        try:
            logs.close_run(path, claim.started_at, logs.end_mark(now, "lost", max(0, now - claim.started_at)))
        except OSError as error:
            self._log.tell("log not written", job=claim.id, reason=error)

    def _sweep(self) -> None:
        """Clear away what the dead have left, but for what is needed to end their runs."""
        self._unswept = False
        run_dir = self._store.engine.run_dir
        boards = [worker + board.SUFFIX for worker in self._store.lost_workers()]
        try:
            bell.sweep(run_dir, spare=[*boards, *(f"{pid}{card.SUFFIX}" for pid in card.managers(run_dir))])
            cgroup.sweep(self._group)
        except OSError as error:  # tidiness is no reason to stop
            self._log.tell("upkeep failed", reason=error)
