"""Nonsense is refused with one line that says what and what next, the right exit code, and nothing is stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.e2e.conftest import UNTIL_GO, Cli, Result, on_sqlite, refused

BAD, MISSING, CONFLICT, DATABASE = 2, 3, 4, 5
NOT_UTF8 = "\udcff"  # the byte 0xff in an argument


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A queue with a job that is `done`, one that is `dead`, one `waiting` and one changed setting; no workers."""
    q = Cli(tmp_path_factory.mktemp("stored"))
    q.ok("config", "set", "max_retries", "1")
    q.batch({"id": "done", "command": "true"}, {"id": "dead", "command": "false"})
    q.ok("worker", "start")
    q("wait", "--all")
    q.ok("worker", "stop")
    q.batch({"id": "waiting", "command": "true"}, {"id": "waiting-too", "command": "true", "run_at": "1h"})
    yield q
    q.end_all()


def refuses(q: Cli, args: tuple[str, ...], code: int, *words: str, stdin: str | bytes = b"") -> Result:
    """The command is refused, and the queue is as it was."""
    before = q.contents()
    result = q(*args, stdin=stdin)
    refused(result, code, *words)
    assert q.contents() == before
    return result


# -- enqueue: one JSON object ----------------------------------------------------------------------------

BROKEN_JSON = {
    "cut off": ('{"command": "true"', "column"),
    "trailing comma": ('{"command": "true",}', "column"),
    "single quotes": ("{'command': 'true'}", "column"),
    "two objects": ('{"command": "true"} {}', "column"),
    "a raw newline in a string": ('{"command": "a\nb"}', "column"),
    "empty": ("{}", "command"),
    "NaN": ('{"command": "true", "timeout": NaN}', "NaN"),
    "Infinity": ('{"command": "true", "timeout": Infinity}', "Infinity"),
    "-Infinity": ('{"command": "true", "timeout": -Infinity}', "-Infinity"),
    "a number beyond floats": ('{"command": "true", "timeout": 1e999}', "timeout"),
    "a number of 5,000 digits": ('{"command": "true", "priority": 1' + "0" * 5000 + "}", "number"),
    "a number of 400 digits": ('{"command": "true", "backoff_base": 1' + "0" * 400 + "}", "backoff_base"),
    "a field twice": ('{"command": "true", "command": "false"}', '"command"'),
    "a variable twice": ('{"command": "true", "env": {"A": "1", "A": "2"}}', '"A"'),
}


@pytest.mark.parametrize("name", BROKEN_JSON)
def test_broken_json_is_refused(stored: Cli, name: str) -> None:
    text, word = BROKEN_JSON[name]
    refuses(stored, ("enqueue", text), BAD, word)


LONG = "x" * 129
WRONG: dict[str, list[Any]] = {
    "command": [None, 5, True, ["true"], {}, "", "  \t\n", "a\0b", "\ud800"],
    "id": [
        5,
        True,
        [],
        "",
        "../../x",
        "/etc/passwd",
        "a b",
        "-a",
        ".a",
        "é",
        LONG,
        "a\0",
        "a\x1b[31m",
        "a\n",
        "\ud800",
    ],
    "queue": [5, True, [], "", "../x", "a b", "é", LONG, "a\0b"],
    "priority": ["5", 1.5, True, False, 0.0, [], 2**31, -(2**31), 10**30],
    "max_retries": ["5", 1.5, True, [], -1, 10**30],
    "backoff_base": ["2", True, [], -1, 1001],
    "timeout_seconds": [True, [], -1, "", "soon", "-5s", "5x", 10**30, "200y", "99999999d"],
    "run_at": [True, [], -5, 1e10, "", "soon", "25:00", "12:61", "9:00:00:99", "tomorrow", "2026-13-01", "-5m", "in"],
    "cwd": [5, [], "a\0b", "\ud800"],
    "env": [
        "A=1",
        [],
        5,
        {"": "x"},
        {"A=B": "x"},
        {"A": 1},
        {"A": None},
        {"A\0": "x"},
        {"A": "x\0"},
        {"A": "\ud800"},
    ],
    "tags": ["nightly", "", 5, 0, False, {}, {"a": 1}, [1], [""], ["a b"], ["a\n"], [LONG], ["a\0"]],
}


