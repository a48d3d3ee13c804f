"""Looking at a queue, for people and for machines, and keeping it in order."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from queuectl import __version__
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import QUEUECTL, UNTIL_GO, Cli, gone, kill, lines_in, on_sqlite, pids_in, read_until, refused

# SPEC section 2, in its order; depends_on and unique_key come later.
FIELDS = [
    "id", "command", "queue", "state", "priority", "attempts", "crashes", "snoozes", "max_retries", "backoff_base",
    "retry_on", "no_retry_on", "timeout_seconds", "run_at", "cwd", "env", "tags", "depends_on", "unique_key", "batch",
    "key", "key_limit", "notify", "created_at", "updated_at", "started_at", "finished_at", "duration_ms", "outcome",
    "exit_code", "signal", "error", "stdout", "stderr", "progress", "message", "result", "log_path", "worker_id",
]  # fmt: skip
STATES = ["pending", "processing", "completed", "failed", "dead", "cancelled", "blocked"]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ESCAPE = "\x1b"
IDS = ["later", "waiting", "stopped", "dead", "failed", "done"]  # the newest first


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A queue to look at: a job in each state in which it can stay, and no workers."""
    q = Cli(tmp_path_factory.mktemp("sample"))
    q.ok("worker", "start")
    q.batch(
        {"id": "done", "command": "echo hello; echo oops >&2", "tags": ["nightly", "eu"]},
        {"id": "failed", "command": "exit 3", "backoff_base": 1000, "queue": "mail"},
        {"id": "dead", "command": "echo why; exit 4", "max_retries": 1, "tags": ["nightly"]},
    )
    q.ok("wait", "done")
    q("wait", "dead")
    q.until("failed", "failed")
    q.ok("worker", "stop")
    q.batch(
        {"id": "stopped", "command": "true"},
        {"id": "waiting", "command": "true", "priority": 5, "env": {"A": "1"}, "timeout": 90},
        {"id": "later", "command": "true", "run_at": "2040-01-01T00:00:00Z", "queue": "mail"},
    )
    q.ok("cancel", "stopped")
    yield q
    q.end_all()


# -- list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), IDS),
        (("--state", "dead"), ["dead"]),
        (("-s", "pending"), ["later", "waiting"]),
        (("--state", "processing"), []),
        (("--queue", "mail"), ["later", "failed"]),
        (("--queue", "nowhere"), []),
        (("--tag", "nightly"), ["dead", "done"]),
        (("--tag", "eu"), ["done"]),
        (("--tag", "nightly", "--state", "dead", "--queue", "default"), ["dead"]),
        (("--limit", "2"), ["later", "waiting"]),
        (("--state", "pending", "--limit", "1"), ["later"]),
        (("--limit", "0"), IDS),
    ],
    ids=lambda value: " ".join(value) or "none",
)
def test_list_filters(sample: Cli, options: tuple[str, ...], ids: list[str]) -> None:
    assert [job["id"] for job in sample.json("list", *options)] == ids
    assert [json.loads(line)["id"] for line in sample.ok("list", *options, "--jsonl").splitlines()] == ids
    table = sample.ok("list", *options).splitlines()
    assert [line.split()[0] for line in table[1:]] == ids


def test_list_is_a_table_for_people(sample: Cli) -> None:
    header, *rows = sample.ok("list").splitlines()
    for title in ("Job ID", "State", "Attempts", "Updated At", "Command"):
        assert title in header
    assert len({row.index("true") for row in rows if row.endswith("true")}) == 1  # aligned


def test_list_shows_the_newest_fifty_and_says_that_there_are_more(q: Cli) -> None:
    ids = q.batch(*[{"command": "true"}] * 60)
    shown = q("list")
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == ids[::-1][:50]
    assert "60" in shown.err
    assert len(q.json("list", "--limit", "0")) == 60


