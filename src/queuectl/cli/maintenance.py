"""Keeping a queue in order: `prune`, `reset`, `backup`, `copy`, `doctor`."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from queuectl import doctor
from queuectl.cli.app import chosen_db, json_option, with_store
from queuectl.cli.render import Progress, advice, emit_list, note, paint, say, visible
from queuectl.cli.streams import changed
from queuectl.errors import InvalidInput
from queuectl.jobs import job_spec
from queuectl.jobs.states import FINISHED, PRUNABLE
from queuectl.store import Store, open_store
from queuectl.system import times
from queuectl.system.times import plural


@click.command("prune")
@click.option("--older-than", metavar="DURATION", help="Finished longer ago than this.  [default: retention_days]")
@click.option(
    "-s", "--state", "states", multiple=True, type=click.Choice(FINISHED),
    help="Only jobs in this state; repeatable.  [default: completed and cancelled]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@with_store
def prune_command(store: Store, older_than: str | None, states: tuple[str, ...], dry_run: bool) -> None:
    """Delete old finished jobs, with their history and logs."""
    age = times.parse_duration(older_than) if older_than else store.config()["retention_days"] * 86400
    if not age and not older_than:
        raise InvalidInput("how old?", "give --older-than 7d, or set retention_days")
    chosen = states or PRUNABLE
    total = store.views.prunable(chosen, age)
    if dry_run:
        say(f"{plural(total, 'job')} would be deleted.")
        return
    done = 0
    with Progress("Deleting", total) as progress:
        while done < total and (deleted := store.prune(chosen, age)):
            done += deleted
            progress.step(done)
    changed(f"Deleted {plural(done, 'job')}")
    say(f"Deleted {plural(done, 'job')}.")


@click.command("reset")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_store
def reset_command(store: Store, yes: bool) -> int:
    """Delete every job with its history and log, and all settings."""
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput("this would delete everything, and nobody is here to be asked", "add --yes")
        total = plural(sum(store.views.counts().values()), "job")
        where = visible(store.engine.name)
        if not click.confirm(f"Delete all of {where}: {total} with history and logs, and all settings?", err=True):
            note("Nothing was deleted.")
            return 1
    deleted = f"Deleted {plural(store.reset(), 'job')} and all settings"
    changed(deleted)
    say(f"{deleted}.")
    return 0


@click.command("backup")
@click.argument("file", type=click.Path())
@with_store
def backup_command(store: Store, file: str) -> None:
    """Write a copy of the queue to FILE, while it is in use. Job logs are not part of it.

    To restore it: stop the workers, remove the queue's file with its -wal and -shm, and copy FILE into its place.
    """
    store.engine.backup(job_spec.text("FILE", file))
    changed(f"Wrote {file}")
    say(f"Wrote {visible(file)}. To use it: queuectl --db {visible(file)} status")


@click.command("copy")
@click.option("--to", "url", required=True, metavar="URL", help="The empty queue to fill: a path, or postgresql://…")
@with_store
def copy_command(store: Store, url: str) -> None:
    """Copy the whole queue to another database, SQLite or PostgreSQL: jobs, history and settings, all or nothing.

    The workers of both must be stopped. Job logs are not copied. The queue itself stays as it is, so take care that
    afterwards workers serve only one of the two.
    """
    from queuectl.store import copy

    if copy.size(store) == 0:
        raise InvalidInput(
            f"there is nothing to copy in {store.engine.name}", "is that the right queue? name it with --db"
        )
    with closing(open_store(url)) as target, Progress("Copying", copy.size(store)) as progress:
        rows = copy.copy(store, target, progress.step)
    where = visible(target.engine.name)
    changed(f"Copied {plural(rows['jobs'], 'job')} to {where}")
    say(f"Copied {plural(rows['jobs'], 'job')} with history and settings to {where}")
    others = ", and on other machines that ran jobs" if store.engine.leased else ""
    say(f"Job logs stay where they are, in {visible(store.engine.log_dir)}{others}")
    say(f"Next: queuectl --db {job_spec.quote([where])} status   (and set QUEUECTL_DB to it)")


@click.command("doctor")
@json_option
@click.option("--db", type=click.Path(), metavar="PATH", help="The queue to use.")
@click.pass_context
def doctor_command(ctx: click.Context, /, as_json: bool, db: str | None) -> int:
    """Check the queue's health, and say what to do if it is not well. Exit code 0 only if it is."""
    findings = list(doctor.examine(chosen_db(ctx, db)))
    healthy = all(finding.ok for finding in findings)
    if as_json:
        emit_list((finding.as_json() for finding in findings), jsonl=False)
        return 0 if healthy else 1
    for finding in findings:
        mark = paint("ok ", "32") if finding.ok else paint("BAD", "31")
        say(f"{mark}  {finding.check + ':':<17}{visible(finding.found)}")
        if finding.advice:
            say(f"     {'':<17}→ {visible(advice(finding.advice))}")
    return 0 if healthy else 1
