"""The dead letter queue: jobs that have used up their attempts."""

from __future__ import annotations

import math
import sys

import click

from queuectl.cli.app import job_ids, json_option, jsonl_option, with_store
from queuectl.cli.jobs import show_table
from queuectl.cli.render import ago, emit_list, listed, note, say, table
from queuectl.cli.streams import changed
from queuectl.errors import InvalidInput
from queuectl.jobs import dead_letters, job_spec
from queuectl.jobs.model import Job
from queuectl.store import Store
from queuectl.system import times
from queuectl.system.times import plural

where_option = click.option(
    "--where",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only those that fit: queue, tag, group, exit, signal, since (1h), part of error or command. Repeatable.",
)


@click.group("dlq")
def dlq_command() -> None:
    """Jobs that failed too often: look at them, run them again, or delete them."""


@dlq_command.command("list")
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="At most so many; 0: all."
)
@where_option
@click.option("--group", "grouped", is_flag=True, help="By what they died of, with counts and an example.")
@json_option
@jsonl_option
@with_store
def list_dead(store: Store, limit: int, where: tuple[str, ...], grouped: bool, as_json: bool, jsonl: bool) -> None:
    """List the dead jobs, the newest first."""
    if grouped:
        _show_groups(dead_letters.groups(_dead(store, where))[: limit or None], as_json, jsonl)
        return
    jobs = _dead(store, where)[: limit or None] if where else store.views.jobs(state="dead", limit=limit or -1)
    if as_json or jsonl:
        emit_list((job.as_json() for job in jobs), jsonl)
    elif jobs:
        show_table(jobs)
        if limit and len(jobs) == limit:
            note(f"The newest {limit}; --limit 0 shows all.")
        chosen = " ".join(f"--where {job_spec.quote([words])}" for words in where) if where else "ID… (or --all)"
        note(f"Run them again: queuectl dlq retry {chosen}")
    else:
        note("No dead job matches." if where else "The dead letter queue is empty.")


def _dead(store: Store, where: tuple[str, ...]) -> list[Job]:
    fits = dead_letters.matching(where, times.now_ms())
    return [job for job in store.views.jobs(state="dead", limit=-1) if fits(job)]


def _show_groups(groups: list[dead_letters.Group], as_json: bool, jsonl: bool) -> None:
    if as_json or jsonl:
        emit_list((group.as_json() for group in groups), jsonl)
    elif groups:
        now = times.now_ms()
        rows = [
            [
                f"{len(group.jobs):,}",
                group.name,
                ago(max(job.finished_at or 0 for job in group.jobs), now),
                group.jobs[0].id,
                group.cause,
            ]
            for group in groups
        ]
        table(["Jobs", "Group", "Newest", "Example", "Cause"], rows, stretch=("Cause",))
        note(f"Run a group again: queuectl dlq retry --where group={groups[0].name}")
    else:
        note("The dead letter queue is empty.")


@dlq_command.command("retry")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every dead job.")
@where_option
@click.option("--rate", metavar="N/TIME", help="Not all at once, but so many in so long: 10/1m.")
@click.option("--dry-run", is_flag=True, help="Only say what would be retried.")
@with_store
def retry_dead(
    store: Store, jobs: tuple[str, ...], everything: bool, where: tuple[str, ...], rate: str | None, dry_run: bool
) -> None:
    """Run dead jobs again, with no attempts spent."""
    if [bool(jobs), everything, bool(where)].count(True) != 1:
        what = "retry what?" if not (jobs or everything or where) else "ids, --all and --where cannot be combined"
        raise InvalidInput(what, "give job ids, or --all, or --where CONDITION")
    spacing = dead_letters.spacing(rate) if rate else 0.0
    ids = None if everything else job_ids(store, jobs)
    if where or (everything and dry_run):
        ids = [job.id for job in reversed(_dead(store, where))]
    if dry_run and ids is not None:
        say(f"{plural(len(ids), 'job')} would be retried" + (f", for example {ids[0]}." if ids else "."))
        return
    retried = store.retry(ids, spacing)
    changed(f"Pending again: {listed(retried)}")
    store.work_off_all(seconds=math.inf)  # there may be no worker to do it
    if len(retried) <= 10:
        for id in retried:
            say(f"Job {id} is pending again.")
    else:
        say(f"{plural(len(retried), 'job')} are pending again.")
    if spacing and len(retried) > 1:
        say(f"The last of them is due in {times.span((len(retried) - 1) * spacing)}.")
    if not retried:
        note("No dead job matches." if where else "The dead letter queue is empty.")


@dlq_command.command("purge")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every dead job.")
@click.option("--yes", is_flag=True, help="Do not ask. (It only asks on a terminal.)")
@with_store
def purge_dead(store: Store, jobs: tuple[str, ...], everything: bool, yes: bool) -> int:
    """Delete dead jobs for good, with their history and logs: these, or --all."""
    if bool(jobs) == everything:
        what = "ids and --all cannot be combined" if jobs else "purge what?"
        raise InvalidInput(what, "give job ids, or --all")
    ids = job_ids(store, jobs)
    count = len(ids) if ids else store.views.counts()["dead"]
    question = f"Delete {plural(count, 'dead job')} with their history and logs?"
    if count and not yes and sys.stdin.isatty() and not click.confirm(question, err=True):
        note("Nothing was deleted.")
        return 1
    deleted = plural(store.purge_dead(ids or None), "dead job")
    changed(f"Deleted {deleted}")
    say(f"Deleted {deleted}.")
    return 0
