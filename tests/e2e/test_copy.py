"""`queuectl copy`: from a file to a server and back."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Iterator

import pytest

from queuectl.store.write_queries import COPIED
from tests.conftest import DEADLINE
from tests.e2e.conftest import QUEUECTL, Cli, on_sqlite, read_until, refused
from tests.postgres import Server

MANY = 30_000  # jobs, of which it takes a while to copy the rest when the first thousand are done


@pytest.fixture
def other(q: Cli, engine_name: str, postgres: Server) -> Iterator[Cli]:
    """A queue of the other kind that is not there yet."""
    if engine_name == "postgres":
        yield Cli(q.folder)
        return
    schema = f"test_{uuid.uuid4().hex}"
    yield Cli(q.folder, postgres.url(schema))
    q.end_all()
    postgres.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def everything(q: Cli) -> list[object]:
    """All but where the logs are, which is told anew."""
    columns = [name for name in ("seq", *COPIED["jobs"][1]) if name != "log_place"]
    return [q.rows_of("jobs", ", ".join(columns)), *(q.rows_of(table) for table in ("tags", "config", "events"))]


def test_a_queue_moves_house(q: Cli, other: Cli) -> None:
    q.ok("config", "set", "max_retries", "7")
    q.ok("worker", "start")
    done = q.finished(q.enqueue("echo hello; echo 'ä\tb' >&2", tags=["x"], env={"A": "b"}))
    dead = q.finished(q.enqueue("exit 3", max_retries=1))
    q.ok("worker", "stop")
    waiting = q.enqueue("echo moved")

    told = q.ok("copy", "--to", other.url).splitlines()
    assert told[0].startswith("Copied 3 jobs with history and settings to ")
    assert told[1].startswith(f"Job logs stay where they are, in {q.logs}")
    assert re.fullmatch(r"Next: queuectl --db \S+ status +\(and set QUEUECTL_DB to it\)", told[2])
    assert everything(other) == everything(q)
    assert other.history(dead["id"]) == q.history(dead["id"])
    assert other.job(done["id"]) == {**done, "log_path": other.job(done["id"])["log_path"]}

    assert other.shell(told[2].removeprefix("Next: ").partition("(")[0]).out == other.ok("status")
    other.ok("worker", "start")
    assert other.finished(waiting)["stdout"] == "moved\n"
    other.ok("dlq", "retry", dead["id"])
    assert other.finished(dead["id"])["attempts"] == 1
    new = other.enqueue("true")
    assert other.json("list")[0]["id"] == new
    assert q.state(waiting) == "pending"  # the old queue stays as it is


def test_only_an_empty_queue_is_filled(q: Cli, other: Cli) -> None:
    q.enqueue("true")
    other.enqueue("true")
    before = other.contents()
    refused(q("copy", "--to", other.url), 4, "is not empty: it has jobs", "reset")
    assert other.contents() == before
    other.ok("reset", "--yes")
    other.ok("config", "set", "max_retries", "3")
    refused(q("copy", "--to", other.url), 4, "is not empty: it has settings")
    other.ok("config", "unset", "max_retries")
    q.ok("copy", "--to", other.url)
    refused(q("copy", "--to", other.url), 4, "is not empty")
    assert everything(other) == everything(q)


def test_a_queue_is_not_copied_onto_itself(q: Cli) -> None:
    q.enqueue("true")
    refused(q("copy", "--to", q.url), 4, "this very queue")


@on_sqlite
def test_another_name_of_the_same_file_is_the_same_queue(q: Cli) -> None:
    q.enqueue("true")
    (q.folder / "link.db").symlink_to(q.db)
    refused(q("copy", "--to", "link.db"), 4, "this very queue")


def test_an_empty_queue_is_no_queue_to_copy(q: Cli, other: Cli) -> None:
    refused(q("copy", "--to", other.url), 2, "there is nothing to copy", "--db")


def test_workers_must_be_stopped_on_both_sides(q: Cli, other: Cli) -> None:
    q.ok("config", "set", "max_retries", "7")
    q.ok("worker", "start")
    refused(q("copy", "--to", other.url), 4, "workers are running", "stop them first: queuectl worker stop")
    refused(q("--db", q.url, "copy", "--to", other.url), 4, "stop them first: queuectl --db ", " worker stop")
    q.ok("worker", "stop")
    other.ok("worker", "start")
    result = q("--db", q.url, "copy", "--to", other.url)
    refused(result, 4, "workers are running", "worker stop")
    assert result.err.count("--db") == 1
    command = result.err.partition("stop them first: ")[2].strip()
    assert other.shell(command).code == 0
    q.ok("copy", "--to", other.url)


def test_a_job_that_a_killed_worker_held_must_be_put_back_first(q: Cli, other: Cli) -> None:
    q.ok("config", "set", "lease_timeout", "1")
    q.ok("worker", "start")
    id = q.enqueue("sleep 1000")
    q.until(id, "processing")
    q.end_all()
    refused(q("copy", "--to", other.url), 4, "workers that died have left jobs behind: 1", "queuectl worker start")
    q.ok("worker", "start")
    q.until(id, "processing")
    q.ok("worker", "stop", "--now")
    q.ok("copy", "--to", other.url)
    assert other.job(id)["crashes"] == 1


def test_what_cannot_be_copied_to_is_refused(q: Cli) -> None:
    q.enqueue("true")
    refused(q("copy"), 2, "--to")
    refused(q("copy", "--to", ""), 2, "names no file")
    refused(q("copy", "--to", "mysql://root:secret@host/db"), 2, "mysql")
    refused(q("copy", "--to", str(q.folder)), 5, "is a folder")
    refused(q("copy", "--to", "/proc/nowhere/queue.db"), 5)


def test_a_password_is_never_shown(q: Cli, other: Cli) -> None:
    source = q.url.replace("queuectl@", "queuectl:secret@")
    target = other.url.replace("queuectl@", "queuectl:secret@")
    q.enqueue("true")
    for url in (target, target, source):  # done, refused, refused
        result = q("copy", "--to", url, env={"QUEUECTL_DB": source})
        assert "secret" not in result.out + result.err
        assert "Copied" in result.out or result.code == 4


# -- long copies -----------------------------------------------------------------------------------------


@pytest.fixture
def long(q: Cli) -> Cli:
    q.batch(*[{"command": "true", "run_at": "1h"}] * MANY)
    return q


def test_a_terminal_shows_how_far_it_is(long: Cli, other: Cli) -> None:
    seen = long.on_terminal("copy", "--to", other.url)
    assert f"░ 1,000 of {MANY:,}" in seen
    assert f"Copied {MANY:,} jobs" in seen


def test_a_copy_that_is_killed_leaves_nothing(long: Cli, other: Cli) -> None:
    screen, process = long.in_terminal(QUEUECTL, "copy", "--to", other.url)
    read_until(screen, b" 1,000 of")
    process.kill()
    assert process.wait(DEADLINE) == -signal.SIGKILL
    os.close(screen)
    assert not any(everything(other))
    assert set(other.json("status")["jobs"].values()) == {0}
    long.ok("copy", "--to", other.url)
    assert other.json("status")["jobs"] == long.json("status")["jobs"]
    assert everything(other) == everything(long)


def test_a_copy_can_be_interrupted(long: Cli, other: Cli) -> None:
    screen, process = long.in_terminal(QUEUECTL, "copy", "--to", other.url)
    read_until(screen, b" 1,000 of")
    os.write(screen, b"\x03")
    assert process.wait(DEADLINE) == 130
    os.close(screen)
    assert not any(everything(other))
    other.enqueue("true")  # nothing is locked any more
