"""What goes in and out, as JSON Schema (2020-12): the table of operations and the OpenAPI document are made of it."""

from __future__ import annotations

from typing import Any

from queuectl.jobs import job_spec
from queuectl.jobs.dependency_rules import CONDITIONS
from queuectl.jobs.lifecycle import OUTCOMES, State
from queuectl.jobs.model import EVENT_KINDS, WORKER_STATES
from queuectl.queues import policy
from queuectl.schedules.schedule import MISSED, OVERLAPS
from queuectl.settings import SETTINGS

Schema = dict[str, Any]

MOST_JOBS = 10_000  # in one request


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def record(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """An object with exactly these; what comes out has all of them."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def wish(properties: dict[str, Schema], needs: tuple[str, ...] = ()) -> Schema:
    """An object that somebody sends: some of these."""
    return record(properties, tuple(name for name in properties if name not in needs))


def many(of: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": of, **more}


def maybe(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}$"}
STATE: Schema = {"type": "string", "enum": [str(state) for state in State]}
OUTCOME: Schema = {"type": ["string", "null"], "enum": [*OUTCOMES, None]}
CURSOR: Schema = {"type": "string", "maxLength": 64}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
COUNTS: Schema = record({str(state): WHOLE for state in State})
ENDS: Schema = many(TEXT)
IDS: Schema = many(TEXT, minItems=1, maxItems=MOST_JOBS)

_LINK: Schema = {
    "oneOf": [NAME, record({"id": NAME, "condition": {"type": "string", "enum": list(CONDITIONS)}}, ("condition",))]
}
_END: Schema = {"type": ["integer", "string"], "description": job_spec.ENDS_HELP}

NEW_JOB = wish(
    {
        "command": {"type": "string", "minLength": 1, "description": "Run by the shell."},
        "id": said(maybe(NAME), "Drawn, if none is given."),
        "queue": maybe(NAME),
        "priority": {
            "type": ["integer", "null"],
            "minimum": -job_spec.PRIORITIES,
            "maximum": job_spec.PRIORITIES,
            "description": "Higher runs first.",
        },
        "max_retries": {"type": ["integer", "null"], "minimum": 0, "maximum": SETTINGS["max_retries"].at_most},
        "backoff_base": {"type": ["number", "null"], "minimum": 0, "maximum": SETTINGS["backoff_base"].at_most},
        "timeout_seconds": {
            "type": ["number", "string", "null"],
            "minimum": 0,
            "maximum": job_spec.LONGEST_TIMEOUT,
            "description": "Or a duration: 5m. 0: no limit.",
        },
        "run_at": {
            "type": ["string", "number", "null"],
            "minimum": 0,
            "exclusiveMaximum": 1_000_000_000,
            "description": "An ISO 8601 time, or a delay: seconds, or text such as 10m.",
        },
        "cwd": {
            "type": ["string", "null"],
            "pattern": "^/",
            "description": "A whole path. Without it: the home folder of the server's user, or with PostgreSQL the "
            "folder of the worker.",
        },
        "env": {"type": ["object", "null"], "additionalProperties": TEXT},
        "tags": {"type": ["array", "null"], "items": {"type": "string", "minLength": 1, "maxLength": 128}},
        "depends_on": {"type": ["array", "null"], "items": _LINK},
        "batch": maybe(NAME),
        "max_fails": {"type": ["integer", "null"], "minimum": 1, "maximum": job_spec.PRIORITIES},
        "key": {"type": ["string", "null"], "minLength": 1, "maxLength": 128},
        "key_limit": {"type": ["integer", "null"], "minimum": 1, "maximum": job_spec.PRIORITIES},
        "retry_on": {"type": ["array", "null"], "items": _END},
        "no_retry_on": {"type": ["array", "null"], "items": _END},
        "notify": {"type": ["array", "null"], "items": NAME, "description": "Names of hooks."},
        "unique_key": {"type": ["string", "null"], "minLength": 1, "maxLength": 128},
        "on_duplicate": {"type": ["string", "null"], "enum": [*job_spec.ON_DUPLICATE, None]},
    },
    needs=("command",),
)

JOB = record(
    {
        "id": TEXT,
        "command": TEXT,
        "queue": TEXT,
        "state": STATE,
        "priority": WHOLE,
        "attempts": said(WHOLE, "Failed runs."),
        "crashes": said(WHOLE, "Runs that were lost with their worker."),
        "snoozes": said(WHOLE, "Runs that put the job off."),
        "max_retries": WHOLE,
        "backoff_base": NUMBER,
        "retry_on": ENDS,
        "no_retry_on": ENDS,
        "timeout_seconds": maybe(NUMBER),
        "run_at": said(MOMENT, "When it is due."),
        "cwd": maybe(TEXT),
        "env": {"type": "object", "additionalProperties": TEXT},
        "tags": many(TEXT),
        "depends_on": many(_LINK),
        "unique_key": maybe(TEXT),
        "batch": maybe(TEXT),
        "key": maybe(TEXT),
        "key_limit": maybe(WHOLE),
        "notify": many(TEXT),
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "started_at": maybe(MOMENT),
        "finished_at": maybe(MOMENT),
        "duration_ms": maybe(WHOLE),
        "outcome": said(OUTCOME, "How its last run ended."),
        "exit_code": maybe(WHOLE),
        "signal": maybe(WHOLE),
        "error": maybe(TEXT),
        "stdout": said(maybe(TEXT), "The end of what its last run printed."),
        "stderr": maybe(TEXT),
        "progress": said(maybe(NUMBER), "Percent, as its run says."),
        "message": maybe(TEXT),
        "result": {"description": "Whatever its run gave."},
        "log_path": TEXT,
        "worker_id": maybe(TEXT),
    }
)

EVENT = record(
    {
        "at": MOMENT,
        "state": STATE,
        "run": WHOLE,
        "worker_id": maybe(TEXT),
        "kind": {"type": "string", "enum": list(EVENT_KINDS)},
        "reason": TEXT,
        "outcome": said(OUTCOME, "How the run ended, if one did."),
        "exit_code": maybe(WHOLE),
        "signal": maybe(WHOLE),
        "duration_ms": maybe(WHOLE),
        "cpu_ms": maybe(WHOLE),
        "max_rss_kb": maybe(WHOLE),
    }
)

_LIMIT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": policy.MOST}
RULES: dict[str, Schema] = {
    "paused": FLAG,
    "at_once": said(_LIMIT, "So many of its jobs may run at once."),
    "per_key": said(_LIMIT, "So many with the same key; 1 if it is not said."),
    "rate": said(_LIMIT, "So many may start within any span of `rate_ms`."),
    "rate_ms": {"type": ["integer", "null"], "minimum": 1, "maximum": 10**13},
    "retry_on": ENDS,
    "no_retry_on": ENDS,
}
QUEUE = record({"name": TEXT, **RULES, "jobs": COUNTS})
QUEUE_CHANGE = wish({**RULES, "retry_on": many(_END), "no_retry_on": many(_END)}) | {"minProperties": 1}

FIRING = record(
    {
        "moment": said(MOMENT, "The one that it was for."),
        "at": said(MOMENT, "When it happened."),
        "outcome": TEXT,
        "job": maybe(TEXT),
        "reason": maybe(TEXT),
        "job_state": maybe(STATE),
    }
)
_FIRES: dict[str, Schema] = {
    "cron": said(maybe(TEXT), "Either this, five or six fields or a word such as @daily,"),
    "every_seconds": {"type": ["number", "null"], "minimum": 1, "description": "or this."},
    "zone": said(TEXT, "Such as Europe/Berlin; else that of the server."),
}
_MANNERS: dict[str, Schema] = {
    "overlap": {"type": "string", "enum": list(OVERLAPS)},
    "missed": {"type": "string", "enum": list(MISSED)},
}
_PLANNED: dict[str, Schema] = {
    "name": TEXT,
    **_FIRES,
    "job": {"type": "object", "description": "The fields of its jobs, as in NewJob."},
    **_MANNERS,
    "paused": FLAG,
    "created_at": MOMENT,
    "next_at": maybe(MOMENT),
}
SCHEDULE = record({**_PLANNED, "next": said(many(MOMENT), "The next firings."), "last": many(ref("Firing"))})
LISTED_SCHEDULE = record({**_PLANNED, "last": {"oneOf": [ref("Firing"), {"type": "null"}]}})
_WISHED = {**_FIRES, "job": ref("NewJob"), **{name: maybe(schema) for name, schema in _MANNERS.items()}}
_WISHED |= {name: {**_WISHED[name], "enum": [*_MANNERS[name]["enum"], None]} for name in _MANNERS}
_WISHED["zone"] = maybe(_FIRES["zone"])
SCHEDULE_IN_PLACE = wish(_WISHED, needs=("job",))
NEW_SCHEDULE = wish({"name": {**NAME, "maxLength": 100}, **_WISHED}, needs=("name", "job"))

WORKER = record(
    {
        "id": TEXT,
        "pid": WHOLE,
        "host": TEXT,
        "manager_pid": WHOLE,
        "queues": many(TEXT),
        "concurrency": WHOLE,
        "started_at": MOMENT,
        "heartbeat_at": MOMENT,
        "stop": maybe(TEXT),
        "jobs": many(TEXT),
        "alive": FLAG,
        "state": {"type": "string", "enum": list(WORKER_STATES)},
    }
)

SETTING = record(
    {
        "name": TEXT,
        "value": NUMBER,
        "default": NUMBER,
        "at_least": NUMBER,
        "at_most": NUMBER,
        "help": TEXT,
    }
)

ACT = record({"n": WHOLE, "at": MOMENT, "who": TEXT, "action": TEXT, "target": TEXT, "detail": TEXT})

DEAD_GROUP = record(
    {"group": TEXT, "cause": TEXT, "count": WHOLE, "example": TEXT, "oldest": MOMENT, "newest": MOMENT}
)

_SPREAD: Schema = record(dict.fromkeys(("avg", "min", "max", "p50", "p95", "p99"), NUMBER))
STATS = record(
    {
        "jobs": COUNTS,
        "total": WHOLE,
        "window": said(WHOLE, "The figures below are of so many of the newest finished jobs."),
        "average_attempts": maybe(NUMBER),
        "success_rate": maybe(NUMBER),
        "run_ms": maybe(_SPREAD),
        "wait_ms": maybe(_SPREAD),
        "finished_last_minute": WHOLE,
        "finished_last_hour": WHOLE,
        "workers": WHOLE,
    }
)

MANY_CHANGED = record(
    {
        "matched": said(WHOLE, "Jobs that were meant."),
        "done": said(WHOLE, "Those of them that were changed; with dry_run, none."),
        "more": said(FLAG, "There may be more that match."),
        "next": said(maybe(CURSOR), "The cursor to go on from; null: that was all, or only counted."),
    }
)
CHOICE = wish(
    {
        "ids": IDS,
        "q": said(
            {"type": "string", "minLength": 1, "maxLength": 1000},
            "Search words; all that match, as far as it can be done.",
        ),
        "dry_run": said(FLAG, "With q: only count."),
        "cursor": said(maybe(CURSOR), "With q: what the last answer gave as `next`."),
    }
) | {
    "oneOf": [
        {"required": ["ids"], "not": {"anyOf": [{"required": ["dry_run"]}, {"required": ["cursor"]}]}},
        {"required": ["q"], "not": {"required": ["dry_run", "cursor"]}},
    ]
}

PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457, and a hint: what to do about it.",
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": WHOLE,
        "detail": TEXT,
        "hint": TEXT,
        "index": said(WHOLE, "Of several new jobs, the one that it is about."),
        "outcome": said({"const": "unknown"}, "The change may have been stored or not: look before you try again."),
    },
    "required": ["type", "title", "status", "detail", "hint"],
}

SCHEMAS: dict[str, Schema] = {
    "NewJob": NEW_JOB,
    "Job": JOB,
    "Event": EVENT,
    "Queue": QUEUE,
    "QueueChange": QUEUE_CHANGE,
    "Schedule": SCHEDULE,
    "ListedSchedule": LISTED_SCHEDULE,
    "NewSchedule": NEW_SCHEDULE,
    "ScheduleInPlace": SCHEDULE_IN_PLACE,
    "Firing": FIRING,
    "Worker": WORKER,
    "Setting": SETTING,
    "Act": ACT,
    "DeadGroup": DEAD_GROUP,
    "Stats": STATS,
    "ManyChanged": MANY_CHANGED,
    "Choice": CHOICE,
    "Problem": PROBLEM,
}