def test_an_empty_list_says_so_beside_the_output(q: Cli) -> None:
    assert q("list").out == ""
    assert "No jobs yet" in q("list").err
    assert q.json("list") == []
    assert q.ok("list", "--jsonl") == ""


def test_machines_get_exactly_the_fields_of_the_contract_in_their_order(sample: Cli) -> None:
    documents = [
        *sample.json("list"),
        *sample.json("dlq", "list"),
        *(json.loads(line) for line in sample.ok("list", "--jsonl").splitlines()),
        sample.job("done"),
    ]
    for job in documents:
        assert list(job) == FIELDS


def test_every_moment_is_utc_with_milliseconds(sample: Cli) -> None:
    moments = [
        (name, value)
        for document in (*sample.json("list"), *sample.history("dead"))
        for name, value in document.items()
        if name == "at" or name.endswith("_at")
    ]
    assert len(moments) > 30
    for name, value in moments:
        assert value is None or TIME.fullmatch(value), name


def test_values_have_their_types(sample: Cli) -> None:
    done, failed, waiting = sample.job("done"), sample.job("failed"), sample.job("waiting")
    assert (done["state"], done["exit_code"], done["stdout"], done["stderr"]) == ("completed", 0, "hello\n", "oops\n")
    assert sorted(done["tags"]) == ["eu", "nightly"]
    assert (done["env"], done["timeout_seconds"], waiting["env"], waiting["timeout_seconds"]) == (
        {},
        None,
        {"A": "1"},
        90,
    )
    assert (failed["state"], failed["attempts"], failed["exit_code"], failed["error"]) == (
        "failed",
        1,
        3,
        "exit code 3",
    )
    assert failed["finished_at"] is None
    assert [waiting[name] for name in ("started_at", "worker_id", "exit_code", "stdout", "error")] == [None] * 5
    assert isinstance(done["duration_ms"], int)


# -- one job ---------------------------------------------------------------------------------------------


def test_show_tells_all_of_a_job(sample: Cli) -> None:
    shown = sample.ok("show", "dead")
    for text in ("dead", "echo why; exit 4", "exit code 4", "nightly", "why", "job_dead.log", str(sample.folder)):
        assert text in shown
    assert "A=1" in sample.ok("show", "waiting")
    assert "2040-01-01 00:00:00 UTC" in sample.ok("show", "later")


def test_history_is_a_table_or_json(sample: Cli) -> None:
    events = sample.history("failed")
    assert [event["state"] for event in events] == ["pending", "processing", "failed"]
    assert "exit code 3" in events[-1]["reason"]
    lines = sample.ok("history", "failed").splitlines()
    assert len(lines) == 4
    assert "exit code 3" in lines[-1]
    assert [json.loads(line) for line in sample.ok("history", "failed", "--jsonl").splitlines()] == events


def test_logs_of_a_job_that_has_not_run_says_so(sample: Cli) -> None:
    result = sample("logs", "waiting")
    assert (result.code, result.out) == (0, "")
    assert "not run yet" in result.err


@pytest.mark.parametrize(
    ("tail", "wanted"), [("0", []), ("1", ["--- END"]), ("3", ["9", "10", "--- END"]), ("999", ["--- START", "1"])]
)
def test_logs_shows_the_last_lines(working: Cli, tail: str, wanted: list[str]) -> None:
    working.finished(working.enqueue("seq 10"))
    lines = working.ok("logs", "@last", "--tail", tail).splitlines()
    assert len(lines) == min(int(tail), 12)
    for line, text in zip(lines, wanted, strict=False):
        assert line.startswith(text)


