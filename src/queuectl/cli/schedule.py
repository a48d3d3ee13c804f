"""Recurring jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from queuectl.cli.app import json_option, jsonl_option, with_store
from queuectl.cli.enqueue_core import environment, mention_missing_worker
from queuectl.cli.render import BOLD, ago, emit_json, emit_list, listed, note, paint, say, table, visible
from queuectl.cli.streams import changed
from queuectl.errors import InvalidInput
from queuectl.jobs import job_spec
from queuectl.schedules.local_timezone import local_zone
from queuectl.schedules.schedule import MISSED_WORDS, OVERLAP_WORDS, Firing, Schedule
from queuectl.store import Store
from queuectl.store.schedules import FiringReader
from queuectl.system import times

SHOWN = 5
QUOTED = "put it in quotes: queuectl schedule add nightly '30 2 * * *' -- ./backup.sh"


@click.group("schedule")
def schedule_command() -> None:
    """Enqueue commands again and again, by the clock. Workers see to it: one must be running."""


@schedule_command.command("add")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[CRON] -- COMMAND...")
@click.option("--every", metavar="DURATION", help="Fire so often, instead of by a cron expression: 10m, 1h30m.")
@click.option("--tz", "zone", metavar="ZONE", help="The time zone, such as Europe/Berlin.  [default: this machine's]")
@click.option("--overlap", metavar="WHAT", help="If its last job has not finished: skip or queue.  [default: skip]")
@click.option(
    "--missed", metavar="WHAT",
    help="Of firings that were missed because no worker ran: latest, all or skip.  [default: latest]",
)  # fmt: skip
@click.option(
    "--replace", is_flag=True, help="Take the place of the schedule of this name, if there is one, and keep its zone."
)
@click.option("-q", "--queue", help="The queue its jobs go to.  [default: default]")
@click.option("-p", "--priority", type=int, help="Higher runs first.  [default: 0]")
@click.option("--max-retries", type=int, help="Failed runs allowed before a job is dead.")
@click.option("--backoff-base", type=float, help="Seconds before the first retry; later ones take powers of it.")
@click.option("--retry-on", metavar="ENDS", help="Only retry after these: 1,75,SIGKILL,timeout.")
@click.option("--no-retry-on", metavar="ENDS", help="Do not retry after these.")
@click.option("--timeout", "timeout_seconds", metavar="DURATION", help="Kill a run after this long: 90, 5m, 1h30m.")
@click.option("--cwd", type=click.Path(), metavar="FOLDER", help="Where they run.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for their environment; repeatable.")
@click.option("--tag", "tags", multiple=True, help="A word to find them by; repeatable.")
@click.option("--batch", metavar="NAME", help="The name of the jobs they belong to.")
@click.option("--key", help="Of the jobs with the same key only one runs at once, or as many as the queue says.")
@click.option("--key-limit", type=int, metavar="N", help="So many of them may run beside each other.")
@click.option("--unique", "unique_key", metavar="KEY", help="At most one unfinished job with this key.")
@click.option(
    "--on-duplicate",
    metavar="WHAT",
    help="If there is one: refuse, skip, or replace it while it waits.  [default: refuse]",
)
@click.option("--notify", multiple=True, metavar="HOOK", help="Tell this hook of their ends; repeatable.")
@json_option
@with_store
def add(
    store: Store,
    name: str,
    words: tuple[str, ...],
    every: str | None,
    zone: str | None,
    overlap: str | None,
    missed: str | None,
    replace: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Make a schedule.

    \b
    queuectl schedule add nightly '30 2 * * *' --tz Europe/Berlin -- ./backup.sh
    queuectl schedule add sync --every 10m -- rsync -a src/ dst/
    queuectl schedule add tick '*/5 * * * * *' 'date >> ticks'     six fields: the first is the second
    queuectl schedule add report @monthly --missed all -- ./report.sh
    """
    when, command = _split(words, every)
    if zone is None:
        old = next((one for one, _ in store.schedules.all() if replace and one.name == name), None)
        zone = old.zone if old else local_zone()
    new = store.schedules.add(
        name,
        when,
        None if every is None else times.parse_duration(every),
        zone,
        _fields(store, command, fields),
        overlap,
        missed,
        replace,
        firings := FiringReader(SHOWN),
    )
    changed(f"Schedule {new.name} is added")
    if as_json:
        emit_json(_details(new, firings.last))
        return
    say(f"Schedule {new.name}: {_when(new)}.")
    _say_next(new)
    mention_missing_worker(store, [str(new.job.get("queue", "default"))])


def _split(words: tuple[str, ...], every: str | None) -> tuple[str | None, str]:
    """The cron expression, if it is not said how often, and the command."""
    first = words[0] if words else ""
    if every is not None and len(words) > 1 and (first.startswith("@") or first.count(" ") >= 4):
        raise InvalidInput(f'both --every and "{first}" are given', "keep one of them")
    if every is None and not first:
        raise InvalidInput("say when, or how often", "give a cron expression in quotes, or --every 10m")
    if every is None and first.startswith("every"):
        raise InvalidInput(f'"{first}" is no cron expression', "say how often with --every 10m")
    if every is None and " " not in first and not first.startswith("@"):
        hint = "02:30 every day is '30 2 * * *'" if ":" in first else QUOTED
        raise InvalidInput(f'"{first}" is no cron expression', hint)
    when, command = (None, words) if every is not None else (first, words[1:])
    if not command:
        raise InvalidInput("there is no command to enqueue", "give it at the end, behind --")
    return when, command[0] if len(command) == 1 else job_spec.quote(command)


