"""Behaviour depends on outcomes and kinds of events, never on texts for people: here all of those are replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from queuectl.jobs import full_log
from queuectl.jobs.lifecycle import (
    OUTCOMES,
    Cancelled,
    Exited,
    Interrupted,
    Lost,
    NoResources,
    NotStarted,
    Outcome,
    Signalled,
    TimedOut,
    after_run,
    exit_status,
)
from queuectl.jobs.model import Report
from queuectl.store import Store
from queuectl.store.postgres import PostgresTransaction
from queuectl.store.sqlite import SqliteTransaction
from queuectl.web.pages.job import runs_of
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, Hire, enqueue, settle

TEXT = "words for people"

LABELS: list[tuple[Outcome, str, int]] = [
    (Exited(3), "3", 3),
    (Signalled(9), "SIGKILL", 137),
    (TimedOut(5, 15), "timeout", 124),
    (NotStarted("no such folder"), "not-started", 1),
    (Cancelled(15), "cancelled", 143),
]


@pytest.fixture(autouse=True)
def replaced_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is stored to tell people what happened says the same."""

    def replaced(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(tx: Any, sql: str, many: Sequence[dict[str, Any]]) -> Any:
            texts = [{name: TEXT for name in ("error", "reason") if row.get(name)} for row in many]
            return act(tx, sql, [row | text for row, text in zip(many, texts, strict=True)])

        return acted

    for kind in (SqliteTransaction, PostgresTransaction):
        for name in ("each", "missed"):
            monkeypatch.setattr(kind, name, replaced(getattr(kind, name)))


def run_once(worker: FakeWorker, clock: Clock, outcome: Outcome) -> None:
    claim = worker.claim_one()
    clock.advance(1.5)
    assert worker.settle(claim, outcome, Report(duration_ms=1500))


def test_every_outcome_has_a_class_or_is_reserved() -> None:
    outcomes = [outcome for outcome, _, _ in LABELS]
    outcomes += [Exited(0), Interrupted(), NoResources("no memory"), Lost("w1")]
    assert {outcome.kind for outcome in outcomes} | {"oom"} == set(OUTCOMES)


@pytest.mark.parametrize(("outcome", "label", "status"), LABELS)
def test_log_marks_exit_status_and_job_page(
    store: Store, hire: Hire, clock: Clock, outcome: Outcome, label: str, status: int
) -> None:
    id = enqueue(store, max_retries=1)
    run_once(hire(), clock, outcome)
    job, history = store.views.job(id), store.views.history(id)
    assert (job.outcome, job.error, history[-1].outcome) == (outcome.kind, TEXT, outcome.kind)
    assert exit_status(job.state, job.outcome, job.exit_code, job.signal) == status
    assert f"rc={label} ".encode() in full_log.transcript(history, b"")
    shown = "SIGTERM" if outcome.kind == "cancelled" else label  # beside its state, which says that it was cancelled
    assert runs_of(job, history)[0].end.endswith(shown)


def test_a_repeated_settle_is_recognised_and_another_one_refused(store: Store, hire: Hire) -> None:
    enqueue(store)
    worker = hire()
    claim = worker.claim_one()
    failed = after_run(claim, Exited(1), store.config(), 0)
    assert settle(store, worker.id, claim, failed)
    assert settle(store, worker.id, claim, failed)
    for other in (Exited(2), Signalled(1), TimedOut(5), Interrupted()):
        assert not settle(store, worker.id, claim, after_run(claim, other, store.config(), 0))


def test_a_broken_dependency_is_explained_with_the_way_out(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, id="parent", max_retries=1)
    enqueue(store, id="child", depends_on=["parent"])
    hire().work_off(Exited(1))
    why = store.views.explain(store.views.job("child"), [], clock.now)
    assert "queuectl dlq retry parent" in " ".join(why)
    assert store.views.history("child")[0].state == "blocked"


def test_attempts_in_the_log_count_from_one_again_after_a_retry(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store, max_retries=1)
    worker = hire()
    run_once(worker, clock, Exited(1))
    store.retry([id])
    run_once(worker, clock, Exited(0))
    assert full_log.transcript(store.views.history(id), b"").count(b"attempt=1 ") == 2


def test_a_run_in_progress_is_left_to_the_log_that_is_followed(store: Store, hire: Hire) -> None:
    id = enqueue(store)
    hire().claim_one()
    store.cancel([id])
    history = store.views.history(id)
    assert [event.kind for event in history] == ["enqueued", "started", "cancel_requested"]
    assert full_log.before_this_run(history) == history[:1]
