"""A PostgreSQL server that restarts, hangs up, keeps silent or cannot be reached, and machines that vanish."""

from __future__ import annotations

import itertools
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queuectl.store import open_store
from tests.chaos.hosts import Host, Wire
from tests.chaos.ledger import check
from tests.chaos.proxy import Fault, Proxy
from tests.chaos.storm import Storm
from tests.chaos.trial import trial
from tests.conftest import eventually
from tests.e2e.conftest import Cli, gone, lines_in, pids_in
from tests.postgres import Server

# By which statement a transaction is known.
REGISTERS, CLAIMS, SETTLES = b"INSERT INTO workers", b"SET state = 'processing'", b"SET state = each.state"

NOTED = "echo $QUEUECTL_JOB_ID >> ~/ran"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that only the tests of this file use, so that they may do to it what they like."""
    with Server.start(tmp_path_factory.mktemp("server"), listen_addresses="*") as server:
        [(path,)] = server.sql("SHOW hba_file")
        with open(path, "a") as file:
            file.write("host all all 198.18.0.0/15 trust\n")
        server.sql("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def schema() -> str:
    return f"test_{uuid.uuid4().hex}"


@pytest.fixture
def q(tmp_path: Path, server: Server, schema: str) -> Iterator[Cli]:
    cli = Cli(tmp_path, server.url(schema))
    cli.ok("status")
    yield cli
    cli.end_all()


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
        eventually(lambda: hang_up(server, "query = 'LISTEN queuectl'"), "a listener")
        q.until(elsewhere.enqueue("true"), "completed")
    assert q.worker()["id"] == worker["id"]


def hang_up(server: Server, which: str = "TRUE") -> int:
    """End connections, as an administrator does; how many."""
    of_ours = f"FROM pg_stat_activity WHERE application_name = 'queuectl' AND {which}"
    return len(server.sql(f"SELECT pg_terminate_backend(pid) {of_ours}"))


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

    def __init__(self, q: Cli, far: str, wire: Wire | None = None) -> None:
        q.ok("config", "set", "lease_timeout", "6")
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

    def end(self, id: str) -> None:
        """Let the job finish, and judge."""
        Path(f"{self._ledger}.go").touch()
        job = self._q.until(id, "completed")
        store = open_store(self._q.url)
        verdict = check(store, self._ledger, [id])
        store.close()
        assert verdict.problems == []
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


def test_a_machine_that_is_cut_off_ends_its_runs_before_others_take_over(q: Cli, fleet: Fleet, wire: Wire) -> None:
    id = fleet.begin()
    wire.cut()
    fleet.await_second_run(id)
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


def test_a_machine_that_vanishes_in_a_transaction_takes_no_lock_along(q: Cli, through: Cli, proxy: Proxy) -> None:
    with Fleet(q, through.url) as fleet:
        proxy.spoil(Fault.SILENT, SETTLES)
        fleet.far.serve()
        id = q.enqueue("true")
        eventually(proxy.caught.is_set, "the commit")
        fleet.far.end_all()
        fleet.near.serve()
        assert q.until(id, "completed")["crashes"] == 1
