"""A backlog of `true`: how many a second, against the limit of the machine and against everyone else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from bench import peers
from bench.measure import Bar, Contender, Figure, take_turns
from bench.measure import table as show
from bench.rig import compiled, drained, timed

JOBS = 12_000
LIMIT = "the limit: a C loop in 2 processes"
XARGS = "xargs -P2 -n1 sh -c"
OURS = "queuectl, 2 workers with 4 slots"
EIGHT = "queuectl, 8 workers"
PRINTING = "queuectl, 2 workers with 4 slots, a line each"


def spawn_limit() -> float:
    return JOBS / timed([compiled("spawnlimit"), "2", str(JOBS)])


def xargs() -> float:
    return JOBS / timed(["xargs", "-P2", "-n1", "sh", "-c"], input=b"true\n" * JOBS, stdout=subprocess.DEVNULL)


def contenders(with_peers: bool) -> list[Contender]:
    ours = [
        Contender(LIMIT, spawn_limit),
        Contender(OURS, lambda: drained(JOBS, "--count", "2", "--concurrency", "4")),
        Contender(XARGS, xargs),
        Contender(EIGHT, lambda: drained(JOBS, "--count", "8")),
        Contender(PRINTING, lambda: drained(JOBS, "--count", "2", "--concurrency", "4", command="echo a line")),
    ]
    return ours + (peers.contenders() if with_peers else [])


def measure(rounds: int, with_peers: bool) -> tuple[dict[str, Figure], Iterator[Bar]]:
    figures = take_turns(contenders(with_peers), rounds, "jobs/s")
    show(list(figures.values()), figures[LIMIT])
    return figures, bars(figures)


def bars(figures: dict[str, Figure]) -> Iterator[Bar]:
    ours = figures[OURS]
    best = max(ours, figures[EIGHT], key=lambda figure: figure.median)
    for what, ratio, bar, stretch in (
        ("drain, 2 × 4 slots, against the C limit", ours.to(figures[LIMIT]), 0.75, 0.95),
        ("drain, 2 × 4 slots, against xargs -P2", ours.to(figures[XARGS]), 1.1, 1.4),
        ("drain, 8 × 1 slot, against the best of ours", figures[EIGHT].to(best), 0.7, 0.9),
        ("drain of jobs that print, against silent ones", figures[PRINTING].to(ours), 0.45, 0.9),
    ):
        yield Bar(what, ratio.median, str(ratio), bar, stretch)
