"""The command that makes the same job again, in a real shell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuectl.jobs import clone, job_spec
from queuectl.schedules import schedule
from queuectl.store import open_store
from queuectl.system.times import now_ms
from tests.e2e.conftest import Cli, on_sqlite
from tests.every_field import EVERY, PARENTS, STORED, given, wanted

QUOTES = "echo 'a' \"b\" `c` $HOME \\ é\n<b>!\t-x"
UNSEEN = "echo 'a\u202e\x1b[31m\x7f\x9b\r\u2028\\u202e é\n\t"
JOBS: list[dict[str, Any]] = [
    {"command": "true"},
    {"command": QUOTES},
    {"command": "{ echo a; }"},
    {"command": "-"},
    {"command": "--help"},
    {"command": "  spaced  "},
    {"command": "true", "queue": "mail", "priority": -5, "max_retries": 7, "backoff_base": 1.5, "timeout": 0.00001},
    {"command": "true", "timeout": 90.25, "retry_on": [1, "SIGKILL", "timeout"], "no_retry_on": [75]},
    {"command": "true", "timeout": 0, "backoff_base": 3, "cwd": "/tmp/a b'c"},
    {"command": "true", "env": {"A": "x=y z", "EMPTY": "", "QUOTES": QUOTES}, "tags": ["-x", "a'b", "$(id)"]},
    {"command": "true", "batch": "b.1", "key": "-k 'ey", "key_limit": 3},
    {
        "command": UNSEEN,
        "cwd": "/tmp/\u2066",
        "env": {"A": UNSEEN},
        "key": "k",
        "tags": ["a"],
        "timeout": 1e-5,
    },
    {"command": "true", "env": {"A": "\r"}, "max_retries": 7, "retry_on": [1], "depends_on": ["a"], "batch": "b"},
    {"command": "true", "run_at": "2999-01-01T00:00:00.123Z"},
    {"command": "true", "depends_on": ["a", {"id": "b", "condition": "fail"}, {"id": "c", "condition": "any"}]},
]
OF_ITS_OWN = ("id", "created_at", "updated_at", "log_path")


@on_sqlite
def test_what_is_pasted_makes_the_same_job(q: Cli) -> None:
    q.ok("config", "set", "job_timeout", "33")
    q.ok("config", "set", "backoff_base", "3")
    for id in "abc":
        q.enqueue("true", id=id, run_at="1h")
    store = open_store(q.url)
    for fields in [*JOBS, {"command": "true", "unique_key": "only 'one"}]:
        job = store.views.job(q.enqueue(**fields))
        line = clone.command_line(job, store.config(), now_ms())
        assert all(c.isprintable() or c in "\n\t" for c in line)
        if job.unique_key:
            assert q.shell(line).code == 4  # as it should be while the other has not finished
            q.ok("cancel", job.id)
        result = q.shell(line.replace("queuectl enqueue ", "queuectl enqueue --json ", 1))
        assert result.code == 0, (line, result)
        made = json.loads(result.out)
        wanted = json.loads(json.dumps(job.as_json()))
        own = OF_ITS_OWN if "run_at" in fields else (*OF_ITS_OWN, "run_at")
        assert {name: value for name, value in made.items() if name not in own} == {
            name: value for name, value in wanted.items() if name not in own
        }
        again = job_spec.from_fields(clone.fields_of(job, store.config(), now_ms()))
        assert (again.command, again.env or {}, again.tags) == (job.command, job.env, job.tags)
    store.close()


OPTIONS: dict[str, list[str]] = {
    "id": ["--id", "every"],
    "max_fails": ["--max-fails", "2"],
    "on_duplicate": ["--on-duplicate", "skip"],
    "env": ["--env", "A=x=y z"],
    "tags": ["--tag", "a", "--tag", "b'c"],
    "notify": ["--notify", "pager"],
    "depends_on": ["--after", "p1", "--after-fail", "p2", "--after-any", "p3"],
    "retry_on": ["--retry-on", "1,SIGKILL,timeout"],
    "no_retry_on": ["--no-retry-on", "75"],
    **{name: [option, clone.text(EVERY[name])] for name, option in clone.OPTIONS.items()},
}


def options_for(*besides: str) -> list[str]:
    assert OPTIONS.keys() | {"command"} == EVERY.keys()
    return [word for name, words in OPTIONS.items() if name not in besides for word in words]


@pytest.fixture
def ready(q: Cli) -> Cli:
    """A queue in which a job with every field can be made."""
    q.ok("hook", "add", "pager", "--", "true")
    q.batch(*({"id": parent, "command": "true"} for parent in PARENTS))
    return q


@on_sqlite
def test_the_options_of_enqueue_set_every_field_and_what_is_pasted_sets_them_again(ready: Cli) -> None:
    ready.ok("enqueue", *options_for(), "--", EVERY["command"])
    store = open_store(ready.url)
    job = store.views.job("every")
    line = clone.command_line(job, store.config(), now_ms())
    store.close()
    assert given(job.as_json()) == STORED
    ready.ok("cancel", "every")
    made = json.loads(ready.shell(line.replace("enqueue ", "enqueue --json ", 1)).out)
    assert given(made, ("id",)) == wanted("id")


@on_sqlite
def test_jobs_of_an_array_have_every_field(ready: Cli) -> None:
    """Those with a unique key can only be one, so the array has one number."""
    ready.ok("enqueue", "--array", "7-7", *options_for(), "--", EVERY["command"])
    made = ready.job("every.7")
    assert made["env"] == {**EVERY["env"], "QUEUECTL_ARRAY_INDEX": "7"}
    assert given(made, ("id", "env")) == wanted("id", "env")


@on_sqlite
def test_the_options_of_a_schedule_set_every_field_that_its_jobs_can_have(ready: Cli) -> None:
    refused = schedule.NOT_FOR_A_SCHEDULE
    ready.ok("schedule", "add", "often", "--every", "1h", *options_for(*refused), "--", EVERY["command"])
    made = ready.job(ready.ok("schedule", "trigger", "--quiet", "often").strip())
    assert given(made, ("env", *refused)) == wanted("env", *refused)


@on_sqlite
def test_the_plain_command_is_short(q: Cli) -> None:
    store = open_store(q.url)
    job = store.views.job(q.enqueue("make all", cwd="/srv"))
    assert clone.command_line(job, store.config(), now_ms()) == "queuectl enqueue --cwd /srv -- 'make all'"
    store.close()