@pytest.mark.parametrize("tail", [(), ("--tail", "1")], ids=["whole", "tail"])
def test_logs_follows_a_job_to_its_end_and_shows_all_of_it(working: Cli, tail: tuple[str, ...]) -> None:
    id = working.enqueue(f"echo first; {UNTIL_GO}; seq 20000; echo last >&2")
    lines_in(working.logs / f"job_{id}.log", 2)
    following = working.start("logs", "--follow", *tail, id)
    seen = read_until(following.stdout, b"first\n")
    assert following.poll() is None
    (working.folder / "go").touch()
    rest, err = following.communicate(timeout=DEADLINE)
    assert (following.returncode, err) == (0, b"")
    lines = (seen + rest).decode().splitlines()
    assert [line for line in lines if line.isdigit()] == [str(n) for n in range(1, 20_001)]
    assert "last" in lines
    assert lines[-1].startswith("--- END")
    if not tail:
        assert "\n".join(lines) + "\n" == working.ok("logs", id)


def test_following_a_job_that_waits_shows_what_it_prints_later(q: Cli) -> None:
    id = q.enqueue("echo hello")
    following = q.start("logs", "--follow", id)
    read_until(following.stderr, b"No worker")
    q.ok("worker", "start")
    out, _ = following.communicate(timeout=DEADLINE)
    assert b"hello\n" in out
    assert following.returncode == 0


# -- explain ---------------------------------------------------------------------------------------------


def reasons(q: Cli, id: str) -> str:
    answer = q.json("explain", id)
    assert list(answer) == ["id", "state", "reasons"]
    assert (answer["id"], answer["state"]) == (id, q.state(id))
    assert q.ok("explain", id).startswith(f"Job {id} is {answer['state']}.\n")
    return " ".join(answer["reasons"])


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("done", ["completed", "ago"]),
        ("stopped", ["cancelled", "ago"]),
        ("dead", ["exit code 4", "queuectl dlq retry dead"]),
        ("failed", ["exit code 3", "next try", "UTC", "No worker is running"]),
        ("later", ["scheduled", "2040-01-01 00:00:00 UTC", "No worker is running"]),
        ("waiting", ["No worker is running", "queuectl worker start"]),
    ],
)
def test_explain_says_why_a_job_is_not_running(sample: Cli, id: str, words: list[str]) -> None:
    text = reasons(sample, id)
    for word in words:
        assert word in text


def test_explain_knows_the_workers(q: Cli) -> None:
    q.ok("worker", "start", "--queue", "mail")
    elsewhere = q.enqueue("true", queue="fax")
    assert '"fax"' in reasons(q, elsewhere)
    assert "--queue fax" in reasons(q, elsewhere)
    running, _, last = q.batch(*[{"command": UNTIL_GO, "queue": "mail"}] * 3)
    worker = q.until(running, "processing")["worker_id"]
    assert worker in reasons(q, running)
    assert "busy" in reasons(q, last)
    assert re.search(r"\b1 due job", reasons(q, last))
    stopping = q.start("worker", "stop")
    eventually(lambda: q.worker()["state"] == "stopping")
    assert "stopping" in reasons(q, last)
    (q.folder / "go").touch()
    assert stopping.wait(DEADLINE) == 0


def test_explain_knows_of_lost_workers_and_of_cancellations(working: Cli) -> None:
    worker = working.worker()
    id = working.enqueue(f"echo $$ > pid; {UNTIL_GO}")
    [pid] = pids_in(working.folder / "pid")
    kill(worker["manager_pid"])
    kill(worker["pid"])
    gone(worker["pid"])
    assert "worker is gone" in reasons(working, id)
    working("cancel", id)
    assert "cancels it" in reasons(working, id)
    kill(pid)


# -- the whole -------------------------------------------------------------------------------------------


def test_status_counts_every_state(sample: Cli) -> None:
    status = sample.json("status")
    assert list(status) == ["jobs", "workers"]
    counts = {"pending": 2, "processing": 0, "completed": 1, "failed": 1, "dead": 1, "cancelled": 1, "blocked": 0}
    assert status == {"jobs": counts, "workers": []}
    assert list(status["jobs"]) == STATES
    shown = sample.ok("status")
    for state, count in counts.items():
        if count:
            assert re.search(rf"{state}\s+{count}\b", shown)


