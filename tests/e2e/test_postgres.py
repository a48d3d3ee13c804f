"""What is different when the queue lies in PostgreSQL: its address, its server, and other machines."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from queuectl.cli import worker_stop
from queuectl.jobs.model import Worker
from queuectl.store import open_store
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import Cli, gone, refused
from tests.postgres import Server

pytestmark = pytest.mark.parametrize("engine_name", ["postgres"])
ELSEWHERE = "another-boot 4026531836 0"  # the place of a worker on another machine


def schema_of(q: Cli) -> str:
    return q.url.partition("schema=")[2]


# -- the address -----------------------------------------------------------------------------------------


def with_password(q: Cli) -> str:
    return q.url.replace("queuectl@", "queuectl:sesame@")


def test_a_password_in_the_address_is_never_printed(q: Cli) -> None:
    address = with_password(q)
    said = [
        q(*command, env={"QUEUECTL_DB": given})
        for given, option in ((address, []), (q.url, ["--db", address]))
        for command in (option, [*option, "enqueue", "true"], [*option, "status"], [*option, "doctor"],
                        [*option, "show", "nobody"], [*option, "worker", "start"], [*option, "worker", "stop"])
    ]  # fmt: skip
    assert all("sesame" not in result.out + result.err for result in said)
    assert any(result.code == 0 for result in said)
    assert "sesame" not in (q.logs / "workers.log").read_text()


@pytest.mark.parametrize("broken", ["port=x", "host=", "no_such_option=1"])
def test_an_address_that_makes_no_sense_is_refused_without_repeating_it(q: Cli, broken: str) -> None:
    result = q("status", "--db", f"postgresql://me:sesame@127.0.0.1/db?{broken}")
    assert result.code in (2, 5)
    assert "sesame" not in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("schema", ["", "Upper", "a-b", "a;drop table jobs", "x" * 64])
def test_a_schema_that_is_no_name_is_refused(q: Cli, schema: str) -> None:
    address = q.url.partition("?")[0]
    refused(q("status", "--db", f"{address}?schema={schema}"), 2, "schema")


def test_a_server_that_is_not_there_is_waited_for_and_then_told(q: Cli) -> None:
    result = q("enqueue", "true", "--db", "postgresql://queuectl@127.0.0.1:1/queuectl")
    refused(result, 5, "127.0.0.1:1", "is the server running")


def test_a_database_that_is_not_there_is_told_at_once(q: Cli) -> None:
    refused(q("enqueue", "true", "--db", q.url.replace("/queuectl?", "/nowhere?")), 5, "nowhere", "does not exist")


def test_two_schemas_are_two_queues(q: Cli, postgres: Server) -> None:
    q.enqueue("true", id="here")
    other = q.url.replace("schema=test_", "schema=tess_")
    assert q("list", "--json", env={"QUEUECTL_DB": other}).out.strip() == "[]"
    postgres.sql(f"DROP SCHEMA {other.partition('schema=')[2]} CASCADE")


def test_without_psycopg_the_hint_says_how_to_get_it(q: Cli) -> None:
    (q.folder / "psycopg.py").write_text("raise ModuleNotFoundError('none here', name='psycopg')")
    result = q("status", env={"PYTHONPATH": str(q.folder)})
    refused(result, 2, "psycopg, which is not installed", "-m pip install 'psycopg[binary]'")


# -- the server ------------------------------------------------------------------------------------------


def test_a_server_without_fsync_is_refused_unless_the_address_says_so(q: Cli, tmp_path: Path) -> None:
    with Server.start(tmp_path / "server", fsync="off") as server:
        refused(q("enqueue", "true", "--db", server.url()), 5, "fsync=off", "add fsync=off")
        q.ok("enqueue", "true", "--db", server.url() + "&fsync=off")


def test_a_server_that_does_not_sync_its_commits_is_told_to(q: Cli, tmp_path: Path) -> None:
    with Server.start(tmp_path / "server", synchronous_commit="off", log_statement="all") as server:
        q.ok("enqueue", "true", "--db", server.url())
        assert "SET synchronous_commit TO on" in (tmp_path / "server" / "postgres.log").read_text()


def test_a_queue_of_a_newer_version_is_refused_and_left_alone(q: Cli, postgres: Server) -> None:
    q.enqueue("true")
    postgres.sql(f"UPDATE {schema_of(q)}.meta SET version = version + 1")
    refused(q("enqueue", "true"), 5, "newer queuectl")
    assert len(q.rows_of("jobs")) == 1


def test_a_running_worker_leaves_when_its_queue_is_upgraded(q: Cli, postgres: Server) -> None:
    q.ok("worker", "start")
    worker = q.worker()
    postgres.sql(f"UPDATE {schema_of(q)}.meta SET version = version + 1")
    gone(worker["pid"], worker["manager_pid"])
    assert "newer queuectl" in (q.logs / "workers.log").read_text()


def test_a_queue_is_backed_up_by_postgresql(q: Cli) -> None:
    q.enqueue("true")
    refused(q("backup", "copy.db"), 4, "pg_dump", "queuectl copy --to copy.db")


def test_folders_of_this_machine_are_private(q: Cli) -> None:
    del q.env["QUEUECTL_LOG_DIR"]
    q.ok("worker", "start")
    q.finished(q.enqueue("echo hello"))
    data = q.folder / ".local" / "share" / "queuectl"
    for path in [data, *data.rglob("*")]:
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path


# -- other machines --------------------------------------------------------------------------------------


def test_a_job_runs_in_the_workers_folder_as_machines_differ(q: Cli) -> None:
    (q.folder / "elsewhere").mkdir()
    q.ok("worker", "start")
    q("enqueue", "--id", "where", "pwd", cwd=q.folder / "elsewhere")
    assert q.finished("where")["stdout"].strip() == str(q.folder)


FAST_CLOCK = "import time; now = time.time_ns; time.time_ns = lambda: now() + 3_600_000_000_000"


@pytest.mark.parametrize("job", [("--delay", "1m", "true"), ('{"command": "true", "run_at": 60}',)], ids=len)
def test_a_delay_counts_on_the_clock_of_the_server(q: Cli, job: tuple[str, ...]) -> None:
    """Ours is an hour ahead."""
    (q.folder / "sitecustomize.py").write_text(FAST_CLOCK)
    said = q("enqueue", *job, env={"PYTHONPATH": str(q.folder)}).out
    [stored] = q.json("list")
    due, since = (datetime.fromisoformat(stored[moment]) for moment in ("run_at", "created_at"))
    assert (due - since).total_seconds() == 60
    assert f"It runs at {due:%Y-%m-%d %H:%M:%S} UTC (in 1m)." in said


def test_a_log_on_another_machine_is_named_and_the_row_shows_what_it_has(q: Cli, postgres: Server) -> None:
    q.ok("worker", "start")
    id = q.enqueue("seq 20; echo oops >&2")
    q.finished(id)
    postgres.sql(f"UPDATE {schema_of(q)}.jobs SET log_place = 'web7:/var/logs'")
    shown = q("logs", id)
    assert shown.code == 0
    assert shown.out.splitlines() == [*map(str, range(1, 21)), "oops"]
    assert "web7" in shown.err
    assert f"/var/logs/job_{id}.log" in shown.err
    assert q("logs", id, "--tail", "2").out.splitlines() == ["20", "oops"]
    assert f"web7:/var/logs/job_{id}.log" in q.ok("show", id)


def add_worker_elsewhere(q: Cli, postgres: Server, lease: int, id: str = "faraway") -> None:
    postgres.sql(
        f"INSERT INTO {schema_of(q)}.workers (id, pid, pid_started, place, host, manager_pid, queues, concurrency,"
        f" started_at, heartbeat_at, expires_at)"
        f" SELECT '{id}', 1, 1, '{ELSEWHERE}', 'web7', 1, '', 1, now, now, now + {lease * 1000}"
        f" FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock"
    )


def test_stop_means_the_workers_of_this_machine_unless_told_otherwise(q: Cli, postgres: Server) -> None:
    q.enqueue("true")
    add_worker_elsewhere(q, postgres, lease=1000)
    assert "No workers are running" in q("worker", "stop").err
    assert q.workers()[0]["state"] == "idle"
    stopping = q.start("worker", "stop", "--everywhere")
    eventually(lambda: q.workers()[0]["state"] == "stopping", "the order")
    postgres.sql(f"DELETE FROM {schema_of(q)}.workers")
    assert stopping.wait(DEADLINE) == 0


def test_stop_counts_those_that_left_in_order_and_names_the_lost(q: Cli, postgres: Server) -> None:
    q.ok("worker", "start", "--count", "2")
    for id, lease in (("left", 1000), ("gone", 1000), ("vanished", 1000)):
        add_worker_elsewhere(q, postgres, lease, id)
    stopping = q.start("worker", "stop", "--everywhere")
    eventually(lambda: [worker["state"] for worker in q.workers()] == ["stopping"] * 3, "orders; our own have left")
    postgres.sql(f"DELETE FROM {schema_of(q)}.workers WHERE id = 'left'")
    postgres.sql(f"UPDATE {schema_of(q)}.workers SET expires_at = 0")
    out, err = stopping.communicate(timeout=DEADLINE)
    assert (stopping.returncode, out) == (0, b"Stopped 3 workers.\n")
    named = [line.split()[4] for line in err.decode().splitlines() if line.startswith("Lost, not stopped")]
    assert sorted(named) == ["gone", "vanished"]


def test_a_worker_that_leaves_while_it_is_looked_at_is_not_lost(
    q: Cli, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is read, and then it leaves in order, before its life is looked for."""
    q.enqueue("true")
    add_worker_elsewhere(q, postgres, 1000, "leaving")
    store = open_store(q.url)
    seen = store.views.workers()
    left = [replace(worker, alive=False) for worker in seen]
    looks = iter([seen, left, []])
    monkeypatch.setattr(type(store.views), "workers", lambda views: next(looks, []))
    lost: dict[str, Worker] = {}
    assert worker_stop._wait_until_gone(store, ["leaving"], {}, 10, lost)
    assert lost == {}
    store.close()


