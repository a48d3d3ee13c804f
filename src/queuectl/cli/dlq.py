"""The dead letter queue: jobs that have used up their attempts."""

from __future__ import annotations

import sys

import click

from queuectl.cli.app import job_ids, json_option, jsonl_option, with_store
from queuectl.cli.jobs import show_table
from queuectl.cli.render import emit_list, note, plural, say
from queuectl.errors import InvalidInput
from queuectl.store import Store


@click.group("dlq")
def dlq_command() -> None:
    """Jobs that failed too often: look at them, run them again, or delete them."""


@dlq_command.command("list")
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="At most so many; 0: all."
)
@json_option
@jsonl_option
@with_store
def list_dead(store: Store, limit: int, as_json: bool, jsonl: bool) -> None:
    """List the dead jobs, the newest first."""
    jobs = store.views.jobs(state="dead", limit=limit or -1)
    if as_json or jsonl:
        emit_list((job.as_json() for job in jobs), jsonl)
    elif jobs:
        show_table(jobs)
        note("Run them again: queuectl dlq retry ID… (or --all)")
    else:
        note("The dead letter queue is empty.")


@dlq_command.command("retry")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every dead job.")
@with_store
def retry_dead(store: Store, jobs: tuple[str, ...], everything: bool) -> None:
    """Run dead jobs again, with no attempts spent."""
    if bool(jobs) == everything:
        what = "both job ids and --all are given" if jobs else "retry what?"
        raise InvalidInput(what, "give job ids, or --all")
    retried = store.retry(None if everything else job_ids(store, jobs))
    if len(retried) <= 10:
        for id in retried:
            say(f"Job {id} is pending again.")
    else:
        say(f"{plural(len(retried), 'job')} are pending again.")
    if not retried:
        note("The dead letter queue is empty.")


@dlq_command.command("purge")
@click.argument("jobs", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask. (It only asks on a terminal.)")
@with_store
def purge_dead(store: Store, jobs: tuple[str, ...], yes: bool) -> int:
    """Delete dead jobs for good, with their history and logs: these, or all."""
    ids = job_ids(store, jobs)
    count = len(ids) if ids else store.views.counts()["dead"]
    question = f"Delete {plural(count, 'dead job')} with their history and logs?"
    if count and not yes and sys.stdin.isatty() and not click.confirm(question, err=True):
        note("Nothing was deleted.")
        return 1
    say(f"Deleted {plural(store.purge_dead(ids or None), 'dead job')}.")
    return 0
