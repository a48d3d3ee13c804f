"""Play one story on a queue, and collect every JSON document that the commands and the HTTP API give of it.

What differs from run to run (times, process ids, random ids, folders) is replaced by its type, so that two versions
of queuectl can be compared field by field. `python -m tests.web.json_documents` records the documents anew.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Cli
from tests.web.conftest import Served

RECORDED = Path(__file__).with_suffix(".json")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
GENERATED_ID = re.compile(r"[a-z2-7]{10}")
# Fields whose values differ from run to run.
VARYING = {
    "pid", "manager_pid", "host", "worker_id", "worker", "duration_ms", "cpu_ms", "max_rss_kb", "log_path", "cwd",
    "seconds", "throughput", "wait_ms", "n", "next", "who", "found", "reasons", "avg", "min", "max",
    "p50", "p95", "p99",
}  # fmt: skip
COMMANDS = (
    "status", "metrics", "list", "list --state dead", "show good", "show bad", "show late", "show child", "show gone",
    "show slow", "show full", "history good", "history bad", "history child", "history gone", "history full",
    "explain late", "explain child", "explain held", "worker list", "dlq list", "queue list", "config list",
    "config get max_retries", "schedule list", "schedule show nightly", "hook list", "hook show pager",
)  # fmt: skip
PATHS = (
    "/jobs", "/jobs?state=dead", "/jobs/good", "/jobs/bad", "/jobs/child", "/jobs/full", "/jobs/good/history",
    "/jobs/bad/history", "/jobs/late/explain", "/jobs/child/explain", "/jobs/good/wait?timeout=1", "/queues",
    "/queues/mail", "/schedules", "/schedules/nightly", "/schedules/nightly/firings", "/workers", "/dlq", "/config",
    "/config/max_retries", "/stats", "/audit", "/whoami",
)  # fmt: skip


def documents(q: Cli) -> dict[str, Any]:
    """The story, and what can be read of it afterwards."""
    found: dict[str, Any] = {}
    q.ok("config", "set", "max-retries", "2")
    q.ok("config", "set", "backoff_base", "0.01")
    q.ok("hook", "add", "pager", "--on", "dead", "--for-named", "--", "true")
    for job in (
        {"id": "good", "command": "echo out; echo err >&2", "tags": ["nightly"], "priority": 5},
        {"id": "bad", "command": "echo why >&2; exit 3", "queue": "mail"},
        {"id": "late", "command": "true", "run_at": "2099-01-01T00:00:00Z"},
        {"id": "child", "command": "true", "depends_on": [{"id": "late", "condition": "any"}]},
        {"id": "gone", "command": "true", "run_at": "2099-01-01T00:00:00Z"},
        {"id": "slow", "command": "sleep 60", "timeout": 0.1, "max_retries": 1},
        {"id": "missing", "command": "/no/such/program", "max_retries": 1},
        {"id": "killed", "command": "kill -9 $$", "max_retries": 1},
        {
            "id": "full", "command": "true", "queue": "mail", "priority": -3, "max_retries": 7, "backoff_base": 3,
            "timeout_seconds": 12.5, "run_at": "2099-01-01T00:00:00Z", "cwd": "/", "env": {"A": "b"},
            "tags": ["x", "y"], "depends_on": ["good"], "batch": "b1", "max_fails": 4, "key": "k", "key_limit": 2,
            "retry_on": [1, "timeout"], "no_retry_on": ["SIGKILL"], "unique_key": "u", "on_duplicate": "skip",
            "notify": ["pager"],
        },
    ):  # fmt: skip
        found[f"enqueue {job['id']}"] = json.loads(q.ok("enqueue", "--json", json.dumps(job)))
    q.ok("queue", "limit", "mail", "3")
    q.ok("queue", "limit", "mail", "10", "--per", "1m")
    q.ok("schedule", "add", "nightly", "30 2 * * *", "--tz", "UTC", "--queue", "mail", "--", "true")
    found["cancel"] = q("cancel", "gone").code
    q.ok("worker", "start")
    for id in ("good", "bad", "slow", "missing", "killed"):
        q.finished(id)
    q.ok("queue", "pause", "stopped")
    q.ok("enqueue", "--id", "held", "--queue", "stopped", "true")
    for command in COMMANDS:
        found[command] = json.loads(q(*command.split(), "--json").out)
    q.ok("worker", "stop")
    served = Served(q)
    try:
        with served.http() as client:
            for path in PATHS:
                found[f"GET {path}"] = client.get(f"/api/v1{path}").json()
    finally:
        served.stop()
    return {name: masked(document) for name, document in found.items()}


def masked(value: Any, name: str = "") -> Any:
    if name in VARYING and value is not None:
        return f"<{type(value).__name__}>"
    if isinstance(value, dict):
        return {key: masked(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, str):
        return "<time>" if TIME.fullmatch(value) else "<id>" if GENERATED_ID.fullmatch(value) else value
    return value


def record() -> None:
    with tempfile.TemporaryDirectory() as folder:
        RECORDED.write_text(json.dumps(documents(Cli(Path(folder))), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