def _fields(store: Store, command: str, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of its jobs, as in their JSON form; the folder is that of now, not that of the worker."""
    for name in ("retry_on", "no_retry_on"):
        given[name] = None if given[name] is None else given[name].replace(",", " ").split()
    given["env"] = environment(given["env"])
    given["tags"] = list(given["tags"]) or None
    store.hooks.check(given["notify"])
    given["notify"] = list(given["notify"]) or None
    given["cwd"] = store.engine.default_cwd() if given["cwd"] is None else job_spec.folder(given["cwd"])
    return {"command": command, **{name: value for name, value in given.items() if value is not None}}


@schedule_command.command("list")
@json_option
@jsonl_option
@with_store
def list_schedules(store: Store, as_json: bool, jsonl: bool) -> None:
    """List the schedules: when they fire next, and what became of the last time."""
    found = store.schedules.all()
    if as_json or jsonl:
        emit_list(({**one.as_json(), "last": last and last.as_json()} for one, last in found), jsonl)
        return
    if not found:
        note("There are no schedules yet. Make one: queuectl schedule add sync --every 10m -- ./sync.sh")
        return
    rows = [
        [
            one.name,
            one.cron or _when(one),
            one.zone if one.cron else "",
            "paused" if one.paused else _local(one, one.next_at) if one.next_at else "never",
            "" if last is None else f"{_what_of(last)}, {ago(last.at)}",
            str(one.job["command"]),
        ]
        for one, last in found
    ]
    table(["Schedule", "When", "Zone", "Next", "Last", "Command"], rows, stretch=("Last", "Command"))


@schedule_command.command("show")
@click.argument("name")
@json_option
@with_store
def show(store: Store, name: str, as_json: bool) -> None:
    """Show a schedule, its next five firings, and what became of the last ones."""
    found = store.schedules.get(name)
    if as_json:
        emit_json(_details(found, store.schedules.firings(name, SHOWN)))
        return
    for field, text in (
        ("Schedule", paint(found.name, BOLD) + (" (paused)" if found.paused else "")),
        ("When", _when(found)),
        ("Command", visible(str(found.job["command"]))),
        ("Jobs", ", ".join(f"{key} {visible(str(value))}" for key, value in found.job.items() if key != "command")),
        ("Overlap", f"{found.overlap}: {OVERLAP_WORDS[found.overlap]}"),
        ("Missed", f"{found.missed}: {MISSED_WORDS[found.missed]}"),
    ):
        say(f"{field + ':':<10}{text}")
    _say_next(found)
    last = store.schedules.firings(name, SHOWN)
    if last:
        say(paint("Last:", BOLD))
        rows = [[_local(found, one.moment), _what_of(one), one.job or "", one.reason or ""] for one in last]
        table(["Firing", "What became of it", "Job ID", "Why"], rows, stretch=("Why",))


@schedule_command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_store
def remove(store: Store, names: tuple[str, ...]) -> None:
    """Forget schedules. Jobs that they have enqueued stay."""
    store.schedules.remove(names)
    changed(f"Removed: {listed(names)}")
    for name in names:
        say(f"Schedule {name} removed.")


@schedule_command.command("pause")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_store
def pause(store: Store, names: tuple[str, ...]) -> None:
    """Let schedules rest."""
    paused = store.schedules.pause(names, paused=True)
    changed(f"Paused: {listed(names)}")
    for one in paused:
        say(f"Schedule {one.name} is paused.")


@schedule_command.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_store
def resume(store: Store, names: tuple[str, ...]) -> None:
    """Let schedules go on. What they would have done meanwhile is not made up for."""
    resumed = store.schedules.pause(names, paused=False)
    changed(f"Resumed: {listed(names)}")
    for one in resumed:
        say(f"Schedule {one.name} goes on: next {_local(one, one.next_at) if one.next_at else 'never'}.")


@schedule_command.command("trigger")
@click.argument("name")
@click.option("--quiet", is_flag=True, help="Print the id only.")
@with_store
def trigger(store: Store, name: str, quiet: bool) -> None:
    """Enqueue a schedule's job now, besides its firings."""
    job = store.schedules.trigger(name)
    changed(f"Stored as {job.id}")
    say(job.id if quiet else f"Enqueued {job.id}: {visible(job.command)}")
    mention_missing_worker(store, [job.queue])


# -- words -----------------------------------------------------------------------------------------------


def _when(one: Schedule) -> str:
    words = one.plan.words
    words = words[:1].lower() + words[1:]
    return words if one.cron is None else f"{one.cron} ({words}), {one.zone}"


def _say_next(one: Schedule) -> None:
    if one.paused or one.next_at is None:
        say("Next:     none, it is paused" if one.paused else "Next:     none")
        return
    for number, moment in enumerate(one.coming(SHOWN)):
        say(f"{'Next:' if not number else '':<10}{_local(one, moment)} ({ago(moment)})")


def _local(one: Schedule, moment: int) -> str:
    return times.in_zone(moment, one.zone)


def _what_of(firing: Firing) -> str:
    return f"{firing.outcome} ({firing.job_state})" if firing.job_state else firing.outcome


def _details(one: Schedule, last: Sequence[Firing]) -> dict[str, Any]:
    return {
        **one.as_json(),
        "next": [times.iso(moment) for moment in one.coming(SHOWN)],
        "last": [firing.as_json() for firing in last],
    }
