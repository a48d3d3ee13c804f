"""A PostgreSQL server that restarts, hangs up, keeps silent or cannot be reached, and machines that vanish."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from queuectl.store import open_store
from tests.chaos.hosts import Host, Wire
from tests.chaos.ledger import check
from tests.chaos.own_server import q as q
from tests.chaos.own_server import schema as schema
from tests.chaos.own_server import server as server
from tests.chaos.proxy import Fault, Proxy
from tests.chaos.storm import Storm
from tests.chaos.test_crash_points import PYTHONPATH
from tests.chaos.trial import trial
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import Cli, gone, kill, lines_in, pids_in, processes_with
from tests.postgres import NAME, Server

# By which statement a transaction is known.
REGISTERS, CLAIMS, SETTLES = b"INSERT INTO workers", b"SET state = 'processing'", b"SET state = each.state"

OURS = "FROM pg_stat_activity WHERE application_name = 'queuectl'"

NOTED = "echo $QUEUECTL_JOB_ID >> ~/ran"


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def through(q: Cli, proxy: Proxy, schema: str) -> Cli:
    """The same queue on the same machine, but reached through the proxy."""
    return Cli(q.folder, Server(proxy.port, pid=0).url(schema))


# -- kills, restarts, cuts -------------------------------------------------------------------------------


def test_a_kill_storm_loses_nothing_and_overlaps_nothing(q: Cli) -> None:
    storm = Storm(q, seed=3)
    verdict = storm.rage(jobs=120, seconds=7.0, pause=(0.05, 0.4))
    assert verdict.problems == [], f"{storm.kills} kills"
    assert verdict.jobs == 120
    assert verdict.crashes > 0, "the storm hit no running job, so it showed nothing"


def test_a_server_that_restarts_ends_no_job_and_repeats_none(q: Cli, server: Server) -> None:
    modes = itertools.cycle(["immediate", "fast"])
    assert trial(q, 200, lambda: server.restart(next(modes)), times=4).problems == []


def test_a_server_that_stays_away_ends_runs_in_time_and_they_are_repeated(q: Cli, server: Server) -> None:
    """Nobody can know that nobody else can reach it."""
    q.ok("config", "set", "lease_timeout", "3")
    q.ok("worker", "start")
    worker = q.worker()
    id = q.enqueue("echo $$ >> ~/ran; [ -e ~/again ] || { touch ~/again; sleep 1000; }")
    [first] = pids_in(q.folder / "ran")
    server.stop("immediate")
    gone(first)
    server.resume()
    job = q.until(id, "completed")
    assert (job["attempts"], job["crashes"], len(pids_in(q.folder / "ran"))) == (0, 0, 2)
    assert q.worker()["id"] == worker["id"]


def test_connections_cut_at_random_end_no_job_and_repeat_none(q: Cli, through: Cli, proxy: Proxy) -> None:
    assert trial(through, 160, proxy.cut, times=20, safe=q.url).problems == []


def test_an_administrator_who_hangs_up_on_everybody_ends_no_job_and_repeats_none(q: Cli, server: Server) -> None:
    assert trial(q, 120, lambda: hang_up(server), times=10).problems == []


def test_news_from_elsewhere_comes_though_the_listeners_are_hung_up_on(
    q: Cli, server: Server, tmp_path: Path
) -> None:
    q.ok("config", "set", "worker_poll_interval", "3600")
    q.ok("config", "set", "lease_timeout", "3")
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Cli(tmp_path / "elsewhere", q.url)  # whose home has none of our bells
    q.ok("worker", "start")
    worker = q.worker()
    for _ in range(3):
        eventually(lambda: hang_up(server, "state = 'idle'"), "a listener")
        q.until(elsewhere.enqueue("true"), "completed")
    assert q.worker()["id"] == worker["id"]


def test_a_worker_holds_one_connection(q: Cli, server: Server) -> None:
    eventually(lambda: not connections(server), "those of other tests to go")
    q.ok("worker", "start", "--count", "3", "--concurrency", "4")
    q.ok("wait", *q.batch(*[{"command": "true"}] * 20))
    eventually(lambda: connections(server) == 3, "the connections of three workers, and no others")


def hang_up(server: Server, which: str = "TRUE") -> int:
    """End connections, as an administrator does; how many."""
    return len(server.sql(f"SELECT pg_terminate_backend(pid) {OURS} AND {which}"))


def connections(server: Server, which: str = "TRUE") -> int:
    return len(server.sql(f"SELECT 1 {OURS} AND {which}"))


# -- in the moment of the commit -------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.UNSENT, Fault.UNANSWERED, Fault.EXCUSED], ids=str)
def test_an_id_is_printed_if_and_only_if_it_is_stored(q: Cli, through: Cli, proxy: Proxy, fault: Fault) -> None:
    proxy.spoil(fault)
    done = through("enqueue", "--quiet", "true")
    assert proxy.caught.is_set()
    stored = [job["id"] for job in q.json("list")]
    assert (done.code, len(stored)) == ((5, 0) if fault is Fault.UNSENT else (0, 1))
    assert done.out.split() == stored


@pytest.mark.parametrize("fault", [Fault.UNSENT, Fault.UNANSWERED, Fault.LATE, Fault.SILENT], ids=str)
@pytest.mark.parametrize("words", [REGISTERS, CLAIMS, SETTLES], ids=["register", "claim", "settle"])
def test_a_worker_cut_off_at_its_commit_goes_on_where_it_was(
    q: Cli, through: Cli, proxy: Proxy, words: bytes, fault: Fault
) -> None:
    proxy.spoil(fault, words)
    id = q.enqueue(NOTED)
    starting = through.start("worker", "start")
    eventually(proxy.caught.is_set, "the fault")
    begun = proxy.begun
    if fault is Fault.LATE:
        eventually(lambda: proxy.begun >= begun + 3, "the worker to try again")
        proxy.release()
    q.until(id, "completed")
    starting.communicate()
    assert lines_in(q.folder / "ran") == [id]
    assert [event["reason"] for event in q.history(id)] == ["enqueued", "started", "exit code 0"]


def test_claims_whose_commit_takes_longer_than_anyone_waits_are_not_lost(q: Cli, server: Server) -> None:
    q.ok("worker", "start", "--count", "2", "--concurrency", "2")
    careless = Cli(q.folder, f"{q.url}&options=-csynchronous_commit%3Dlocal")
    with hanging_commits(server):
        ids = careless.batch(*[{"command": NOTED}] * 12)
        eventually(lambda: "moment of the commit" in (q.logs / "workers.log").read_text(), "the workers to give up")
        eventually(lambda: waiting(server) >= 2, "them to try again")
    q.ok("wait", "--timeout", "60s", *ids)
    assert sorted(lines_in(q.folder / "ran", len(ids))) == sorted(ids)


@contextmanager
def hanging_commits(server: Server) -> Iterator[None]:
    """Commits wait for a standby that is not there."""
    try:
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.sql("SELECT pg_reload_conf()")
        yield
    finally:
        server.sql("ALTER SYSTEM RESET synchronous_standby_names")
        server.sql("SELECT pg_reload_conf()")


def waiting(server: Server) -> int:
    return len(server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' OR wait_event = 'SyncRep'"))


# -- no connection left ----------------------------------------------------------------------------------


def test_workers_that_use_up_all_connections_can_be_stopped(q: Cli, server: Server, schema: str) -> None:
    server.sql(f"CREATE ROLE {schema} LOGIN CONNECTION LIMIT 2")
    server.sql(f"GRANT CREATE ON DATABASE {NAME} TO {schema}")
    crowded = Cli(q.folder, q.url.replace(f"{NAME}@", f"{schema}@").replace(f"={schema}", f"={schema}_2"))
    crowded.ok("worker", "start", "--count", "2", "--concurrency", "2")
    waiting = crowded.start("enqueue", "--quiet", "true")
    stop = crowded("worker", "stop")
    assert (stop.code, "too many connections" in stop.err) == (0, True), stop
    assert "Stopped 1 manager with all workers" in stop.out
    assert waiting.wait(DEADLINE) == 0  # it had waited for a connection
    assert crowded.json("worker", "list") == []
    assert len(crowded.json("list")) == 1


# -- locks of others -------------------------------------------------------------------------------------


def test_jobs_that_others_have_locked_keep_nothing_else_waiting(q: Cli, server: Server, schema: str) -> None:
    """A row that a settle must write, that of a child which it must release, and that of a lost worker's job."""
    q.ok("config", "set", "lease_timeout", "3")
    q.ok("worker", "start", "--concurrency", "2")
    lost = q.enqueue("echo $$ >> ~/lost; [ -e ~/again ] || { touch ~/again; sleep 1000; }")
    pids_in(q.folder / "lost")
    with locking(server, f"SELECT 1 FROM {schema}.jobs WHERE id = '{lost}' FOR UPDATE"):
        kill(q.worker()["pid"])
        eventually(lambda: q.workers(), "a successor")
        ended, parent = q.batch(*[{"command": f"{NOTED}; while [ ! -e ~/go ]; do sleep 0.02; done"}] * 2)
        child = q.enqueue("true", depends_on=[parent], run_at="1h")
        lines_in(q.folder / "ran", 2)
        with locking(server, f"SELECT 1 FROM {schema}.jobs WHERE id IN ('{ended}', '{child}') FOR UPDATE"):
            (q.folder / "go").touch()
            q.ok("wait", "--timeout", "20s", *q.batch(*[{"command": "true"}] * 20))
            assert [q.state(id) for id in (lost, ended, parent)] == ["processing"] * 3
            since = last_heartbeat(q)
            eventually(lambda: last_heartbeat(q) > since, "another heartbeat")
        assert [(q.finished(id)["state"], q.runs(id)) for id in (ended, parent)] == [("completed", 1)] * 2
        q.until(child, "pending")
    job = q.finished(lost)
    assert (job["state"], job["crashes"], job["attempts"]) == ("completed", 1, 0)


