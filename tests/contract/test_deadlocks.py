"""A change whose transaction the server ends to break a deadlock is made again, once and whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import queuectl.cli
from queuectl.errors import Deadlock
from queuectl.store import Store, copy, open_store
from queuectl.store.engine import Engine
from queuectl.store.postgres import PostgresTransaction
from queuectl.store.sqlite import SqliteEngine, SqliteTransaction
from queuectl.web.api.operation import Operation
from tests.contract.conftest import Hire, enqueue
from tests.contract.test_answers import CALLS, CHANGES, COMMANDS, called, fill


class Deadlocks:
    """Ends the next write transactions instead of committing them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = self.met = 0
        for kind in (SqliteTransaction, PostgresTransaction):
            monkeypatch.setattr(kind, "__exit__", self._exit(kind.__exit__))

    def _exit(self, leave: Callable[..., None]) -> Callable[..., None]:
        def left(transaction: Any, kind: Any, error: Any, trace: Any) -> None:
            writes = getattr(transaction, "_writes", None) or getattr(transaction, "_begin", "") == "BEGIN IMMEDIATE"
            if error is None and writes and self.left:
                self.left -= 1
                self.met += 1
                error = Deadlock("others were in the way")
                leave(transaction, Deadlock, error, None)
                raise error
            leave(transaction, kind, error, trace)

        return left


@pytest.fixture
def open_engine(url: str) -> Callable[[], Engine]:
    return lambda: open_store(url).engine


@pytest.fixture
def deadlocks(monkeypatch: pytest.MonkeyPatch) -> Deadlocks:
    return Deadlocks(monkeypatch)


@pytest.fixture
def filled(store: Store, hire: Hire, deadlocks: Deadlocks) -> Store:
    fill(store, hire)
    store.actor = "ann"
    deadlocks.left = 2
    return store


@pytest.mark.parametrize(
    ("operation", "given", "body"),
    [
        pytest.param(CHANGES[name], given, body, id=f"{name}-{number}")
        for name, calls in CALLS.items()
        for number, (given, body) in enumerate(calls)
    ],
)
def test_an_operation_is_repeated(
    filled: Store, deadlocks: Deadlocks, operation: Operation, given: dict[str, str], body: Any
) -> None:
    before = filled.views.acts()
    called(filled, operation.name, given, body)
    assert deadlocks.met == 2
    skipped = isinstance(body, dict) and "on_duplicate" in body
    assert len(filled.views.acts()) == len(before) + (not skipped)


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_command_is_repeated(
    filled: Store, deadlocks: Deadlocks, url: str, args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECTL_DB", url)
    assert queuectl.cli.run(args) == 0
    assert deadlocks.met == 2


def test_reset_and_copy_are_repeated(store: Store, deadlocks: Deadlocks, tmp_path: Path) -> None:
    enqueue(store)
    target = Store(SqliteEngine(str(tmp_path / "copy.db")))
    deadlocks.left = 2
    assert copy.copy(store, target)["jobs"] == 1
    deadlocks.left = 2
    assert target.reset() == 1
    assert deadlocks.met == 4
    target.close()


def test_a_change_that_meets_one_deadlock_after_the_other_is_refused_in_the_end(
    store: Store, deadlocks: Deadlocks
) -> None:
    deadlocks.left = 100
    with pytest.raises(Deadlock):
        enqueue(store)
    assert 2 < deadlocks.met < 10
    deadlocks.left = 0
    assert store.views.jobs() == []
