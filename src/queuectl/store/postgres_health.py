"""What can be wrong with a PostgreSQL server, as far as a queue minds."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg import sql

from queuectl.jobs.model import Finding
from queuectl.store.engine import Row
from queuectl.system import times

CLOCK_SLACK_MS = 5_000
OLD_SNAPSHOT_SECONDS = 300
CROWDED = 0.8  # of the connections that the server allows
BLOATED = 3  # dead rows for each live one


def checkup(db: psycopg.Connection[Row], schema: str) -> Iterator[Finding]:
    yield Finding("PostgreSQL", True, db.info.parameter_status("server_version") or "of an unknown version")
    yield _durability(db)
    yield _connections(db)
    yield _snapshots(db)
    yield _vacuum(db, schema)
    yield _clocks(db)


def _one(db: psycopg.Connection[Row], question: str) -> Row:
    return db.execute(question.encode()).fetchall()[0]


def _durability(db: psycopg.Connection[Row]) -> Finding:
    fsync, full_page_writes = _one(db, "SELECT current_setting('fsync'), current_setting('full_page_writes')")
    ok = fsync == "on" and full_page_writes == "on"
    advice = "" if ok else "turn both on in postgresql.conf: without them a crash may lose or repeat jobs"
    return Finding("durability", ok, f"fsync {fsync}, full_page_writes {full_page_writes}", advice)


def _connections(db: psycopg.Connection[Row]) -> Finding:
    question = "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity"
    used, most = _one(db, f"{question} WHERE backend_type = 'client backend'")
    ok = used < most * CROWDED
    advice = "" if ok else "raise max_connections, or put a pooler in front (and notify=off into the address)"
    return Finding("connections", ok, f"{used} of {most} in use", advice)


def _snapshots(db: psycopg.Connection[Row]) -> Finding:
    """A transaction that stays open keeps dead rows from being cleared away, and claims must step over them."""
    question = "SELECT COALESCE(max(extract(epoch FROM now() - xact_start)), 0)::float FROM pg_stat_activity"
    (age,) = _one(db, f"{question} WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()")
    ok = age < OLD_SNAPSHOT_SECONDS
    advice = "" if ok else "find it in pg_stat_activity (xact_start) and end it: claims get slower while it lasts"
    return Finding("open snapshots", ok, f"the oldest is {times.span(age)} old" if age else "none", advice)


def _vacuum(db: psycopg.Connection[Row], schema: str) -> Finding:
    rows = db.execute(
        sql.SQL("SELECT n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE relid = {}::regclass").format(
            sql.Literal(f"{schema}.jobs")
        )
    ).fetchall()
    live, dead = rows[0] if rows else (0, 0)
    ok = dead < max(live, 10_000) * BLOATED
    advice = "" if ok else f"is autovacuum on? until then: VACUUM {schema}.jobs"
    return Finding("dead rows", ok, f"{dead:,} beside {live:,} live ones", advice)


def _clocks(db: psycopg.Connection[Row]) -> Finding:
    (server,) = _one(db, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    apart = abs(server - times.now_ms())
    ok = apart < CLOCK_SLACK_MS
    advice = "" if ok else "only the server's clock counts for the queue; set this machine's all the same"
    return Finding("clocks", ok, f"this machine and the server are {apart / 1000:.1f} s apart", advice)
