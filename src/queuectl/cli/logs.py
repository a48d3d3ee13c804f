"""Watching jobs: `logs` and `wait`, and the `--wait` of enqueue."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click

from queuectl.cli.app import job_ids, json_option, with_store
from queuectl.cli.enqueue_core import mention_missing_worker
from queuectl.cli.render import Progress, StatusLine, emit_json, note, paint, reported, visible_lines
from queuectl.errors import InvalidInput, NotFound
from queuectl.jobs import log_files
from queuectl.jobs.full_log import before_this_run, transcript
from queuectl.jobs.lifecycle import exit_status
from queuectl.jobs.model import Job
from queuectl.jobs.states import WAITING
from queuectl.store import Store
from queuectl.system import times


@click.command("logs")
@click.argument("job")
@click.option("-f", "--follow", "follow", is_flag=True, help="Go on until the job has finished.")
@click.option("-n", "--tail", type=click.IntRange(min=0), help="Only the last lines.")
@click.option("--raw", is_flag=True, help="Print control characters as they are, even on a terminal.")
@with_store
def logs_command(store: Store, job: str, follow: bool, tail: int | None, raw: bool) -> None:
    """Show what a job printed, in all its runs; live if it runs."""
    found = store.views.job(job)
    if follow and not found.finished:
        mention_missing_worker(store, [found.queue])
    if found.log_host:
        if follow:
            store.views.wait([found.id])
        _show_from_afar(store.views.job(found.id), tail, raw)
        return
    known = store.views.history(found.id)  # before the log: a run that ends in between is then taken from the log
    printed, end = log_files.read(found.log_path, tail)
    history = before_this_run(known) if follow else known
    if tail is None:
        printed = transcript(history, printed)
    elif not end:
        printed = log_files.last_lines(transcript(history, b""), tail)
    _show(printed, raw)
    if follow:
        for chunk in log_files.follow(found.log_path, end, lambda: store.views.job(found.id).finished):
            _show(chunk, raw)
    found = store.views.job(found.id)
    if found.log_host:  # it was not known before where it would run
        _show_from_afar(found, tail, raw)
    if not found.started_at:
        note(f"Job {found.id} has not run yet ({found.state}). Why: queuectl explain {found.id}")


@click.command("wait")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All jobs that have not finished yet.")
@click.option("--batch", help="All jobs of this batch.")
@click.option("--timeout", metavar="DURATION", help="Give up after this long, with exit code 124.")
@json_option
@with_store
def wait_command(
    store: Store, jobs: tuple[str, ...], everything: bool, batch: str | None, timeout: str | None, as_json: bool
) -> int:
    """Wait until jobs have finished. Exit code 0 if all completed, 1 if one did not, 124 on timeout."""
    if [bool(jobs), everything, bool(batch)].count(True) != 1:
        raise InvalidInput("wait for what?", "give job ids, or --all, or --batch NAME")
    ids = store.views.unfinished() if everything else job_ids(store, jobs)
    if batch:
        ids = store.views.ids_in(batch)
    code = wait_for(store, ids, None if timeout is None else times.parse_duration(timeout))
    if as_json:
        found = _still_there(store, ids)
        emit_json(found if len(jobs) != 1 else found[0] if found else None)
    return code


def _still_there(store: Store, ids: list[str]) -> list[dict[str, Any]]:
    """These jobs, but for those that were pruned meanwhile."""
    found = []
    for id in ids:
        with suppress(NotFound):
            found.append(store.views.job(id).as_json())
    return found


def wait_for(store: Store, ids: list[str], timeout: float | None) -> int:
    waiting = [id for id, state in store.views.states(ids).items() if state in WAITING]
    if waiting:
        mention_missing_worker(store, (store.views.job(id).queue for id in waiting[:20]))
    with Progress("Finished", len(ids), short=2) as progress, StatusLine() as line:

        def step(done: int) -> None:
            progress.step(done)
            if len(ids) == 1 and line.live:
                with suppress(NotFound):  # pruned; what that means is said below
                    _show_report(line, store.views.job(ids[0]))

        states = store.views.wait(ids, timeout, step)
    bad = [id for id in ids if states.get(id) != "completed"]
    for id in bad[:10]:
        note(f"Job {id} is {states.get(id, 'gone (pruned)')}.")
    if len(bad) > 10:
        note(f"… and {len(bad) - 10:,} more did not complete.")
    return 1 if bad else 0


def follow_to_the_end(store: Store, id: str, json: bool, quiet: bool) -> int:
    """Show a job's output as it comes; the exit code is the job's own."""
    job, shown = store.views.job(id), b"\n"
    with StatusLine() as line:

        def over() -> bool:
            now = store.views.job(id)
            if shown.endswith(b"\n"):  # else it would write over what the job has printed
                _show_report(line, now)
            return now.finished

        for chunk in log_files.follow(job.log_path, 0, over):
            if not json and not quiet:
                line.show("")
                _show(shown := chunk, raw=False)
    job = store.views.job(id)
    if job.log_host and not json and not quiet:
        _show(_tails(job), raw=False)
    if json:
        emit_json(job.as_json())
    elif not quiet:
        took = f" in {times.span(job.duration_ms / 1000)}" if job.duration_ms is not None else ""
        note(f"Job {id} {job.state}{took}" + (f": {job.error}." if job.error else "."))
    return exit_status(job.state, job.outcome, job.exit_code, job.signal)


def _show_report(line: StatusLine, job: Job) -> None:
    said = reported(job.progress, job.message)
    line.show(f"Job {job.id}: {said}" if said and not job.finished else "")


def _show_from_afar(job: Job, tail: int | None, raw: bool) -> None:
    note(f"Job {job.id} ran on {job.log_host}, which has its log: {job.log_path}")
    note("Here is the end of what its last run printed.")
    _show(_tails(job, tail), raw)


def _tails(job: Job, lines: int | None = None) -> bytes:
    """What the row keeps of the last run, for those who cannot read its log."""
    parts = [text if text.endswith("\n") else text + "\n" for text in (job.stdout, job.stderr) if text]
    data = "".join(parts).encode()
    return data if lines is None else log_files.last_lines(data, lines)


def _show(data: bytes, raw: bool) -> None:
    """Bytes as they are into a pipe; on a terminal nothing that could act on it."""
    if raw or not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    for line in data.decode("utf-8", "replace").splitlines(keepends=True):
        mark = line.startswith(("--- START ", "--- END ", "--- CUT "))
        sys.stdout.write(
            paint(visible_lines(line.rstrip("\r\n")), "2" if mark else None) + "\n" * line.endswith("\n")
        )
    sys.stdout.flush()