def test_status_can_be_watched_until_interrupted(sample: Cli) -> None:
    watching = sample.start("status", "--watch", "--json")
    for _ in range(2):
        read_until(watching.stdout, b'"workers": []')
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=DEADLINE)
    assert (watching.returncode, err.strip()) == (130, b"")


def test_metrics_for_machines(sample: Cli) -> None:
    metrics = sample.json("metrics")
    assert metrics["jobs"] == sample.json("status")["jobs"]
    assert metrics["total"] == 6
    assert metrics["success_rate"] == 0.5
    assert metrics["workers"] == 0
    assert metrics["finished_last_hour"] == 3
    assert metrics["average_attempts"] == pytest.approx(1 / 3)
    for spread in (metrics["run_ms"], metrics["wait_ms"]):
        assert spread.keys() == {"avg", "min", "max", "p50", "p95", "p99"}
        assert 0 <= spread["min"] <= spread["p50"] <= spread["p95"] <= spread["p99"] <= spread["max"]


def test_metrics_of_an_empty_queue(q: Cli) -> None:
    metrics = q.json("metrics")
    assert (metrics["total"], metrics["success_rate"], metrics["run_ms"]) == (0, None, None)
    assert q.ok("metrics")
    assert q.ok("metrics", "--prometheus")


def test_metrics_for_people(sample: Cli) -> None:
    shown = sample.ok("metrics")
    for text in ("6", "50.0%", "1 completed", "p95", "avg", "Waiting time"):
        assert text in shown


def test_metrics_for_prometheus(sample: Cli) -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(sample.ok("metrics", "--prometheus"))
    }
    jobs = Counter[str]()
    for found in families["queuectl_jobs"].samples:
        jobs[found.labels["state"]] += int(found.value)
    assert [jobs[state] for state in STATES] == [2, 0, 1, 1, 1, 1, 0]
    [build] = families["queuectl_build_info"].samples
    assert (build.labels, build.value) == ({"version": __version__}, 1)


def next_step(q: Cli) -> str:
    shown = q.ok()
    assert str(q.db) in shown
    found = re.search(r"^Next: +queuectl (.+?)  ", shown, re.MULTILINE)
    assert found, shown
    return found[1]


@on_sqlite
def test_alone_it_shows_the_next_step(q: Cli) -> None:
    assert next_step(q).startswith("enqueue")
    id = q.enqueue("exit 1", max_retries=1)
    assert next_step(q).startswith("worker start")
    q.ok("worker", "start")
    q.finished(id)
    assert next_step(q) == "dlq list"
    q.ok("dlq", "purge", "--all", "--yes")
    q.finished(q.enqueue("true"))
    assert next_step(q) == "list"
    q.enqueue("true", run_at="1h")
    assert next_step(q) == "status --watch"


# -- help ------------------------------------------------------------------------------------------------

