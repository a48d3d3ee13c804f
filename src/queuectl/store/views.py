"""All that only reads a queue."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from queuectl.errors import InvalidInput, NotFound, TimedOut, no_such_job
from queuectl.jobs import job_spec, log_files, run_report
from queuectl.jobs.lifecycle import State
from queuectl.jobs.model import Act, Event, Job, Link, Obstacles, Queue, Rules, Wait, Worker
from queuectl.jobs.states import FINISHED, WAITING
from queuectl.store import limits, resolve_id
from queuectl.store import read_queries as ask
from queuectl.store import write_queries as sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from queuectl.store.engine import Engine, Row, Transaction
    from queuectl.store.listing import Listing

MOST = 2**62
METRICS_WINDOW = 10_000
COUNT_AHEAD_UP_TO = 10_000
SHOWN_WAITS = 20
MOST_QUEUES = 100


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number is distributed, in milliseconds."""

    avg: float
    min: float
    max: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Metrics:
    jobs: dict[str, int]
    total: int
    window: int  # how many of the newest finished jobs the figures below are taken from
    average_attempts: float | None
    success_rate: float | None
    run_ms: Spread | None
    wait_ms: Spread | None
    finished_last_minute: int
    finished_last_hour: int
    workers: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Views:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # -- jobs --------------------------------------------------------------------------------------------

    def resolve(self, text: str) -> str:
        """The id meant by an id, a unique beginning of one, or @last."""
        return resolve_id.resolve(self.engine, text)

    def job(self, text: str) -> Job:
        id = self.resolve(text)
        with self.engine.read() as tx:
            found = tx.rows(ask.GET_JOB, {"id": id})
        if not found:  # pruned between the two reads
            raise no_such_job(text)
        return self.as_job(found[0])

    def these(self, ids: Sequence[str]) -> list[Job]:
        """The jobs with these ids, in their order; what is gone is left out."""
        reader = self.reader()
        with self.engine.read() as tx:
            reader(tx, ids)
        return reader.jobs()

    def reader(self) -> JobReader:
        """For `before_commit` of a change: see there."""
        return JobReader(self)

    def jobs(
        self,
        state: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        limit: int = 50,
        batch: str | None = None,
    ) -> list[Job]:
        """The newest first. A negative limit means all."""
        if state is not None and state not in list(State):
            raise InvalidInput(f'there is no state "{state}"', "the states are: " + ", ".join(State))
        params = {
            "queue": None if queue is None else job_spec.text("queue", queue),
            "tag": None if tag is None else job_spec.text("tag", tag),
            "batch": None if batch is None else job_spec.text("batch", batch),
            "limit": limit if 0 <= limit < MOST else MOST,
        }
        with self.engine.read() as tx:
            if batch is not None:
                rows = tx.rows(ask.LIST_BATCH, {**params, "state": state})
            elif state is None:
                rows = tx.rows(ask.LIST_ALL, params)
            elif state == State.PROCESSING:
                rows = tx.rows(ask.LIST_RUNNING, params)
            else:
                rows = tx.rows(ask.LIST_STATE, {**params, "state": state})
        return [self.as_job(row) for row in rows]

    def running(self, limit: int) -> list[Job]:
        """What runs, the longest first."""
        return self._some(ask.LONGEST_RUNNING, limit)

    def upcoming(self, limit: int) -> list[Job]:
        """What will run, in the order in which it will: what is due, what waits for its key, what becomes due, what
        waits for other jobs.

        Of the queues that have due jobs, MOST_QUEUES are looked at.
        """
        with self.engine.read() as tx:
            queues = [queue for (queue,) in tx.rows(sql.READY_QUEUES)][:MOST_QUEUES]
            due = [row for queue in queues for row in tx.rows(ask.NEXT_READY, {"queue": queue, "limit": limit})]
            found = [row[2:] for row in sorted(due, key=lambda row: row[:2])[:limit]]
            for statement in (ask.NEXT_PARKED, ask.NEXT_WAITING, ask.NEXT_BLOCKED):
                if len(found) < limit:
                    found += tx.rows(statement, {"limit": limit - len(found)})
        return [self.as_job(row) for row in found]

    def finished(self, limit: int) -> list[Job]:
        """What has finished, the latest first."""
        return self._some(ask.LAST_FINISHED, limit)

    def tagged(self, tag: str, limit: int) -> list[Job]:
        """The newest jobs with this tag, the latest first."""
        with self.engine.read() as tx:
            return [self.as_job(row) for row in tx.rows(ask.LAST_TAGGED, {"tag": tag, "limit": limit})]

    def _some(self, statement: str, limit: int) -> list[Job]:
        with self.engine.read() as tx:
            return [self.as_job(row) for row in tx.rows(statement, {"limit": limit})]

    def states(self, ids: Sequence[str]) -> dict[str, str]:
        with self.engine.read() as tx:
            return dict(tx.rows(sql.STATES_OF, {"ids": list(ids)}))

    def ids_in(self, batch: str) -> list[str]:
        """The jobs of a batch, in their order; there must be some."""
        with self.engine.read() as tx:
            ids = [id for (id,) in tx.rows(sql.IDS_IN_BATCH, {"batch": job_spec.name("batch", batch)})]
        if not ids:
            raise NotFound(f'there is no batch "{batch}"', "its name is given with enqueue --batch")
        return ids

    def any_due(self) -> bool:
        """Is there a job that could run now, in a queue that is not paused?"""
        with self.engine.read() as tx:
            resting = {name for name, rule in limits.all_rules(tx).items() if rule.paused}
            if any(name not in resting for (name,) in tx.rows(sql.READY_QUEUES)):
                return True
            return bool(tx.rows(ask.ANY_OVERDUE, {"now": tx.now}))

    def unfinished(self, queue: str | None = None, batch: str | None = None, tag: str | None = None) -> list[str]:
        """The ids of what has not come to its end, the oldest first."""
        with self.engine.read() as tx:
            return [id for (id,) in tx.rows(ask.UNFINISHED, {"queue": queue, "batch": batch, "tag": tag})]

    def wait(
        self, ids: Sequence[str], timeout: float | None = None, progress: Callable[[int], None] = lambda done: None
    ) -> dict[str, str]:
        """Their states, once all of them have finished. `progress` is told how many have."""
        return wait_until_finished(self.states, ids, timeout, progress)

    def history(self, text: str) -> list[Event]:
        """What happened to a job, its enqueueing first."""
        id = self.resolve(text)
        with self.engine.read() as tx:
            found = tx.rows(ask.GET_JOB, {"id": id})
            rows = tx.rows(ask.HISTORY, {"id": id})
        if not found:
            raise no_such_job(text)
        return _story(self.as_job(found[0]), rows)

    def ahead_of(self, job: Job) -> int:
        """How many due jobs of its queue come before it, counted up to COUNT_AHEAD_UP_TO."""
        params = {"id": job.id, "queue": job.queue, "priority": job.priority, "limit": COUNT_AHEAD_UP_TO}
        with self.engine.read() as tx:
            return int(tx.rows(ask.AHEAD_OF, params)[0][0])

    def explain(self, job: Job, workers: Sequence[Worker], now: int) -> list[str]:
        """Say why a job is not running, from everything that could hold it back."""
        from queuectl.jobs.explain import SHOWN, explain  # here: few readers ask

        waits = self.waits(job.id) if job.state == State.BLOCKED else []
        obstacles = self.obstacles(job) if job.state in WAITING else None
        broken = self.broken_by(job.id, SHOWN + 1) if job.state == State.CANCELLED else []
        return explain(job, workers, self.ahead_of(job), now, waits, obstacles, broken)

    def parents(self, id: str, limit: int = MOST) -> list[Link]:
        """What a job waits for, or did; what is still open first."""
        return self._links(ask.PARENTS, id, limit)

    def children(self, id: str, limit: int = MOST) -> list[Link]:
        """What waits for a job, or did."""
        return self._links(ask.CHILDREN, id, limit)

    def broken_by(self, id: str, limit: int = MOST) -> list[Link]:
        """The parents for which a job was cancelled, the deleted ones first: no retry brings those back."""
        return self._links(ask.BROKEN_PARENTS, id, limit)

    def _links(self, statement: str, id: str, limit: int) -> list[Link]:
        with self.engine.read() as tx:
            return [Link(*row) for row in tx.rows(statement, {"id": id, "limit": limit})]

    def waits(self, id: str) -> list[Wait]:
        """The jobs that stand before a blocked one, each below the one that waits for it; so many as can be read."""
        chain: list[Wait] = []
        left = [Wait(0, link) for link in reversed(self.parents(id, SHOWN_WAITS)) if link.open]
        seen: set[str] = set()
        while left and len(chain) < SHOWN_WAITS:
            wait = left.pop()
            chain.append(wait)
            if wait.link.id not in seen and wait.link.state == State.BLOCKED:
                before = self.parents(wait.link.id, SHOWN_WAITS)
                left += [Wait(wait.depth + 1, link) for link in reversed(before) if link.open]
            seen.add(wait.link.id)
        return chain

    def prunable(self, states: Sequence[str], older_than: float) -> int:
        with self.engine.read() as tx:
            before = tx.now - round(older_than * 1000)
            return int(tx.rows(sql.COUNT_PRUNABLE, {"states": list(states), "before": before})[0][0])

    def as_job(self, row: Row) -> Job:
        fields = dict(zip(sql.JOB_FIELDS, row, strict=True))
        fields["env"] = json.loads(fields["env"] or "{}")
        for words in ("tags", "retry_on", "no_retry_on", "notify"):
            fields[words] = tuple((fields[words] or "").split())
        links = (fields["depends_on"] or "").split(",")
        fields["depends_on"] = tuple(
            (id, condition) for id, _, condition in (link.partition(" ") for link in links) if id
        )
        for flag in ("cancel_requested", "parked"):
            fields[flag] = bool(fields[flag])
        fields |= run_report.loaded(fields.pop("report"))
        place = fields.pop("log_place") or self.engine.log_place or f":{self.engine.log_dir}"
        host, _, folder = place.partition(":")
        elsewhere = host if host not in ("", os.uname().nodename) else None
        return Job(**fields, log_path=log_files.path_of(folder, fields["id"]), log_host=elsewhere)

    @property
    def listing(self) -> Listing:
        from queuectl.store.listing import Listing

        return Listing(self)

    # -- the whole ---------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        counts = {str(state): 0 for state in State}
        for _, state, n in self._counts():
            counts[state] += n
        return counts

    def clock(self) -> int:
        """The moment by which the times of this queue are written."""
        with self.engine.read() as tx:
            return tx.now

    def _counts(self) -> list[Row]:
        with self.engine.read() as tx:
            return tx.rows(sql.COUNTS)

    def queues(self) -> list[Queue]:
        """All that have or had jobs, or of which something is said."""
        with self.engine.read() as tx:
            counts, rules = tx.rows(sql.COUNTS), limits.all_rules(tx)
        found = {name: {str(state): 0 for state in State} for name in sorted({row[0] for row in counts} | set(rules))}
        for name, state, n in counts:
            found[name][state] += int(n)
        return [
            Queue(name, jobs, rules.get(name, Rules(name)))
            for name, jobs in found.items()
            if name in rules or any(jobs.values())
        ]

    def obstacles(self, job: Job) -> Obstacles:
        """What the limits of its queue and of its key have to say to a job that waits."""
        with self.engine.read() as tx:
            rules = limits.rules(tx, [job.queue])
            rule = rules.get(job.queue, Rules(job.queue))
            by_queue = tx.rows(sql.RUNNING_HERE, {"queue": job.queue}) if rule.at_once else []
            by_key = tx.rows(sql.RUNNING_OF_KEY, {"key": job.key}) if job.key else []
            free_at = limits.free_at(tx, rule) if rule.rate else None
        return Obstacles(
            rule,
            tuple(id for (id,) in by_queue),
            tuple(id for (id,) in by_key),
            limits.limit_of(rules, job.queue, job.key_limit),
            free_at,
        )

    def workers(self) -> list[Worker]:
        """All that have registered and not left; each says if it is alive."""
        with self.engine.read() as tx:
            rows, running = tx.rows(ask.WORKERS), tx.rows(ask.RUNNING)
            now = tx.now
        return [
            Worker(
                id=id,
                pid=pid,
                host=host,
                manager_pid=manager_pid,
                queues=tuple(queues.split()),
                concurrency=concurrency,
                started_at=started_at,
                heartbeat_at=heartbeat_at,
                stop=stop,
                jobs=tuple(job for holder, job in running if holder == id),
                alive=self.engine.is_alive((id, pid, pid_started, place, expires_at), now),
                here=self.engine.is_here(place),
            )
            for (
                id, pid, pid_started, place, expires_at, host, manager_pid, queues, concurrency, started_at,
                heartbeat_at, stop,
            ) in rows
        ]  # fmt: skip

    def acts(
        self, before: int | None = None, limit: int = 100, who: str | None = None, action: str | None = None
    ) -> list[Act]:
        """Who did what, the latest first; `before` is the number of an act."""
        params = {"before": before or MOST, "limit": limit, "who": who, "action": action}
        with self.engine.read() as tx:
            return [Act(*row) for row in tx.rows(ask.ACTS, params)]

    def metrics(self) -> Metrics:
        counts = self.counts()
        with self.engine.read() as tx:
            recent = tx.rows(ask.RECENT_FINISHED, {"limit": METRICS_WINDOW})
            minute = tx.rows(ask.FINISHED_SINCE, {"since": tx.now - 60_000})[0][0]
            hour = tx.rows(ask.FINISHED_SINCE, {"since": tx.now - 3_600_000})[0][0]
        ended = counts["completed"] + counts["dead"]
        return Metrics(
            jobs=counts,
            total=sum(counts.values()),
            window=len(recent),
            average_attempts=sum(row[1] for row in recent) / len(recent) if recent else None,
            success_rate=counts["completed"] / ended if ended else None,
            run_ms=_spread(row[2] for row in recent),
            wait_ms=_spread(row[3] for row in recent if row[3] is not None and row[3] >= 0),
            finished_last_minute=minute,
            finished_last_hour=hour,
            workers=sum(worker.alive for worker in self.workers()),
        )


