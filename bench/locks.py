"""How long does one operation on very many jobs keep others from writing? The longest transaction of each, and the
longest wait of a writer beside it, on both databases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.postgres import Server

from bench.measure import Bar, Figure, say
from queuectl.errors import QueuectlError
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, after_run
from queuectl.jobs.model import Report
from queuectl.store import Store, copy, open_store, steps
from queuectl.store.engine import Engine, Transaction
from queuectl.system.wakeup import Bell

JOBS = 100_000
BAR = 100.0  # milliseconds
LEAST_PAUSE = 0.001  # seconds between two writes of the probe
PATIENCE = 600.0

DEAD = "UPDATE jobs SET state = 'dead', ready = FALSE, finished_at = :now"
COMPLETED = "UPDATE jobs SET state = 'completed', ready = FALSE, finished_at = :now"


# -- what is done ----------------------------------------------------------------------------------------


class Case:
    """One operation on a queue of its own."""

    def __init__(self, store: Store, jobs: int, folder: Path) -> None:
        self.store = store
        self.jobs = jobs
        self.folder = folder

    def change(self, text: str) -> None:
        with self.store.engine.write() as tx:
            tx.run(text, {"now": tx.now})

    def enqueue(self, **fields: Any) -> list[str]:
        return self.store.enqueue([NewJob("true", **fields)] * self.jobs)

    def fan(self) -> None:
        """One job that all others wait for."""
        self.store.enqueue([NewJob("true", id="parent", max_retries=1)])
        self.enqueue(depends_on=["parent"])

    def settle(self, code: int, slots: int = 1) -> None:
        """Run the next job as a worker would, and work off what follows from its end."""
        store = self.store
        bell = Bell(store.engine.run_dir, "w1")
        store.register("w1", os.getpid(), "here", 1, (), slots)
        claims = store.tick("w1", slots=slots).claims
        ended = [(claim, after_run(claim, Exited(code), store.config(), 0), Report(1)) for claim in claims]
        store.tick("w1", ended)
        work_off(store)
        bell.close()
        store.unregister("w1")


def work_off(store: Store) -> None:
    while store.work_off():
        steps.pause()


def schedule(case: Case) -> None:
    case.store.schedules.add("s", None, 1, "UTC", {"command": "true"}, missed="all")
    back = (
        f"UPDATE schedules SET created_at = created_at - {case.jobs * 1000}, next_at = next_at - {case.jobs * 1000}"
    )
    case.change(back)


def fired(case: Case) -> None:
    schedule(case)
    case.change("UPDATE schedules SET paused = TRUE")
    case.change(
        f"WITH RECURSIVE n (v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {case.jobs}) "
        "INSERT INTO firings (schedule, moment, n, at, outcome) SELECT 's', v, 0, v, 'skipped' FROM n"
    )


def schedules(case: Case) -> None:
    for n in range(min(case.jobs, 1000)):
        case.store.schedules.add(f"s{n}", "17 3 * * 1-5", None, "Europe/Berlin", {"command": "true"})
    case.change("UPDATE schedules SET created_at = created_at - 3000000000, next_at = next_at - 3000000000")


def fire_all(case: Case) -> None:
    while case.store.schedules.fire()[0]:
        steps.pause()


def dead(case: Case) -> None:
    case.enqueue()
    case.change(DEAD)


def dead_with_children(case: Case) -> None:
    case.fan()
    case.settle(1)


def completed(case: Case) -> None:
    case.enqueue(tags=["a", "b"])
    case.change(COMPLETED)
    case.change("INSERT INTO events (job, n, at, state, run, reason) SELECT seq, 1, 1, 'completed', 1, '' FROM jobs")


def talkative(case: Case) -> None:
    """One job that has run very often."""
    case.store.enqueue([NewJob("true", id="talkative")])
    case.change(COMPLETED)
    case.change(
        f"WITH RECURSIVE n (v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {case.jobs}) "
        "INSERT INTO events (job, n, at, state, run, reason) SELECT seq, v, v, 'failed', v, '' FROM n, jobs"
    )


def prune(case: Case) -> None:
    while case.store.prune(["completed"], 0):
        pass


def limited_batch(case: Case) -> None:
    case.store.enqueue([NewJob("false", batch="b", max_fails=1, max_retries=1, priority=9)])
    case.enqueue(batch="b")


def parked(case: Case) -> None:
    case.enqueue(key="k")
    case.change("UPDATE jobs SET ready = FALSE, parked = TRUE")


def parked_by_many_keys(case: Case) -> None:
    case.store.enqueue([NewJob("true", key=f"k{n}") for n in range(case.jobs)])
    case.change("UPDATE jobs SET ready = FALSE, parked = TRUE")


def to_be_parked(case: Case) -> None:
    for n in range(8):
        case.store.enqueue([NewJob("true", key=f"k{n}", priority=-n)] * (case.jobs // 8))


def claim(case: Case) -> None:
    store = case.store
    store.register("w1", os.getpid(), "here", 1, (), 9)
    for _ in range(100):
        if len(store.tick("w1", slots=9).claims) == 0:
            break


def submissions(case: Case) -> None:
    case.change(
        f"WITH RECURSIVE n (v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {case.jobs}) "
        "INSERT INTO submissions (key, fingerprint, ids, at) SELECT CAST(v AS TEXT), '', '', 1 FROM n"
    )


def resubmit(case: Case) -> None:
    for n in range(10):
        case.store.enqueue([NewJob("true")], submission=(f"key {n}", "fingerprint"))


def held(case: Case) -> None:
    """A dead worker's thousand runs."""
    store, runs = case.store, 1000
    store.enqueue([NewJob("true", tags=["a"])] * runs)
    store.hooks.add("h", ["dead", "failed"], command="true")
    store.set_config("crash_limit", "1")
    store.register("w1", 0, "here", 1, (), runs)
    store.tick("w1", slots=runs)
    case.change("UPDATE workers SET place = '', expires_at = 0")