def last_heartbeat(q: Cli) -> int:
    return max(int(moment) for _, moment in q.rows_of("workers", "id, heartbeat_at"))


@contextmanager
def locking(server: Server, statement: str) -> Iterator[None]:
    """Somebody has done this, and has not committed yet."""
    with psycopg.connect(f"host=127.0.0.1 port={server.port} user={NAME} dbname={NAME}") as connection:
        connection.execute(statement.encode())
        yield
        connection.rollback()


# -- stopped and continued -------------------------------------------------------------------------------

# Where in its loop a worker is stopped. The first is where it waits.
STEPS = [
    "before:queuectl.worker.slots:Slots.next_moment",
    "before:queuectl.worker.worker:Worker._beat",
    "after:queuectl.store.store:Store.heartbeat",
    "after:queuectl.store.store:Store.tick",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_its_workers_lease_ended_is_put_back_and_nothing_counted(q: Cli, step: str) -> None:
    """Its manager ends it while the worker is stopped; the worker must not take that for the job's own failure."""
    q.ok("config", "set", "lease_timeout", "1")
    now, stopped = q.folder / "now", q.folder / "stopped"
    crash = {"CRASH_AT": step, "CRASH_WHEN": str(now), "CRASH_ONCE": str(stopped), "CRASH_SIGNAL": "SIGSTOP"}
    assert q("worker", "start", env={**crash, "PYTHONPATH": PYTHONPATH}).code == 0
    worker = q.worker()
    id = q.enqueue("echo $$ >> ~/ran; [ -e ~/again ] || { touch ~/again; sleep 1000; }", max_retries=1)
    [first] = pids_in(q.folder / "ran")
    now.touch()
    gone(first)
    os.kill(worker["pid"], signal.SIGCONT)
    job = q.finished(id)
    assert stopped.exists()
    assert (job["state"], job["attempts"], job["crashes"]) == ("completed", 0, 0)
    assert len(pids_in(q.folder / "ran")) >= 2
    assert "put back" in q.ok("history", id)
    assert q.worker()["id"] == worker["id"]


def test_a_suspended_machine_that_nobody_missed_counts_nothing(q: Cli) -> None:
    """All its processes at once, runs included; and nobody else was there to take its jobs over."""
    q.ok("config", "set", "lease_timeout", "1")
    q.ok("worker", "start", "--concurrency", "4")
    job = {"command": "echo $$ >> ~/ran; [ -e ~/go ] || sleep 1000", "max_retries": 1}
    ids = q.batch(*[job] * 4)
    pids_in(q.folder / "ran", 4)
    (q.folder / "go").touch()
    everything = {*processes_with(f"HOME={q.folder}")}
    send(signal.SIGSTOP, everything)
    time.sleep(1.2)
    send(signal.SIGCONT, everything)
    q.ok("wait", "--timeout", "60s", *ids)
    assert {(job["attempts"], job["crashes"]) for job in q.json("list")} == {(0, 0)}


# -- many machines ---------------------------------------------------------------------------------------

# It does not go when it is asked to.
LONG = """
trap '' TERM
say() { echo "$1 $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"; }
say S
while [ ! -e "$LEDGER.go" ]; do sleep 0.05; say B; done
say E
"""


class Fleet:
    """Two machines, far and near, on one queue; and a long job that writes a ledger."""

    def __init__(self, q: Cli, far: str, wire: Wire | None = None, lease: int = 6) -> None:
        q.ok("config", "set", "lease_timeout", str(lease))
        self._q = q
        self._ledger = q.folder / "ledger"
        self.far = Host(q.folder / "far", far, wire)
        self.near = Host(q.folder / "near", q.url)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc: object) -> None:
        self.far.end_all()
        self.near.end_all()

    def begin(self) -> str:
        """The job's id, once it runs far away."""
        script = self._q.folder / "job.sh"
        script.write_text(LONG)
        self.far.serve("default", "far")
        id = self._q.enqueue(f". {script}", env={"LEDGER": str(self._ledger)})
        lines_in(self._ledger, 3)
        self.near.serve("default")
        eventually(lambda: len(self._q.workers()) == 2, "both to work")
        return id

    def await_second_run(self, id: str) -> None:
        """Nothing of the first may live to see it."""
        first = f"LEDGER={self._ledger}"
        assert self.far.running(first)
        eventually(lambda: f"S {id} 2\n" in self._ledger.read_text(), "the job to be taken over")
        assert not self.far.running(first)

    def suspend(self, id: str) -> tuple[set[int], set[int]]:
        """Freeze all of the far machine, until the job is taken over; its run's processes, and its other ones."""
        everything = {*processes_with(f"HOME={self.far.folder}")}
        run = self.far.running(f"LEDGER={self._ledger}")
        send(signal.SIGSTOP, everything)
        eventually(lambda: f"S {id} 2\n" in self._ledger.read_text(), "the job to be taken over")
        return run, everything - run

    def late_beats(self, id: str) -> int:
        """How often the first run was heard of after the second one had started."""
        return self._ledger.read_text().partition(f"S {id} 2\n")[2].count(f"B {id} 1\n")

    def end(self, id: str, may_overlap: bool = False) -> None:
        """Let the job finish, and judge."""
        Path(f"{self._ledger}.go").touch()
        job = self._q.until(id, "completed")
        store = open_store(self._q.url)
        verdict = check(store, self._ledger, [id])
        store.close()
        assert may_overlap or verdict.problems == []
        assert (verdict.runs, job["crashes"], job["attempts"]) == (2, 1, 0)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.remove()


