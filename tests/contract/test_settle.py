"""Ending runs: what each outcome leaves in the job and in its history, and that a tick is one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from queuectl.errors import QueuectlError
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import (
    Cancelled,
    Exited,
    Interrupted,
    Lost,
    NoResources,
    NotStarted,
    Outcome,
    Settlement,
    Signalled,
    State,
    TimedOut,
    after_run,
)
from queuectl.jobs.model import Claim, Event, Report
from queuectl.store import Store
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue, settle, snapshot

REPORT = Report(duration_ms=1500, stdout="out", stderr="err", cpu_ms=12, max_rss_kb=345)

# Each outcome of a first run, and every column that it changes.
OUTCOMES: list[tuple[Outcome, dict[str, object]]] = [
    (Exited(0), {"state": "completed", "exit_code": 0}),
    (Exited(3), {"state": "failed", "attempts": 1, "exit_code": 3, "error": "exit code 3", "delay": 2}),
    (
        Signalled(9),
        {"state": "failed", "attempts": 1, "signal": 9, "error": "killed by signal 9 (SIGKILL)", "delay": 2},
    ),
    (
        TimedOut(5, 15),
        {"state": "failed", "attempts": 1, "signal": 15, "error": "timed out after 5 s", "delay": 2},
    ),
    (NotStarted("no folder"), {"state": "failed", "attempts": 1, "error": "could not start: no folder", "delay": 2}),
    (Cancelled(15), {"state": "cancelled", "signal": 15, "error": "cancelled while running"}),
    (Interrupted(), {"state": "pending", "delay": 0}),
    (NoResources("no memory"), {"state": "pending", "delay": 1, "error": "put back: no memory"}),
    (Lost("w1"), {"state": "pending", "crashes": 1, "error": "worker lost: w1 died while running it", "delay": 0}),
]


@pytest.mark.parametrize(("outcome", "changes"), OUTCOMES, ids=lambda value: type(value).__name__)
def test_an_outcome_changes_exactly_what_it_should(
    store: Store, hire: Hire, clock: Clock, outcome: Outcome, changes: dict[str, object]
) -> None:
    id = enqueue(store, tags=["x"], env={"A": "1"}, run_at=clock.now - 1000)
    worker = hire()
    clock.advance(5)
    claim = worker.claim_one()
    running = store.views.job(id)
    clock.advance(1.5)
    assert worker.settle(claim, outcome, REPORT)

    expected = dict(changes)
    if "delay" in expected:
        expected["run_at"] = clock.now + int(str(expected.pop("delay"))) * 1000
    else:
        expected["finished_at"] = clock.now
    expected["outcome"] = outcome.kind
    expected |= {
        "updated_at": clock.now,
        "duration_ms": 1500,
        "stdout": "out",
        "stderr": "err",
    }
    assert store.views.job(id) == replace(running, **expected)  # type: ignore[arg-type]

    settlement = after_run(claim, outcome, store.config(), 0)
    assert store.views.history(id)[-1] == Event(
        at=clock.now,
        state=str(changes["state"]),
        run=1,
        worker_id="w1",
        kind="run_ended",
        reason=settlement.reason,
        outcome=outcome.kind,
        exit_code=settlement.exit_code,
        signal=settlement.signal,
        duration_ms=1500,
        cpu_ms=12,
        max_rss_kb=345,
    )


def test_the_last_attempt_makes_the_job_dead(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store, max_retries=2)
    worker = hire()
    worker.work_off(Exited(1))
    clock.advance(60)
    due = store.views.job(id).run_at
    worker.work_off(Exited(1))
    job = store.views.job(id)
    assert (job.state, job.attempts, job.crashes, job.finished_at) == ("dead", 2, 0, clock.now)
    assert job.run_at == due  # when its last run was due
    assert worker.claim() == []


def test_the_history_tells_the_whole_life(store: Store, hire: Hire, clock: Clock) -> None:
    id = enqueue(store, max_retries=2)
    worker = hire()
    worker.work_off(Interrupted())
    worker.work_off(Exited(1))
    clock.advance(60)
    worker.work_off(Exited(0))
    assert [(event.state, event.run, event.reason) for event in store.views.history(id)] == [
        ("pending", 0, "enqueued"),
        ("processing", 1, "started"),
        ("pending", 1, "put back: the worker was stopped"),
        ("processing", 2, "started"),
        ("failed", 2, "exit code 1; attempt 1 of 2, next in 2 s"),
        ("processing", 3, "started"),
        ("completed", 3, "exit code 0"),
    ]


@pytest.mark.parametrize("text", ["", "é 日本 🎉", "\ufffd", "x" * 100_000, "'; DROP TABLE jobs; --"])
def test_output_is_stored_as_it_is(store: Store, hire: Hire, text: str) -> None:
    id = enqueue(store)
    worker = hire()
    worker.settle(worker.claim_one(), Exited(0), Report(stdout=text, stderr=text))
    job = store.views.job(id)
    assert (job.stdout, job.stderr) == (text, text)


def test_a_job_that_was_pruned_in_the_meantime_cannot_be_settled(store: Store, hire: Hire) -> None:
    enqueue(store)
    worker = hire()
    claim = worker.claim_one()
    worker.settle(claim)
    store.prune(("completed",), 0)
    assert worker.settle(claim) is False
    assert store.views.jobs() == []


def test_a_new_job_with_an_old_ones_id_is_out_of_reach_for_the_old_claim(store: Store, hire: Hire) -> None:
    enqueue(store, id="again")
    worker = hire()
    old = worker.claim_one()
    worker.settle(old)
    store.prune(("completed",), 0)
    enqueue(store, id="again")
    new = worker.claim_one()
    assert (new.id, new.run) == (old.id, old.run)
    assert worker.settle(old) is False
    assert store.views.job("again").state == "processing"


def test_another_worker_cannot_settle_even_with_the_right_run(store: Store, hire: Hire) -> None:
    id = enqueue(store)
    owner, other = hire("owner"), hire("other")
    claim = owner.claim_one()
    assert other.settle(claim) is False
    assert store.views.job(id).state == "processing"
    assert owner.settle(claim) is True


# -- a tick is one transaction ---------------------------------------------------------------------------


def ended(store: Store, *claims: Claim) -> list[tuple[Claim, Settlement, Report]]:
    return [(claim, after_run(claim, Exited(0), store.config(), 0), REPORT) for claim in claims]


def test_a_tick_settles_and_claims_in_one_transaction(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([NewJob("true")] * 6)
    worker = hire()
    done = ended(store, *worker.claim(3))
    begun: list[str] = []
    for kind in ("read", "write"):
        monkeypatch.setattr(store.engine, kind, counting(begun, kind, getattr(store.engine, kind)))
    tick = store.tick(worker.id, done, slots=3)
    assert begun == ["write"]
    assert (len(tick.claims), tick.refused) == (3, [])
    assert store.views.counts()["completed"] == 3


def counting(begun: list[str], kind: str, begin: Callable[..., object]) -> Callable[..., object]:
    def count(*how: bool) -> object:
        begun.append(kind)
        return begin(*how)

    return count


def test_a_tick_that_fails_in_the_middle_has_changed_nothing(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true")] * 4)
    worker = hire()
    first, second = worker.claim(2)
    before = snapshot(store)
    good, bad = ended(store, first, second)
    nonsense = (bad[0], replace(bad[1], state="nonsense"), bad[2])  # type: ignore[arg-type]
    with pytest.raises(QueuectlError):
        store.tick(worker.id, [good, nonsense], slots=2)
    assert snapshot(store) == before
    assert store.tick(worker.id, [good, bad], slots=2).refused == []


def test_a_tick_tells_which_results_came_too_late_and_settles_the_others(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true")] * 2)
    worker = hire()
    mine, lost = worker.claim(2)
    worker.settle(lost, Exited(1))
    tick = store.tick(worker.id, ended(store, mine, lost))
    assert tick.refused == [lost]
    assert store.views.job(mine.id).state == "completed"


def test_a_settled_job_is_free_for_the_claim_of_the_same_tick(store: Store, hire: Hire) -> None:
    id = enqueue(store)
    worker = hire()
    claim = worker.claim_one()
    back = (claim, Settlement(State.PENDING, "interrupted", reason="put back"), Report())
    [again] = store.tick(worker.id, [back], slots=1).claims
    assert (again.id, again.run) == (id, 2)


@pytest.mark.parametrize("nonsense", ["unheard-of", "", "COMPLETED"])
def test_the_schema_itself_refuses_nonsense(store: Store, hire: Hire, nonsense: str) -> None:
    enqueue(store)
    worker = hire()
    claim = worker.claim_one()
    before = snapshot(store)
    with pytest.raises(QueuectlError):
        settle(store, worker.id, claim, Settlement(nonsense, "exited"))  # type: ignore[arg-type]
    assert snapshot(store) == before


def test_each_result_said_again_is_known_again_whatever_the_others_are(store: Store, hire: Hire) -> None:
    """The answer to a commit was lost: all of it is said once more."""
    store.enqueue([NewJob("true")] * 3)
    worker = hire()
    claims = worker.claim(3)
    ends = [
        (claim, after_run(claim, Exited(code), store.config(), 0), Report())
        for claim, code in zip(claims, (2, 1, 0), strict=True)
    ]
    assert store.tick(worker.id, ends).refused == []
    before = snapshot(store)
    assert store.tick(worker.id, ends).refused == []
    assert snapshot(store) == before


def test_what_the_store_holds_for_a_worker_in_doubt_is_handed_out_again(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true")] * 3)
    worker = hire()
    known, unknown = worker.claim(2)
    tick = store.tick(worker.id, slots=2, running={(known.seq, known.run)})
    assert [(claim.id, claim.run) for claim in tick.claims][:1] == [(unknown.id, unknown.run)]
    assert len(tick.claims) == 2  # and one more into the slot that is left
    assert store.tick(worker.id, slots=0).claims == []
