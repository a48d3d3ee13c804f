"""A command whose answer cannot be written: what it has changed stays changed and is said on standard error, and its
exit code does not invite anybody to do it again."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing

import click
import pytest

from queuectl.cli.app import COMMANDS, Root, cli
from tests.conftest import DEADLINE
from tests.e2e.conftest import QUEUECTL, Cli, Result, on_sqlite

# Every command that changes something, in an order in which each can, with what is said of it.
CHANGES = [
    ("enqueue --id one true", "Stored as one"),
    ("enqueue --quiet --id two true", "Stored as two"),
    ("enqueue --json --id three true", "Stored as three"),
    ('enqueue \'{"id": "four", "command": "true"}\'', "Stored as four"),
    ("enqueue --array 1-3 --id many true", "Stored 3 jobs as batch many: many.1, many.2, many.3"),
    ("enqueue --array 1-30 --quiet --id more true", "Stored 30 jobs as batch more: more.1, .* and 10 more"),
    ("cancel one two", "Cancelled, or being cancelled: one, two"),
    ("dlq retry dead", "Pending again: dead"),
    ("cancel dead --json", "Cancelled, or being cancelled: dead"),
    ("dlq purge --yes also-dead", "Deleted 1 dead job"),
    ("queue pause q1 q2", "Paused: q1, q2"),
    ("queue resume q1", "Resumed: q1"),
    ("queue limit q1 3", "The limits of the queue q1 are set"),
    ("queue set q1 --retry-on 1", "The retries of the queue q1 are set"),
    ("schedule add often --every 1h -- true", "Schedule often is added"),
    ("schedule pause often", "Paused: often"),
    ("schedule resume often", "Resumed: often"),
    ("schedule trigger often", r"Stored as \w{10}"),
    ("schedule remove often", "Removed: often"),
    ("hook add told -- true", "Hook told is added"),
    ("hook add posted https://example.com/", "Hook posted is added, with a secret that is told once: .*"),
    ("hook pause told", "Paused: told"),
    ("hook resume told", "Resumed: told"),
    ("hook test told", r"Stored as \S+"),
    ("hook remove told", "Removed: told"),
    ("config set max_retries 7", "max_retries is set to 7"),
    ("config unset max_retries", "max_retries is set to its default, 3"),
    ("prune --older-than 1ms", "Deleted \\d+ jobs?"),
    ("backup copy.db", "Wrote copy.db"),
    ("copy --to other.db", r"Copied \d+ jobs to .*other.db"),
    ("worker start", r"Started 1 worker \(manager pid \d+\)"),
    ("worker stop", "Told 1 worker to stop"),
    ("reset --yes", r"Deleted \d+ jobs and all settings"),
]
ONLY_READS = {
    "completion", "config get", "config list", "dlq list", "doctor", "explain", "history", "hook list", "hook show",
    "list", "logs", "metrics", "queue list", "schedule list", "schedule show", "serve", "show", "status", "top",
    "wait", "worker list",
}  # fmt: skip
RUN_BY_WORKERS = {"hook send"}


def commands() -> Iterator[str]:
    """Every command, as it is typed."""
    root = click.Context(cli)
    assert isinstance(cli, Root)
    for name in COMMANDS:
        command = cli.get_command(root, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.commands)
        else:
            yield name


def test_every_command_is_known_to_change_something_or_not() -> None:
    changes = {name for name in commands() if any(f"{line} ".startswith(f"{name} ") for line, _ in CHANGES)}
    assert changes | ONLY_READS | RUN_BY_WORKERS == set(commands())
    assert not changes & ONLY_READS


@pytest.fixture
def ready(q: Cli) -> Cli:
    """A queue with dead jobs, and no worker."""
    q.batch(*({"id": id, "command": "false", "max_retries": 1} for id in ("dead", "also-dead")))
    q.ok("worker", "start")
    q("wait", "--all")
    q.ok("worker", "stop")
    return q


def state_of(q: Cli) -> list[str]:
    """All that is stored and lies beside it."""
    with closing(sqlite3.connect(f"file:{q.db}?mode=ro", uri=True)) as database:
        return [*database.iterdump(), *sorted(map(str, q.folder.glob("*.db")))]


@on_sqlite
def test_what_was_changed_is_said_though_the_answer_cannot_be_written(ready: Cli) -> None:
    for line, said in CHANGES:
        before = state_of(ready)
        result = ready(*shlex.split(line), into="/dev/full")
        assert result.code == 0, (line, result)
        lines = result.err.splitlines()
        wanted = f"{said}, but the answer could not be written: No space left on device\\."
        assert [text for text in lines if re.fullmatch(wanted, text)] == lines[-1:], (line, result)
        assert state_of(ready) != before, line


@on_sqlite
@pytest.mark.parametrize(
    "where", ["2>/dev/full", ">/dev/full 2>/dev/full", ">/dev/full 2>&-", ">&- 2>/dev/full", "<&- >&- 2>&-"]
)
def test_a_change_is_made_once_and_well_wherever_its_words_go(q: Cli, where: str) -> None:
    assert q.shell(f"queuectl enqueue --id kept true {where}").code == 0
    assert q.shell(f"queuectl enqueue --id kept true {where}").code == 4
    assert q.shell(f"queuectl cancel nothing {where}").code == 3
    assert q.shell(f"queuectl cancel kept {where}").code == 0
    assert [job["state"] for job in q.json("list")] == ["cancelled"]
    data = list((q.folder / "data").glob("*"))
    assert q.db in data


def into_closed_pipe(q: Cli, *args: str, taken: int = 0) -> Result:
    """Run a command whose reader goes, after so many bytes."""
    reader, writer = os.pipe()
    process = subprocess.Popen([QUEUECTL, *args], stdout=writer, stderr=subprocess.PIPE, env=q.env, cwd=q.folder)
    os.close(writer)
    if taken:
        os.read(reader, taken)
    os.close(reader)
    _, err = process.communicate(timeout=DEADLINE)
    return Result(process.returncode, "", err.decode())


@on_sqlite
def test_a_reader_that_has_gone_does_not_hide_what_was_changed(q: Cli) -> None:
    result = into_closed_pipe(q, "enqueue", "--id", "kept", "true")
    assert result.code == 0
    assert "Stored as kept, but the answer could not be written: Broken pipe." in result.err


@on_sqlite
def test_a_reader_that_has_seen_enough_is_left_in_peace(q: Cli) -> None:
    result = into_closed_pipe(q, "enqueue", "--quiet", "--array", "1-7000", "true", taken=10)
    assert result.code == 0
    assert "written" not in result.err
    result = into_closed_pipe(q, "list", "--limit", "300", "--jsonl", taken=10)
    assert (result.code, result.err) == (0, "")


@on_sqlite
def test_waiting_goes_on_though_nothing_can_be_shown_and_the_exit_code_is_the_jobs(working: Cli) -> None:
    result = working.shell("queuectl enqueue --wait --id kept --max-retries 1 'echo hello; exit 3' > /dev/full")
    assert result.code == 3
    assert "Stored as kept, but the answer could not be written" in result.err


@on_sqlite
def test_an_output_that_does_not_block_is_waited_for(q: Cli) -> None:
    """Whoever shares a pipe or a terminal with us may have made it so."""
    q.ok("enqueue", "--quiet", "--array", "1-300", "true")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [QUEUECTL, "list", "--limit", "0", "--json"]
    process = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, env=q.env, cwd=q.folder)
    os.close(writer)
    with open(reader, "rb") as source:
        jobs = json.loads(source.read())
    _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err, len(jobs)) == (0, b"", 300)