@pytest.fixture
def fleet(q: Cli, server: Server, schema: str, wire: Wire) -> Iterator[Fleet]:
    with Fleet(q, server.url(schema).replace("127.0.0.1", wire.address), wire) as fleet:
        yield fleet


def test_a_machine_that_is_cut_off_ends_its_runs_before_others_take_over(
    q: Cli, fleet: Fleet, wire: Wire, server: Server
) -> None:
    id = fleet.begin()
    wire.cut()
    fleet.await_second_run(id)
    eventually(lambda: not connections(server, "client_addr <> '127.0.0.1'"), "the server to notice, too", 30)
    wire.mend()
    q.until(q.enqueue("true", queue="far"), "completed")
    fleet.end(id)


def test_a_worker_stopped_for_longer_than_its_lease_is_refused(q: Cli, fleet: Fleet) -> None:
    id = fleet.begin()
    [worker] = [worker["pid"] for worker in q.workers() if id in worker["jobs"]]
    os.kill(fleet.far.outside(worker), signal.SIGSTOP)
    fleet.await_second_run(id)
    os.kill(fleet.far.outside(worker), signal.SIGCONT)
    q.until(q.enqueue("true", queue="far"), "completed")
    fleet.end(id)
    assert "late result of run 1 refused" in q.ok("history", id)


def send(number: int, pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


@pytest.mark.parametrize("first", ["manager", "everything"])
def test_a_machine_that_was_suspended_for_longer_than_its_lease_gives_up_its_runs(q: Cli, first: str) -> None:
    """Whatever wakes up first. If that is the run itself, it lives for the moment it takes to end it."""
    with Fleet(q, q.url, lease=3) as fleet:
        id = fleet.begin()
        run, others = fleet.suspend(id)
        send(signal.SIGCONT, others if first == "manager" else others | run)
        gone(*run)
        assert fleet.late_beats(id) <= (0 if first == "manager" else 20)  # 20 a second
        q.until(q.enqueue("true", queue="far"), "completed")
        fleet.end(id, may_overlap=first != "manager")


def test_a_machine_that_vanishes_in_a_transaction_takes_no_lock_along(q: Cli, through: Cli, proxy: Proxy) -> None:
    with Fleet(q, through.url) as fleet:
        proxy.spoil(Fault.SILENT, SETTLES)
        fleet.far.serve()
        id = q.enqueue("true")
        eventually(proxy.caught.is_set, "the commit")
        fleet.far.end_all()
        fleet.near.serve()
        assert q.until(id, "completed")["crashes"] == 1
