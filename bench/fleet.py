"""The queue on PostgreSQL: its own rate beside others that keep jobs there, its latency, and how it bears growth."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from tests.postgres import Server

from bench.measure import Bar, Contender, Figure, Missing, number, percentile, take_turns
from bench.measure import table as show
from bench.peers import VENV
from bench.rig import HERE
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Claim, Report
from queuectl.store import Store, open_store

OURS = "queuectl's store, 2 workers of 300 slots"
PEERS = {
    "pgqueuer, 2 workers, batches of 300": ("pgqueuer_tasks", 20_000),
    "procrastinate, 2 workers of 100 slots": ("procrastinate_tasks", 1_500),
}
JOBS = 20_000
SLOTS = 300
GROWN = 1_000_000
SMALL = 1_000
SNAPSHOT_JOBS = 20_000
LATENCIES = 300


def measure(rounds: int, with_peers: bool) -> tuple[dict[str, Figure], Iterator[Bar]]:
    with tempfile.TemporaryDirectory(prefix="queuectl-bench-") as folder:
        os.environ["XDG_DATA_HOME"] = folder
        with Server.start(Path(folder) / "server", shared_buffers="256MB", max_wal_size="4GB") as server:
            figures = rate(server, rounds, with_peers)
            waits = latency(server)
            grown = growth(server)
            held = snapshot(server)
    found = {**figures, **{figure.name: figure for figure in (*waits, *grown, held)}}
    return found, bars(figures, waits, grown, held)


def bars(figures: dict[str, Figure], waits: list[Figure], grown: list[Figure], held: Figure) -> Iterator[Bar]:
    peers = [figure for name, figure in figures.items() if name != OURS]
    if peers:
        best = max(peers, key=lambda figure: figure.median)
        ratio = figures[OURS].to(best)
        yield Bar(f"PostgreSQL: claim and settle against {best.name}", ratio.median, str(ratio), 2, 5)
    yield Bar("PostgreSQL: enqueue to output, p50 ms", waits[0].median, str(waits[0]), 10, None, at_least=False)
    worst = max(figure.median for figure in grown)
    yield Bar(
        f"PostgreSQL: a tick at {GROWN:,} rows against {SMALL:,}", worst, f"{worst:.2f}", 1.5, None, at_least=False
    )
    yield Bar("PostgreSQL: rate with a snapshot held open, of the rate without", held.median, str(held), 0.5, None)


# -- the queue's own rate --------------------------------------------------------------------------------


def rate(server: Server, rounds: int, with_peers: bool) -> dict[str, Figure]:
    """No-op runs claimed and settled a second: everyone has two processes, and all jobs are there before."""
    contenders = [Contender(OURS, lambda: ours(server))]
    if with_peers:
        contenders += [Contender(name, peer(server, *what)) for name, what in PEERS.items()]
    figures = take_turns(contenders, rounds, "jobs/s")
    show(list(figures.values()), figures[OURS])
    return figures


def ours(server: Server) -> float:
    with queue(server) as url:
        with opened(url) as store:
            store.enqueue([NewJob("true")] * JOBS)
        rate = JOBS / took([[sys.executable, "-m", "bench.fleet", url]] * 2, os.environ)
        with opened(url) as store:
            if (done := store.views.counts()["completed"]) != JOBS:
                raise RuntimeError(f"only {done} of {JOBS} jobs were completed")
        return rate


def peer(server: Server, script: str, jobs: int) -> Callable[[], float]:
    def run() -> float:
        python, path = VENV / "bin" / "python", HERE / "peer_scripts" / f"{script}.py"
        if not python.exists():
            raise Missing("run scripts/bench --setup")
        name = f"peer_{uuid.uuid4().hex}"
        server.sql(f"CREATE DATABASE {name}")
        env = {**os.environ, "URL": f"postgresql://queuectl@127.0.0.1:{server.port}/{name}"}
        fill = subprocess.run([str(python), str(path), "fill", str(jobs)], env=env, capture_output=True, text=True)
        if fill.returncode:
            raise Missing(fill.stderr.strip().splitlines()[-1])
        return jobs / took([[str(python), str(path), "work"]] * 2, env)

    return run


def took(commands: list[list[str]], env: os._Environ[str] | dict[str, str]) -> float:
    """Seconds from the first's begin to the last's end, as they say themselves: starting up is not the queue's."""
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    moments = [[float(word) for word in process.communicate()[0].split()[-2:]] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"{commands[0][-1]} failed")
    return max(end for _, end in moments) - min(begin for begin, _ in moments)


def work_off(url: str) -> None:
    """Be a worker whose runs take no time."""
    with opened(url) as store:
        worker = f"bench{os.getpid()}"
        store.register(worker, os.getpid(), "here", 1, (), SLOTS)
        began = time.time()
        for _ in ticks(store, worker, SLOTS):
            pass
        print(began, time.time())