COMMANDS: dict[str, list[str]] = {
    "enqueue": [], "worker": ["start", "stop", "list"], "status": [], "top": [], "list": [], "show": [], "logs": [],
    "history": [], "explain": [], "wait": [], "cancel": [], "dlq": ["list", "retry", "purge"],
    "queue": ["list", "pause", "resume", "limit", "set"],
    "schedule": ["add", "list", "show", "remove", "pause", "resume", "trigger"],
    "hook": ["add", "list", "show", "remove", "pause", "resume", "test"], "metrics": [], "serve": [],
    "config": ["set", "get", "list", "unset"], "prune": [], "reset": [], "backup": [], "copy": [],
    "doctor": [], "completion": [],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(q: Cli, command: str) -> None:
    for path in [(command,), *((command, part) for part in COMMANDS[command])]:
        text = q.ok(*path, "--help")
        assert text.startswith(f"Usage: queuectl {' '.join(path)}")
        assert q.ok(*path, "-h") == text
    for part in COMMANDS[command]:
        assert re.search(rf"^  {part} ", q.ok(command, "--help"), re.MULTILINE)
    assert not q.db.exists()  # asking for help makes nothing


def test_the_root_lists_every_command(q: Cli) -> None:
    listed = re.findall(r"^  ([a-z]+)  ", q.ok("--help").partition("Commands:")[2], re.MULTILINE)
    assert listed == list(COMMANDS)
    assert re.fullmatch(r"queuectl \d+\.\d+\.\d+\n", q.ok("--version"))


@pytest.mark.parametrize(
    "command", [("list",), ("status",), ("config", "list"), ("metrics",), ("doctor",), ()], ids=" ".join
)
def test_the_database_may_be_named_before_or_after_the_command(q: Cli, command: tuple[str, ...]) -> None:
    q.ok("enqueue", "--id", "here", "true", "--delay", "1h")
    other = q.folder / "other.db"
    q("--db", str(other), *command)
    assert other.exists()
    other.unlink()
    if command:
        q(*command, "--db", str(other))
        assert other.exists()


# -- terminals and pipes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["", "--json", "--jsonl"])
def test_whoever_reads_only_the_head_hears_no_complaint(q: Cli, form: str) -> None:
    q.batch(*[{"command": "echo " + "x" * 500}] * 500)  # more than a pipe holds
    result = q.shell(f"set -o pipefail; queuectl list --limit 0 {form} | head -n 1")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1


def test_a_reader_that_left_before_anything_came_is_no_error(q: Cli) -> None:
    q.enqueue("true")
    result = q.shell("set -o pipefail; queuectl list | true; queuectl logs @last 2>/dev/null | true")
    assert (result.code, result.err) == (0, "")


COLOURED: list[tuple[str, ...]] = [("list",), ("status",), ("show", "dead"), ("history", "dead"), ()]


def test_colours_are_for_terminals_only_and_can_be_refused(sample: Cli) -> None:
    for view in COLOURED:
        assert ESCAPE in sample.on_terminal(*view)
        assert ESCAPE not in sample.on_terminal(*view, env={"NO_COLOR": "1"})
        assert ESCAPE not in sample.on_terminal(*view, env={"TERM": "dumb"})
    for view in (*COLOURED, ("doctor",), ("worker", "list"), ("logs", "dead")):
        assert ESCAPE not in sample(*view).out


def test_machines_get_no_colour_even_on_a_terminal(sample: Cli) -> None:
    assert [job["id"] for job in json.loads(sample.on_terminal("list", "--json"))] == IDS
    assert json.loads(sample.on_terminal("status", "--json")) == sample.json("status")


def test_a_table_fits_its_terminal(q: Cli) -> None:
    q.enqueue("echo " + "x" * 1000)
    rows = q.on_terminal("list", env={"NO_COLOR": "1"}).splitlines()
    assert max(map(len, rows)) <= 100
    assert rows[1].endswith("…")
    assert "x" * 1000 in q.ok("list")


def test_control_characters_are_shown_and_not_obeyed_on_a_terminal(working: Cli) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\r\x9b31m"
    id = working.enqueue(f"printf '{nasty}'; printf '{nasty}' >&2; exit 1; # {nasty}", tags=["x"], max_retries=1)
    working.finished(id)
    views: list[tuple[str, ...]] = [
        ("list",), ("show", id), ("logs", id), ("history", id), ("explain", id), ("dlq", "list"),
        ("enqueue", f"echo {nasty}"), ("show", nasty), ("enqueue", "--at", nasty, "true"), (nasty,),
    ]  # fmt: skip
    for view in views:
        seen = working.on_terminal(*view, env={"NO_COLOR": "1"})
        assert not set(seen) & {"\x1b", "\x07", "\x9b", "\r"}, view
    assert "\\x1b]0;owned\\x07" in working.on_terminal("list", env={"NO_COLOR": "1"})
    assert "\\x1b[2J" in working.on_terminal("logs", id)
    assert nasty in working.on_terminal("logs", id, "--raw")


def test_control_characters_in_an_error_are_shown_and_not_obeyed(working: Cli) -> None:
    args = ("enqueue", "--wait", "--max-retries", "1", "--cwd", "/nowhere\x1b[31m", "true")
    assert ESCAPE not in working.on_terminal(*args, env={"NO_COLOR": "1"})


def test_a_pipe_gets_the_bytes_as_they_are(working: Cli) -> None:
    raw = bytes(range(1, 256)) + b"\0end"
    (working.folder / "raw").write_bytes(raw)
    id = working.enqueue("cat raw")
    working.finished(id)
    done = subprocess.run([QUEUECTL, "logs", id], env=working.env, capture_output=True, check=True, timeout=DEADLINE)
    assert raw in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(q: Cli, shell: str) -> None:
    script = q.ok("completion", shell)
    assert "queuectl" in script
    assert "_QUEUECTL_COMPLETE" in script


def test_the_completion_script_works_in_bash(q: Cli) -> None:
    typed = 'COMP_WORDS=(queuectl work); COMP_CWORD=1; _queuectl_completion queuectl; echo "${COMPREPLY[@]}"'
    result = q.shell(f"set -eu; source <(queuectl completion bash); complete -p queuectl; set +eu; {typed}")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1] == "worker"


