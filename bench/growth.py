"""Does it stay fast? The store's operations in queues of a thousand to five million jobs, in several mixtures."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw

from bench.measure import Bar, Figure, number, say
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Report
from queuectl.store import Store, open_store

SIZES = (1_000, 100_000, 1_000_000, 5_000_000)
REPEAT = 200
STATES = ("pending", "completed", "dead")

# Each mixture by the columns in which its rows differ: state, ready, priority, run_at, finished_at.
MIXTURES = {
    "pending": "'pending', 1, 0, 0, NULL",
    "finished": "'completed', 0, 0, 0, 1700000000000 + value",
    "future, of high priority": "'pending', 0, 1000, 4000000000000 + value, NULL",
    "retries waiting": "'failed', 0, 0, 4000000000000 + value, NULL",
}

FILL = """
WITH RECURSIVE numbers (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < :count)
INSERT INTO jobs (id, command, queue, state, ready, priority, run_at, finished_at, max_retries, backoff_base,
                  created_at, updated_at)
SELECT printf('fill%08d', value), 'true', 'default', {mixture}, 3, 2, 1700000000000, 1700000000000
  FROM numbers
"""


def filled(folder: Path, mixture: str, count: int) -> Store:
    path = str(folder / "queue.db")
    open_store(path).close()
    db = apsw.Connection(path)
    db.pragma("synchronous", "off")
    db.execute(FILL.replace("{mixture}", MIXTURES[mixture]), {"count": count})
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return open_store(path, durable=False)


def middle(action: Callable[[], object], repeat: int = REPEAT) -> float:
    """Milliseconds of one call: the median of many."""
    took = []
    for _ in range(repeat):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return sorted(took)[len(took) // 2] * 1000


def operations(store: Store) -> dict[str, float]:
    """Each operation's milliseconds in this queue."""
    figures = {"enqueue": middle(lambda: store.enqueue([NewJob("true", priority=5)]))}
    store.register("bench", 1, "here", 1, (), 1)
    config = store.config()
    held = store.tick("bench", (), 1).claims

    def claim_and_settle() -> None:
        nonlocal held
        ended = [(claim, after_run(claim, Exited(0), config, 0), Report(1)) for claim in held]
        held = store.tick("bench", ended, 1).claims

    figures["claim and settle"] = middle(claim_and_settle, REPEAT - 10)
    figures["status"] = middle(store.views.counts)
    figures["list"] = middle(lambda: store.views.jobs(limit=20), 20)
    figures["list --state"] = max(middle(partial(store.views.jobs, state, limit=20), 5) for state in STATES)
    figures["metrics"] = middle(store.views.metrics, 5)
    return figures


def measure(sizes: tuple[int, ...] = SIZES) -> tuple[dict[str, Figure], Iterator[Bar]]:
    found: dict[str, Figure] = {}
    slowest: dict[str, float] = {}
    print(f"  {'milliseconds':42}" + "".join(f"{size:>12,}" for size in sizes))
    for mixture in MIXTURES:
        rows: dict[str, list[float]] = {}
        for size in sizes:
            say(f"{mixture}: {size:,} jobs")
            folder = Path(tempfile.mkdtemp(prefix="queuectl-bench-"))
            store = filled(folder, mixture, size)
            for name, took in operations(store).items():
                rows.setdefault(name, []).append(took)
            store.close()
            shutil.rmtree(folder)
        say("")
        for name, values in rows.items():
            print(f"  {f'{mixture}: {name}':42}" + "".join(f"{number(value):>12}" for value in values), flush=True)
            found[f"{mixture}: {name}"] = Figure(f"{mixture}: {name}", "ms by size", values)
            slowest[name] = max(slowest.get(name, 0), values[-1] / values[0])
    return found, bars(found, slowest, sizes)


def bars(found: dict[str, Figure], slowest: dict[str, float], sizes: tuple[int, ...]) -> Iterator[Bar]:
    worst = slowest["claim and settle"]
    yield Bar(
        f"claim at {sizes[-1]:,} rows against {sizes[0]:,}, worst mixture",
        worst,
        f"{worst:.2f}",
        1.5,
        1.1,
        at_least=False,
    )
    status = max(figure.values[-1] for name, figure in found.items() if name.endswith(": status"))
    yield Bar(f"status at {sizes[-1]:,} rows, ms", status, f"{status:.2f}", 100, 10, at_least=False)
