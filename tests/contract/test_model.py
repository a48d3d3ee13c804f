"""The store against a small model of it: whatever is done in whatever order, both agree."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from queuectl.errors import Conflict
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import (
    Cancelled,
    Exited,
    Interrupted,
    NoResources,
    Outcome,
    Settlement,
    Signalled,
    State,
    TimedOut,
    after_loss,
    after_run,
)
from queuectl.jobs.model import Claim
from queuectl.jobs.states import FINISHED
from queuectl.store import Store
from queuectl.store.engine import Engine
from queuectl.store.postgres import PostgresEngine
from queuectl.store.sqlite import SqliteEngine
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker, settle
from tests.postgres import Queues

WORKERS = 3


@dataclass
class Model:
    """One job as it should be."""

    id: str
    seq: int
    queue: str
    priority: int
    run_at: int
    state: str = "pending"
    attempts: int = 0
    crashes: int = 0
    run: int = 0
    holder: str | None = None
    cancel_requested: bool = False
    finished_at: int | None = None

    def settle(self, end: Settlement, now: int) -> None:
        self.state = str(end.state)
        self.attempts += end.failed
        self.crashes += end.crashed
        self.cancel_requested = False
        if self.state in ("pending", "failed"):
            self.run_at = now + round(end.delay * 1000)
        if self.state in FINISHED:
            self.finished_at = now


@dataclass
class Held:
    """A claim that was once handed out, and to whom; its run may be long over."""

    claim: Claim
    worker: str
    job: Model = field(repr=False)
    said: str = ""  # how its worker said that it ended

    @property
    def valid(self) -> bool:
        job = self.job
        return (job.state, job.run, job.holder) == ("processing", self.claim.run, self.worker)


class Queue(RuleBasedStateMachine):
    def open(self) -> Engine:
        return SqliteEngine(str(self.folder / "queue.db"), clock=self.clock)

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        # Thousands of commits: in memory, where there is such a place.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="queuectl-model-", dir=memory))
        self.store = Store(self.open())
        self.jobs: dict[str, Model] = {}
        self.held: list[Held] = []
        self.workers: list[FakeWorker] = []
        self.hired = self.enqueued = 0
        for _ in range(WORKERS):
            self.hire()

    def teardown(self) -> None:
        for worker in self.workers:
            worker.leave()
        self.store.close()
        shutil.rmtree(self.folder)

    def hire(self) -> None:
        self.workers.append(FakeWorker(self.store, f"w{self.hired}"))
        self.hired += 1

    # -- what may happen ---------------------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(["default", "mail", "web"]),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([0, 0, 0, 5, 3600]),
        max_retries=st.integers(0, 3),
        count=st.integers(1, 3),
    )
    def enqueue(self, queue: str, priority: int, delay: int, max_retries: int, count: int) -> None:
        run_at = self.clock.now + delay * 1000
        ids = [f"job{self.enqueued + n}" for n in range(count)]
        self.store.enqueue(
            [
                NewJob("true", id=id, queue=queue, priority=priority, run_at=run_at, max_retries=max_retries)
                for id in ids
            ]
        )
        for id in ids:
            self.jobs[id] = Model(id, self.enqueued, queue, priority, run_at)
            self.enqueued += 1

    @rule(who=st.integers(0, WORKERS - 1), slots=st.integers(1, 4))
    def claim(self, who: int, slots: int) -> None:
        worker = self.workers[who]
        due = [
            job for job in self.jobs.values() if job.state in ("pending", "failed") and job.run_at <= self.clock.now
        ]
        due.sort(key=lambda job: (-job.priority, job.seq))
        claims = worker.claim(slots)
        assert [claim.id for claim in claims] == [job.id for job in due[:slots]]
        for claim, job in zip(claims, due, strict=False):
            job.state, job.holder, job.run = "processing", worker.id, job.run + 1
            assert (claim.run, claim.attempts, claim.crashes) == (job.run, job.attempts, job.crashes)
            self.held.append(Held(claim, worker.id, job))

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(
            [
                Exited(0),
                Exited(0),
                Exited(1),
                Signalled(9),
                TimedOut(5),
                Interrupted(),
                NoResources("none"),
                Cancelled(),
            ]
        ),
    )
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        running = [held for held in self.held if held.valid]
        held = data.draw(st.sampled_from(running or self.held) | st.sampled_from(self.held))
        end = after_run(held.claim, outcome, self.store.config(), 0)
        again = held.said == end.reason and held.job.id in self.jobs  # as a worker does that got no answer
        assert settle(self.store, held.worker, held.claim, end) is (held.valid or again)
        if not held.valid:
            return
        held.said = end.reason
        job, to_be_cancelled = held.job, held.job.cancel_requested
        job.settle(end, self.clock.now)
        if to_be_cancelled:  # promised never to run again, however its run ended
            found = self.store.views.job(job.id)
            assert found.state in ({"completed"} if end.state is State.COMPLETED else {"cancelled", "dead"})
            job.state, job.attempts, job.finished_at = found.state, found.attempts, self.clock.now

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        running = [job for job in self.jobs.values() if job.state == "processing"]
        job = data.draw(st.sampled_from(running or [*self.jobs.values()]) | st.sampled_from([*self.jobs.values()]))
        if job.state in FINISHED:
            with pytest.raises(Conflict):
                self.store.cancel([job.id])
            return
        self.store.cancel([job.id])
        if job.state == "processing":
            job.cancel_requested = True
        else:
            job.state, job.finished_at = "cancelled", self.clock.now

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        dead = [job for job in self.jobs.values() if job.state == "dead"]
        job = data.draw(st.sampled_from(dead or [*self.jobs.values()]))
        if job.state != "dead":
            with pytest.raises(Conflict):
                self.store.retry([job.id])
            return
        self.store.retry([job.id])
        job.state, job.attempts, job.crashes, job.run_at, job.finished_at = "pending", 0, 0, self.clock.now, None

    @rule(who=st.integers(0, WORKERS - 1))
    def die_and_be_recovered(self, who: int) -> None:
        dead = self.workers.pop(who)
        lost = [held for held in self.held if held.worker == dead.id and held.valid]
        dead.die()
        found = self.store.lost_workers()
        assert {id: sorted(claim.id for claim in claims) for id, claims in found.items()} == {
            dead.id: sorted(held.job.id for held in lost)
        }
        recovered = self.store.recover(dead.id)
        assert recovered is not None
        for claim, end, _ in recovered[1]:
            job = self.jobs[claim.id]
            assert end == after_loss(claim, dead.id, job.cancel_requested, self.store.config())
            job.settle(end, self.clock.now)
        assert not any(held.valid for held in lost)
        self.hire()

    @rule(seconds=st.sampled_from([0.001, 1, 2, 4, 60, 3600]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        states=st.sets(st.sampled_from(FINISHED), min_size=1),
        age=st.sampled_from([0, 2, 60]),
        limit=st.integers(1, 5),
    )
    def prune(self, states: set[str], age: int, limit: int) -> None:
        before = self.clock.now - age * 1000
        old = [
            job
            for job in self.jobs.values()
            if job.state in states and job.finished_at is not None and job.finished_at <= before
        ]
        assert self.store.views.prunable(sorted(states), age) == len(old)
        assert self.store.prune(sorted(states), age, limit) == min(limit, len(old))
        left = {job.id for job in self.store.views.jobs(limit=-1)}
        gone = [job for job in old if job.id not in left]
        kept = [job for job in old if job.id in left]
        assert len(gone) == min(limit, len(old))
        newest_gone = max((job.finished_at or 0 for job in gone), default=0)
        assert all((job.finished_at or 0) >= newest_gone for job in kept)
        for job in gone:
            del self.jobs[job.id]
            job.state = "pruned"

    # -- what must always hold ---------------------------------------------------------------------------

    @invariant()
    def every_job_is_as_it_should_be(self) -> None:
        stored = {job.id: job for job in self.store.views.jobs(limit=-1)}
        assert list(stored) == [*reversed(self.jobs)]
        for id, job in self.jobs.items():
            found = stored[id]
            assert (found.state, found.attempts, found.crashes, found.run, found.finished_at) == (
                job.state, job.attempts, job.crashes, job.run, job.finished_at,
            )  # fmt: skip
            assert (found.cancel_requested, found.worker_id) == (job.cancel_requested, job.holder)
            if job.state in ("pending", "failed"):
                assert found.run_at == job.run_at

    @invariant()
    def the_counts_are_those_of_a_recount(self) -> None:
        recount = Counter(job.state for job in self.jobs.values())
        assert self.store.views.counts() == {str(state): recount[str(state)] for state in State}

    @invariant()
    def a_job_has_one_holder_at_most_and_its_worker_says_so(self) -> None:
        valid = [held for held in self.held if held.valid]
        assert len({held.job.id for held in valid}) == len(valid)
        running = {job: worker.id for worker in self.store.views.workers() for job in worker.jobs}
        assert running == {held.job.id: held.worker for held in valid}


SETTINGS = settings(max_examples=80, stateful_step_count=50, deadline=None)


def test_the_store_agrees_with_its_model_on_sqlite() -> None:
    run_state_machine_as_test(Queue, settings=SETTINGS)


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_the_store_agrees_with_its_model_on_postgres(url: str, postgres_queues: Queues) -> None:
    class QueueOnPostgres(Queue):
        def open(self) -> Engine:
            postgres_queues.empty(url.partition("schema=")[2])
            return PostgresEngine(url, clock=self.clock)

    run_state_machine_as_test(QueueOnPostgres, settings=SETTINGS)
