"""A PostgreSQL server that refuses to serve for a while, under load: no rights, no connections, no room, a pooler."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from queuectl.jobs.job_spec import NewJob
from queuectl.store import open_store
from tests.chaos.conftest import fill, need
from tests.chaos.own_server import q as q
from tests.chaos.own_server import schema as schema
from tests.chaos.own_server import server as server
from tests.chaos.storm import Storm
from tests.chaos.trial import trial
from tests.conftest import eventually
from tests.e2e.conftest import Cli
from tests.e2e.test_postgres import pooler
from tests.postgres import NAME, Server

# What is taken away, one after the other: from settles, from their triggers, from heartbeats, from every transaction.
RIGHTS = [
    "UPDATE ON {schema}.jobs",
    "INSERT ON {schema}.events",
    "UPDATE ON {schema}.workers",
    "SELECT ON {schema}.meta",
    "USAGE ON SCHEMA {schema}",
]


@pytest.fixture
def role(q: Cli, server: Server, schema: str) -> Iterator[str]:
    """A user who may do all that a worker must, and no more."""
    name = f"role_{schema}"
    server.sql(f"CREATE ROLE {name} LOGIN")
    for what in (f"USAGE ON SCHEMA {schema}", f"ALL ON ALL TABLES IN SCHEMA {schema}"):
        server.sql(f"GRANT {what} TO {name}")
    server.sql(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {name}")
    yield name
    server.sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
def limited(q: Cli, role: str) -> Cli:
    """The same queue, used by that user."""
    return Cli(q.folder, q.url.replace(f"{NAME}@", f"{role}@"))


class Trouble:
    """What befalls the workers, from its beginning to its end, as they tell it in their log."""

    def __init__(self, q: Cli) -> None:
        self._log = q.logs / "workers.log"
        self._seen = 0

    def begins(self, words: str) -> None:
        """Wait until a worker complains of this."""
        eventually(lambda: words in self._log.read_text()[self._seen :], words)

    def ends(self) -> None:
        """Wait until each that has complained is content again: none says the same twice without that."""
        eventually(lambda: "unavailable" not in self._last_words().values(), "all workers content")
        self._seen = len(self._log.read_text())

    def _last_words(self) -> dict[str, str]:
        return dict(re.findall(r"worker=(\w+) store (unavailable|available)", self._log.read_text()))


def test_rights_that_are_revoked_and_granted_again_end_no_job_and_repeat_none(
    q: Cli, limited: Cli, role: str, server: Server, schema: str
) -> None:
    rights, trouble = itertools.cycle(RIGHTS), Trouble(q)

    def revoke() -> None:
        what = next(rights).format(schema=schema)
        server.sql(f"REVOKE {what} FROM {role}")
        q.enqueue("true")  # the others may all be done by now
        trouble.begins("no permission")
        server.sql(f"GRANT {what} TO {role}")
        trouble.ends()

    assert trial(limited, 60, revoke, times=len(RIGHTS), safe=q.url).problems == []


def test_a_user_who_may_not_see_the_workers_can_enqueue(limited: Cli, role: str, server: Server, schema: str) -> None:
    server.sql(f"REVOKE SELECT ON {schema}.workers FROM {role}")
    done = limited("enqueue", "--quiet", "true")
    assert (done.code, done.err, len(done.out.split())) == (0, "", 1)


def test_a_limit_of_connections_that_is_reached_ends_no_job_and_repeats_none(
    q: Cli, limited: Cli, role: str, server: Server
) -> None:
    trouble = Trouble(q)

    def crowd() -> None:
        server.sql(f"ALTER ROLE {role} CONNECTION LIMIT 1")
        server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        trouble.begins("too many connections")
        server.sql(f"ALTER ROLE {role} CONNECTION LIMIT -1")
        trouble.ends()

    assert trial(limited, 60, crowd, times=3, safe=q.url).problems == []


def test_a_full_disk_of_the_server_ends_no_job_and_repeats_none(
    q: Cli, server: Server, schema: str, disk: Path
) -> None:
    trouble = Trouble(q)
    with tablespace(server, disk, f"space_{schema}") as name:
        small = Cli(q.folder, q.url.replace(schema, f"{schema}_2") + f"&options=-cdefault_tablespace%3D{name}")
        small.ok("status")
        output = "head -c 1500 /dev/urandom | base64"

        def crowd() -> None:
            small.batch(*[{"command": output}] * 40)  # the others may all be done by now
            filler = fill(disk)
            trouble.begins("is full")
            filler.unlink()
            trouble.ends()

        assert trial(small, 80, crowd, times=2, safe=small.url, then=output).problems == []
        small.end_all()
        server.sql(f"DROP SCHEMA {schema}_2 CASCADE")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system that another user can get to, too: pytest's own folders are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="queuectl-disk-"))
    try:
        need(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "tmpfs", str(folder)])
        yield folder
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    finally:
        folder.rmdir()


@contextmanager
def tablespace(server: Server, folder: Path, name: str) -> Iterator[str]:
    """A place for tables in a folder that belongs to the server."""
    owner = os.stat(server.sql("SHOW data_directory")[0][0])
    os.chown(folder, owner.st_uid, owner.st_gid)
    server.sql(f"CREATE TABLESPACE {name} LOCATION '{folder}'")
    yield name
    server.sql(f"DROP TABLESPACE {name}")


def test_a_kill_storm_through_a_pooler_loses_nothing_and_overlaps_nothing(q: Cli, server: Server) -> None:
    with pooler(server) as port:
        pooled = Cli(q.folder, q.url.replace(f":{server.port}/", f":{port}/") + "&notify=off")
        eventually(lambda: pooled("status").code == 0, "the pooler")
        storm = Storm(pooled, seed=5)
        verdict = storm.rage(jobs=60, seconds=3.0, pause=(0.05, 0.4))
        assert verdict.problems == [], f"{storm.kills} kills"
        assert verdict.crashes > 0, "the storm hit no running job, so it showed nothing"


def test_a_reset_does_not_wait_for_the_end_of_an_autovacuum(tmp_path: Path) -> None:
    """The server cancels an autovacuum that is in the way, but only for a lock that was waited for long enough."""
    with Server.start(tmp_path, autovacuum_naptime="1s") as server, closing(open_store(server.url())) as store:
        slow = "autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_cost_delay = 100"
        server.sql(f"ALTER TABLE {NAME}.jobs SET ({slow})")
        store.enqueue([NewJob("true") for _ in range(3000)])
        server.sql(f"UPDATE {NAME}.jobs SET priority = 1")
        at_work = f"SELECT 1 FROM pg_stat_progress_vacuum WHERE relid = '{NAME}.jobs'::regclass"
        eventually(lambda: server.sql(at_work), "an autovacuum of the jobs")
        assert store.reset() == 3000