def piled(case: Case) -> None:
    case.enqueue()
    if case.store.engine.leased:  # SQLite keeps sums
        case.change("INSERT INTO counts (queue, state, n) SELECT queue, state, 1 FROM jobs")


def recover(case: Case) -> None:
    while (found := case.store.recover("w1")) and found[1]:
        pass


def copy_it(case: Case) -> None:
    with closing(open_store(str(case.folder / "copy.db"))) as target:
        copy.copy(case.store, target)


Act = Callable[[Case], object]
CASES: dict[str, tuple[Act, Act]] = {
    "schedule pause, all firings missed": (schedule, lambda case: case.store.schedules.pause(["s"], True)),
    "schedules fired by a worker": (schedule, fire_all),
    "1,000 schedules that missed a month": (schedules, fire_all),
    "schedule remove": (fired, lambda case: case.store.schedules.remove(["s"])),
    "dlq retry --all": (dead, lambda case: case.store.retry()),
    "retry of a parent, all children revived": (dead_with_children, lambda case: case.store.retry(["parent"])),
    "dlq purge": (dead, lambda case: case.store.purge_dead()),
    "delete of all by id": (
        dead,
        lambda case: case.store.delete([job.id for job in case.store.views.jobs(limit=-1)]),
    ),
    "delete of one with a long history": (talkative, lambda case: case.store.delete(["talkative"])),
    "cancel of all by id": (
        lambda case: case.enqueue(),
        lambda case: case.store.cancel(case.store.views.unfinished()),
    ),
    "cancel of a parent, all children with it": (Case.fan, lambda case: case.store.cancel(["parent"])),
    "end of a parent, all children released": (Case.fan, lambda case: case.settle(0)),
    "death of a parent, all children cancelled": (Case.fan, lambda case: case.settle(1)),
    "max_fails of a batch reached": (limited_batch, lambda case: case.settle(1)),
    "prune": (completed, prune),
    "reset": (completed, lambda case: case.store.reset()),
    "queue limit --per-key, one key": (parked, lambda case: case.store.change_queue("default", per_key=5)),
    "queue limit --per-key, a key a job": (
        parked_by_many_keys,
        lambda case: case.store.change_queue("default", per_key=5),
    ),
    "claims that park jobs": (to_be_parked, claim),
    "idempotency keys forgotten": (submissions, resubmit),
    "recovery of 1,000 runs": (held, recover),
    "upkeep after single enqueues": (piled, lambda case: case.store.engine.tidy()),
    "backup": (completed, lambda case: case.store.engine.backup(str(case.folder / "backup.db"))),
    "copy (of the source)": (completed, copy_it),
    "enqueue of a batch": (lambda case: None, lambda case: case.enqueue()),
}


# -- how long it takes -----------------------------------------------------------------------------------


class Timed:
    """A transaction that says how long it lasted."""

    def __init__(self, inner: Transaction, tell: Callable[[float], None]) -> None:
        self._inner = inner
        self._tell = tell

    def __enter__(self) -> Any:
        entered = self._inner.__enter__()
        self._began = time.perf_counter()
        return entered

    def __exit__(self, *exc: Any) -> None:
        try:
            self._inner.__exit__(*exc)
        finally:
            self._tell(time.perf_counter() - self._began)


