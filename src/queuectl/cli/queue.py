"""Queues: what is in them, pausing them, and how much of them may run."""

from __future__ import annotations

import click

from queuectl.cli.app import json_option, jsonl_option, with_store
from queuectl.cli.render import emit_json, emit_list, listed, note, say, table
from queuectl.cli.streams import changed
from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs import job_spec
from queuectl.jobs.model import Queue
from queuectl.queues import policy
from queuectl.store import Store

SHOWN = ("pending", "processing", "completed")
OPTIONAL = ("Paused", "Limits", "Retries")


@click.group("queue")
def queue_command() -> None:
    """List, pause and limit queues. A queue is made by its first job."""


@queue_command.command("list")
@json_option
@jsonl_option
@with_store
def list_queues(store: Store, as_json: bool, jsonl: bool) -> None:
    """List the queues: how many jobs are in each state, and what is said of them."""
    queues = store.views.queues()
    if as_json or jsonl:
        emit_list((queue.as_json() for queue in queues), jsonl)
    elif queues:
        queue_table(queues)
    else:
        note("There are no queues yet. The first job makes one: queuectl enqueue --queue mail 'echo hello'")


def queue_table(queues: list[Queue]) -> None:
    states = [state for state in queues[0].jobs if state in SHOWN or any(queue.jobs[state] for queue in queues)]
    columns = [
        ("Queue", [queue.name for queue in queues]),
        *((state.capitalize(), [f"{queue.jobs[state]:,}" for queue in queues]) for state in states),
        ("Paused", ["yes" if queue.rules.paused else "" for queue in queues]),
        ("Limits", [queue.rules.limits for queue in queues]),
        ("Retries", [queue.rules.retries for queue in queues]),
    ]
    kept = [(name, cells) for name, cells in columns if name not in OPTIONAL or any(cells)]
    table([name for name, _ in kept], list(zip(*(cells for _, cells in kept), strict=True)), stretch=("Retries",))


@queue_command.command("pause")
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@with_store
def pause(store: Store, names: tuple[str, ...]) -> None:
    """Start no more jobs of these queues. What runs goes on, and jobs can still be enqueued."""
    for name in _checked(store, names):
        store.change_queue(name, paused=True)
        changed(f"Paused: {listed(names)}")
        say(f"Queue {name} is paused.")


@queue_command.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@with_store
def resume(store: Store, names: tuple[str, ...]) -> None:
    """Let the jobs of paused queues run again."""
    for name in _checked(store, names):
        store.change_queue(name, paused=False)
        changed(f"Resumed: {listed(names)}")
        say(f"Queue {name} goes on.")


@queue_command.command("limit")
@click.argument("name", metavar="QUEUE")
@click.argument("number", metavar="N|none")
@click.option("--per", metavar="DURATION", help="So many may start within any span of this length: 1m, 1h.")
@click.option("--per-key", is_flag=True, help="So many with the same --key may run at once.  [default: 1]")
@json_option
@with_store
def limit(store: Store, name: str, number: str, per: str | None, per_key: bool, as_json: bool) -> None:
    """Let only so many jobs of a queue run at once, on all machines together; `none` takes limits away.

    \b
    queuectl queue limit mail 3                at most 3 run at once
    queuectl queue limit mail 10 --per 1m      at most 10 start in any minute
    queuectl queue limit mail 2 --per-key      at most 2 with the same key run at once
    queuectl queue limit mail none             no limits at all
    queuectl queue limit mail none --per 1m    no rate; the other limits stay
    """
    [name] = _checked(store, [name])
    said = store.change_queue(name, **_limit(number, per, per_key))
    changed(f"The limits of the queue {name} are set")
    if as_json:
        emit_json(said.as_json())
    else:
        say(f"Queue {name}: {said.limits or 'no limits'}.")


def _limit(number: str, per: str | None, per_key: bool) -> dict[str, object]:
    """The fields of `Rules` that change."""
    if per is not None and per_key:
        raise InvalidInput("--per and --per-key are both given", "set one after the other")
    if "/" in number:
        raise InvalidInput(f'"{number[:80]}" is no limit', f"a rate is written {number.replace('/', ' --per ', 1)}")
    most = policy.limit(number)
    if per_key:
        return {"per_key": most}
    if per is not None:
        span = policy.span(per)
        return {"rate": most, "rate_ms": span if most else None}
    return {"at_once": most} if most else {"at_once": None, "per_key": None, "rate": None, "rate_ms": None}


@queue_command.command("set")
@click.argument("name", metavar="QUEUE")
@click.option("--retry-on", metavar="ENDS", help="Only retry its jobs after these: 1,75,SIGKILL,timeout; or none.")
@click.option("--no-retry-on", metavar="ENDS", help="Do not retry its jobs after these; or none.")
@with_store
def set_rules(store: Store, name: str, retry_on: str | None, no_retry_on: str | None) -> None:
    """Say after which ends of a run the jobs of a queue are tried again, if they do not say it themselves."""
    given = {"retry_on": retry_on, "no_retry_on": no_retry_on}
    changes = {field: policy.ends(field, text) for field, text in given.items() if text is not None}
    if not changes:
        raise InvalidInput("set what?", "give --retry-on or --no-retry-on")
    [name] = _checked(store, [name])
    said = store.change_queue(name, **changes)
    changed(f"The retries of the queue {name} are set")
    say(f"Queue {name}: retries {said.retries or 'as its jobs say'}.")


def _checked(store: Store, names: tuple[str, ...] | list[str]) -> list[str]:
    """Valid names, each once. A queue may be spoken of before it has jobs, but a slip should be noticed."""
    chosen = [job_spec.name("queue", name) for name in dict.fromkeys(names)]
    known = {queue.name for queue in store.views.queues()}
    for name in chosen:
        if known and name not in known:
            note(f'No job has been in the queue "{name}" yet: {did_you_mean(name, sorted(known))}')
    return chosen