@pytest.mark.parametrize(
    ("field", "value"), [pytest.param(f, v, id=f"{f}-{v!a:.20}") for f, values in WRONG.items() for v in values]
)
def test_a_wrong_value_is_refused_and_its_field_named(stored: Cli, field: str, value: Any) -> None:
    text = json.dumps({"command": "true", field: value})
    result = refuses(stored, ("enqueue", text), BAD)
    if field not in ("timeout_seconds", "run_at"):  # a bad time is shown itself
        assert field.rstrip("s") in result.err


@pytest.mark.parametrize("field", ["state", "attempts", "worker_id", "created_at", "log_path", "stdout"])
def test_a_field_that_queuectl_writes_is_refused(stored: Cli, field: str) -> None:
    refuses(stored, ("enqueue", json.dumps({"command": "true", field: "x"})), BAD, f'"{field}"', "leave it out")


@pytest.mark.parametrize(
    ("field", "meant"),
    [("retries", "max_retries"), ("comand", "command"), ("prio", "priority"), ("timeout_second", "timeout_seconds")],
)
def test_an_unknown_field_is_refused_with_a_suggestion(stored: Cli, field: str, meant: str) -> None:
    refuses(stored, ("enqueue", json.dumps({"command": "true", field: 1})), BAD, f'"{field}"', f'"{meant}"')


def test_an_unknown_field_like_no_other_gets_the_list_of_fields(stored: Cli) -> None:
    refuses(stored, ("enqueue", '{"command": "true", "xyzzy": 1}'), BAD, '"xyzzy"', "backoff_base", "timeout_seconds")


@pytest.mark.parametrize(
    "twice",
    [
        {"command": "true", "cmd": "true"},
        {"command": "true", "backoff_base": 1, "base_backoff": 1},
        {"command": "true", "timeout": 1, "timeout_seconds": 1},
        {"command": "true", "available_at": "5s", "next_run_at": "5s"},
        {"command": "true", "run_at": "5s", "next_run_at": "5s"},
    ],
)
def test_two_names_of_one_field_are_refused(stored: Cli, twice: dict[str, Any]) -> None:
    refuses(stored, ("enqueue", json.dumps(twice)), BAD, "both")


def test_a_field_given_in_json_and_as_an_option_is_refused(stored: Cli) -> None:
    refuses(stored, ("enqueue", "--timeout", "5", '{"command": "true", "timeout": 6}'), BAD, "timeout_seconds")


def test_a_taken_id_is_a_conflict(stored: Cli) -> None:
    refuses(stored, ("enqueue", '{"command": "true", "id": "done"}'), CONFLICT, '"done"', "completed")
    refuses(stored, ("enqueue", "--id", "waiting", "true"), CONFLICT, '"waiting"', "pending")


# -- enqueue: options and words --------------------------------------------------------------------------