@contextmanager
def timed(engine: Engine) -> Iterator[list[float]]:
    """The seconds of each write transaction from now on."""
    lasted: list[float] = []
    write = engine.write
    engine.write = lambda *args, **kwargs: Timed(write(*args, **kwargs), lasted.append)  # type: ignore[method-assign, assignment]
    yield lasted
    engine.write = write  # type: ignore[method-assign]


@contextmanager
def beside(url: str) -> Iterator[list[float]]:
    """A process that writes now and then, and how long it had to wait for it at most."""
    waits: list[float] = []
    probe = subprocess.Popen(
        [sys.executable, "-m", "bench.locks", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert probe.stdin
    assert probe.stdout
    probe.stdout.readline()
    try:
        yield waits
    finally:
        probe.stdin.close()
        waits.append(float(probe.stdout.readline()))
        probe.wait()


def probe(url: str) -> None:
    """Write until standard input is closed; the longest write in seconds."""
    import select

    store = open_store(url, durable=False, patience=PATIENCE)
    store.probe()
    print("ready", flush=True)
    longest = 0.0
    while not select.select([sys.stdin], [], [], LEAST_PAUSE)[0]:
        began = time.perf_counter()
        store.probe()
        longest = max(longest, time.perf_counter() - began)
    print(longest, flush=True)


def one(url: str, name: str, jobs: int, folder: Path) -> tuple[float, float] | None:
    """The longest transaction of an operation, and the longest wait of a writer beside it, in milliseconds."""
    prepare, act = CASES[name]
    with closing(open_store(url, patience=PATIENCE)) as store:
        case = Case(store, jobs, folder)
        prepare(case)
        with beside(url) as waits, timed(store.engine) as lasted:
            time.sleep(0.05)
            try:
                act(case)
                work_off(store)
            except QueuectlError as error:
                print(f"  {name}: {error}")
                return None
        return max(lasted, default=0) * 1000, waits[0] * 1000


def on_sqlite(name: str, jobs: int) -> tuple[float, float] | None:
    folder = Path(tempfile.mkdtemp(prefix="queuectl-bench-"))
    try:
        return one(str(folder / "queue.db"), name, jobs, folder)
    finally:
        shutil.rmtree(folder)


def on_postgres(server: Server, name: str, jobs: int) -> tuple[float, float] | None:
    folder = Path(tempfile.mkdtemp(prefix="queuectl-bench-"))
    try:
        return one(server.url(f"bench_{time.time_ns()}"), name, jobs, folder)
    finally:
        shutil.rmtree(folder)


def measure(rounds: int, jobs: int = JOBS, names: Sequence[str] = ()) -> tuple[dict[str, Figure], Iterator[Bar]]:
    found: dict[str, Figure] = {}
    chosen = [name for name in CASES if not names or any(word in name for word in names)]
    with tempfile.TemporaryDirectory(prefix="queuectl-bench-") as folder:
        os.environ["XDG_DATA_HOME"] = folder
        with Server.start(Path(folder) / "server", shared_buffers="256MB", max_wal_size="4GB") as server:
            print(f"  {f'milliseconds, {jobs:,} jobs':46}{'SQLite':>22}{'PostgreSQL':>22}")
            print(f"  {'':46}{'longest':>11}{'waited':>11}{'longest':>11}{'waited':>11}")
            for name in chosen:
                row = []
                for where, run in (("SQLite", on_sqlite), ("PostgreSQL", lambda *a: on_postgres(server, *a))):
                    values = []
                    for turn in range(rounds):
                        say(f"{where}: {name}, round {turn + 1} of {rounds}")
                        values.append(run(name, jobs))
                    known = [value for value in values if value is not None]
                    for index, what in enumerate(("longest", "waited")):
                        figure = Figure(f"{name}, {where}, {what}", "ms", [value[index] for value in known])
                        row.append(f"{min(figure.values):11.0f}" if known else f"{'-':>11}")
                        if known:
                            found[figure.name] = figure
                say("")
                print(f"  {name:46}{''.join(row)}", flush=True)
    return found, bars(found)


def bars(found: dict[str, Figure]) -> Iterator[Bar]:
    """The least of the rounds: what another process of this machine takes is not the operation's."""
    for where in ("SQLite", "PostgreSQL"):
        longest = {
            name: min(figure.values)
            for name, figure in found.items()
            if name.endswith(f"{where}, longest") and not name.startswith("enqueue of a batch")
        }
        if longest:
            worst = max(longest, key=lambda name: longest[name])
            yield Bar(f"{worst}, the longest of all, ms", longest[worst], f"{longest[worst]:.0f}", BAR, None, False)


if __name__ == "__main__":
    probe(sys.argv[1])
