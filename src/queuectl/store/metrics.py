"""The figures of a queue that outlive its jobs: totals, tallies of runs, charts, and the snapshot for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from queuectl.errors import InvalidInput
from queuectl.jobs.lifecycle import State
from queuectl.jobs.model import WORKER_STATES
from queuectl.jobs.states import FINISHED
from queuectl.metrics import run_stats
from queuectl.metrics.run_stats import Histogram, Point, QueueFigures, Snapshot
from queuectl.store import limits
from queuectl.store import read_queries as ask
from queuectl.store import write_queries as sql
from queuectl.store.views import Views

if TYPE_CHECKING:
    from collections.abc import Iterable

    from queuectl.store.engine import Engine, Row, Transaction

FIRST_ONES = 100  # of each queue and priority
OVERDUE = 1000
RUN_ENDS = ("completed", "failed", "dead", "cancelled", "pending")


class Histograms(NamedTuple):
    """The run times and waiting times of all runs of a queue, and how many there were by the state they led to."""

    runs: Histogram
    waits: Histogram
    ended: dict[str, int]


class Figures:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def series(self, seconds: int) -> list[Point]:
        """What ended in the last hour (3600), day (86400) or week (604800), in steps of equal length. The last one is
        that in which we are."""
        if seconds not in run_stats.CHARTS:
            known = ", ".join(map(str, run_stats.CHARTS))
            raise InvalidInput(f"there is no chart of {seconds} seconds", f"there are those of {known}")
        chart = run_stats.CHARTS[seconds]
        with self._engine.read() as tx:
            since = run_stats.beginning(tx.now, seconds)
            rows = tx.rows(ask.TALLIES_SINCE, {"span": chart.span, "step": chart.step, "since": since})
            return run_stats.points(tx.now, seconds, [(*row[:4], int(row[4]), int(row[5])) for row in rows])

    def oldest_wait(self) -> dict[str, int]:
        """The moment since which the oldest due job of each queue has been waiting; no queue that has none due.

        Of each priority the first FIRST_ONES jobs in the order of their claim are looked at, so it is exact unless
        more than those have come back to the front, by a retry, since an older one became due. Of jobs that no worker
        has taken note of since they became due, the OVERDUE oldest are. Those put aside for their key do not count.
        """
        with self._engine.read() as tx:
            return _oldest_wait(tx)

    def snapshot(self) -> Snapshot:
        """All of it at one moment, but for the workers, looked at a moment later. No queue that ever had a job
        is left out, and no zero: Prometheus does not see the first step of a counter that begins with it."""
        with self._engine.read() as tx:
            counts, rules = tx.rows(sql.COUNTS), limits.all_rules(tx)
            totals, histograms, oldest, now = _totals(tx, counts), _histograms(tx), _oldest_wait(tx), tx.now
        jobs: dict[str, dict[str, int]] = {}
        for queue, state, n in counts:
            states = jobs.setdefault(queue, {str(state): 0 for state in State})
            states[state] += int(n)
        none = {str(state): 0 for state in State}
        nothing = Histograms(Histogram.of([]), Histogram.of([]), {})
        queues = {}
        for queue in sorted({*jobs, *totals, *histograms, *rules}):
            runs, waits, ended = histograms.get(queue, nothing)
            queues[queue] = QueueFigures(
                jobs=jobs.get(queue, none),
                finished=totals.get(queue, dict.fromkeys(FINISHED, 0)),
                ended={**dict.fromkeys(RUN_ENDS, 0), **ended},
                runs=runs,
                waits=waits,
                oldest_ms=max(0, now - oldest.get(queue, now)),
                paused=queue in rules and rules[queue].paused,
            )
        workers = dict.fromkeys(WORKER_STATES, 0)
        for worker in Views(self._engine).workers():
            workers[worker.state] += 1
        return Snapshot(queues, workers)


def _totals(tx: Transaction, counts: Iterable[Row]) -> dict[str, dict[str, int]]:
    """How many jobs have finished in each queue, ever: what is there, and what has left."""
    totals: dict[str, dict[str, int]] = {}
    for queue, state, n in (*counts, *tx.rows(ask.DEPARTED)):
        states = totals.setdefault(queue, dict.fromkeys(FINISHED, 0))
        if state in states:
            states[state] += int(n)
    return totals


def _histograms(tx: Transaction) -> dict[str, Histograms]:
    cells: dict[str, dict[str, list[Any]]] = {}
    ended: dict[str, dict[str, int]] = {}
    for queue, state, what, *cell in tx.rows(ask.TALLIES_EVER):
        cells.setdefault(queue, {"run": [], "wait": []})[what].append(cell)
        if what == "run":
            states = ended.setdefault(queue, {})
            states[state] = states.get(state, 0) + cell[1]
    return {
        queue: Histograms(Histogram.of(found["run"]), Histogram.of(found["wait"]), ended[queue])
        for queue, found in cells.items()
    }


def _oldest_wait(tx: Transaction) -> dict[str, int]:
    oldest: dict[str, int] = {}
    overdue = tx.rows(ask.OVERDUE_SINCE, {"now": tx.now, "limit": OVERDUE})
    for queue, since in (*tx.rows(ask.DUE_SINCE, {"limit": FIRST_ONES}), *overdue):
        oldest[queue] = min(since, oldest.get(queue, since))
    return oldest
