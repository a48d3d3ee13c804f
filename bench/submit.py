"""Handing work in: one `queuectl enqueue`, as a script calls it, and many jobs at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.measure import Bar, Contender, Figure, take_turns
from bench.rig import QUEUECTL, rig

CALLS = 40
JOBS = 100_000
BARE = "python -c pass"
ONE = "queuectl enqueue true"
BULK = f"queuectl enqueue -f, {JOBS:,} JSON lines"
LINES = f"queuectl enqueue --lines -f, {JOBS:,} commands"


def per_call(command: list[str]) -> Callable[[], float]:
    """Milliseconds of one call."""

    def run() -> float:
        with rig() as made:
            made.queuectl("enqueue", "true")
            began = time.perf_counter()
            for _ in range(CALLS):
                subprocess.run(
                    command, env=made.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
                )
            return (time.perf_counter() - began) / CALLS * 1000

    return run


def bulk(line: str, *options: str) -> Callable[[], float]:
    """Jobs a second, the start of the command included."""

    def run() -> float:
        with rig() as made:
            made.queuectl("status")
            path = made.folder / "jobs"
            path.write_text("".join(line % number for number in range(JOBS)))
            began = time.perf_counter()
            made.queuectl("enqueue", *options, "-f", os.fspath(path))
            return JOBS / (time.perf_counter() - began)

    return run


def measure(rounds: int) -> tuple[dict[str, Figure], Iterator[Bar]]:
    calls = [
        Contender(BARE, per_call([sys.executable, "-c", "pass"])),
        Contender(ONE, per_call([QUEUECTL, "enqueue", "true"])),
    ]
    figures = take_turns(calls, rounds, "ms")
    job = json.dumps({"command": "echo %d", "priority": 1}) + "\n"
    loads = [Contender(BULK, bulk(job)), Contender(LINES, bulk("echo %d\n", "--lines"))]
    figures |= take_turns(loads, rounds, "jobs/s")
    for figure in figures.values():
        print(f"  {figure.name}: {figure}", flush=True)
    return figures, bars(figures)


def bars(figures: dict[str, Figure]) -> Iterator[Bar]:
    ratio = figures[ONE].to(figures[BARE])
    yield Bar("one enqueue against python -c pass", ratio.median, str(ratio), 2.5, 1.7, at_least=False)
    yield Bar("bulk enqueue, JSON lines a second", figures[BULK].median, str(figures[BULK]), 50_000, 150_000)
