"""The click side of the command line: the root command, shared options, and loading a group only when called."""

from __future__ import annotations

import functools
import importlib
import os
import pwd
from collections.abc import Callable
from typing import Any, TypeVar

import click

from queuectl import __version__
from queuectl.cli import INTERRUPTED
from queuectl.cli.render import remember_address
from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs import job_spec
from queuectl.store import Store, open_store

# Each command and the module it lives in, in the order in which help shows them.
COMMANDS = {
    "enqueue": "enqueue",
    "worker": "worker",
    "status": "status",
    "top": "top",
    "list": "jobs",
    "show": "jobs",
    "logs": "logs",
    "history": "jobs",
    "explain": "jobs",
    "wait": "logs",
    "cancel": "jobs",
    "dlq": "dlq",
    "queue": "queue",
    "schedule": "schedule",
    "hook": "hook",
    "metrics": "status",
    "serve": "serve",
    "config": "config",
    "prune": "maintenance",
    "reset": "maintenance",
    "backup": "maintenance",
    "copy": "maintenance",
    "doctor": "maintenance",
    "completion": "completion",
}
# What people type who come from elsewhere.
SYNONYMS = {
    "retry": "dlq retry", "restart": "dlq retry", "requeue": "dlq retry", "purge": "dlq purge", "dead": "dlq list",
    "add": "enqueue", "submit": "enqueue", "push": "enqueue", "run": "enqueue", "exec": "enqueue",
    "kill": "cancel", "abort": "cancel", "remove": "cancel", "rm": "cancel", "delete": "prune", "clean": "prune",
    "ps": "list", "ls": "list", "jobs": "list",
    "queues": "queue list", "pause": "queue pause", "resume": "queue resume", "limit": "queue limit",
    "log": "logs", "tail": "logs --follow",
    "follow": "logs --follow", "info": "show", "why": "explain", "start": "worker start", "stop": "worker stop",
    "workers": "worker list", "stats": "status", "settings": "config", "help": "--help",
    "cron": "schedule", "every": "schedule add", "schedules": "schedule list", "migrate": "copy", "move": "copy",
    "hooks": "hook list", "webhook": "hook add", "notify": "hook add", "alert": "hook add",
    "htop": "top", "monitor": "top", "watch": "top",
}  # fmt: skip
COMPLETE = "_QUEUECTL_COMPLETE"  # set by a shell's completion script
DESTRUCTIVE = ("reset", "prune")  # never suggested for a slip of the finger

F = TypeVar("F", bound=Callable[..., Any])


class Root(click.Group):
    """Knows its commands by name and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"queuectl.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise InvalidInput(f'there is no command "{args[0]}"', _meant(args[0]))
        return super().resolve_command(ctx, args)


@click.group(
    cls=Root,
    name="queuectl",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The queue: --db, else $QUEUECTL_DB, else the file queue.db in your data folder.",
)
@click.option(
    "--db", type=click.Path(), metavar="PATH", help="The queue to use: a path, sqlite:///… or postgresql://…"
)
@click.version_option(__version__, prog_name="queuectl", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, db: str | None) -> None:
    """A durable background job queue for shell commands."""
    ctx.obj = db
    if ctx.invoked_subcommand is None:
        from queuectl.cli.status import welcome

        welcome(db)


def run(args: list[str]) -> int:
    """Carry out one command; its exit code. Click's own complaints become ours."""
    try:
        code = cli.main(args, prog_name="queuectl", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.Abort:
        return INTERRUPTED
    except SystemExit:  # how click ends when whoever read our output has gone
        raise BrokenPipeError from None
    except click.exceptions.NoArgsIsHelpError as error:
        raise _incomplete(error) from None
    except click.UsageError as error:
        raise InvalidInput(error.format_message().rstrip(".").replace("\n", " "), _usage_hint(error, args)) from None
    except click.ClickException as error:
        raise InvalidInput(error.format_message().rstrip("."), "see queuectl --help") from None
    except (KeyError, ValueError):
        if COMPLETE not in os.environ:
            raise
        hint = f"unset {COMPLETE}, or see queuectl completion --help"
        raise InvalidInput(f"{COMPLETE} is set, but not the variables of a shell's completion", hint) from None


def _incomplete(error: click.exceptions.NoArgsIsHelpError) -> InvalidInput:
    assert error.ctx is not None
    group = error.ctx.command
    commands = group.list_commands(error.ctx) if isinstance(group, click.Group) else []
    return InvalidInput(f"{error.ctx.command_path} what?", f"say one of: {', '.join(commands)}")


def _usage_hint(error: click.UsageError, args: list[str]) -> str:
    command = error.ctx.command_path if error.ctx else "queuectl"
    words = args[args.index("enqueue") + 1 :] if "enqueue" in args else []
    if isinstance(error, click.NoSuchOption) and words and not words[0].startswith("-"):
        return f"to enqueue a command that has options, put -- before it: queuectl enqueue -- {job_spec.quote(words)}"
    return f"see {command} --help"


def _meant(word: str) -> str:
    if word in SYNONYMS:
        return f'did you mean "{SYNONYMS[word]}"?'
    return did_you_mean(word, [name for name in COMMANDS if name not in DESTRUCTIVE])


# -- what commands share ---------------------------------------------------------------------------------


def with_store(command: F) -> F:
    """Give a command `--db` and the opened store as its first argument."""

    @click.option("--db", type=click.Path(), metavar="PATH", help="The queue to use.")
    @click.pass_context
    @functools.wraps(command)
    def opened(ctx: click.Context, /, db: str | None, **options: Any) -> Any:
        store = open_store(chosen_db(ctx, db))
        store.actor = whoever_typed_this()
        try:
            return command(store, **options)
        finally:
            store.close()

    return opened  # type: ignore[return-value]


def with_address(command: F) -> F:
    """Give a command `--db` and what it says as its first argument."""

    @click.option("--db", type=click.Path(), metavar="PATH", help="The queue to use.")
    @click.pass_context
    @functools.wraps(command)
    def addressed(ctx: click.Context, /, db: str | None, **options: Any) -> Any:
        return command(chosen_db(ctx, db), **options)

    return addressed  # type: ignore[return-value]


def whoever_typed_this() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, users need not have names
        return f"uid {os.getuid()}"


def chosen_db(ctx: click.Context, db: str | None) -> str | None:
    """`--db` may stand before or after the command's name."""
    chosen: str | None = db if db is not None else ctx.find_root().obj
    remember_address(chosen)
    return chosen


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
jsonl_option = click.option("--jsonl", is_flag=True, help="Print one JSON object a line.")


def job_ids(store: Store, texts: tuple[str, ...]) -> list[str]:
    """The full ids meant by what was typed, each once."""
    return list(dict.fromkeys(store.views.resolve(text) for text in texts))
