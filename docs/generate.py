"""Writes what the docs show of the code: `python docs/generate.py`. Tests fail if the pages are out of date.

The reference pages come from the tables of settings and operations and the commands themselves. In README.md, the
commands of each ```console block are run for real, in a folder of their own, and their output is put in.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from queuectl.cli.app import cli
from queuectl.settings import SETTINGS

if TYPE_CHECKING:
    from queuectl.web.api.operation import Param

DOCS = Path(__file__).parent
README = DOCS.parent / "README.md"


def configuration() -> str:
    rows = []
    for setting in SETTINGS.values():
        alias = f" (alias `{setting.alias}`)" if setting.alias else ""
        limits = f"{setting.at_least} to {setting.at_most}"
        rows.append(f"| `{setting.name}`{alias} | {setting.default} | {limits} | {setting.help} |")
    table = "\n".join(rows)
    return f"""# Configuration

Settings live in the queue's database: `queuectl config set KEY VALUE` changes one for everyone, and running
workers see it at once. `max-retries` and `max_retries` are the same key. A bad key or value is refused.

| key | default | range | meaning |
| --- | --- | --- | --- |
{table}

## Environment

| variable | meaning |
| --- | --- |
| `QUEUECTL_DB` | The queue to use when `--db` is not given: a path, or `sqlite:///relative`, `sqlite:////absolute`. |
| `QUEUECTL_LOG_DIR` | Where job logs lie; otherwise in `logs/` beside the database. |
| `QUEUECTL_NO_CGROUP` | If set, workers make no control group of their own. |
| `QUEUECTL_DEBUG` | Set to show the traceback of a bug in queuectl. |
| `NO_COLOR` | Set to have no colours. |
| `XDG_DATA_HOME` | Where the default queue lies: `queuectl/queue.db` in it (else in `~/.local/share`). |

A run has the worker's environment, the job's `env`, and `QUEUECTL_JOB_ID`, `QUEUECTL_ATTEMPT`, `QUEUECTL_QUEUE`.
`QUEUECTL_RESULT` names a file for [its progress and its result](jobs.md#how-far-it-is-and-what-came-of-it).
`QUEUECTL_DB` names its own queue, so a job can enqueue further jobs; `QUEUECTL_PYTHON` is the Python that the worker
runs on, so `"$QUEUECTL_PYTHON" -m queuectl` is its own queuectl. `QUEUECTL_RUN` marks the processes of a run, so that
nothing of it survives a kill. What a notification finds besides: [notifications](notifications.md#commands).
"""


def command_line() -> str:
    parts = [
        """# Command line

Every command takes `--db PATH`, before or after its name, and `--help`. Job ids may be shortened to a unique
beginning of three characters or more; `@last` is the job enqueued last.

Exit codes: 0 done, 1 failed, 2 bad usage or input, 3 not found, 4 conflict (duplicate, wrong state), 5 database
unreachable or locked (worth another try), 124 timed out, 130 interrupted.

The exit code of a command that changes something says if the change was made. If it was, but the answer cannot be
written (a full disk, a reader that has gone), the exit code is still 0, and a line on standard error says what was
changed: `Stored as k3f9x2m7qa, but the answer could not be written: No space left on device.` A command that only
reads fails with 1.
"""
    ]
    for path, command in _commands(cli, "queuectl"):
        words = [
            param.make_metavar(click.Context(command))
            for param in command.params
            if param.name in _arguments(command)
        ]
        parts.append(f"## `{' '.join([path, *words])}`\n\n{_description(command)}\n")
        options = [
            _option(param) for param in command.params if isinstance(param, click.Option) and param.name != "db"
        ]
        if options:
            parts.append("| option | meaning |\n| --- | --- |\n" + "\n".join(options) + "\n")
    return "\n".join(parts)


def _arguments(command: click.Command) -> set[str | None]:
    return {param.name for param in command.params if isinstance(param, click.Argument)}


def _description(command: click.Command) -> str:
    """The help text; an example in it (a paragraph that starts with \\b) becomes a block."""
    text, _, example = (command.help or "").replace("\b\n", "\b").partition("\b")
    shown = " ".join(text.split())
    return f"{shown}\n\n```sh\n{example.rstrip()}\n```" if example else shown


def _option(option: click.Option) -> str:
    value = "" if option.is_flag else " " + (option.metavar or option.type.name.upper())
    names = ", ".join(f"`{name}{value}`" for name in option.opts)
    return f"| {names} | {(option.help or '').replace('|', chr(92) + '|')} |"


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def played(page: str) -> str:
    """The page with the real output of every command in its ```console blocks."""
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "HOME": folder,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TZ": "UTC",
            "LANG": "C.UTF-8",
        }

        def shell(command: str) -> str:
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=120,
            )  # fmt: skip
            return done.stdout.replace(folder, "/home/you")

        def block(match: re.Match[str]) -> str:
            commands = [line[2:] for line in match[1].splitlines() if line.startswith("$ ")]
            return "```console\n" + "".join(f"$ {command}\n{shell(command)}" for command in commands) + "```"

        try:
            return re.sub(r"```console\n(.*?)```", block, page, flags=re.DOTALL)
        finally:
            shell("queuectl worker stop --now")


def api() -> str:
    """The page as it is, with its table of operations made anew."""
    from queuectl.web.api.operations import OPERATIONS

    rows = [
        f"| `{one.method} {one.path}` | {one.summary} | {one.role.word} | {_params(one.params)} |"
        for one in OPERATIONS
    ]
    table = "\n".join(["| operation | what it does | takes | parameters |", "| --- | --- | --- | --- |", *rows])
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    return re.sub(r"(<!-- operations[^\n]*\n).*?(<!-- /operations)", rf"\g<1>{table}\n\g<2>", page, flags=re.DOTALL)


def _params(params: Iterable[Param]) -> str:
    return ", ".join(f"`{param.name}`" for param in params)


PAGES = {"configuration.md": configuration, "cli.md": command_line, "api.md": api}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    README.write_text(played(README.read_text(encoding="utf-8")), encoding="utf-8")