BAD_ENQUEUE: list[tuple[str, ...]] = [
    (),
    ("",),
    ("  ",),
    (NOT_UTF8,),
    ("echo", f"a{NOT_UTF8}"),
    ("--id", "../../x", "true"),
    ("--id", LONG, "true"),
    ("--id", "é", "true"),
    ("--id", NOT_UTF8, "true"),
    ("--id",),
    ("--queue", "../x", "true"),
    ("--queue", "", "true"),
    ("--queue", NOT_UTF8, "true"),
    ("--priority", "high", "true"),
    ("--priority", "1.5", "true"),
    ("--priority", "99999999999", "true"),
    ("--priority", "9" * 5000, "true"),
    ("--max-retries", "-1", "true"),
    ("--max-retries", "many", "true"),
    ("--max-retries", "99999999", "true"),
    ("--backoff-base", "-1", "true"),
    ("--backoff-base", "nan", "true"),
    ("--backoff-base", "inf", "true"),
    ("--backoff-base", "two", "true"),
    ("--timeout", "-1", "true"),
    ("--timeout", "", "true"),
    ("--timeout", "nan", "true"),
    ("--timeout", "forever", "true"),
    ("--at", "", "true"),
    ("--at", "25:00", "true"),
    ("--at", "2026-02-30 09:00", "true"),
    ("--at", "tomorrow", "true"),
    ("--at", "yesterday 9:00", "true"),
    ("--at", NOT_UTF8, "true"),
    ("--at", "9" * 400, "true"),
    ("--delay", "", "true"),
    ("--delay", "-5", "true"),
    ("--delay", "soon", "true"),
    ("--delay", "1.2.3", "true"),
    ("--delay", "999999999d", "true"),
    ("--at", "09:00", "--delay", "5m", "true"),
    ("--cwd", NOT_UTF8, "true"),
    ("--env", "NAME", "true"),
    ("--env", "=value", "true"),
    ("--env", f"NAME={NOT_UTF8}", "true"),
    ("--tag", "", "true"),
    ("--tag", "a b", "true"),
    ("--tag", LONG, "true"),
    ("--tag", NOT_UTF8, "true"),
    ("--file",),
    ("--file", "nowhere.jsonl"),
    ("--file", "."),
    ("--file", NOT_UTF8),
    ("--file", "nowhere.jsonl", "true"),
    ("--lines", "true"),
    ("--id", "x", "-"),
    ("-",),
    ("--lines", "-"),
    ("--json=yes", "true"),
    ("--quiet=yes", "true"),
]


@pytest.mark.parametrize("args", BAD_ENQUEUE, ids=lambda args: f"{' '.join(args)!a:.40}")
def test_a_bad_enqueue_is_refused(stored: Cli, args: tuple[str, ...]) -> None:
    refuses(stored, ("enqueue", *args), BAD)


def test_an_unknown_option_of_enqueue_gets_the_spelling_that_works(stored: Cli) -> None:
    refuses(stored, ("enqueue", "ls", "-l", "a b"), BAD, "-l", "queuectl enqueue -- ls -l 'a b'")


# -- enqueue: batches ------------------------------------------------------------------------------------

