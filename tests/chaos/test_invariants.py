"""The checker of the storms sees each kind of wrong change: shown with changes that no queue should ever make."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.invariants import Replay
from tests.chaos.recorder import JOB, Change
from tests.chaos.rest import untold

TOLD: dict[str, Any] = {"id": "h:j1:abc", "queue": "notifications"}
NEW: dict[str, Any] = {
    **dict.fromkeys(JOB),
    "seq": 1, "id": "j1", "queue": "mail", "state": "pending", "ready": True, "parked": False, "run": 0,
    "attempts": 0, "crashes": 0, "snoozes": 0, "unmet": 0, "cancel_requested": False, "run_at": 0, "updated_at": 0,
}  # fmt: skip
CLAIMED: dict[str, Any] = {"state": "processing", "ready": False, "worker_id": "w1", "started_at": 5}
COMPLETED: dict[str, Any] = {"state": "completed", "finished_at": 9}
DEAD: dict[str, Any] = {"state": "dead", "finished_at": 9, "attempts": 1}


class Tape:
    """Changes as the recorder would keep them, one in each millisecond."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._rows: dict[int, dict[str, Any]] = {}

    def add(self, what: str, old: Any, new: Any, began: int | None = None) -> Tape:
        at = len(self.changes) + 1
        self.changes.append(Change(at, at, at if began is None else began, 0, what, old, new))
        return self

    def job(self, seq: int = 1, began: int | None = None, **fields: Any) -> Tape:
        """Insert a job, or change these fields of it."""
        old = self._rows.get(seq)
        new = self._rows[seq] = {**(old or {**NEW, "seq": seq, "id": f"j{seq}"}), **fields}
        return self.add("jobs", old, new, began)

    def claim(self, seq: int = 1, began: int | None = None) -> Tape:
        return self.job(seq, began, **CLAIMED, run=self._rows[seq]["run"] + 1)

    def delete(self, seq: int = 1) -> Tape:
        return self.add("jobs", self._rows.pop(seq), None)

    def limit(self, **fields: Any) -> Tape:
        return self.add("queues", None, {"name": "mail", "paused": False, **fields})

    def hook(self, **fields: Any) -> Tape:
        row = {"name": "h", "events": "completed dead", "queue": None, "only_named": False, "paused": False}
        return self.add("hooks", None, {**row, **fields})

    def after(self, parent: int, child: int, condition: str = "ok") -> Tape:
        row = {"parent": parent, "child": child, "condition": condition, "state": "open"}
        return self.add("dependencies", None, row)


def blocked() -> Tape:
    return Tape().job(1).job(2, state="blocked", ready=False, unmet=1).after(1, 2)


FINE = {
    "a job that fails, dies, is retried and completes": Tape()
    .job().claim().job(state="failed", attempts=1).job(ready=True).claim()
    .job(**{**DEAD, "attempts": 2}).job(state="pending", ready=True, attempts=0, finished_at=None)
    .claim().job(**COMPLETED).delete(),
    "a child whose parent completes": blocked().claim(1).job(1, **COMPLETED)
    .job(2, state="pending", ready=True, unmet=0).claim(2),
    "a claim that began before the limit": Tape().job(1).claim(1).job(2).limit(at_once=1).claim(2, began=2),
    "a claim beside one that began before the limit": Tape()
    .job(1).job(2).limit(at_once=1).claim(1, began=2).claim(2, began=3),
    "a limit that is lowered below what runs": Tape().job(1).job(2).claim(1).claim(2).limit(at_once=1),
    "a key in two queues with room for two": Tape()
    .job(1, key="k", key_limit=2).job(2, key="k", key_limit=2).claim(1).claim(2),
    "a hook that is told": Tape().hook().job().claim().job(**COMPLETED).job(2, **TOLD),
    "a hook for other queues, or for jobs that name it": Tape().hook(queue="other").hook(name="g", only_named=True)
    .job().claim().job(**COMPLETED),
    "a hook that was added meanwhile": Tape().job().claim().hook().job(began=1, **COMPLETED),
    "three starts in a window of three": Tape().limit(rate=3, rate_ms=10)
    .job(1).job(2).job(3).claim(1).claim(2).claim(3),
}  # fmt: skip
WRONG = {
    "from completed to pending": Tape().job().claim().job(**COMPLETED).job(state="pending", finished_at=None),
    "from completed to completed": Tape().job().claim().job(**COMPLETED).job(finished_at=10),
    "from pending to completed": Tape().job().job(**COMPLETED),
    "from pending to cancelled, and with it ['run']": Tape().job().job(state="cancelled", finished_at=9, run=1),
    "claimed although it was not ready": Tape().job(ready=False).claim(),
    "claimed as run 2 after run 0": Tape().job().job(**CLAIMED, run=2),
    "and counted {'attempts': 1": Tape().job().claim().job(**COMPLETED, attempts=1),
    "its failed runs still count": Tape().job().claim().job(**DEAD).job(state="pending", finished_at=None),
    "enqueued as processing": Tape().job(**CLAIMED),
    "deleted while it was pending": Tape().job().delete(),
    "a change was not recorded": Tape().job().add("jobs", {**NEW, "ready": False}, {**NEW}),
    "[1] never ended as it demands": blocked().claim(1).job(1, **DEAD).delete(1).job(2, state="pending", unmet=0),
    "which is paused": Tape().limit(paused=True).job().claim(),
    "where 1 ran and 1 may": Tape().limit(at_once=1).job(1).job(2).claim(1).claim(2),
    "with key k, of which 1 ran and 1 may": Tape().job(1, key="k").job(2, key="k", queue="other").claim(1).claim(2),
    "more than 2 starts within 10 ms": Tape().limit(rate=2, rate_ms=10)
    .job(1).job(2).job(3).claim(1).claim(2).claim(3),
    "h:j1: told 0 times": Tape().hook().job().claim().job(**COMPLETED),
    "h:j1: told 2 times": Tape().hook()
    .job().claim().job(**COMPLETED).job(2, **TOLD).job(3, **{**TOLD, "id": "h:j1:x"}),
    "h:j1: told 1 times": Tape().hook(paused=True).job().claim().job(**COMPLETED).job(2, **TOLD),
    "enqueued twice": Tape().job().claim().job(**COMPLETED).delete().job(),
    "worker w1 was struck off while it held this job": Tape().job().claim().add("workers", {"id": "w1"}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_what_may_happen_is_not_complained_about(name: str) -> None:
    assert Replay().feed(FINE[name].changes).problems == []


@pytest.mark.parametrize("words", WRONG)
def test_what_must_not_happen_is_seen(words: str) -> None:
    assert words in "\n".join(Replay().feed(WRONG[words].changes).problems)


def test_a_reset_may_delete_what_has_not_finished() -> None:
    assert Replay(resets=[(2, 3)]).feed(Tape().job().delete().changes).problems == []


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([("failed", 1, True), ("completed", 2, True)], []),
        ([("failed", 1, True), ("processing", 2, False), ("completed", 2, True)], []),
        ([("failed", 1, True)], ["its events do not tell of [('completed', 2)]"]),
        ([("dead", 1, True), ("completed", 2, True)], ["its events tell of dead in run 1, which never was"]),
        ([("failed", 1, True), ("failed", 1, True)], ["the end of run 1 stands behind that of run 1"]),
    ],
)
def test_events_are_compared_with_what_happened(events: list[tuple[str, int, bool]], found: list[str]) -> None:
    told = untold([("pending", 0), ("failed", 1), ("completed", 2)], events)
    assert [what.partition(";")[0] for what in told] == found
