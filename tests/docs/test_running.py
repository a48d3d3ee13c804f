"""docs/running.md and the files in deploy/ stay true: queries run, options exist, what is copied is there."""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest

from queuectl.cli.app import cli
from queuectl.jobs.job_spec import NewJob
from queuectl.queues.selection import Turns
from queuectl.store import open_store
from tests.postgres import Server
from tests.postgres import postgres as postgres

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SQL = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "running.md").read_text(encoding="utf-8"), re.DOTALL)


def test_every_query_of_the_page_runs(postgres: Server) -> None:
    store = open_store(postgres.url("running_page"))
    try:
        store.enqueue([NewJob("true"), NewJob("true", queue="mail")])
        store.register("w", pid=1, host="h", manager_pid=1, queues=(), concurrency=1)
        assert len(store.tick("w", slots=1, turns=Turns.parse(["mail"])).claims) == 1
        answers = [postgres.sql(re.sub(r"\bqueuectl\b", "running_page", query)) for query in SQL]
    finally:
        store.close()
    depth, waiting, workers, *_, tables, _, connections = answers
    assert depth == [("default", "pending", 1), ("mail", "processing", 1)]
    assert [row[:2] for row in waiting] == [("default", 1)]
    assert [row[:4] for row in workers] == [("h", "w", 1, 1)]
    assert "jobs" in [row[0] for row in tables]
    assert connections


@pytest.mark.parametrize("name", ["queuectl-worker.service", "compose.yaml", "Dockerfile"])
def test_the_workers_are_started_with_options_that_exist(name: str) -> None:
    words = start_command(name)
    group = cli.get_command(click.Context(cli), words[0])
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), words[1])
    assert command
    options = {option for param in command.params for option in param.opts}
    assert {word for word in words[2:] if word.startswith("-")} <= options
    assert "--foreground" in words, "whoever watches over it must see it"


@pytest.mark.parametrize("name", ["queuectl-serve.service", "compose.yaml"])
def test_the_dashboard_is_started_with_options_that_exist(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    [words] = re.findall(r"(?:queuectl |\[\")serve(.*)", text)
    command = cli.get_command(click.Context(cli), "serve")
    assert command
    options = {option for param in command.params for option in param.opts}
    assert {"--host", "--port"} <= set(re.findall(r"--[a-z-]+", words)) <= options


def start_command(name: str) -> list[str]:
    """What is said to queuectl there."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    if name.endswith(".service"):
        return shlex.split(re.findall(r"^ExecStart=\S+/queuectl (.*)", text, re.MULTILINE)[0])
    return list(json.loads(re.findall(r"^(?:CMD| +command:) (\[.+\])$", text, re.MULTILINE)[0]))


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = " ".join(re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)).split()
    assert "src" in copied
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in copied:
        assert (ROOT / source).exists()
        matching = [rule for rule in rules if fnmatch(source, rule.removeprefix("!"))]
        assert matching[-1].startswith("!"), f"{source} is ignored"  # the last rule that matches decides


def test_the_compose_file_holds_together() -> None:
    """As far as one can tell without a YAML parser: its services, its names, no password."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert "\t" not in text
    services = text.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    assert re.findall(r"^  (\w+):$", services, re.MULTILINE) == ["db", "worker", "dashboard", "shell"]
    assert set(re.findall(r" \*(\w+)", text)) == set(re.findall(r" &(\w+)", text))
    assert "TOKEN: ${" in text
    assert re.findall(r"PASSWORD: (.)", text) == ["$", "$"]
    [context], [dockerfile] = (re.findall(rf"{key}: (\S+)", text) for key in ("context", "dockerfile"))
    assert (DEPLOY / context / dockerfile).is_file()
