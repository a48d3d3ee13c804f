"""From `enqueue` to the first byte of the job's output, with an idle worker."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from bench.measure import Bar, Figure, percentile
from bench.rig import rig
from queuectl.jobs.job_spec import NewJob

JOBS = 300


def measure(rounds: int) -> tuple[dict[str, Figure], Iterator[Bar]]:
    figures = {share: Figure(f"enqueue to output, p{share}", "ms") for share in (50, 95, 99)}
    for _ in range(rounds):
        took = one_round()
        for share, figure in figures.items():
            figure.values.append(percentile(took, share / 100))
    for figure in figures.values():
        print(f"  {figure.name}: {figure}", flush=True)
    return {figure.name: figure for figure in figures.values()}, bars(figures)


def one_round() -> list[float]:
    """Milliseconds until the job's shell has written into a pipe we read: a little more than until it was started."""
    took = []
    with rig() as made:
        pipe = str(made.folder / "pipe")
        os.mkfifo(pipe)
        made.queuectl("worker", "start", "--count", "2")
        reader = os.open(pipe, os.O_RDWR)  # never at its end
        job = NewJob(f"echo > {pipe}")
        for _ in range(JOBS):
            began = time.perf_counter()
            made.store.enqueue([job])
            os.read(reader, 16)
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(0.01)  # let the worker fall asleep again
        os.close(reader)
    return took


def bars(figures: dict[int, Figure]) -> Iterator[Bar]:
    yield Bar("enqueue to output, p50 ms", figures[50].median, str(figures[50]), 5, 2, at_least=False)
    yield Bar("enqueue to output, p99 ms", figures[99].median, str(figures[99]), 20, 8, at_least=False)
