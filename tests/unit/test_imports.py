"""What a command may load: a plain `enqueue` runs in shell loops, and every import costs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Loads what the installed command loads, with nothing that site-packages or a test runner would bring in.
LOADED = """
import sys
sys.path += [sys.argv.pop(1), sys.argv.pop(1)]
before = set(sys.modules)
{code}
print("loaded:", *set(sys.modules) - before)
"""
SITE_PACKAGES = [path for path in sys.path if path.endswith("site-packages")][-1]
SOURCE = Path(__file__).parents[2] / "src"

ENQUEUE = """
import queuectl.cli
assert queuectl.cli.run(sys.argv[1:]) == 0
"""

ALLOWED = {
    "queuectl", "queuectl.cli", "queuectl.cli.enqueue_core", "queuectl.cli.fast_enqueue", "queuectl.cli.render",
    "queuectl.cli.streams", "queuectl.errors", "queuectl.jobs", "queuectl.jobs.dependency_rules",
    "queuectl.jobs.job_spec", "queuectl.jobs.log_files", "queuectl.jobs.states", "queuectl.settings",
    "queuectl.store", "queuectl.store.batches", "queuectl.store.claim_settle", "queuectl.store.dependencies",
    "queuectl.store.factory", "queuectl.store.insert_jobs", "queuectl.store.limits", "queuectl.store.migrate",
    "queuectl.store.sqlite", "queuectl.store.steps", "queuectl.store.store", "queuectl.store.uniqueness",
    "queuectl.store.write_queries", "queuectl.system", "queuectl.system.escaping",
    "queuectl.system.private_files", "queuectl.system.procfs", "queuectl.system.times",
    "queuectl.system.wakeup",
    # The driver, and what all of these need of the standard library: small, or part of the interpreter.
    "apsw", "__future__", "_collections_abc", "collections.abc", "collections", "_collections", "itertools", "types",
    "_operator", "operator", "keyword", "reprlib", "time", "errno", "os", "os.path", "posixpath", "genericpath",
    "stat", "_stat",
}  # fmt: skip
FORBIDDEN = {
    "click", "dataclasses", "enum", "re", "json", "typing", "datetime", "pathlib", "subprocess", "random", "inspect",
    "difflib", "logging", "socket", "shlex", "argparse", "sqlite3", "ctypes", "selectors", "signal",
    "queuectl.jobs.model", "queuectl.jobs.lifecycle", "queuectl.store.views",
}  # fmt: skip


def loaded(code: str, *args: str) -> set[str]:
    """The modules that this code loads in an interpreter of its own."""
    script = LOADED.format(code=code)
    # -I and -S: nothing from the surroundings, where a .pth file may load anything.
    command = [sys.executable, "-I", "-S", "-c", script, str(SOURCE), SITE_PACKAGES, *args]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return set(done.stdout.decode().rpartition("loaded:")[2].split())


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


def enqueueing(db: str, *args: str) -> set[str]:
    return loaded(ENQUEUE, "enqueue", "--db", db, *args)


@pytest.mark.parametrize(
    "args",
    [
        ["true"],
        ["--quiet", "echo hello"],
        ["--", "cp", "a b", "/tmp"],
        ["--id", "x", "-q", "mail", "-p", "5", "--max-retries", "2", "--timeout", "5m", "true"],
        ["--delay", "1h30m", "true"],
    ],
    ids=" ".join,
)
def test_a_plain_enqueue_loads_next_to_nothing(db: str, args: list[str]) -> None:
    modules = enqueueing(db, *args)
    assert not modules & FORBIDDEN
    assert modules <= ALLOWED
    assert "queuectl.store.store" in modules


def test_a_plain_enqueue_into_a_queue_that_is_already_there_loads_no_more(db: str) -> None:
    first, second = enqueueing(db, "true"), enqueueing(db, "true")
    assert second <= first


def test_the_command_line_loads_no_web_no_other_driver_and_no_finery() -> None:
    modules = loaded("import queuectl.cli")
    assert {name for name in modules if name.startswith("queuectl")} == {
        "queuectl",
        "queuectl.cli",
        "queuectl.cli.streams",
        "queuectl.errors",
    }
    assert not {"psycopg", "rich", "starlette", "uvicorn", "jinja2", "click", "apsw"} & modules


@pytest.mark.parametrize(
    "module", ["queuectl.cli.app", "queuectl.worker.manager", "queuectl.client.queue", "queuectl.client.http_client"]
)
def test_nothing_but_serve_loads_the_web_and_nothing_but_a_server_its_driver(module: str) -> None:
    modules = loaded(f"import {module}")
    assert not {"psycopg", "rich", "starlette", "uvicorn", "jinja2", "queuectl.web"} & modules


def test_nothing_but_top_loads_what_draws_and_its_help_does_not_either() -> None:
    modules = loaded(
        "from queuectl.cli import app\nimport click\n"
        "[app.cli.get_command(click.Context(app.cli), name) for name in app.COMMANDS]"
    )
    assert "queuectl.cli.top" in modules
    assert not {"curses", "queuectl.cli.top.terminal", "queuectl.cli.top.loop"} & modules


def test_a_command_loads_its_own_group_only() -> None:
    modules = loaded(
        "from queuectl.cli import app\nimport click\napp.cli.get_command(click.Context(app.cli), 'config')"
    )
    assert "queuectl.cli.config" in modules
    assert not {"queuectl.cli.jobs", "queuectl.cli.worker", "queuectl.cli.status", "queuectl.worker"} & modules
