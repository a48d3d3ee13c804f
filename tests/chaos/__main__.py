"""The long version of the chaos tests: `scripts/chaos`. Prints what was tried and what held."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from queuectl.worker import cgroup
from tests.chaos import stops
from tests.chaos.commands_storm import CommandStorm
from tests.chaos.crowd import crowd, pace
from tests.chaos.diamond import stranded
from tests.chaos.flood import flood
from tests.chaos.ledger import Verdict
from tests.chaos.leftovers import leftovers
from tests.chaos.powercut import lost_by_power_cut
from tests.chaos.proxy import Proxy
from tests.chaos.storm import Storm
from tests.chaos.trial import trial
from tests.conftest import eventually
from tests.e2e.conftest import Cli
from tests.e2e.test_postgres import pooler
from tests.postgres import Server

GIB = 1024  # in the MiB that flood counts in
SHORT_STOPS, LONG_STOPS = (0.1, 1.0), (1.0, 60.0)  # seconds
Row = tuple[bool, str]


def storms(seeds: list[int], jobs: int, seconds: float, server: Server | None = None) -> Iterator[Row]:
    where = "on PostgreSQL" if server else "on SQLite"
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            storm = Storm(Cli(Path(folder), server.url(f"storm_{seed}") if server else ""), seed)
            verdict = storm.rage(jobs, seconds)
            figures = f"{verdict.jobs:,} jobs, {storm.kills} kills, {verdict.runs:,} runs, {verdict.crashes} crashed"
            yield not verdict.problems, f"kill storm {where}, seed {seed}: {figures}: {_found(verdict)}"


def command_storms(seeds: list[int], seconds: float, server: Server | None = None) -> Iterator[Row]:
    """With short stops; and, if there is time for it, once with long ones."""
    for seed in seeds:
        yield _command_storm(seed, seconds, SHORT_STOPS, server)
    if seconds >= LONG_STOPS[1]:
        yield _command_storm(seeds[0], seconds, LONG_STOPS, server)


def _command_storm(seed: int, seconds: float, stops: tuple[float, float], server: Server | None) -> Row:
    where = "on PostgreSQL" if server else "on SQLite"
    with tempfile.TemporaryDirectory() as folder:
        q = Cli(Path(folder), server.url(f"commands_{seed}_{stops[1]:.0f}") if server else "")
        storm = CommandStorm(q, seed, stops, crowd=3)
        try:
            verdict = storm.rage(seconds)
        finally:
            q.end_all()
    figures = (
        f"{sum(storm.known.done.values()):,} commands, {verdict.jobs:,} jobs, {verdict.runs:,} runs, "
        f"{storm.kills} kills, {storm.stopped} stops of up to {stops[1]:g} s"
    )
    found = "; ".join(verdict.problems[:3]) or f"{storm.changes:,} changes, each of them allowed"
    return not verdict.problems, f"command storm {where}, seed {seed}: {figures}: {found}"


def stopped(seconds: float, server: Server | None = None) -> Iterator[Row]:
    """Stops of every kind of process; the longest takes so long."""
    trials: dict[str, Callable[[Cli], list[str]]] = {
        "each process stopped for 1 s": lambda q: stops.stop_each(q, 1),
        "each process stopped for 5 s": lambda q: stops.stop_each(q, 5),
        f"all processes stopped for {seconds:g} s": lambda q: stops.stop_all(q, seconds),
        f"each process stopped at random for 0.1 to {seconds:g} s, seed 1": lambda q: stops.stop_at_random(
            q, 1, seconds * 1.5, seconds
        ),
        **{
            f"stopped for {seconds / 4:g} s in the transaction of its {what}": partial(
                stops.stop_in_transaction, what=what, seconds=seconds / 4
            )
            for what in stops.SPOTS
        },
    }
    where = "on PostgreSQL" if server else "on SQLite"
    for number, (what, found) in enumerate(trials.items()):
        with tempfile.TemporaryDirectory() as folder:
            q = Cli(Path(folder), server.url(f"stopped_{number}") if server else "")
            try:
                problems = found(q)
            finally:
                q.end_all()
        yield not problems, f"{what}, {where}: {'; '.join(problems) or 'all went on'}"


def pooled_storm(seed: int, jobs: int, seconds: float, server: Server) -> Iterator[Row]:
    """Through PgBouncer in transaction mode."""
    with tempfile.TemporaryDirectory() as folder, pooler(server) as port:
        q = Cli(Path(folder), f"{Server(port, pid=0).url(f'pooled_{seed}')}&notify=off")
        eventually(lambda: q("status").code == 0, "the pooler")
        storm = Storm(q, seed)
        verdict = storm.rage(jobs, seconds)
    figures = f"{verdict.jobs:,} jobs, {storm.kills} kills, {verdict.runs:,} runs, {verdict.crashes} crashed"
    yield not verdict.problems, f"kill storm through a pooler, seed {seed}: {figures}: {_found(verdict)}"


def _found(verdict: Verdict) -> str:
    return "; ".join(verdict.problems[:3]) or "0 lost, 0 overlapping, 0 stale settles, integrity ok"


def diamonds(parents: int, rounds: int, server: Server | None = None) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        left = stranded(Cli(Path(folder), server.url("diamonds") if server else ""), parents, rounds)
    where = "on PostgreSQL" if server else "on SQLite"
    yield not left, f"{rounds} jobs that waited for {parents:,} each, 4 workers, {where}: {len(left)} stranded"


def crowds(jobs: int, server: Server | None = None) -> Iterator[Row]:
    where = "on PostgreSQL" if server else "on SQLite"
    trials: dict[str, Callable[[Cli], list[str]]] = {
        "3 at once": lambda q: crowd(q, jobs, 3, "at_once"),
        "3 with a key at once": lambda q: crowd(q, jobs, 3, "key"),
        "3 at once, with 50 kills": lambda q: crowd(q, jobs, 3, "at_once", kills=50),
        "3 with a key at once, with 50 kills": lambda q: crowd(q, jobs, 3, "key", kills=50),
        "20 a second": lambda q: pace(q, jobs, 20, 1000),
    }
    for number, (what, found) in enumerate(trials.items()):
        with tempfile.TemporaryDirectory() as folder:
            problems = found(Cli(Path(folder), server.url(f"crowd_{number}") if server else ""))
        yield not problems, f"{what}: {jobs:,} jobs for 16 slots {where}: {'; '.join(problems) or 'never one more'}"


def daemons(jobs: int) -> Iterator[Row]:
    """Jobs that daemonise while they fail, twice each."""
    for slots in (1, 4):
        for group in ("with", "without"):
            with tempfile.TemporaryDirectory() as folder:
                q = Cli(Path(folder))
                q.env[cgroup.OFF] = "1" if group == "without" else ""
                problems = leftovers(q, jobs, slots, ["daemonise", "background", "no environment"])
            what = f"{jobs * 2:,} failing runs that daemonise, {slots} at once, {group} a control group"
            yield not problems, f"{what}: {'; '.join(problems) or '0 processes outlived their run'}"


def postgres(seeds: list[int], jobs: int, seconds: float, restarts: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, Server.start(Path(folder)) as server, Proxy(server.port) as proxy:
        yield from storms(seeds, jobs, seconds, server)
        yield from pooled_storm(seeds[0], jobs, seconds, server)
        yield from command_storms(seeds, seconds, server)
        yield from stopped(seconds, server)
        yield from diamonds(jobs // 2, restarts * 10, server)
        yield from crowds(jobs // 4, server)
        modes = itertools.cycle(["immediate", "fast"])
        yield _trial("restarts of the server", restarts, lambda: server.restart(next(modes)), jobs * 5 // 2, server)
        yield _trial("cuts of all connections", restarts * 10, proxy.cut, jobs, server, Server(proxy.port, pid=0))


def _trial(
    what: str, times: int, mishap: Callable[[], object], jobs: int, server: Server, way: Server | None = None
) -> Row:
    """`way` is how the workers reach the server, if not directly."""
    schema = f"trial_{times}"
    with tempfile.TemporaryDirectory() as folder:
        q = Cli(Path(folder), (way or server).url(schema))
        verdict = trial(q, jobs, mishap, times, server.url(schema))
    return not verdict.problems, f"{times} {what} during {verdict.jobs:,} jobs: {_found(verdict)}"


def power_cuts(rounds: int) -> Iterator[Row]:
    lost = {True: 0, False: 0}
    sound = True
    for _ in range(rounds):
        for durable in lost:
            with tempfile.TemporaryDirectory() as folder:
                missing, whole = lost_by_power_cut(Path(folder), _must, durable)
                lost[durable] += missing
                sound &= whole
    jobs = rounds * 10
    yield lost[True] == 0 and sound, f"{rounds} power cuts: {lost[True]} of {jobs} acknowledged jobs lost"
    yield lost[False] > 0 and sound, f"the same without a sync (must lose): {lost[False]} of {jobs} lost"


def recovery(rounds: int) -> Iterator[Row]:
    """From the kill of a worker to the start of the job's next run."""
    with tempfile.TemporaryDirectory() as folder:
        q = Cli(Path(folder))
        q.ok("config", "set", "crash_limit", "1000000")
        q.ok("worker", "start")
        took = []
        for number in range(rounds):
            start = Path(folder) / f"started-{number}"
            id = q.enqueue(f"date +%s%N >> {start}; [ $(wc -l < {start}) = 2 ] || sleep 60")
            eventually(start.exists, "the first run to start")
            [worker] = q.workers()
            killed = time.time_ns()
            os.kill(worker["pid"], 9)
            q.until(id, "completed")
            took.append((int(start.read_text().split()[1]) - killed) / 1e6)
        q.ok("worker", "stop")
        median = statistics.median(took)
        yield (
            median < 1000,
            f"recovery, {rounds} kills: next run after {median:.0f} ms (median), {max(took):.0f} ms (longest)",
        )


