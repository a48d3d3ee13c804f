"""What a queue costs that has nothing to do: processor time, wake-ups and memory of a manager and two workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Bar, Figure
from bench.rig import Rig, rig

SECONDS = 30.0
JOBS = 100_000


def processes(made: Rig) -> list[int]:
    workers = made.store.views.workers()
    return [worker.pid for worker in workers] + list({worker.manager_pid for worker in workers})


def on_processor(pid: int) -> float:
    """Seconds, as the scheduler counted them."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def wake_ups(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    return 0


def proportional_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def measure(rounds: int) -> tuple[dict[str, Figure], Iterator[Bar]]:
    share = Figure("idle: of a core, manager and 2 workers", "%")
    wakes = Figure("idle: wake-ups", "/s")
    memory = Figure("idle: memory (PSS), manager and 2 workers", "MiB")
    for _ in range(rounds):
        with rig() as made:
            made.queuectl("worker", "start", "--count", "2")
            time.sleep(3)
            pids = processes(made)
            before, woken = sum(map(on_processor, pids)), sum(map(wake_ups, pids))
            time.sleep(SECONDS)
            share.values.append((sum(map(on_processor, pids)) - before) / SECONDS * 100)
            wakes.values.append((sum(map(wake_ups, pids)) - woken) / SECONDS)
            memory.values.append(sum(map(proportional_kb, pids)) / 1024)
    for figure in (share, wakes, memory):
        print(f"  {figure.name}: {figure}", flush=True)
    bars = iter([Bar("idle processor, % of a core", share.median, str(share), 0.05, None, at_least=False)])
    return {figure.name: figure for figure in (share, wakes, memory)}, bars


def memory_over(jobs: int = JOBS) -> tuple[dict[str, Figure], Iterator[Bar]]:
    """A worker's memory after a tenth of the jobs and after all of them."""
    growth = Figure(f"memory of a worker over {jobs:,} jobs", "× of that after a tenth")
    with rig() as made:
        made.load(jobs)
        made.queuectl("worker", "start", "--count", "2", "--concurrency", "4")
        [pid, *_] = processes(made)
        early = 0
        while (done := made.store.views.counts()["completed"]) < jobs:
            if not early and done >= jobs // 10:
                early = proportional_kb(pid)
            time.sleep(0.2)
        growth.values.append(proportional_kb(pid) / early)
    print(f"  {growth.name}: {growth}", flush=True)
    bars = iter(
        [
            Bar(
                f"memory after {jobs:,} jobs against {jobs // 10:,}",
                growth.median,
                str(growth),
                1.1,
                None,
                at_least=False,
            )
        ]
    )
    return {growth.name: growth}, bars
