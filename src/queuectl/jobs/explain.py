"""Why a job is not running, and what would have to happen. Pure: told all it needs."""

from __future__ import annotations

from collections.abc import Sequence

from queuectl.jobs import dependency_rules
from queuectl.jobs.lifecycle import State
from queuectl.jobs.model import Job, Link, Obstacles, Wait, Worker
from queuectl.queues.selection import serves
from queuectl.system import times

SHOWN = 5
NEEDED = {"ok": "to complete", "fail": "to be dead", "any": "to end"}


def explain(
    job: Job,
    workers: Sequence[Worker],
    ahead: int,
    now: int,
    waits: Sequence[Wait] = (),
    obstacles: Obstacles | None = None,
    broken: Sequence[Link] = (),
) -> list[str]:
    """The reasons, the weightiest first, as sentences. `waits`: the chain of jobs before it, if it is blocked;
    `broken`: the parents for which it was cancelled."""
    alive = [worker for worker in workers if worker.alive]
    match job.state:
        case State.PROCESSING:
            return _why_still_running(job, alive, now)
        case State.COMPLETED:
            return [f"It completed {_when(job.finished_at, now)}."]
        case State.BLOCKED:
            return ["It waits for other jobs:", *_chain(waits), *_advice_for(waits)]
        case State.CANCELLED if broken:
            return [f"It was cancelled {_when(job.finished_at, now)}: {job.error}.", *_how_to_revive(broken)]
        case State.CANCELLED:
            return [f"It was cancelled {_when(job.finished_at, now)}. To run the command again, enqueue it again."]
        case State.DEAD:
            return [
                f"It is dead: {job.error}, after {job.attempts} failed and {job.crashes} lost runs "
                f"(allowed: {job.max_retries} failed; lost: see queuectl config get crash_limit).",
                f"See what it printed: queuectl logs {job.id}. Run it again: queuectl dlq retry {job.id}",
            ]
    reasons = _limits(job, obstacles, now, ahead) if obstacles else []
    if job.run_at > now:
        failed = "It failed and " if job.state == State.FAILED else "It "
        why = f"{failed}waits for its next try ({job.error})" if job.error else "It is scheduled"
        reasons.append(f"{why}: due {times.local(job.run_at)}, in {times.span((job.run_at - now) / 1000)}.")
    reasons += _why_no_worker(job, alive, ahead)
    last = f" Its last run: {job.error}." if job.error else ""
    return reasons or [f"Nothing holds it back: it will be claimed in a moment.{last}"]


def _limits(job: Job, obstacles: Obstacles, now: int, ahead: int) -> list[str]:
    rules, reasons = obstacles.rules, []
    if rules.paused:
        reasons.append(f'Its queue "{job.queue}" is paused. Let it go on: queuectl queue resume {job.queue}')
    if rules.at_once and len(obstacles.in_queue) >= rules.at_once:
        reasons.append(
            f'Its queue "{job.queue}" may run {rules.at_once} at once; running now: {_some(obstacles.in_queue)}. '
            f"Let more run: queuectl queue limit {job.queue} {rules.at_once + 1}"
        )
    if job.key and len(obstacles.with_key) >= obstacles.key_limit:
        reasons.append(
            f'Only {obstacles.key_limit} with its key "{job.key}" may run at once; '
            f"running now: {_some(obstacles.with_key)}."
        )
    if obstacles.free_at is not None and obstacles.free_at > now:
        span = times.span((rules.rate_ms or 0) / 1000)
        reasons.append(
            f'Its queue "{job.queue}" has reached its rate, {rules.rate} per {span}: '
            f"the next may start in {times.span((obstacles.free_at - now) / 1000)}"
            + (f", and {ahead:,} due jobs come before it." if ahead else ".")
        )
    return reasons


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")


def _chain(waits: Sequence[Wait]) -> list[str]:
    return [
        f"{'   ' * wait.depth}└─ {wait.link.id} is {wait.link.state}, and has {NEEDED[wait.link.condition]}"
        for wait in waits
    ]


def _advice_for(waits: Sequence[Wait]) -> list[str]:
    """Whoever is not blocked is what all of it waits for in the end."""
    roots = [wait.link.id for wait in waits if wait.link.state != State.BLOCKED]
    return [f"Why the first of them is not done yet: queuectl explain {roots[0]}"] if roots else []


def _how_to_revive(broken: Sequence[Link]) -> list[str]:
    for link in broken:
        if link.state == dependency_rules.DELETED:
            return [f'It can never run: its dependency "{link.id}" was deleted. Enqueue the command again.']
    if 0 < len(broken) <= SHOWN and all(link.state == State.DEAD for link in broken):
        these, them = ("that one", "it") if len(broken) == 1 else ("all of these", "them")
        parents = " ".join(link.id for link in broken)
        return [f"Retry {these}, and this one waits for {them} again: queuectl dlq retry {parents}"]
    return []


def _why_still_running(job: Job, alive: Sequence[Worker], now: int) -> list[str]:
    lines = [f"It is running: started {_when(job.started_at, now)} by worker {job.worker_id}."]
    if job.worker_id not in {worker.id for worker in alive}:
        next_step = "cancels it" if job.cancel_requested else "puts the job back"
        lines.append(f"That worker is gone. The next worker to start {next_step}: queuectl worker start")
    elif job.cancel_requested:
        lines.append("Its cancellation was asked for; its worker is ending it.")
    return lines


def _why_no_worker(job: Job, alive: Sequence[Worker], ahead: int) -> list[str]:
    able = [worker for worker in alive if serves(worker.queues, job.queue)]
    if not alive:
        return ["No worker is running. Start one: queuectl worker start"]
    if not able:
        return [f'No worker serves its queue "{job.queue}". Start one: queuectl worker start --queue {job.queue}']
    able = [worker for worker in able if not worker.stop]
    if not able:
        return ["The workers that serve its queue are stopping. Start new ones: queuectl worker start"]
    if all(len(worker.jobs) >= worker.concurrency for worker in able):
        slots = sum(worker.concurrency for worker in able)
        return [f"Every slot of its workers ({slots}) is busy, and {ahead:,} due jobs come before it."]
    return []


def _when(moment: int | None, now: int) -> str:
    return "at an unknown time" if moment is None else f"{times.span(max(0, now - moment) / 1000)} ago"