def floods(megabytes: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        q = Cli(Path(folder))
        result = flood(q, "yes 'a line of output'", megabytes, limit=10 * 1024 * 1024)
        q.ok("worker", "stop")
        held = result.start_kept and result.end_kept and result.log_size < 10.1 * 1024**2
        memory = result.peak_memory / 1024**2
        yield (
            held and memory < 100 and result.state == "completed",
            f"{megabytes / GIB:g} GiB of output: log of {result.log_size / 1024**2:.1f} MiB with start and end, "
            f"worker's memory {memory:.0f} MiB at most",
        )


def seeded(seed: int, jobs: int, seconds: float) -> Iterator[Row]:
    """Every storm with one seed, on both engines."""
    yield from storms([seed], jobs, seconds)
    yield from command_storms([seed], seconds)
    with tempfile.TemporaryDirectory() as folder, Server.start(Path(folder)) as server:
        yield from storms([seed], jobs, seconds, server)
        yield from command_storms([seed], seconds, server)


def suite(what: str, *tests: str, **env: str) -> Callable[[], Iterator[Row]]:
    """A part of the test suite, as one row."""

    def run() -> Iterator[Row]:
        command = [sys.executable, "-m", "pytest", "-n", "3", *tests]
        done = subprocess.run(command, env={**os.environ, "CI": "true", **env}, capture_output=True, text=True)
        counts = [line for line in done.stdout.splitlines() if re.search(r"\d (passed|failed|error)", line)]
        yield done.returncode == 0, f"{what}: {(counts or ['nothing ran'])[-1].strip('= ')}"

    return run


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes instead of a quarter of an hour")
    parser.add_argument("--seed", type=int, default=None, help="run the storms with this seed, and nothing else")
    options = parser.parse_args()
    jobs, seconds, rounds, megabytes = (300, 15.0, 5, 500) if options.quick else (2000, 60.0, 20, 5 * GIB)
    seeds, restarts = ([1, 2], 5) if options.quick else ([1, 2, 3, 4, 5], 20)
    if options.seed is not None:
        return _report([lambda: seeded(options.seed, jobs, seconds)])
    return _report(
        [
            lambda: storms(seeds, jobs, seconds),
            lambda: command_storms(seeds[:3], seconds),
            lambda: stopped(seconds),
            lambda: diamonds(jobs // 2, restarts * 10),
            lambda: crowds(jobs // 4),
            lambda: postgres(seeds[:2], jobs, seconds, restarts),
            lambda: daemons(jobs // 4),
            lambda: recovery(rounds),
            lambda: power_cuts(rounds),
            lambda: floods(megabytes),
            suite("a kill at every step", "tests/chaos/test_crash_points.py"),
            suite("storage faults", "tests/chaos/test_storage.py"),
            suite("starved workers", "tests/chaos/test_resources.py"),
            suite("processes that hide", "tests/chaos/test_hiding.py"),
            suite("servers and machines that vanish", "tests/chaos/test_postgres.py"),
            suite("servers that refuse to serve", "tests/chaos/test_postgres_faults.py"),
            suite("tricks that once broke a promise", "tests/chaos/test_tricks.py"),
            suite("mechanisms taken out, and noticed", "tests/chaos/test_mutants.py"),
            suite("exceptions at every step of the Python API", "tests/contract/test_interrupts.py", ALARMS="5000"),
            suite("random operations against a model", "tests/contract/test_model.py"),
        ]
    )


def _report(experiments: list[Callable[[], Iterator[Row]]]) -> int:
    failed = 0
    for experiment in experiments:
        for held, what in experiment():
            print("held   " if held else "FAILED ", what, flush=True)
            failed += not held
    print(f"\n{failed} promises broken" if failed else "\nEverything held.")
    return 1 if failed else 0


def _must(command: list[str]) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
