"""`queuectl enqueue`: every option of it. What it does is in submit.py."""

from __future__ import annotations

from typing import Any

import click

from queuectl.cli.app import chosen_db
from queuectl.cli.enqueue_core import submit


@click.command("enqueue")
@click.argument("words", nargs=-1, metavar="[COMMAND | JSON | -]...")
@click.option("--id", help="Its id; generated if not given.")
@click.option("-q", "--queue", help="The queue it goes to.  [default: default]")
@click.option("-p", "--priority", type=int, help="Higher runs first.  [default: 0]")
@click.option("--max-retries", type=int, help="Failed runs allowed before it is dead.")
@click.option("--backoff-base", type=float, help="Seconds before the first retry; later ones take powers of it.")
@click.option("--retry-on", metavar="ENDS", help="Only retry after these: 1,75,SIGKILL,timeout.")
@click.option("--no-retry-on", metavar="ENDS", help="Do not retry after these.")
@click.option("--timeout", metavar="DURATION", help="Kill a run after this long: 90, 5m, 1h30m.")
@click.option("--at", metavar="TIME", help='Not before: "09:00", "tomorrow 9:00", "2026-11-16 09:00", ISO 8601.')
@click.option("--delay", metavar="DURATION", help="Not before this much time has passed.")
@click.option(
    "--cwd",
    type=click.Path(),
    metavar="FOLDER",
    help="Where it runs.  [default: here; with PostgreSQL the worker's folder]",
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for its environment; repeatable.")
@click.option("--tag", "tags", multiple=True, help="A word to find it by; repeatable.")
@click.option("--after", multiple=True, metavar="JOB", help="Not before this job has completed; repeatable.")
@click.option("--after-fail", multiple=True, metavar="JOB", help="Only if this job ends up dead; repeatable.")
@click.option("--after-any", multiple=True, metavar="JOB", help="Not before this job has ended, however; repeatable.")
@click.option(
    "--batch", metavar="NAME", help="The name of the jobs it belongs to: wait, cancel and list them together."
)
@click.option("--max-fails", type=int, metavar="N", help="If so many of its batch are dead, cancel those that wait.")
@click.option(
    "--array",
    metavar="1-100[%8]",
    help="Once for each number, which is in QUEUECTL_ARRAY_INDEX; %8: at most 8 of them at once.",
)
@click.option("--key", help="Of the jobs with the same key only one runs at once, or as many as the queue says.")
@click.option("--key-limit", type=int, metavar="N", help="So many of them may run beside each other.")
@click.option("--unique", metavar="KEY", help="At most one unfinished job with this key.")
@click.option(
    "--on-duplicate",
    metavar="WHAT",
    help="If there is one: refuse, skip, or replace it while it waits.  [default: refuse]",
)
@click.option("--notify", multiple=True, metavar="HOOK", help="Tell this hook of its ends; repeatable.")
@click.option(
    "-f", "--file", type=click.Path(), metavar="FILE", help="Many jobs, one JSON object a line; - is standard input."
)
@click.option("--lines", is_flag=True, help="The file or input holds plain commands, one a line.")
@click.option("--wait", is_flag=True, help="Follow it to its end, and exit with its exit code.")
@click.option("--quiet", is_flag=True, help="Print the id only.")
@click.option("--json", is_flag=True, help="Print the stored job as JSON.")
@click.option("--db", type=click.Path(), metavar="PATH", help="The queue to use.")
@click.pass_context
def enqueue_command(ctx: click.Context, /, db: str | None, **options: Any) -> int:
    """Store a job, to be run by a worker.

    \b
    queuectl enqueue 'make -j2 && ./run'            one word is shell text
    queuectl enqueue -- cp "a b" /tmp               several words are quoted for you
    queuectl enqueue '{"command": "true", "priority": 5}'
    queuectl enqueue -f jobs.jsonl                  many at once, all or nothing
    find . -name '*.wav' -printf 'flac %p\\n' | queuectl enqueue --lines -

    A run finds QUEUECTL_JOB_ID, QUEUECTL_ATTEMPT and QUEUECTL_QUEUE in its environment, and may write JSON with its
    progress, a message and a result to the file QUEUECTL_RESULT.
    """
    return submit(db=chosen_db(ctx, db), **options)