def ticks(store: Store, worker: str, slots: int) -> Iterator[float]:
    """Exchange after exchange, until nothing is left; the seconds each took."""
    config, held = store.config(), list[Claim]()
    while True:
        ended = [(claim, after_run(claim, Exited(0), config, 0), Report(1, "", "", 1, 1000)) for claim in held]
        began = time.perf_counter()
        held = store.tick(worker, ended, slots).claims
        yield time.perf_counter() - began
        if not held:
            return


# -- latency, growth, a snapshot held open ---------------------------------------------------------------


def latency(server: Server) -> list[Figure]:
    from bench.rig import Rig

    figures = {share: Figure(f"PostgreSQL: enqueue to output, p{share}", "ms") for share in (50, 99)}
    with queue(server) as url, tempfile.TemporaryDirectory() as folder:
        made = Rig(Path(folder), url)
        pipe = str(Path(folder) / "pipe")
        os.mkfifo(pipe)
        made.queuectl("worker", "start", "--count", "2")
        reader = os.open(pipe, os.O_RDWR)
        waits = []
        for _ in range(LATENCIES):
            began = time.perf_counter()
            made.store.enqueue([NewJob(f"echo > {pipe}")])
            os.read(reader, 16)
            waits.append((time.perf_counter() - began) * 1000)
            time.sleep(0.01)  # let the worker fall asleep again
        made.queuectl("worker", "stop")
        made.store.close()
        os.close(reader)
    for share, figure in figures.items():
        figure.values.append(percentile(waits, share / 100))
        print(f"  {figure.name}: {figure}", flush=True)
    return list(figures.values())


MIXTURES = {
    "pending": "'pending', true, 0, 0, NULL",
    "finished": "'completed', false, 0, 0, 1700000000000 + n",
    "future, of high priority": "'pending', false, 1000, 4000000000000 + n, NULL",
}


def growth(server: Server) -> list[Figure]:
    """A tick that settles and claims one job, in a queue of a million against one of a thousand, not yet analysed."""
    found = []
    for mixture, columns in MIXTURES.items():
        median = {}
        for size in (SMALL, GROWN):
            with queue(server) as url, opened(url) as store:
                fill(store, columns, size)
                store.enqueue([NewJob("true", priority=5)] * 300)
                store.register("bench", os.getpid(), "here", 1, (), 1)
                spent = [seconds for seconds, _ in zip(ticks(store, "bench", 1), range(300), strict=False)]
                median[size] = percentile(spent, 0.5) * 1000
        figure = Figure(f"PostgreSQL, {mixture}: a tick at {GROWN:,} against {SMALL:,}", "×")
        figure.values.append(median[GROWN] / median[SMALL])
        print(f"  {figure.name}: {figure} ({number(median[SMALL])} ms and {number(median[GROWN])} ms)", flush=True)
        found.append(figure)
    return found


def fill(store: Store, columns: str, size: int) -> None:
    with psycopg.connect(store.engine.url.partition("?")[0], autocommit=True) as db:
        schema = store.engine.url.partition("schema=")[2]
        db.execute(f"SET search_path TO {schema}".encode())
        db.execute(
            f"INSERT INTO jobs (id, command, queue, state, ready, priority, run_at, finished_at, max_retries,"
            f" backoff_base, created_at, updated_at) SELECT 'fill' || n, 'true', 'default', {columns}, 3, 2, 0, 0"
            f" FROM generate_series(1, {size}) AS n".encode()
        )


def snapshot(server: Server) -> Figure:
    """Somebody keeps a transaction open, so that nothing dead can be cleared away: what is left of the rate?"""
    with queue(server) as url, opened(url) as store:
        store.register("bench", os.getpid(), "here", 1, (), SLOTS)
        rates = []
        for held_open in (False, True):
            store.enqueue([NewJob("true")] * SNAPSHOT_JOBS)
            with psycopg.connect(url.partition("?")[0]) as other:
                if held_open:
                    other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    other.execute("SELECT 1")
                    for _ in ticks(store, "bench", SLOTS):  # so many dead rows stand in the way of the next
                        pass
                    store.enqueue([NewJob("true")] * SNAPSHOT_JOBS)
                began = time.perf_counter()
                for _ in ticks(store, "bench", SLOTS):
                    pass
                rates.append(SNAPSHOT_JOBS / (time.perf_counter() - began))
    figure = Figure("PostgreSQL: rate with a snapshot held open against without", "×", [rates[1] / rates[0]])
    print(f"  {figure.name}: {figure} ({number(rates[0])} and {number(rates[1])} jobs/s)", flush=True)
    return figure


# -- what they share -------------------------------------------------------------------------------------


@contextmanager
def queue(server: Server) -> Iterator[str]:
    schema = f"bench_{uuid.uuid4().hex}"
    yield server.url(schema)
    server.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url, durable=False)
    yield store
    store.close()


if __name__ == "__main__":
    work_off(sys.argv[1])