GOOD = '{"command": "true"}\n'
BAD_LINES = {
    "broken": "{",
    "array": '["true"]',
    "text": '"true"',
    "number": "5",
    "null": "null",
    "a plain command": "echo hello",
    "blank command": '{"command": " "}',
    "unknown field": '{"command": "true", "retries": 3}',
    "wrong type": '{"command": "true", "priority": "high"}',
    "NUL": '{"command": "a\\u0000b"}',
    "lone surrogate": '{"command": "\\ud800"}',
    "100,000 levels deep": '{"command": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "100,000 objects deep": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a command over 1 MiB": json.dumps({"command": "x" * (2**20 + 1)}),
    "a line over 4 MiB": json.dumps({"command": "x" * (4 * 2**20 + 1)}),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named_and_nothing_of_its_batch_is_stored(stored: Cli, name: str) -> None:
    batch = GOOD + "\n" + GOOD + BAD_LINES[name] + "\n" + GOOD
    refuses(stored, ("enqueue", "-"), BAD, "line 4", stdin=batch)


def test_a_bad_line_of_a_file_is_named(stored: Cli) -> None:
    (stored.folder / "jobs.jsonl").write_text(GOOD + "{\n")
    refuses(stored, ("enqueue", "-f", "jobs.jsonl"), BAD, "line 2")


def test_a_plain_command_that_cannot_be_run_is_named_by_its_line(stored: Cli) -> None:
    refuses(stored, ("enqueue", "--lines", "-"), BAD, "line 3", "NUL", stdin="true\n\na\0b\n")


def test_a_line_that_is_no_utf8_is_named(stored: Cli) -> None:
    refuses(stored, ("enqueue", "--lines", "-"), BAD, "UTF-8", "line 2", stdin=b"true\necho \xff\n")
    (stored.folder / "latin1").write_bytes(b'{"command": "true"}\n{"command": "echo \xe9"}\n')
    refuses(stored, ("enqueue", "-f", "latin1"), BAD, "UTF-8", "line 2")


def test_an_id_used_twice_in_a_batch_is_a_conflict_that_names_the_line(stored: Cli) -> None:
    batch = GOOD + '{"command": "true", "id": "same"}\n' + GOOD + '{"command": "true", "id": "same"}\n'
    refuses(stored, ("enqueue", "-"), CONFLICT, "line 4", '"same"', stdin=batch)


def test_an_id_that_is_stored_already_is_a_conflict_that_names_the_line(stored: Cli) -> None:
    refuses(
        stored, ("enqueue", "-"), CONFLICT, "line 2", '"dead"', stdin=GOOD + '{"command": "true", "id": "dead"}\n'
    )


# -- every other command ---------------------------------------------------------------------------------

USAGE: list[tuple[str, ...]] = [
    ("--bogus",),
    ("--db",),
    ("list", "--bogus"),
    ("list", "surplus"),
    ("list", "--limit", "-1"),
    ("list", "--limit", "many"),
    ("list", "--limit"),
    ("list", "--state", "nonsense"),
    ("list", "--state", NOT_UTF8),
    ("dlq", "nonsense"),
    ("dlq", "list", "--limit", "-1"),
    ("dlq", "retry"),
    ("dlq", "retry", "--all", "dead"),
    ("show",),
    ("show", "done", "dead"),
    ("show", "wait"),  # could be either of two
    ("logs",),
    ("logs", "done", "--tail", "-1"),
    ("logs", "done", "--tail", "few"),
    ("history",),
    ("explain",),
    ("cancel",),
    ("wait",),
    ("wait", "--all", "done"),
    ("wait", "done", "--timeout", "soon"),
    ("wait", "done", "--timeout", "-1"),
    ("status", "surplus"),
    ("metrics", "surplus"),
    ("prune",),
    ("prune", "--older-than", "old"),
    ("prune", "--older-than", ""),
    ("prune", "--older-than", "1d", "--state", "pending"),
    ("prune", "--older-than", "1d", "--state", "nonsense"),
    ("backup",),
    ("doctor", "surplus"),
    ("completion",),
    ("completion", "tcsh"),
    ("worker", "nonsense"),
    ("worker", "start", "--count", "0"),
    ("worker", "start", "--count", "-1"),
    ("worker", "start", "--count", "abc"),
    ("worker", "start", "--count", "1.5"),
    ("worker", "start", "--count", "1000000"),
    ("worker", "start", "--concurrency", "0"),
    ("worker", "start", "--concurrency", "abc"),
    ("worker", "start", "--queue", "../x"),
    ("worker", "start", "--queue", ""),
    ("worker", "start", "--queue", NOT_UTF8),
    ("worker", "start", "surplus"),
    ("worker", "stop", "--timeout", "soon"),
    ("worker", "list", "surplus"),
    ("config", "nonsense"),
    ("config", "get"),
    ("config", "get", "nonsense"),
    ("config", "get", NOT_UTF8),
    ("config", "set", "max_retries"),
    ("config", "set", "max_retries", "5", "6"),
    ("config", "set", "nonsense", "5"),
    ("config", "unset"),
    ("config", "unset", "nonsense"),
]


@pytest.mark.parametrize("args", USAGE, ids=lambda args: f"{' '.join(args)!a:.40}")
def test_bad_usage_is_refused(stored: Cli, args: tuple[str, ...]) -> None:
    refuses(stored, args, BAD)


@pytest.mark.parametrize("group", ["worker", "dlq", "config"])
def test_a_group_without_a_command_says_briefly_that_one_is_missing(stored: Cli, group: str) -> None:
    result = refuses(stored, (group,), BAD)
    assert len(result.err) < 200, result


@pytest.mark.parametrize(("typed", "meant"), [("enqeue", "enqueue"), ("stats", "status"), ("log", "logs")])
def test_an_unknown_command_is_refused_with_a_suggestion(stored: Cli, typed: str, meant: str) -> None:
    refuses(stored, (typed,), BAD, f'"{typed}"', f'"{meant}"')


def test_an_unknown_command_like_no_other_gets_the_list_of_commands(stored: Cli) -> None:
    refuses(stored, ("xyzzy",), BAD, '"xyzzy"', "enqueue", "worker")


TAKES_AN_ID = [("show",), ("logs",), ("history",), ("explain",), ("cancel",), ("wait",), ("dlq", "retry")]


@pytest.mark.parametrize("command", TAKES_AN_ID, ids=" ".join)
def test_a_job_that_is_not_there_is_not_found(stored: Cli, command: tuple[str, ...]) -> None:
    for id in ("nowhere", "do", "../../x", "", "@first", "x" * 1000, "%"):
        refuses(stored, (*command, id), MISSING)


def test_an_id_that_is_no_utf8_is_not_found(stored: Cli) -> None:
    for command in TAKES_AN_ID:
        refuses(stored, (*command, NOT_UTF8), MISSING)


@pytest.mark.parametrize("args", [("dlq", "purge", "--yes", "nowhere"), ("worker", "stop", "nowhere")], ids=" ".join)
def test_what_is_not_there_is_not_found(stored: Cli, args: tuple[str, ...]) -> None:
    refuses(stored, args, MISSING, '"nowhere"')


@pytest.mark.parametrize(
    "command", [("list", "--limit"), ("dlq", "list", "--limit"), ("logs", "done", "--tail")], ids=" ".join
)
def test_a_number_beyond_all_bounds_means_all_or_is_refused(stored: Cli, command: tuple[str, ...]) -> None:
    result = stored(*command, "9" * 30)
    if result.code:
        refused(result, BAD)


@pytest.mark.parametrize("option", ["--queue", "--tag"])
def test_a_filter_that_is_no_utf8_matches_nothing_or_is_refused(stored: Cli, option: str) -> None:
    result = stored("list", option, NOT_UTF8)
    if result.code:
        refused(result, BAD)
    assert "bug in queuectl" not in result.err


def test_the_last_job_of_an_empty_queue_is_not_found(q: Cli) -> None:
    refused(q("show", "@last"), MISSING)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("cancel", "done"), "completed"),
        (("cancel", "dead"), "dead"),
        (("cancel", "waiting", "done"), "completed"),
        (("dlq", "retry", "done"), "completed"),
        (("dlq", "retry", "waiting"), "pending"),
        (("dlq", "retry", "dead", "done"), "completed"),
        (("dlq", "purge", "--yes", "done"), "completed"),
        (("dlq", "purge", "--yes", "dead", "waiting"), "pending"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_job_in_the_wrong_state_is_a_conflict_and_its_neighbours_stay(
    stored: Cli, args: tuple[str, ...], says: str
) -> None:
    refuses(stored, args, CONFLICT, says)


@pytest.mark.parametrize(
    ("key", "values"),
    {
        "max_retries": ["-1", "1.5", "many", "", "nan", "1000001", "9" * 5000, "²", "0x10", NOT_UTF8],
        "backoff_base": ["-0.1", "1001", "two", "nan", "inf"],
        "backoff_max": ["-1", "inf", "1e400"],
        "backoff_jitter": ["-0.1", "1.1", "some"],
        "job_timeout": ["-1", "never"],
        "worker_poll_interval": ["0", "-1", "3601"],
        "poll-interval": ["0"],
        "crash_limit": ["0", "-1", "1.5"],
        "lease_timeout": ["0", "-1"],
        "kill_grace": ["-1", "86401"],
        "output_limit": ["-1", "1.5", "1000001"],
        "log_max_bytes": ["0", "1023", "-1", "1.5", "9" * 30],
        "retention_days": ["-1", "36501"],
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_setting_is_refused_with_its_range(stored: Cli, key: str, values: list[str]) -> None:
    for value in values:
        refuses(stored, ("config", "set", key, value), BAD, key.replace("-", "_"), "from", "to")


def test_a_misspelled_setting_is_refused_with_a_suggestion(stored: Cli) -> None:
    refuses(stored, ("config", "set", "max_retry", "5"), BAD, '"max_retries"')
    refuses(stored, ("config", "set", "xyzzy", "5"), BAD, "kill_grace", "retention_days")


# -- files and states that stand in the way --------------------------------------------------------------


def test_backup_never_overwrites(stored: Cli) -> None:
    target = stored.folder / "precious"
    target.write_text("precious")
    refuses(stored, ("backup", str(target)), CONFLICT, "precious")
    assert target.read_text() == "precious"


def test_backup_into_a_folder_that_is_not_there_is_refused(stored: Cli) -> None:
    result = stored("backup", "nowhere/copy.db")
    refused(result, result.code, "nowhere/copy.db")
    assert result.code in (BAD, DATABASE)


def test_reset_is_refused_while_workers_run(q: Cli) -> None:
    id = q.enqueue(UNTIL_GO)
    q.ok("worker", "start")
    q.until(id, "processing")
    refused(q("reset", "--yes"), CONFLICT, "worker stop")
    (q.folder / "go").touch()
    assert q("wait", id).code == 0


@pytest.mark.parametrize("options", [(), ("--yes",), ("--all", "dead")], ids=" ".join)
def test_a_purge_of_nothing_named_is_refused(stored: Cli, options: tuple[str, ...]) -> None:
    """What a command substitution that comes back empty asks for is not "all"."""
    refuses(stored, ("dlq", "purge", *options), BAD, "--all")


def test_a_reset_that_nobody_can_be_asked_about_is_refused(stored: Cli) -> None:
    refuses(stored, ("reset",), BAD, "--yes", stdin="y\n")


@pytest.mark.parametrize("command", [("reset",), ("dlq", "purge", "--all")], ids=" ".join)
def test_deleting_asks_first_and_takes_no_for_an_answer(stored: Cli, command: tuple[str, ...]) -> None:
    before = stored.contents()
    for answer in ("n\n", "\n", "\x04"):  # the last is end-of-file, Ctrl-D
        seen = stored.on_terminal(*command, typed=answer)
        assert "Delete" in seen
        assert "Deleted" not in seen
        assert "Traceback" not in seen
    assert stored.contents() == before


def test_no_worker_is_left_behind_by_a_start_that_was_refused(stored: Cli) -> None:
    refused(stored("worker", "start", "--count", "2", "--queue", "good", "--queue", "../bad"), BAD)
    assert stored.workers() == []


# -- the database ----------------------------------------------------------------------------------------

ANY_COMMAND: list[tuple[str, ...]] = [
    ("enqueue", "true"),
    ("enqueue", "--json", "true"),
    ("list",),
    ("status", "--json"),
    ("worker", "start"),
    ("config", "set", "max_retries", "5"),
    (),
]


def is_a_finding(result: Result, *words: str) -> None:
    """What others refuse to work with, `doctor` reports on."""
    assert (result.code, result.err) == (1, "")
    for word in ("BAD", "→", *words):
        assert word in result.out


@pytest.mark.parametrize(
    "place", ["a-folder", "a-file/queue.db", "/proc/queue.db", "/dev/null/queue.db", "not-a-database"]
)
def test_an_unusable_database_is_refused(q: Cli, place: str) -> None:
    (q.folder / "a-folder").mkdir()
    (q.folder / "a-file").write_text("")
    (q.folder / "not-a-database").write_text("this is no database " * 100)
    for args in ANY_COMMAND:
        refused(q("--db", place, *args), DATABASE, place.rpartition("/")[2])
    is_a_finding(q("--db", place, "doctor"), place.rpartition("/")[2])
    assert (q.folder / "not-a-database").read_text() == "this is no database " * 100


@pytest.mark.parametrize("version", [0, 1, 7])  # programs often number their schemas as we do
def test_a_foreign_database_is_refused_and_left_alone(q: Cli, version: int) -> None:
    path = q.folder / "foreign.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE treasure (gold)")
        database.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    for args in ANY_COMMAND:
        refused(q("--db", str(path), *args), DATABASE, "not a queuectl database")
    is_a_finding(q("--db", str(path), "doctor"), "not a queuectl database")
    assert path.read_bytes() == before


@on_sqlite
def test_a_database_of_a_newer_version_is_refused_and_left_alone(q: Cli) -> None:
    q.enqueue("true")
    with closing(sqlite3.connect(q.db)) as database:
        database.execute("PRAGMA user_version = 999")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = q.db.read_bytes()
    for args in ANY_COMMAND:
        refused(q(*args), DATABASE, "newer")
    is_a_finding(q("doctor"), "newer")
    assert q.db.read_bytes() == before


@on_sqlite
def test_a_damaged_database_is_refused(q: Cli) -> None:
    q.enqueue("true")
    with closing(sqlite3.connect(q.db)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(q.db.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    q.db.write_bytes(data)
    for args in ANY_COMMAND:
        if args != ("worker", "start"):  # its workers would wait for better times
            refused(q(*args), DATABASE, "damaged")
    is_a_finding(q("doctor"), "damaged")


@on_sqlite
def test_a_locked_database_is_waited_for_and_then_refused(q: Cli) -> None:
    q.enqueue("true")
    with closing(sqlite3.connect(q.db, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        refused(q("enqueue", "true"), DATABASE, "locked", "try again")
        assert q.json("status")["jobs"]["pending"] == 1  # looking is still possible
        database.execute("ROLLBACK")
    assert q.json("status")["jobs"]["pending"] == 1


@pytest.mark.parametrize("url", ["", "sqlite://", "sqlite:///", "folder/", "mysql://host/db"])
def test_an_address_that_names_no_database_is_refused(q: Cli, url: str) -> None:
    refused(q("--db", url, "list"), BAD)


def test_a_database_name_that_is_no_utf8_is_served_or_refused(q: Cli) -> None:
    result = q("--db", f"queue-{NOT_UTF8}.db", "enqueue", "true")
    if result.code:
        refused(result, result.code)
        assert result.code in (BAD, DATABASE)


# -- where the answer goes -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["list", "status --json", "show done", "list --help", "metrics --prometheus"])
def test_a_full_disk_under_the_output_is_an_error_and_no_bug(stored: Cli, command: str) -> None:
    result = stored.shell(f"queuectl {command} > /dev/full")
    assert result.code != 0
    refused(result, result.code)


@pytest.mark.parametrize("command", ["list", "status --json", "list --help"])
def test_a_closed_output_causes_no_traceback(stored: Cli, command: str) -> None:
    result = stored.shell(f"queuectl {command} >&-")
    assert "Traceback" not in result.err
    assert "bug in queuectl" not in result.err


def test_a_job_is_stored_even_if_that_cannot_be_said(q: Cli) -> None:
    result = q.shell("queuectl enqueue --id kept true > /dev/full")
    assert "Traceback" not in result.err
    assert "bug in queuectl" not in result.err
    assert q.state("kept") == "pending"