# -- waiting ---------------------------------------------------------------------------------------------


def test_wait_tells_how_jobs_ended(sample: Cli) -> None:
    assert sample("wait", "done").code == 0
    assert sample("wait", "done", "dead").code == 1
    assert sample("wait", "stopped").code == 1


def test_wait_gives_up_after_its_timeout(sample: Cli) -> None:
    result = sample("wait", "done", "later", "--timeout", "0.2")
    assert result.code == 124
    assert "queuectl explain later" in result.err
    assert "Traceback" not in result.err
    assert sample("wait", "--all", "--timeout", "0").code == 124


def test_wait_for_all_of_nothing_is_done_at_once(q: Cli) -> None:
    assert q("wait", "--all").code == 0


def test_an_interrupted_wait_ends_quietly(sample: Cli) -> None:
    waiting = sample.start("wait", "later")
    read_until(waiting.stderr, b"--count 2\n")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=DEADLINE)
    assert (waiting.returncode, err.strip()) == (130, b"")


# -- the dead letter queue -------------------------------------------------------------------------------


@pytest.fixture
def graveyard(q: Cli) -> tuple[Cli, list[str]]:
    """Three dead jobs with logs, a completed one, and no workers."""
    q.ok("worker", "start")
    ids = q.batch(*[{"command": "echo hello; [ -e mended ]", "max_retries": 1}] * 3, {"command": "echo hello"})
    q("wait", *ids)
    q.ok("worker", "stop")
    return q, ids[:3]


def test_dead_jobs_are_listed_retried_and_purged(graveyard: tuple[Cli, list[str]]) -> None:
    q, [one, two, three] = graveyard
    assert [job["id"] for job in q.json("dlq", "list")] == [three, two, one]
    assert [line.split()[0] for line in q.ok("dlq", "list").splitlines()[1:]] == [three, two, one]
    assert [job["id"] for job in q.json("dlq", "list", "--limit", "1")] == [three]
    q.ok("dlq", "retry", one)
    job = q.job(one)
    assert (job["state"], job["attempts"], job["error"], job["finished_at"]) == ("pending", 0, None, None)
    assert "1" in q.ok("dlq", "purge", "--yes", two)
    assert not (q.logs / f"job_{two}.log").exists()
    refused(q("show", two), 3)
    assert [job["id"] for job in q.json("dlq", "list")] == [three]


def test_all_dead_jobs_are_retried(graveyard: tuple[Cli, list[str]]) -> None:
    q, ids = graveyard
    out = q.ok("dlq", "retry", "--all")
    assert all(id in out for id in ids)
    assert q.json("dlq", "list") == []
    (q.folder / "mended").touch()
    q.ok("worker", "start")
    assert q("wait", *ids).code == 0
    assert q("dlq", "retry", "--all").code == 0
    assert "empty" in q("dlq", "list").err


