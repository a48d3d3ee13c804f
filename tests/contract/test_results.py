"""What runs say of themselves: kept while it is theirs to say, and with the job."""

from __future__ import annotations

import pytest

from queuectl.jobs import run_report
from queuectl.jobs.lifecycle import Cancelled, Exited, Interrupted, Lost, Outcome, Signalled, TimedOut, after_run
from queuectl.jobs.model import Claim, Job, Report
from queuectl.store import Store, write_queries
from tests.contract.conftest import FakeWorker, Hire, enqueue, snapshot

AWKWARD = "zwei\nZeilen \\N \\ 'quoted' \"so\" {x} % :y \x01\x7f ünï→🎈"


def text(progress: float | None = None, message: str | None = None, result: object = None) -> str:
    return run_report.dumped({"progress": progress, "message": message, "result": result})


def saying(progress: float | None = None, message: str | None = None, result: object = None) -> Report:
    return Report(said=text(progress, message, result))


def said(job: Job) -> tuple[float | None, str | None, object]:
    return job.progress, job.message, job.result


def rows(store: Store) -> list[tuple[object, ...]]:
    with store.engine.read() as tx:
        return tx.rows("SELECT job, run, report FROM results ORDER BY job")


@pytest.fixture
def worker(hire: Hire) -> FakeWorker:
    return hire("w1")


@pytest.fixture
def claim(store: Store, worker: FakeWorker) -> Claim:
    enqueue(store, id="a", max_retries=2, backoff_base=0)
    return worker.claim_one()


# -- while it runs ---------------------------------------------------------------------------------------


def test_what_a_run_says_is_seen_while_it_runs(store: Store, claim: Claim) -> None:
    assert said(store.views.job("a")) == (None, None, None)
    before = store.views.job("a")
    store.report("w1", [(claim, text(40, "halfway"))])
    assert said(store.views.job("a")) == (40, "halfway", None)
    store.report("w1", [(claim, text(50.5, None, {"rows": [1, None]}))])
    job = store.views.job("a")
    assert said(job) == (50.5, None, {"rows": [1, None]})
    assert {key: value for key, value in job.as_json().items() if key in ("progress", "message", "result")} == {
        "progress": 50.5, "message": None, "result": {"rows": [1, None]},
    }  # fmt: skip
    assert (job.state, job.updated_at, job.run) == (before.state, before.updated_at, before.run)
    assert [said(job) for job in store.views.jobs()] == [said(job)]


def test_many_runs_are_told_of_at_once(store: Store, worker: FakeWorker) -> None:
    for n in range(5):
        enqueue(store, id=f"job{n}")
    claims = worker.claim(5)
    store.report("w1", [(claim, text(n, AWKWARD)) for n, claim in reversed(list(enumerate(claims)))])
    assert [said(store.views.job(f"job{n}")) for n in range(5)] == [(n, AWKWARD, None) for n in range(5)]


def test_awkward_words_come_back_as_they_were(store: Store, worker: FakeWorker, claim: Claim) -> None:
    store.report("w1", [(claim, text(1, AWKWARD, {AWKWARD: [AWKWARD]}))])
    assert said(store.views.job("a")) == (1, AWKWARD, {AWKWARD: [AWKWARD]})
    worker.settle(claim, report=saying(2, AWKWARD, [AWKWARD]))
    assert said(store.views.job("a")) == (2, AWKWARD, [AWKWARD])


def test_a_large_report_is_kept_whole(store: Store, claim: Claim) -> None:
    large = "ü" * (run_report.LARGEST // 2)
    store.report("w1", [(claim, text(None, None, large))])
    assert store.views.job("a").result == large


# -- the fence -------------------------------------------------------------------------------------------


def test_the_report_of_a_worker_that_lost_its_claim_is_refused(store: Store, hire: Hire, claim: Claim) -> None:
    store.report("w1", [(claim, text(10))])
    with store.engine.write() as tx:
        tx.run("UPDATE jobs SET run = run + 1, worker_id = 'w2'")
    store.report("w1", [(claim, text(20))])
    assert rows(store) == [(claim.seq, 1, text(10))]
    assert said(store.views.job("a")) == (None, None, None)


def test_a_late_report_does_not_replace_that_of_the_next_run(store: Store, hire: Hire, claim: Claim) -> None:
    first, second = hire("first"), hire("second")
    enqueue(store, id="b")
    late = first.claim_one()
    first.die()
    store.recover("first")
    now = second.claim_one()
    store.report("second", [(now, text(20))])
    store.report("first", [(late, text(90)), (now, text(91))])
    assert said(store.views.job("b")) == (20, None, None)
    assert first.settle(late, report=saying(100)) is False
    assert said(store.views.job("b")) == (20, None, None)


def test_a_worker_cannot_speak_for_a_later_run_of_its_own(store: Store, worker: FakeWorker, claim: Claim) -> None:
    worker.settle(claim, Exited(1))
    worker.claim_one()
    store.report("w1", [(claim, text(90))])
    assert said(store.views.job("a")) == (None, None, None)


def test_a_run_that_was_put_back_says_no_more(store: Store, hire: Hire) -> None:
    """Its number is still the job's, but it is over."""
    worker = hire("gone")
    enqueue(store, id="b")
    claim = worker.claim_one()
    store.report("gone", [(claim, text(20))])
    worker.die()
    store.recover("gone")
    before = snapshot(store)
    store.report("gone", [(claim, text(90))])
    assert snapshot(store) == before
    assert said(store.views.job("b")) == (20, None, None)


def test_another_workers_run_is_not_ours_to_tell_of(store: Store, hire: Hire, claim: Claim) -> None:
    hire("w2")
    store.report("w2", [(claim, text(90))])
    assert rows(store) == []


def test_one_that_is_refused_keeps_no_other_from_being_heard(store: Store, worker: FakeWorker, claim: Claim) -> None:
    enqueue(store, id="b")
    other = worker.claim_one()
    worker.settle(claim)
    store.report("w1", [(claim, text(1)), (other, text(2))])
    assert said(store.views.job("a")) == (None, None, None)
    assert said(store.views.job("b")) == (2, None, None)


# -- its end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome", [Exited(0), Exited(1), Exited(75), Signalled(9), TimedOut(1), Interrupted(), Cancelled(), Lost("w1")]
)
def test_the_last_word_is_kept_however_a_run_ends(
    store: Store, worker: FakeWorker, claim: Claim, outcome: Outcome
) -> None:
    store.report("w1", [(claim, text(10, "early", 1))])
    assert worker.settle(claim, outcome, saying(60, "late", 2))
    assert said(store.views.job("a")) == (60, "late", 2)


