"""Database triggers that record every change of every job, for a checker that must not miss one.

The table `recorded` gets a row for each insert, update and delete of a job, for each change of a queue's limits or
of a hook, for each new dependency and for each worker that leaves or is struck off, in the transaction that makes the
change. Both engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from queuectl.store import Store

JOB = (
    "seq", "id", "queue", "state", "ready", "parked", "run", "worker_id", "attempts", "crashes", "snoozes", "unmet",
    "key", "key_limit", "unique_key", "batch", "cancel_requested", "run_at", "started_at", "updated_at",
    "finished_at", "notify",
)  # fmt: skip
COLUMNS = {
    "jobs": JOB,
    "queues": ("name", "paused", "at_once", "per_key", "rate", "rate_ms"),
    "dependencies": ("parent", "child", "condition", "state"),
    "workers": ("id",),
    "hooks": ("name", "events", "queue", "only_named", "paused"),
}
WATCHED = {
    "jobs": ("INSERT", "UPDATE", "DELETE"),
    "queues": ("INSERT", "UPDATE", "DELETE"),
    "dependencies": ("INSERT",),
    "workers": ("DELETE",),
    "hooks": ("INSERT", "UPDATE", "DELETE"),
}
FLAGS = ("ready", "parked", "cancel_requested", "paused", "only_named")  # SQLite has numbers for them

# `began` is when the transaction began: a claim goes by the limits that it found then. `tx` names the transaction,
# where several are open at once; `at` is when it was committed.
TABLE = """
CREATE TABLE recorded (
  n     {serial},
  at    BIGINT NOT NULL,
  began BIGINT NOT NULL,
  tx    BIGINT NOT NULL,
  what  TEXT NOT NULL,
  old   TEXT,
  new   TEXT
)
"""
# A commit is seen by others only when it is on disk, which is later than its time stamp.
SLACK = 2000  # milliseconds
COMMITTED = "(extract(epoch FROM pg_xact_commit_timestamp(tx::text::xid)) * 1000)::bigint"
SQLITE_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
POSTGRES_FUNCTION = """
CREATE FUNCTION record_{table}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  before TEXT;
  after  TEXT;
BEGIN
  IF TG_OP <> 'INSERT' THEN before := {old}; END IF;
  IF TG_OP <> 'DELETE' THEN after := {new}; END IF;
  INSERT INTO recorded (at, began, tx, what, old, new)
  VALUES (0, extract(epoch FROM now()) * 1000 - {slack}, txid_current(), '{table}', before, after);
  RETURN NULL;
END $$
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One row that was inserted (no `old`), updated or deleted (no `new`), in the order of `n`."""

    n: int
    at: int
    began: int
    tx: int
    what: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None

    @property
    def row(self) -> Mapping[str, Any]:
        row = self.new if self.new is not None else self.old
        assert row is not None
        return row


def install(store: Store) -> None:
    """Begin to record. The rows that a change leaves behind are what a reader of `changes` sees."""
    make = _postgres if store.engine.leased else _sqlite
    with store.engine.write() as tx:
        for statement in make():
            tx.run(statement)


def changes(store: Store) -> list[Change]:
    """What has been recorded, in its order. Of one job, and of one limited queue, that is the order of commits."""
    at = COMMITTED if store.engine.leased else "at"
    with store.engine.read() as transaction:
        rows = transaction.rows(f"SELECT n, {at}, began, tx, what, old, new FROM recorded ORDER BY n")
    return [Change(n, at, began, tx, what, _values(old), _values(new)) for n, at, began, tx, what, old, new in rows]


def _values(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    found: dict[str, Any] = json.loads(text)
    return {name: bool(value) if name in FLAGS else value for name, value in found.items()}


def _pairs(row: str, columns: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}', {row}.{name}" for name in columns)


def _sqlite() -> list[str]:
    made = [TABLE.replace("{serial}", "INTEGER PRIMARY KEY")]
    for table, operations in WATCHED.items():
        for operation in operations:
            old = "NULL" if operation == "INSERT" else f"json_object({_pairs('OLD', COLUMNS[table])})"
            new = "NULL" if operation == "DELETE" else f"json_object({_pairs('NEW', COLUMNS[table])})"
            made.append(
                f"CREATE TRIGGER record_{table}_{operation.lower()} AFTER {operation} ON {table} BEGIN "
                f"INSERT INTO recorded (at, began, tx, what, old, new) "
                f"VALUES ({SQLITE_NOW}, {SQLITE_NOW}, 0, '{table}', {old}, {new}); END"
            )
    return made


def _postgres() -> list[str]:
    made = [TABLE.replace("{serial}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")]
    for table, operations in WATCHED.items():
        spots = {
            "{table}": table,
            "{slack}": str(SLACK),
            "{old}": f"json_build_object({_pairs('OLD', COLUMNS[table])})",
            "{new}": f"json_build_object({_pairs('NEW', COLUMNS[table])})",
        }
        function = POSTGRES_FUNCTION
        for spot, words in spots.items():
            function = function.replace(spot, words)
        made.append(function)
        made.append(
            f"CREATE TRIGGER record_{table} AFTER {' OR '.join(operations)} ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION record_{table}()"
        )
    return made