def test_all_dead_jobs_are_purged_with_their_logs_and_no_others(graveyard: tuple[Cli, list[str]]) -> None:
    q, ids = graveyard
    assert "3" in q.ok("dlq", "purge", "--all", "--yes")
    assert q.json("status")["jobs"] == {**dict.fromkeys(STATES, 0), "completed": 1}
    left = {path.name for path in q.logs.glob("job_*")}
    assert left == {f"job_{q.job('@last')['id']}.log"}
    assert not left & {f"job_{id}.log" for id in ids}


def test_purging_asks_first_on_a_terminal(graveyard: tuple[Cli, list[str]]) -> None:
    q, _ = graveyard
    q.on_terminal("dlq", "purge", "--all", typed="n\n")
    assert q.json("status")["jobs"]["dead"] == 3
    q.on_terminal("dlq", "purge", "--all", typed="y\n")
    assert q.json("status")["jobs"]["dead"] == 0


# -- settings --------------------------------------------------------------------------------------------


def test_settings_are_set_read_listed_and_unset(q: Cli) -> None:
    defaults = q.json("config", "list")
    assert defaults == {
        "max_retries": 3, "backoff_base": 2, "backoff_max": 3600, "backoff_jitter": 0, "job_timeout": 0,
        "worker_poll_interval": 1, "crash_limit": 3, "lease_timeout": 30, "kill_grace": 5, "output_limit": 2000,
        "log_max_bytes": 10485760, "retention_days": 0, "snooze_limit": 20,
    }  # fmt: skip
    q.ok("config", "set", "max-retries", "5")
    q.ok("config", "set", "POLL_INTERVAL", "0.5")
    q.ok("config", "set", "backoff_jitter", "0.25")
    changed = {"max_retries": 5, "worker_poll_interval": 0.5, "backoff_jitter": 0.25}
    assert q.json("config", "list") == {**defaults, **changed}
    assert q.ok("config", "get", "default_max_retries") == "5\n"
    assert q.json("config", "get", "max-retries") == {"max_retries": 5}
    for key in changed:
        q.ok("config", "unset", key)
    assert q.json("config", "list") == defaults
    for key in defaults:
        assert key in q.ok("config", "list")


# -- upkeep ----------------------------------------------------------------------------------------------


def findings(q: Cli) -> list[str]:
    """What `doctor` finds wrong, and its advice."""
    result = q("doctor", "--json")
    found = json.loads(result.out)
    assert all(finding.keys() == {"check", "ok", "found", "advice"} for finding in found)
    bad = [f"{finding['check']}: {finding['found']} → {finding['advice']}" for finding in found if not finding["ok"]]
    shown = q("doctor")
    assert result.code == shown.code == (1 if bad else 0)
    assert shown.out.count("BAD") == len(bad)
    return bad


def test_doctor_finds_a_healthy_queue_well(working: Cli) -> None:
    working.finished(working.enqueue("echo hello"))
    assert findings(working) == []


@on_sqlite
def test_doctor_finds_files_that_others_can_read_and_its_advice_helps(working: Cli) -> None:
    working.finished(working.enqueue("echo hello"))
    working.db.chmod(0o644)
    working.logs.chmod(0o755)
    [finding] = findings(working)
    advice = re.search(r"chmod .+", finding)
    assert advice
    assert str(working.db) in advice[0]
    assert working.shell(advice[0]).code == 0
    assert findings(working) == []


def test_doctor_finds_lost_workers_and_its_advice_helps(working: Cli) -> None:
    worker = working.worker()
    id = working.enqueue(f"echo $$ > pid; {UNTIL_GO}")
    [pid] = pids_in(working.folder / "pid")
    kill(worker["manager_pid"])
    kill(worker["pid"])
    gone(worker["pid"])
    bad = findings(working)
    assert bad
    assert all("queuectl worker start" in finding for finding in bad)
    (working.folder / "go").touch()
    working.ok("worker", "start")
    assert working.finished(id)["state"] == "completed"
    gone(pid)
    assert findings(working) == []