def test_what_was_said_stays_if_nothing_is_added(store: Store, worker: FakeWorker, claim: Claim) -> None:
    store.report("w1", [(claim, text(10, "early", 1))])
    worker.settle(claim)
    assert said(store.views.job("a")) == (10, "early", 1)


def test_only_those_that_say_something_have_a_row(store: Store, worker: FakeWorker) -> None:
    for n in range(4):
        enqueue(store, id=f"job{n}")
    ended = [
        (claim, after_run(claim, Exited(0), store.config(), 0), saying(n) if n % 2 else Report())
        for n, claim in enumerate(worker.claim(4))
    ]
    store.tick("w1", ended)
    assert [said(store.views.job(f"job{n}"))[0] for n in range(4)] == [None, 1, None, 3]
    assert len(rows(store)) == 2


def test_a_job_that_is_cancelled_in_that_moment_keeps_its_last_word(
    store: Store, worker: FakeWorker, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request came after the worker had read its news: it settles twice."""
    monkeypatch.setattr(write_queries, "NEWS", write_queries.NEWS.replace("AND cancel_requested", "AND FALSE"))
    store.cancel(["a"])
    assert worker.settle(claim, Exited(1), saying(60))
    assert store.views.job("a").state == "cancelled"
    assert said(store.views.job("a")) == (60, None, None)


def test_it_is_settled_and_told_in_one_step(
    store: Store, other_store: Store, worker: FakeWorker, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the report cannot be kept, the run has not ended either."""
    monkeypatch.setattr(write_queries, "REPORT", write_queries.REPORT.replace("INTO results", "INTO nowhere"))
    with pytest.raises(Exception, match="nowhere"):
        worker.settle(claim, report=saying(100))
    monkeypatch.undo()
    assert other_store.views.job("a").state == "processing"
    assert worker.settle(claim, report=saying(100))
    assert said(other_store.views.job("a")) == (100, None, None)


def test_saying_the_same_end_again_changes_nothing(store: Store, worker: FakeWorker, claim: Claim) -> None:
    worker.settle(claim, report=saying(100, "done"))
    before = snapshot(store)
    assert worker.settle(claim, report=saying(7))
    assert snapshot(store) == before


# -- the next run, and the job's own end -----------------------------------------------------------------


def test_the_next_run_starts_afresh(store: Store, worker: FakeWorker, claim: Claim) -> None:
    worker.settle(claim, Exited(1), saying(60, "late", 2))
    assert said(store.views.job("a")) == (60, "late", 2)
    again = worker.claim_one()
    assert (again.id, again.run) == ("a", 2)
    assert said(store.views.job("a")) == (None, None, None)
    store.report("w1", [(again, text(5))])
    assert said(store.views.job("a")) == (5, None, None)
    assert len(rows(store)) == 1


@pytest.mark.parametrize("how", ["prune", "purge", "reset"])
def test_it_goes_with_the_job(store: Store, worker: FakeWorker, claim: Claim, how: str) -> None:
    worker.settle(claim, Exited(1), saying(60))
    worker.settle(worker.claim_one(), Exited(1), saying(70))
    assert said(store.views.job("a")) == (70, None, None)
    if how == "prune":
        store.prune(["dead"], 0)
    elif how == "purge":
        store.purge_dead()
    else:
        worker.leave()
        store.unregister("w1")
        store.reset()
    assert rows(store) == []


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_the_progress_of_a_job_that_others_have_locked_waits_and_that_of_others_does_not(
    store: Store, other_store: Store, worker: FakeWorker
) -> None:
    for id in ("a", "b"):
        enqueue(store, id=id)
    first, second = worker.claim(2)
    said = [(second, text(2)), (first, text(1))]
    with other_store.engine.write() as tx:
        tx.rows(write_queries.LOCK_SEQS, {"seqs": [first.seq]})
        assert store.report("w1", said) == {second.seq}
    assert [store.views.job(id).progress for id in ("a", "b")] == [None, 2]
    assert store.report("w1", said) == {first.seq, second.seq}
    assert [store.views.job(id).progress for id in ("a", "b")] == [1, 2]