def test_a_worker_elsewhere_is_lost_when_its_lease_is_over_and_not_before(q: Cli, postgres: Server) -> None:
    q.enqueue("true")
    add_worker_elsewhere(q, postgres, lease=1000)
    q.ok("config", "set", "lease_timeout", "1")  # what it has promised before still holds
    assert [worker["state"] for worker in q.json("worker", "list")] == ["idle"]
    postgres.sql(f"UPDATE {schema_of(q)}.workers SET expires_at = expires_at - 1001000")
    assert [worker["state"] for worker in q.json("worker", "list")] == ["lost"]
    q.ok("worker", "start")
    eventually(lambda: len(q.json("worker", "list")) == 1, "the lost one struck off")


# -- a pooler --------------------------------------------------------------------------------------------


@contextmanager
def pooler(server: Server) -> Iterator[int]:
    """PgBouncer, which gives each transaction whatever connection is free; its port."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not os.path.exists(program):
        assert not os.environ.get("CI"), "pgbouncer is not installed"
        pytest.skip("pgbouncer is not installed")
    folder = Path(tempfile.mkdtemp(prefix="queuectl-pooler-"))  # pytest's own folders are closed to other users
    port = server.port + 1000
    (folder / "users").write_text('"queuectl" ""\n')
    (folder / "bouncer.ini").write_text(
        f"[databases]\nqueuectl = host=127.0.0.1 port={server.port} pool_size=3 user=queuectl\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nauth_file = {folder}/users\n"
        f"pool_mode = transaction\nunix_socket_dir =\nlogfile = {folder}/bouncer.log\n"
    )
    for path in (folder, folder / "users", folder / "bouncer.ini"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    command = [program, str(folder / "bouncer.ini")]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command]
        shutil.chown(folder, "nobody", "nogroup")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE)
        shutil.rmtree(folder)


def test_a_transaction_pooler_serves_a_whole_queue_with_notify_off(q: Cli, postgres: Server) -> None:
    with pooler(postgres) as port:
        q.env["QUEUECTL_DB"] = q.url.replace(f":{postgres.port}/", f":{port}/") + "&notify=off"
        eventually(lambda: q("status").code == 0, "the pooler")
        q.ok("worker", "start", "--count", "2", "--concurrency", "4")
        ids = q.batch(*({"command": "echo hello"} for _ in range(100)))
        q.ok("wait", *ids)
        assert {job["state"] for job in q.json("list", "--limit", "200")} == {"completed"}
        assert all(q.runs(id) == 1 for id in ids[:5])
        q.ok("worker", "stop")
