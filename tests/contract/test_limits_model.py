"""Whatever happens to jobs with keys in limited queues: never one too many, and never one forgotten."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited, Interrupted, Outcome
from queuectl.jobs.model import Claim, Job
from queuectl.jobs.states import FINISHED, WAITING
from queuectl.store import Store
from queuectl.store.engine import Engine
from queuectl.store.postgres import PostgresEngine
from queuectl.store.sqlite import SqliteEngine
from tests.conftest import Clock
from tests.contract.conftest import FakeWorker
from tests.postgres import Queues

KEYS = ("k1", "k2", None)
QUEUES = ("a", "b")


class Crowd(RuleBasedStateMachine):
    def open(self) -> Engine:
        return SqliteEngine(str(self.folder / "queue.db"), clock=self.clock)

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="queuectl-crowd-", dir=memory))
        self.store = Store(self.open())
        self.hired = 0
        self.workers = [self.hire(), self.hire()]
        self.running: list[tuple[FakeWorker, Claim]] = []

    def hire(self) -> FakeWorker:
        self.hired += 1
        return FakeWorker(self.store, f"w{self.hired}")

    def teardown(self) -> None:
        for worker in self.workers:
            worker.leave()
        self.store.close()
        shutil.rmtree(self.folder)

    # -- what may happen ---------------------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(QUEUES),
        key=st.sampled_from(KEYS),
        limit=st.none() | st.none() | st.integers(1, 3),
        count=st.integers(1, 4),
        priority=st.integers(0, 1),
        batch=st.none() | st.just("b"),
    )
    def enqueue(
        self, queue: str, key: str | None, limit: int | None, count: int, priority: int, batch: str | None
    ) -> None:
        job = NewJob(
            "true", queue=queue, key=key, key_limit=limit if key else None, priority=priority, max_retries=2,
            batch=batch, max_fails=2 if batch else None,
        )  # fmt: skip
        self.store.enqueue([job] * count)

    @rule(who=st.integers(0, 1), slots=st.integers(1, 4))
    def claim(self, who: int, slots: int) -> None:
        """Takes no more than may run, and leaves nothing that could."""
        worker = self.workers[who]
        claims = worker.claim(slots)
        self.running += [(worker, claim) for claim in claims]
        jobs = self.store.views.jobs(limit=-1)
        self.check_limits(jobs, claims)
        if len(claims) < slots:
            assert not [job.id for job in jobs if self.could_run(job, jobs)]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from([Exited(0), Exited(1), Interrupted()]))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        worker, claim = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        worker.settle(claim, outcome)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiting = [job.id for job in self.store.views.jobs(limit=-1) if job.state in WAITING]
        if waiting:
            self.store.cancel(data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True)))

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        dead = [job.id for job in self.store.views.jobs("dead", limit=-1)]
        if dead:
            self.store.retry([data.draw(st.sampled_from(dead))])

    @rule(who=st.integers(0, 1))
    def die(self, who: int) -> None:
        dead = self.workers[who]
        dead.die()
        self.store.recover(dead.id)
        self.running = [(worker, claim) for worker, claim in self.running if worker is not dead]
        self.workers[who] = self.hire()

    @rule(
        queue=st.sampled_from(QUEUES),
        change=st.fixed_dictionaries(
            {},
            optional={
                "paused": st.booleans(),
                "at_once": st.none() | st.integers(1, 3),
                "per_key": st.none() | st.integers(1, 3),
            },
        ),
    )
    def change(self, queue: str, change: dict[str, object]) -> None:
        self.store.change_queue(queue, **change)

    @rule(seconds=st.sampled_from([1, 5]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def all_come_to_their_end(self) -> None:
        """Whatever has happened: if every queue may run, all jobs do."""
        for queue in QUEUES:
            self.store.change_queue(queue, paused=False)
        [worker, _] = self.workers
        while True:
            for holder, claim in self.running:
                holder.settle(claim)
            left = [job for job in self.store.views.jobs(limit=-1) if job.state not in FINISHED]
            self.clock.advance(10)
            self.running = [(worker, claim) for claim in worker.claim(99)]
            if not left:
                return
            assert self.running, [(job.id, job.state, job.parked) for job in left]

    # -- what must hold ----------------------------------------------------------------------------------

    def limits(self, job: Job) -> tuple[bool, int, int]:
        """Is its queue paused, and how many may run there, and with its key?"""
        rules = {queue.name: queue.rules for queue in self.store.views.queues()}[job.queue]
        return rules.paused, rules.at_once or 10**9, job.key_limit or rules.per_key or 1

    def check_limits(self, jobs: list[Job], claims: list[Claim]) -> None:
        """Of what has just been claimed; limits may have been lower before."""
        queues, keys = self.counts(jobs)
        claimed = {claim.id for claim in claims}
        for job in jobs:
            if job.id in claimed:
                paused, at_once, _ = self.limits(job)
                assert not paused
                assert queues[job.queue] <= at_once
        for key in {job.key for job in jobs if job.id in claimed and job.key}:
            most = max(self.limits(job)[2] for job in jobs if job.id in claimed and job.key == key)
            assert keys[key] <= most

    def could_run(self, job: Job, jobs: list[Job]) -> bool:
        queues, keys = self.counts(jobs)
        paused, at_once, with_key = self.limits(job)
        room_for_key = not job.key or keys[job.key] < with_key
        # Of those of a key, the first in a queue decides: what has a higher limit of its own may have to wait for it.
        rivals = [
            other for other in jobs if (other.key, other.queue) == (job.key, job.queue) and other.state in WAITING
        ]
        uniform = not job.key or len({self.limits(other)[2] for other in rivals}) == 1
        due = job.state in WAITING and job.run_at <= self.clock.now
        return due and not paused and queues[job.queue] < at_once and room_for_key and uniform

    def counts(self, jobs: list[Job]) -> tuple[Counter[str], Counter[str | None]]:
        running = [job for job in jobs if job.state == "processing"]
        return Counter(job.queue for job in running), Counter(job.key for job in running)


SETTINGS = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_limits_hold_and_forget_nobody_on_sqlite() -> None:
    run_state_machine_as_test(Crowd, settings=SETTINGS)


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_limits_hold_and_forget_nobody_on_postgres(url: str, postgres_queues: Queues) -> None:
    class CrowdOnPostgres(Crowd):
        def open(self) -> Engine:
            postgres_queues.empty(url.partition("schema=")[2])
            return PostgresEngine(url, clock=self.clock)

    run_state_machine_as_test(CrowdOnPostgres, settings=SETTINGS)
