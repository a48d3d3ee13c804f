"""What a job says of itself through $QUEUECTL_RESULT, and who gets to see it."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from queuectl import Queue
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import QUEUECTL, UNTIL_GO, Cli, kill, lines_in, on_sqlite, read_until


def say(text: str = "", how: str = ">", **fields: object) -> str:
    """Shell text that says this."""
    return f"printf '%s\\n' '{text or json.dumps(fields)}' {how} \"$QUEUECTL_RESULT\""


HALFWAY = say(progress=40, message="halfway")
REMEMBER = 'echo "$QUEUECTL_RESULT" >> where'


def said(job: dict[str, object]) -> tuple[object, object, object]:
    return job["progress"], job["message"], job["result"]


def until_said(q: Cli, id: str, progress: float) -> None:
    eventually(lambda: q.job(id)["progress"] == progress, f"{id} at {progress}")


def places(q: Cli, count: int = 1) -> list[Path]:
    """Where the runs so far could write."""
    return [Path(line) for line in lines_in(q.folder / "where", count)]


# -- while it runs, and after ----------------------------------------------------------------------------


def test_progress_is_seen_while_it_runs_and_the_result_when_it_has_ended(working: Cli) -> None:
    last = say(progress=100, message="done", result={"rows": 7})
    id = working.enqueue(f"{REMEMBER}; {HALFWAY}; {UNTIL_GO}; {last}")
    until_said(working, id, 40)
    assert said(working.job(id)) == (40, "halfway", None)
    assert working.state(id) == "processing"
    assert "Progress:    40% (halfway)\n" in working.ok("show", id)
    header, row = working.ok("list").splitlines()
    assert row[header.index("Progress") :].startswith("40% halfway")
    assert [said(job) for job in working.json("list")] == [(40, "halfway", None)]
    (working.folder / "go").touch()
    job = working.finished(id)
    assert (job["state"], *said(job)) == ("completed", 100, "done", {"rows": 7})
    assert 'Result:      {"rows": 7}\n' in working.ok("show", id)
    assert not places(working)[0].exists()


def test_later_updates_are_seen_too(working: Cli) -> None:
    wait = "while [ ! -e {0} ]; do sleep 0.05; done"
    id = working.enqueue(f"{HALFWAY}; {wait.format('one')}; {say(how='>>', progress=60)}; {wait.format('two')}")
    until_said(working, id, 40)
    (working.folder / "one").touch()
    until_said(working, id, 60)
    assert said(working.job(id)) == (60, "halfway", None)
    (working.folder / "two").touch()
    assert said(working.finished(id)) == (60, "halfway", None)


def test_many_at_once_do_not_mix_up_what_they_say(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "8")
    ids = q.batch(*[{"command": f"{say(str(n))}; {UNTIL_GO}"} for n in range(8)])
    eventually(lambda: [q.job(id)["result"] for id in ids] == list(range(8)), "all have spoken")
    (q.folder / "go").touch()
    assert [q.finished(id)["result"] for id in ids] == list(range(8))


def test_a_file_moved_into_its_place_counts(working: Cli) -> None:
    id = working.enqueue('echo "[1, 2]" > made && mv made "$QUEUECTL_RESULT"')
    assert working.finished(id)["result"] == [1, 2]


def test_a_job_that_says_nothing_has_no_file_and_no_column(working: Cli) -> None:
    id = working.enqueue(f"{REMEMBER}; {UNTIL_GO}")
    [path] = places(working)
    before = os.listdir(path.parent)
    assert path.name not in before
    (working.folder / "go").touch()
    assert said(working.finished(id)) == (None, None, None)
    assert os.listdir(path.parent) == before
    assert "Progress" not in working.ok("list")
    assert "Result" not in working.ok("show", id)
    assert working.rows_of("results") == []


def test_a_job_that_fails_keeps_its_result_and_starts_afresh_when_it_is_tried_again(working: Cli) -> None:
    first = f"{say(progress=70, result='it broke')}; exit 1"
    id = working.enqueue(f"{REMEMBER}; [ -e again ] || {{ {first}; }}; {UNTIL_GO}", max_retries=1)
    assert said(working.finished(id)) == (70, None, "it broke")
    (working.folder / "again").touch()
    working.ok("dlq", "retry", id)
    working.until(id, "processing")
    assert said(working.job(id)) == (None, None, None)
    (working.folder / "go").touch()
    assert said(working.finished(id)) == (None, None, None)
    first_path, second_path = places(working, 2)
    assert first_path != second_path
    assert not first_path.exists()


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_a_run_that_is_ended_keeps_what_it_said(working: Cli, how: str) -> None:
    id = working.enqueue(f"{HALFWAY}; {REMEMBER}; exec sleep 1000")
    [path] = places(working)
    working.ok(*(["cancel", id] if how == "cancel" else ["worker", "stop", "--now"]))
    job = working.until(id, "cancelled" if how == "cancel" else "pending")
    assert said(job) == (40, "halfway", None)
    assert not path.exists()


def test_what_a_lost_run_has_said_before_stays_and_its_file_does_not(working: Cli) -> None:
    working.ok("config", "set", "crash_limit", "1")
    id = working.enqueue(f"{REMEMBER}; {HALFWAY}; exec sleep 1000")
    until_said(working, id, 40)
    kill(working.worker()["pid"])
    job = working.until(id, "dead")
    assert said(job) == (40, "halfway", None)
    eventually(lambda: not places(working)[0].exists(), "its file is gone")


@on_sqlite
def test_a_database_that_is_locked_learns_of_it_later(working: Cli) -> None:
    id = working.enqueue(f"{REMEMBER}; while [ ! -e now ]; do sleep 0.05; done; {HALFWAY}; {UNTIL_GO}")
    places(working)
    with closing(sqlite3.connect(working.db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        (working.folder / "now").touch()
        log = working.logs / "workers.log"
        eventually(lambda: "locked by another process" in log.read_text(), "the worker has noticed")
        other.execute("ROLLBACK")
    until_said(working, id, 40)
    (working.folder / "go").touch()
    assert said(working.finished(id)) == (40, "halfway", None)
    assert working.runs(id) == 1


# -- what cannot be read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ('echo hello > "$QUEUECTL_RESULT"', "line 1 is not valid JSON"),
        ('printf \'{"progress": 4\' > "$QUEUECTL_RESULT"', "line 1 is not valid JSON"),
        ('echo \'{"progress": 400}\' > "$QUEUECTL_RESULT"', "progress must be a number from 0 to 100"),
        ('head -c 70000 /dev/zero | tr "\\0" 1 > "$QUEUECTL_RESULT"', "larger than 64 KiB"),
        ('head -c 50000 /dev/zero | tr "\\0" "[" > "$QUEUECTL_RESULT"', "nested too deeply"),
        ('(head -c 9999 /dev/zero | tr "\\0" "\\377"; echo "[") > "$QUEUECTL_RESULT"', "not valid JSON"),
        ('echo 1 > secret; ln -s "$PWD/secret" "$QUEUECTL_RESULT"', "not a regular file"),
        ('mkfifo "$QUEUECTL_RESULT"', "not a regular file"),
    ],
)
def test_what_cannot_be_read_is_told_and_harms_nobody(working: Cli, command: str, why: str) -> None:
    id = working.enqueue(f"{REMEMBER}; {command}")
    job = working.finished(id)
    assert (job["state"], job["progress"], job["result"]) == ("completed", None, None)
    assert job["message"].startswith("its result could not be read: ")
    assert why in job["message"]
    assert not os.path.lexists(places(working)[0])
    assert why in working.ok("show", id)
    assert f"result not read job={id}" in (working.logs / "workers.log").read_text()
    assert said(working.finished(working.enqueue(HALFWAY))) == (40, "halfway", None)
    assert working.worker()["id"] == job["worker_id"]  # the same: it has come to no harm


def test_what_a_job_plants_does_not_keep_its_worker_from_looking_at_others(q: Cli) -> None:
    q.ok("worker", "start", "--concurrency", "2")
    planted = q.enqueue(f'mkfifo "$QUEUECTL_RESULT"; {UNTIL_GO}')
    q.until(planted, "processing")
    other = q.enqueue(f"{HALFWAY}; {UNTIL_GO}")
    until_said(q, other, 40)
    (q.folder / "go").touch()
    assert "not a regular file" in q.finished(planted)["message"]


def test_text_that_no_database_can_keep_is_kept_with_marks(working: Cli) -> None:
    id = working.enqueue(say(message="a\0b\ud800", result=["\0"]))
    assert said(working.finished(id)) == (None, "a\ufffdb\ufffd", ["\ufffd"])


def test_nothing_it_says_acts_on_a_terminal(working: Cli) -> None:
    nasty = "\x1b[2J\x1b]0;owned\x07\u202e"
    text = json.dumps({"progress": 1, "message": nasty, "result": [nasty, "long" * 30]})
    (working.folder / "text").write_text(text)
    id = working.enqueue('cat text > "$QUEUECTL_RESULT"')
    working.finished(id)
    for view in (("show", id), ("list",)):
        seen = working.on_terminal(*view, env={"NO_COLOR": "1"})
        assert "\x1b" not in seen
        assert "\u202e" not in seen
        assert "\x07" not in seen
    assert "\\u202e" in working.on_terminal("show", id)
    assert working.job(id)["result"][0] == nasty


def test_a_long_result_is_shown_below(working: Cli) -> None:
    id = working.enqueue(say(result={"names": ["somebody"] * 10, "n": 1}))
    working.finished(id)
    shown = working.ok("show", id)
    start = shown.index("Result:\n") + len("Result:\n")
    assert json.loads(shown[start:]) == {"names": ["somebody"] * 10, "n": 1}


# -- waiting ---------------------------------------------------------------------------------------------


def test_wait_gives_the_jobs_to_machines(working: Cli) -> None:
    good, bad = working.enqueue(say("7"), batch="b"), working.enqueue(f"{say('8')}; exit 1", max_retries=1)
    assert working.json("wait", good) == working.job(good)
    assert working.job(good)["result"] == 7
    both = working("wait", good, bad, "--json")
    assert both.code == 1
    assert [(job["id"], job["result"]) for job in json.loads(both.out)] == [(good, 7), (bad, 8)]
    assert [job["id"] for job in working.json("wait", "--batch", "b")] == [good]
    assert working.json("wait", "--all") == []
    assert working.ok("wait", good) == ""


def test_whoever_waits_at_a_terminal_sees_how_far_it_is(working: Cli) -> None:
    id = working.enqueue(f"{HALFWAY}; {UNTIL_GO}; {say(progress=100)}")
    screen, process = working.in_terminal(QUEUECTL, "wait", id)
    seen = read_until(screen, b"40% halfway")
    assert seen.endswith(f"Job {id}: 40% halfway".encode())
    (working.folder / "go").touch()
    assert read_until(screen, None).endswith(b"\r\x1b[K")
    os.close(screen)
    assert process.wait(DEADLINE) == 0


def test_enqueue_and_wait_shows_it_between_what_the_job_prints(working: Cli) -> None:
    wait = "while [ ! -e {0} ]; do sleep 0.05; done"
    command = f"echo one; printf tw; {wait.format('say')}; {HALFWAY}; {wait.format('more')}; echo o; {UNTIL_GO}"
    screen, process = working.in_terminal(QUEUECTL, "enqueue", "--id", "j", "--wait", command)
    seen = read_until(screen, b"\r\ntw")
    (working.folder / "say").touch()
    until_said(working, "j", 40)
    (working.folder / "more").touch()
    seen += read_until(screen, b"40% halfway")
    assert b"one\r\ntwo\r\n" in seen
    (working.folder / "go").touch()
    rest = read_until(screen, None)
    os.close(screen)
    assert rest.startswith(b"\r\x1b[K")
    assert b"40%" not in rest
    assert process.wait(DEADLINE) == 0


def test_the_python_api_has_it(working: Cli) -> None:
    with Queue(working.url) as queue:
        id = queue.enqueue(say(progress=50, result={"a": [1]})).id
        [job] = queue.wait(id, timeout=DEADLINE)
        assert (job.state, job.progress, job.message, job.result) == ("completed", 50, None, {"a": [1]})
        assert queue.get(id).as_json()["result"] == {"a": [1]}


def test_the_fields_are_not_a_users_to_set(q: Cli) -> None:
    for field in ("progress", "message", "result"):
        assert (
            f'the field "{field}" is written by queuectl' in q("enqueue", f'{{"command": "true", "{field}": 1}}').err
        )