def test_doctor_misses_the_workers_of_waiting_jobs(q: Cli) -> None:
    q.enqueue("true")
    [finding] = findings(q)
    assert "queuectl worker start" in finding


@on_sqlite
def test_a_backup_is_the_queue_of_that_moment(working: Cli) -> None:
    working.ok("config", "set", "max_retries", "7")
    done = working.finished(working.enqueue("echo hello", tags=["x"]))
    held = working.enqueue("true", run_at="1h")
    working.ok("backup", "copy.db")
    copy = working.folder / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    working.ok("worker", "stop")
    working.ok("reset", "--yes")
    assert working.json("list") == []
    assert [job["id"] for job in working.json("--db", "copy.db", "list")] == [held, done["id"]]
    working.db.unlink()
    copy.rename(working.db)
    restored = working.job(done["id"])
    assert restored == done
    assert working.ok("config", "get", "max_retries") == "7\n"
    assert [event["state"] for event in working.history(done["id"])] == ["pending", "processing", "completed"]
    working.ok("worker", "start")
    assert working.finished(working.enqueue("true"))["state"] == "completed"


def test_reset_deletes_everything(graveyard: tuple[Cli, list[str]]) -> None:
    q, _ = graveyard
    q.ok("config", "set", "max_retries", "7")
    assert "4" in q.ok("reset", "--yes")
    assert q.json("list") == []
    assert set(q.json("status")["jobs"].values()) == {0}
    assert q.ok("config", "get", "max_retries") == "3\n"
    assert list(q.logs.glob("job_*")) == []
    q.ok("worker", "start")
    assert q.finished(q.enqueue("true"))["state"] == "completed"


def test_reset_does_it_when_told_so_on_a_terminal(graveyard: tuple[Cli, list[str]]) -> None:
    q, _ = graveyard
    q.on_terminal("reset", typed="y\n")
    assert q.json("list") == []


def test_prune_deletes_old_finished_jobs_with_their_logs(graveyard: tuple[Cli, list[str]]) -> None:
    q, dead = graveyard
    [done] = [job["id"] for job in q.json("list", "--state", "completed")]
    waiting = q.enqueue("true")
    assert "0" in q.ok("prune", "--older-than", "1h")
    assert "1" in q.ok("prune", "--older-than", "0s", "--dry-run")
    assert q.state(done) == "completed"
    assert "1" in q.ok("prune", "--older-than", "0s")
    refused(q("show", done), 3)
    assert not (q.logs / f"job_{done}.log").exists()
    assert {job["id"] for job in q.json("list")} == {*dead, waiting}
    q.ok("prune", "--older-than", "0s", "--state", "dead")
    assert [job["id"] for job in q.json("list")] == [waiting]
    assert list(q.logs.glob("job_*")) == []


def test_retention_prunes_by_itself(q: Cli) -> None:
    q.ok("config", "set", "retention_days", "0.000001")
    q.ok("config", "set", "lease_timeout", "1")
    q.ok("worker", "start")
    id = q.enqueue("echo hello")
    dead = q.enqueue("exit 1", max_retries=1)
    q("wait", id, dead)
    q.ok("worker", "stop")
    q.ok("worker", "start")
    eventually(lambda: [job["id"] for job in q.json("list")] == [dead], "pruned, and the dead one kept")
    assert not (q.logs / f"job_{id}.log").exists()


def test_prune_takes_its_age_from_the_settings(graveyard: tuple[Cli, list[str]]) -> None:
    q, _ = graveyard
    q.ok("config", "set", "retention_days", "1")
    assert q.ok("prune", "--dry-run") == "0 jobs would be deleted.\n"
    q.ok("config", "set", "retention_days", "0.000001")
    assert q.ok("prune", "--dry-run") == "1 job would be deleted.\n"
