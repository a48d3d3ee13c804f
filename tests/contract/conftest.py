"""Every test here runs on every engine; a second one is one more entry in ENGINES."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuectl.bell import Bell
from queuectl.model import Claim
from queuectl.store import Store
from queuectl.store.engine import Engine
from queuectl.store.sqlite import SqliteEngine
from tests.conftest import Clock

ENGINES: dict[str, Callable[[Path, Clock], Engine]] = {
    "sqlite": lambda folder, clock: SqliteEngine(str(folder / "queue.db"), clock=clock),
}


@pytest.fixture(params=ENGINES)
def open_engine(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Callable[[], Engine]:
    """Open another connection to the same queue."""
    return lambda: ENGINES[request.param](tmp_path, clock)


@pytest.fixture
def store(open_engine: Callable[[], Engine]) -> Iterator[Store]:
    store = Store(open_engine())
    yield store
    store.close()


class FakeWorker:
    """A registered worker whose bell this test process holds: alive until `die`."""

    def __init__(self, store: Store, id: str, queues: tuple[str, ...] = ()) -> None:
        self.id = id
        self._store = store
        self._queues = queues
        self._bell = Bell(store.engine.bell_dir, id)
        store.register(id, pid=1, host="here", manager_pid=1, queues=queues, concurrency=100)

    def claim(self, slots: int = 1) -> list[Claim]:
        return self._store.tick(self.id, slots=slots, queues=self._queues).claims

    def claim_one(self) -> Claim:
        [claim] = self.claim(1)
        return claim

    def die(self) -> None:
        """As kill -9 would have it: the bell falls silent, the row stays."""
        self._bell.close()


Hire = Callable[..., FakeWorker]


@pytest.fixture
def hire(store: Store) -> Hire:
    return lambda id="w1", queues=(): FakeWorker(store, id, queues)
