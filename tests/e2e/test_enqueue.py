"""Every way to enqueue, what it answers, and what the job is given."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuectl.system.times import span
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import UNTIL_GO, Cli, on_sqlite, refused

NO_WORKER = "No worker is running"


# -- spellings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("--priority", "5", "--queue", "mail", "echo hi"),
        ("--priority=5", "--queue=mail", "echo hi"),
        ("-p", "5", "-q", "mail", "echo hi"),
        ("echo hi", "--priority", "5", "--queue", "mail"),
        ("--priority", "5", "echo hi", "--queue", "mail"),
        ("--priority", "5", "--queue", "mail", "--", "echo hi"),
        ("--priority", "5", "--queue", "mail", "--", "echo", "hi"),
        ("--priority", "5", "--queue", "mail", "echo", "hi"),
        ('{"command": "echo hi", "priority": 5, "queue": "mail"}',),
        (' {"cmd": "echo hi", "priority": 5}', "--queue", "mail"),
    ],
)
@pytest.mark.parametrize("answer", ["--quiet", "--json"])  # the short way through the program, and the long one
def test_all_spellings_mean_the_same(q: Cli, args: tuple[str, ...], answer: str) -> None:
    q.ok("enqueue", answer, *args)
    job = q.job("@last")
    assert (job["command"], job["priority"], job["queue"]) == ("echo hi", 5, "mail")


def test_options_stand_before_or_after_and_set_every_field(q: Cli) -> None:
    q.ok(
        "enqueue", "--id", "full", "--queue", "mail", "--priority", "-3", "--max-retries", "7",
        "--backoff-base", "1.5", "make", "--timeout", "1m30s", "--at", "2030-01-02T03:04:05Z", "--cwd", "sub/..",
        "--env", "A=1", "--env", "B=x=y", "--tag", "nightly", "--tag", "eu",
    )  # fmt: skip
    job = q.job("full")
    wanted: dict[str, Any] = {
        "command": "make", "queue": "mail", "state": "pending", "priority": -3, "attempts": 0, "crashes": 0,
        "max_retries": 7, "backoff_base": 1.5, "timeout_seconds": 90, "run_at": "2030-01-02T03:04:05.000Z",
        "cwd": str(q.folder), "env": {"A": "1", "B": "x=y"}, "exit_code": None, "error": None,
    }  # fmt: skip
    assert {key: job[key] for key in wanted} == wanted
    assert sorted(job["tags"]) == ["eu", "nightly"]


def test_json_takes_every_field_and_alias(q: Cli) -> None:
    q.ok(
        "enqueue",
        '{"cmd": "true", "id": "a", "base_backoff": 3, "timeout": "5m", "available_at": "2030-01-01T00:00Z"}',
    )
    q.ok("enqueue", '{"cmd": "true", "id": "b", "timeout_seconds": 2.5, "next_run_at": 3600, "env": {"A": "1"}}')
    q.ok("enqueue", '{"command": "true", "id": "c", "tags": ["x"], "cwd": "/", "max_retries": 0, "run_at": null}')
    a, b, c = (q.job(id) for id in "abc")
    assert (a["backoff_base"], a["timeout_seconds"], a["run_at"]) == (3, 300, "2030-01-01T00:00:00.000Z")
    assert (b["timeout_seconds"], b["env"]) == (2.5, {"A": "1"})
    assert moment(b["run_at"]) - moment(b["created_at"]) == pytest.approx(3600, abs=60)
    assert (c["tags"], c["cwd"], c["max_retries"]) == (["x"], "/", 0)


def test_what_a_job_leaves_open_comes_from_the_settings(q: Cli) -> None:
    for key, value in (("max-retries", "9"), ("backoff_base", "4"), ("job_timeout", "77")):
        q.ok("config", "set", key, value)
    job = q.job(q.enqueue("true"))
    assert (job["max_retries"], job["backoff_base"], job["timeout_seconds"]) == (9, 4, 77)
    assert job["queue"] == "default"
    assert q.job(q.enqueue("true", timeout=0))["timeout_seconds"] is None


WORDS = ["a b", "", "it's", '"', "$HOME", "*", "é ☃", "-n", "--json", "\\", "a\nb", ";", "|", "#", "~", "{", "=", "!"]


def test_several_words_reach_the_command_exactly(working: Cli) -> None:
    working.ok("enqueue", "--quiet", "--", "printf", "[%s]", *WORDS)
    job = working.finished("@last")
    assert job["stdout"] == "".join(f"[{word}]" for word in WORDS)


def test_one_word_is_shell_text(working: Cli) -> None:
    working.ok("enqueue", "x='grün'; echo \"$x\" | tr a-z A-Z && echo done")
    assert working.finished("@last")["stdout"].splitlines()[-1] == "done"


def test_a_command_may_begin_with_a_dash_or_a_plus(working: Cli) -> None:
    for name in ("-run", "+run"):
        script = working.folder / name
        script.write_text("#!/bin/sh\necho ran $0\n")
        script.chmod(0o700)
        working.ok("enqueue", "--env", f"PATH={working.folder}:/bin:/usr/bin", "--", name)
        job = working.finished("@last")
        assert (job["state"], job["stdout"]) == ("completed", f"ran {working.folder}/{name}\n")


def test_unicode_commands_survive_the_round_trip(working: Cli) -> None:
    text = "echo 'naïve ☃ 日本語 🐍 \u202e'"
    working.ok("enqueue", "--wait", text)
    job = working.job("@last")
    assert job["command"] == text
    assert job["stdout"] == "naïve ☃ 日本語 🐍 \u202e\n"


def test_the_command_may_be_of_several_lines(working: Cli) -> None:
    assert (
        working("enqueue", "--wait", "--quiet", "a=1\nif [ $a = 1 ]\nthen exit 7\nfi", "--max-retries", "1").code == 7
    )


# -- batches ---------------------------------------------------------------------------------------------

LINES = '{"command": "echo 1", "id": "one"}\n\n  {"cmd": "echo 2", "id": "two", "priority": 3}  \r\n'


@pytest.mark.parametrize("spelling", [("-f", "jobs"), ("--file=jobs",), ("-f", "-"), ("-",)], ids=" ".join)
def test_many_jobs_come_from_a_file_or_from_standard_input(q: Cli, spelling: tuple[str, ...]) -> None:
    (q.folder / "jobs").write_text(LINES)
    assert q.ok("enqueue", *spelling, stdin=LINES) == "Enqueued 2 jobs.\n"
    assert [(job["id"], job["command"]) for job in q.json("list")] == [("two", "echo 2"), ("one", "echo 1")]


@pytest.mark.parametrize("spelling", [("--lines", "-"), ("--lines",), ("-f", "jobs", "--lines")], ids=" ".join)
def test_plain_commands_come_one_a_line(q: Cli, spelling: tuple[str, ...]) -> None:
    text = "echo 'a b'\n\n{ echo grouped; }\n  -x --y \nlast without an end"
    (q.folder / "jobs").write_text(text)
    q.ok("enqueue", *spelling, stdin=text)
    commands = [job["command"] for job in q.json("list")]
    assert commands == ["last without an end", "-x --y", "{ echo grouped; }", "echo 'a b'"]


def test_options_fill_in_what_the_lines_of_a_batch_leave_open(q: Cli) -> None:
    q.ok("enqueue", "--priority", "7", "--queue", "bulk", "--tag", "import", "-", stdin=LINES)
    one, two = q.job("one"), q.job("two")
    assert (one["priority"], one["queue"], one["tags"]) == (7, "bulk", ["import"])
    assert (two["priority"], two["queue"], two["tags"]) == (3, "bulk", ["import"])


def test_a_batch_answers_with_its_ids(q: Cli) -> None:
    assert q.ok("enqueue", "--quiet", "-", stdin=LINES) == "one\ntwo\n"
    more = json.loads(q.ok("enqueue", "--json", "--lines", "-", stdin="true\ntrue\n"))
    assert [job["id"] for job in reversed(q.json("list", "--limit", "2"))] == more


def test_twenty_thousand_lines_are_stored_all_or_not_at_all(q: Cli) -> None:
    lines = [json.dumps({"command": "true", "id": f"job{n}"}) for n in range(20_000)]
    refused(q("enqueue", "-", stdin="\n".join([*lines, '{"command": 5}'])), 2, "line 20001")
    refused(q("enqueue", "-", stdin="\n".join([*lines, lines[7]])), 4, "line 20001", "job7")
    assert sum(q.json("status")["jobs"].values()) == 0
    assert q.ok("enqueue", "-", stdin="\n".join(lines)) == "Enqueued 20,000 jobs.\n"
    assert q.json("status")["jobs"]["pending"] == 20_000


def test_waiting_for_a_batch_tells_whether_all_of_it_completed(working: Cli) -> None:
    assert working("enqueue", "--wait", "--lines", "-", stdin="true\ntrue\n").code == 0
    failed = working("enqueue", "--wait", "--max-retries", "1", "--lines", "-", stdin="true\nfalse\n")
    assert failed.code == 1
    assert working.job("@last")["id"] in failed.err


def test_commands_that_meet_at_a_new_queue_share_it_and_lose_nothing(q: Cli) -> None:
    for name in ("a", "b", "c", "d", "e"):
        db = f"{name}/queue.db"
        commands = [q.start("enqueue", "--db", db, "--id", f"job{number % 5}", "true") for number in range(10)]
        ended = [(command.communicate(timeout=DEADLINE)[1], command.returncode) for command in commands]
        assert sorted(code for _, code in ended) == [0] * 5 + [4] * 5, ended
        assert {job["id"] for job in q.json("list", "--db", db)} == {f"job{number}" for number in range(5)}


# -- ids -------------------------------------------------------------------------------------------------


def test_a_generated_id_is_ten_characters_of_base32(q: Cli) -> None:
    ids = q.batch(*[{"command": "true"}] * 50)
    assert len(set(ids)) == 50
    assert all(re.fullmatch("[a-z2-7]{10}", id) for id in ids)


@pytest.mark.parametrize("id", ["a", "0", "Job-1.2:3+4", "x" * 128, "UPPER", "trailing.", "a..b", "last"])
def test_every_id_of_the_alphabet_is_taken(q: Cli, id: str) -> None:
    assert q.ok("enqueue", "--quiet", "--id", id, "true") == f"{id}\n"
    assert q.job(id)["log_path"] == str(q.logs / f"job_{id}.log")


def test_a_job_is_found_by_its_beginning_and_as_the_last(q: Cli) -> None:
    q.batch(
        {"id": "alpha-1", "command": "true"}, {"id": "alpha-10", "command": "true"}, {"id": "beta", "command": "x"}
    )
    assert q.job("bet")["id"] == q.job("@last")["id"] == "beta"
    assert q.job("alpha-1")["id"] == "alpha-1"  # a full id wins over what it begins
    assert q.job("alpha-10")["id"] == "alpha-10"
    refused(q("show", "alp"), 2, "alpha-1", "alpha-10")
    refused(q("show", "be"), 3)  # too short to be sure


# -- the answer ------------------------------------------------------------------------------------------


def test_the_answer_is_the_id_and_the_command(q: Cli) -> None:
    assert q.ok("enqueue", "--id", "hello", "echo hello") == "Enqueued hello: echo hello\n"
    assert q.ok("enqueue", "--id", "esc", "echo \x1b[31m") == "Enqueued esc: echo \\x1b[31m\n"


def test_quiet_means_the_id_only(q: Cli) -> None:
    assert q.ok("enqueue", "--quiet", "--id", "hello", "--delay", "1h", "true") == "hello\n"


def test_json_means_the_stored_job(q: Cli) -> None:
    job = json.loads(q.ok("enqueue", "--json", "echo hello"))
    assert (job["command"], job["state"]) == ("echo hello", "pending")
    assert job == q.job(job["id"])


def test_json_and_wait_print_one_document_at_the_end(working: Cli) -> None:
    job = json.loads(working.ok("enqueue", "--json", "--wait", "echo hello"))
    assert (job["state"], job["stdout"]) == ("completed", "hello\n")


def test_a_missing_worker_is_mentioned_and_a_running_one_is_not(q: Cli) -> None:
    lonely = q("enqueue", "--quiet", "true")
    assert NO_WORKER in lonely.err
    assert NO_WORKER not in lonely.out
    assert NO_WORKER in q("enqueue", "--lines", "-", stdin="true\n").err
    q.ok("worker", "start")
    assert q("enqueue", "true").err == ""
    q.ok("worker", "stop")
    assert NO_WORKER in q("enqueue", "true").err


def test_a_queue_that_nobody_serves_is_mentioned(q: Cli) -> None:
    q.ok("worker", "start", "--queue", "mail")
    assert "serves" not in q("enqueue", "--queue", "mail", "true").err
    unserved = 'No worker serves the queue "videos". Start one: queuectl worker start --queue videos'
    assert unserved in q("enqueue", "--queue", "videos", "--id", "v", "true").err
    assert unserved in q("enqueue", "--lines", "--queue", "videos", "-", stdin="true\n").err
    assert unserved in q("wait", "v", "--timeout", "0").err


# -- times -----------------------------------------------------------------------------------------------


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2030-01-02 09:00", "2030-01-02T06:00:00.000Z"),
        ("2030-01-02 09:00:07", "2030-01-02T06:00:07.000Z"),
        ("2030-01-02T09:00:00+01:00", "2030-01-02T08:00:00.000Z"),
        ("2030-01-02T09:00:00.123Z", "2030-01-02T09:00:00.123Z"),
        ("2030-01-02", "2030-01-01T21:00:00.000Z"),
    ],
)
def test_a_time_is_local_unless_it_says_otherwise_and_is_echoed_with_its_zone(q: Cli, text: str, stored: str) -> None:
    result = q("enqueue", "--at", text, "true", env={"TZ": "HERE-3"})
    assert q.job("@last")["run_at"] == stored
    local = datetime.fromisoformat(stored) + timedelta(hours=3)
    assert f"It runs at {local:%Y-%m-%d %H:%M:%S} HERE" in result.out


@pytest.mark.parametrize("text", ["09:00", "9:00", "23:59:59", "tomorrow 9:00", "Tomorrow 09:00"])
def test_a_time_of_day_is_the_next_one_or_that_of_tomorrow(q: Cli, text: str) -> None:
    before = datetime.now(UTC)
    q.ok("enqueue", "--at", text, "true")
    due = datetime.fromisoformat(q.job("@last")["run_at"])
    hour = 23 if text.startswith("23") else 9
    assert due.hour == hour
    if "omorrow" in text:
        assert due.date() in {(before + timedelta(days=1)).date(), (datetime.now(UTC) + timedelta(days=1)).date()}
    else:
        assert before < due <= datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800), ("1h 30m", 5400)],
)
@pytest.mark.parametrize("option", ["--delay", "--at"])
def test_a_delay_counts_from_the_moment_it_is_stored_and_is_echoed_as_a_moment(
    q: Cli, option: str, text: str, seconds: int
) -> None:
    if option == "--at" and " " in text:
        text = f"in {text}"
    out = q.ok("enqueue", option, text, "true")
    job = q.job("@last")
    assert moment(job["run_at"]) - moment(job["created_at"]) == pytest.approx(seconds, abs=0.001)
    due = datetime.fromisoformat(job["run_at"])
    assert f"It runs at {due:%Y-%m-%d %H:%M:%S} UTC (in {span(seconds)})." in out


@pytest.mark.parametrize("text", ["0001-01-01", "0100-01-01", "9999-12-31T23:59:59-12:00"])
def test_a_time_far_away_is_refused_or_kept_as_a_valid_moment(q: Cli, text: str) -> None:
    result = q("enqueue", "--at", text, "true")
    if result.code:
        refused(result, 2)
    else:
        assert datetime.fromisoformat(q.job("@last")["run_at"])


def test_a_time_in_the_past_is_due_at_once(working: Cli) -> None:
    assert working("enqueue", "--wait", "--at", "2001-01-01", "true").code == 0


# -- waiting ---------------------------------------------------------------------------------------------


def test_waiting_exits_as_the_job_did(working: Cli) -> None:
    once = ("enqueue", "--wait", "--max-retries", "1")
    assert working(*once, "exit 0").code == 0
    assert working(*once, "exit 3").code == 3
    assert working(*once, "no-such-command-anywhere").code == 127
    assert working(*once, "kill -9 $$").code == 128 + signal.SIGKILL
    assert working(*once, "kill -TERM $$").code == 128 + signal.SIGTERM
    assert working(*once, "--timeout", "0.1", "sleep 1000").code == 124
    assert working(*once, "--cwd", "/nowhere", "true").code == 1


def test_waiting_shows_the_output_of_all_runs_and_the_end(working: Cli) -> None:
    done = working("enqueue", "--wait", "--backoff-base", "0", "--max-retries", "2", "echo out; echo err >&2; exit 5")
    assert done.code == 5
    assert [done.out.count(text) for text in ("out\n", "err\n", "--- START", "--- END")] == [2, 2, 2, 2]
    assert "dead" in done.err
    assert "exit code 5" in done.err


def test_waiting_for_a_cancelled_job_fails(working: Cli) -> None:
    waiting = working.start("enqueue", "--wait", "--id", "held", UNTIL_GO)
    eventually(lambda: working("show", "held").code == 0 and working.state("held") == "processing")
    working.ok("cancel", "held")
    waiting.communicate(timeout=DEADLINE)
    assert waiting.returncode not in (0, 130)


def test_an_interrupted_wait_leaves_the_job_alone(working: Cli) -> None:
    waiting = working.start("enqueue", "--wait", "--id", "held", UNTIL_GO)
    eventually(lambda: working("show", "held").code == 0 and working.state("held") == "processing")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=DEADLINE)
    assert waiting.returncode == 130
    assert b"Traceback" not in err
    (working.folder / "go").touch()
    assert working.finished("held")["state"] == "completed"
    assert working.runs("held") == 1


# -- what the job is given -------------------------------------------------------------------------------


@on_sqlite
def test_a_job_runs_in_the_folder_of_whoever_enqueued_it(working: Cli) -> None:
    elsewhere = working.folder / "else where"
    elsewhere.mkdir()
    assert working("enqueue", "pwd", cwd=elsewhere).code == 0
    assert working.finished("@last")["stdout"] == f"{elsewhere}\n"
    working.ok("enqueue", "--cwd", "else where", "pwd")
    assert working.finished("@last")["stdout"] == f"{elsewhere}\n"


def test_a_job_gets_its_environment(working: Cli) -> None:
    working.ok(
        "enqueue", "--id", "me", "--queue", "mail", "--env", "A=a  b", "--env", "QUEUECTL_JOB_ID=liar",
        "--max-retries", "2", "--backoff-base", "0",
        'echo "$QUEUECTL_JOB_ID $QUEUECTL_ATTEMPT $QUEUECTL_QUEUE $A"; exit 1',
    )  # fmt: skip
    assert working.finished("me")["stdout"] == "me 2 mail a  b\n"
    log = working.ok("logs", "me")
    assert "me 1 mail a  b\n" in log


def test_a_job_reads_nothing_from_standard_input(working: Cli) -> None:
    working.ok("enqueue", "cat; read line || echo empty", stdin="not for the job\n")
    assert working.finished("@last")["stdout"] == "empty\n"


def test_a_job_may_be_enqueued_from_a_folder_that_is_gone(working: Cli) -> None:
    result = working.shell("mkdir brief && cd brief && rmdir ../brief && queuectl enqueue --wait --quiet true")
    assert result.code == 0, result


# -- where the queue lives -------------------------------------------------------------------------------


@on_sqlite
def test_the_queue_is_the_option_then_the_variable_then_the_users_own(q: Cli) -> None:
    q.ok("enqueue", "--id", "by-variable", "true")
    q.ok("enqueue", "--id", "after", "true", "--db", "option.db")
    q.ok("--db", "option.db", "enqueue", "--id", "before", "true")
    q.ok("enqueue", "--id", "by-url", "true", "--db", f"sqlite:///{q.folder}/url.db")
    q.ok("enqueue", "--id", "by-relative-url", "true", "--db", "sqlite:///url.db")
    assert q("enqueue", "--id", "own", "true", env={"QUEUECTL_DB": ""}).code == 0
    places = {
        str(q.db): ["by-variable"],
        "option.db": ["before", "after"],
        "url.db": ["by-relative-url", "by-url"],
        str(q.folder / ".local/share/queuectl/queue.db"): ["own"],
    }
    for place, ids in places.items():
        assert [job["id"] for job in q.json("list", "--db", place)] == ids


def test_the_data_folder_of_xdg_is_used(q: Cli) -> None:
    assert q("enqueue", "true", env={"QUEUECTL_DB": "", "XDG_DATA_HOME": str(q.folder / "xdg")}).code == 0
    assert (q.folder / "xdg/queuectl/queue.db").exists()


@on_sqlite
def test_everything_is_private_whatever_the_umask(q: Cli) -> None:
    result = q.shell("umask 0; queuectl worker start && queuectl enqueue --wait 'echo hi'")
    assert result.code == 0, result
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in [q.db.parent, *q.db.parent.rglob("*")]}
    assert {name for name, mode in modes.items() if mode not in ("0o600", "0o700")} == set()
    assert {"queue.db", "queue.db-wal", "logs", "workers.log", f"job_{q.job('@last')['id']}.log"} <= modes.keys()
