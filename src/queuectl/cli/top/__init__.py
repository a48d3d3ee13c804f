"""`top`: a queue to look at and to steer, live in a terminal."""

from __future__ import annotations

import os
import signal
import sys

import click

from queuectl.cli import INTERRUPTED
from queuectl.cli.app import with_store
from queuectl.cli.render import note
from queuectl.errors import InvalidInput
from queuectl.store import Store


@click.command("top")
@click.option(
    "--interval", type=click.FloatRange(min=0.2), metavar="SECONDS", default=1.0, show_default=True,
    help="Time between two looks; 0.2 at least.",
)  # fmt: skip
@with_store
def top_command(store: Store, interval: float) -> int:
    """Watch the queue live in the terminal, and steer it: cancel, retry, read logs."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        hint = "use queuectl status --watch, or queuectl status --json"
        raise InvalidInput("top needs a terminal to draw on and to read keys from", hint)
    try:
        import curses  # noqa: F401
    except ModuleNotFoundError:
        raise InvalidInput("this Python was built without curses", "use queuectl status --watch") from None
    from queuectl.cli.top.loop import Watch
    from queuectl.cli.top.terminal import Terminal

    store.close()  # it could be opened, and that is what we wanted to know: the reader has its own
    with Terminal() as terminal:
        watch = Watch(terminal, store.engine.name, store.engine.url, interval)
        watch.run()
    if terminal.ended_by in (0, signal.SIGINT):
        for text in watch.outstanding():
            note(text)
        return INTERRUPTED if terminal.ended_by else 0
    signal.signal(terminal.ended_by, signal.SIG_DFL)  # whoever sent it sees that it was obeyed
    os.kill(os.getpid(), terminal.ended_by)
    return 1
