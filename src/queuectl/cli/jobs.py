"""Looking at jobs and steering them: `list`, `show`, `history`, `explain`, `cancel`."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import click

from queuectl.cli.app import job_ids, json_option, jsonl_option, with_store
from queuectl.cli.render import (
    BOLD,
    COLOURS,
    advice,
    ago,
    emit_json,
    emit_list,
    listed,
    note,
    paint,
    percent,
    reported,
    say,
    table,
    visible,
    visible_lines,
)
from queuectl.cli.streams import changed
from queuectl.errors import InvalidInput, StoreUnavailable
from queuectl.jobs.lifecycle import signal_name
from queuectl.jobs.model import Job, Link
from queuectl.jobs.states import WAITING
from queuectl.store import Store
from queuectl.system import times
from queuectl.system.times import plural

MOST_NAMED = 20
CANCEL_PATIENCE = 10.0
SHOWN_LINKS = 12
SHORT_RESULT = 80


@click.command("list")
@click.option("-s", "--state", help="Only jobs in this state.")
@click.option("-q", "--queue", help="Only jobs of this queue.")
@click.option("-t", "--tag", help="Only jobs with this tag.")
@click.option("--batch", help="Only jobs of this batch.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="At most so many; 0: all."
)
@json_option
@jsonl_option
@with_store
def list_command(
    store: Store,
    state: str | None,
    queue: str | None,
    tag: str | None,
    batch: str | None,
    limit: int,
    as_json: bool,
    jsonl: bool,
) -> None:
    """List jobs, the newest first."""
    jobs = store.views.jobs(state, queue, tag, limit or -1, batch)
    if as_json or jsonl:
        emit_list((job.as_json() for job in jobs), jsonl)
        return
    if not jobs:
        filtered = state or queue or tag or batch
        note("No job matches." if filtered else "No jobs yet. Add one: queuectl enqueue 'echo hello'")
        return
    show_table(jobs)
    total = sum(store.views.counts().values())
    if limit and len(jobs) == limit and total > limit:
        of_all = "" if state or queue or tag or batch else f" of {total:,} jobs"
        note(f"The newest {limit}{of_all}; --limit 0 shows all.")


def show_table(jobs: list[Job]) -> None:
    """Jobs as a table; columns that say nothing are left out."""
    now = times.now_ms()
    columns = [("Job ID", [job.id for job in jobs]), ("State", [job.state for job in jobs])]
    if any(job.queue != "default" for job in jobs):
        columns.append(("Queue", [job.queue for job in jobs]))
    if any(job.priority for job in jobs):
        columns.append(("Priority", [str(job.priority) for job in jobs]))
    columns.append(("Attempts", [f"{job.attempts}/{max(1, job.max_retries)}" for job in jobs]))
    columns.append(("Updated At", [ago(job.updated_at, now) for job in jobs]))
    if any(job.state == "failed" or job.run_at > now for job in jobs):
        columns.append(("Next Run", [ago(job.run_at, now) if job.state in WAITING else "" for job in jobs]))
    progress = [reported(job.progress, job.message) for job in jobs]
    if any(progress):
        columns.append(("Progress", progress))
    if any(job.error for job in jobs):
        columns.append(("Error", [job.error or "" for job in jobs]))
    columns.append(("Command", [job.command for job in jobs]))
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    table([header for header, _ in columns], rows, stretch=("Progress", "Error", "Command"))


@click.command("show")
@click.argument("job")
@json_option
@with_store
def show_command(store: Store, job: str, as_json: bool) -> None:
    """Show all there is to know of a job."""
    found = store.views.job(job)
    if as_json:
        emit_json(found.as_json())
        return
    now = times.now_ms()
    lines = [
        ("Job", paint(found.id, BOLD)),
        ("Command", visible_lines(found.command)),
        (
            "State",
            paint(found.state, COLOURS.get(found.state))
            + (f" ({visible(found.error)})" if found.error not in (None, found.state) else ""),
        ),
        ("Queue", f"{found.queue}, priority {found.priority}"),
        (
            "Attempts",
            f"{found.attempts} of {found.max_retries} failed"
            + (f", {found.crashes} lost" if found.crashes else "")
            + (f", {found.snoozes} put off" if found.snoozes else ""),
        ),
        ("Enqueued", _moment(found.created_at, now)),
    ]
    if found.state in WAITING:
        lines.append(("Due", _moment(found.run_at, now)))
    if found.started_at is not None:
        lines.append(("Started", _moment(found.started_at, now) + f", worker {found.worker_id}, run {found.run}"))
    if found.finished_at is not None:
        lines.append(("Finished", _moment(found.finished_at, now)))
    if found.duration_ms is not None:
        lines.append(("Took", times.span(found.duration_ms / 1000)))
    if found.exit_code is not None:
        lines.append(("Exit code", str(found.exit_code)))
    if found.signal is not None:
        lines.append(("Signal", signal_name(found.signal)))
    if found.progress is not None:
        said = f" ({visible(found.message)})" if found.message else ""
        lines.append(("Progress", percent(found.progress) + said))
    elif found.message:
        lines.append(("Message", visible(found.message)))
    if found.result is not None and len(result := _compact(found.result)) <= SHORT_RESULT:
        lines.append(("Result", visible(result)))
    if found.timeout_seconds is not None:
        lines.append(("Timeout", times.span(found.timeout_seconds)))
    lines.append(("Folder", visible(found.cwd or "the worker's")))
    if found.env:
        lines.append(("Environment", visible(" ".join(f"{key}={value}" for key, value in found.env.items()))))
    for name, links in (("After", store.views.parents(found.id, SHOWN_LINKS + 1)),
                        ("Before", store.views.children(found.id, SHOWN_LINKS + 1))):  # fmt: skip
        if links:
            lines.append((name, _links(links)))
    for name, ends in (("Retry on", found.retry_on), ("No retry on", found.no_retry_on)):
        if ends:
            lines.append((name, " ".join(ends)))
    if found.batch:
        lines.append(("Batch", found.batch))
    if found.key:
        most = f", {found.key_limit} at once" if found.key_limit else ""
        lines.append(("Key", visible(found.key) + most))
    if found.unique_key:
        lines.append(("Unique key", visible(found.unique_key)))
    if found.notify:
        lines.append(("Notify", " ".join(found.notify)))
    if found.tags:
        lines.append(("Tags", visible(" ".join(found.tags))))
    lines.append(("Log", visible(f"{found.log_host}:{found.log_path}" if found.log_host else found.log_path)))
    for name, text in lines:
        say(f"{name + ':':<13}{text}")
    if found.result is not None and len(_compact(found.result)) > SHORT_RESULT:
        shown = json.dumps(found.result, ensure_ascii=False, indent=2)
        say(f"\n{paint('Result:', BOLD)}\n{visible_lines(shown)}")
    for name, output in (("stdout", found.stdout), ("stderr", found.stderr)):
        if output:
            say(f"\n{paint(f'{name}, the end of it:', BOLD)}\n{visible_lines(output.rstrip())}")


def _compact(result: Any) -> str:
    return json.dumps(result, ensure_ascii=False)


def _links(links: list[Link]) -> str:
    words = [
        f"{link.id} ({link.state}{'' if link.condition == 'ok' else f', if {link.condition}'})"
        for link in links[:SHOWN_LINKS]
    ]
    return ", ".join(words) + (", …" if len(links) > SHOWN_LINKS else "")


def _moment(moment: int, now: int) -> str:
    return f"{times.local(moment)} ({ago(moment, now)})"


@click.command("history")
@click.argument("job")
@json_option
@jsonl_option
@with_store
def history_command(store: Store, job: str, as_json: bool, jsonl: bool) -> None:
    """Show what happened to a job, step by step."""
    events = store.views.history(job)
    if as_json or jsonl:
        emit_list((event.as_json() for event in events), jsonl)
        return
    rows = [
        [
            times.iso(event.at) or "",
            event.state,
            str(event.run) if event.run else "",
            event.worker_id or "",
            times.span(event.duration_ms / 1000) if event.duration_ms is not None else "",
            times.span(event.cpu_ms / 1000) if event.cpu_ms is not None else "",
            event.reason,
        ]
        for event in events
    ]
    table(["Time", "State", "Run", "Worker", "Took", "CPU", "Reason"], rows, stretch=("Reason",))


@click.command("explain")
@click.argument("job")
@json_option
@with_store
def explain_command(store: Store, job: str, as_json: bool) -> None:
    """Say why a job is not running, and what would make it run."""
    found = store.views.job(job)
    reasons = store.views.explain(found, store.views.workers(), store.views.clock())
    if as_json:
        emit_json({"id": found.id, "state": found.state, "reasons": reasons})
        return
    say(f"Job {found.id} is {paint(found.state, COLOURS.get(found.state))}.")
    for reason in reasons:
        say(visible(advice(reason)))


@click.command("cancel")
@click.argument("jobs", nargs=-1)
@click.option("--batch", help="All jobs of this batch that have not finished.")
@click.option("-q", "--queue", help="All jobs of this queue that have not finished.")
@click.option("--tag", help="All jobs with this tag that have not finished.")
@json_option
@with_store
def cancel_command(
    store: Store, jobs: tuple[str, ...], batch: str | None, queue: str | None, tag: str | None, as_json: bool
) -> int:
    """Cancel jobs, ending the processes of those that run."""
    if bool(jobs) == bool(batch or queue or tag):
        raise InvalidInput("cancel what?", "give job ids, or one of --batch, --queue and --tag")
    states = store.cancel(job_ids(store, jobs)) if jobs else _cancel_all(store, batch, queue, tag)
    ids = list(states)
    changed(f"Cancelled, or being cancelled: {listed(ids)}")
    store.work_off_all(seconds=math.inf)  # there may be no worker to do it
    states |= _wait_until_ended(store, [id for id in ids if states[id] == "processing"])
    code = 0 if set(states.values()) <= {"cancelled", "processing"} else 1
    if as_json:
        emit_list(({"id": id, "state": states[id]} for id in ids), jsonl=False)
        return code
    done = [id for id in ids if states[id] == "cancelled"]
    if len(done) > MOST_NAMED:
        say(f"Cancelled {plural(len(done), 'job')}.")
    for id in ids:
        if states[id] == "cancelled":
            if len(done) <= MOST_NAMED:
                say(f"Job {id} cancelled.")
        elif states[id] == "processing":
            note(f"Job {id} will be cancelled as soon as its worker answers. Why: queuectl explain {id}")
        else:
            note(f"Job {id} could not be cancelled any more: it is {states[id]}.")
    return code


def _cancel_all(store: Store, batch: str | None, queue: str | None, tag: str | None) -> dict[str, str]:
    """Cancel what fits and has not finished; the state of each. What finishes while we choose is left out."""
    if batch:
        store.views.ids_in(batch)  # a slip should be noticed
    states = store.cancel(store.views.unfinished(queue, batch, tag), skip_finished=True)
    if not states:
        note("There is no such job that has not finished.")
    return states


def _wait_until_ended(store: Store, ids: list[str]) -> dict[str, str]:
    """The states of running jobs once their workers have ended them, each in its own time: TERM, then KILL. None if
    that cannot be found out: they have been cancelled all the same."""
    if not ids:
        return {}
    try:
        deadline = time.monotonic() + store.config()["kill_grace"] + CANCEL_PATIENCE
        holders = {id for worker in store.views.workers() if worker.alive for id in worker.jobs}
        while True:
            states = dict.fromkeys(ids, "gone") | store.views.states(ids)
            ending = [id for id in ids if states[id] == "processing" and id in holders]
            if not ending or time.monotonic() >= deadline:
                return states
            time.sleep(0.02)
    except StoreUnavailable:
        return {}