def wait_until_finished(
    look: Callable[[Sequence[str]], dict[str, str]],
    ids: Sequence[str],
    timeout: float | None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, str]:
    """The states of these jobs, once all of them have finished; `look` finds out those of the ones that are left."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = 0.005
    states: dict[str, str] = {}
    left = list(ids)
    while True:
        now = look(left)
        states.update(now)
        left = [id for id in left if id in now and now[id] not in FINISHED]  # one that is gone was pruned
        progress(len(ids) - len(left))
        if not left:
            return states
        if deadline is not None and time.monotonic() >= deadline:
            raise TimedOut(f"{len(left)} of {len(ids)} jobs have not finished in time", "queuectl explain " + left[0])
        time.sleep(pause if deadline is None else max(0, min(pause, deadline - time.monotonic())))
        pause = min(pause * 1.5, 0.1)


class JobReader:
    """Reads jobs in the transaction that changes them. What is answered then depends on no query after the commit,
    which could fail although the change has happened."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._ids: list[str] = []
        self._rows: list[Row] = []

    def __call__(self, tx: Transaction, ids: Sequence[str]) -> None:
        self._ids = list(ids)
        self._rows = tx.rows(ask.GET_JOBS, {"ids": self._ids})

    def jobs(self) -> list[Job]:
        """In the order of their ids; what is gone is left out."""
        found = {job.id: job for job in map(self._views.as_job, self._rows)}
        return [found[id] for id in self._ids if id in found]

    def job(self) -> Job:
        """The only one."""
        for job in self.jobs():
            return job
        raise no_such_job(self._ids[0])


def _story(job: Job, rows: list[Row]) -> list[Event]:
    """The beginning of a run is told where it belongs: before the first event of that run, or in its time."""
    runs = [(started_at, run, worker) for started_at, _, _, run, worker, *_ in rows if started_at is not None]
    if job.state == State.PROCESSING and job.started_at is not None:
        runs.append((job.started_at, job.run, job.worker_id))
    starts = [
        Event(started_at, State.PROCESSING, run, worker, "started", "started") for started_at, run, worker in runs
    ]
    events = [Event(*fields) for _, *fields in rows]
    waited = job.state == State.BLOCKED or (events and events[0].kind in ("dependencies_met", "dependency_broken"))
    story = [Event(job.created_at, State.BLOCKED if waited else State.PENDING, 0, None, "enqueued", "enqueued")]
    for event in events:
        if starts and (event.run == starts[0].run or event.state == State.PROCESSING):
            story.append(starts.pop(0))
        story.append(event)
    return story + starts


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None

    def share(part: float) -> float:
        return known[min(len(known) - 1, int(part * len(known)))]

    return Spread(sum(known) / len(known), known[0], known[-1], share(0.5), share(0.95), share(0.99))
