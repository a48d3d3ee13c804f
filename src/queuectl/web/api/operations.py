"""The one table of operations: routes, checks, the OpenAPI document and the docs all read it."""

from __future__ import annotations

from queuectl.web.api import admin, bulk, jobs, queues, schedules, streaming
from queuectl.web.api.operation import Operation, Param
from queuectl.web.api.schemas import (
    CHOICE,
    CURSOR,
    FLAG,
    LIMIT,
    MOST_JOBS,
    NEW_SCHEDULE,
    NUMBER,
    QUEUE_CHANGE,
    SCHEDULE_IN_PLACE,
    STATE,
    TEXT,
    WHOLE,
    many,
    maybe,
    record,
    ref,
)
from queuectl.web.auth import Role

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

SWITCH = {"type": "integer", "minimum": 0, "maximum": 1, "default": 0}
SEARCH = {"type": "string", "maxLength": 1000}
KEY = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]*$"}
NEXT = maybe(CURSOR)
PAGED = (Param("limit", LIMIT), Param("cursor", CURSOR, "What the last answer gave as `next`."))
JOB_ID = "A job's id, a unique beginning of it (3 characters or more), or @last."
IN_PATH = {"id": "Its id.", "name": "Its name.", "key": "The name of a setting."}

OPERATIONS = (
    # -- jobs
    Operation(
        "POST", "/jobs", ADMIN, "Enqueue one job, or all of several or none", jobs.create_jobs,
        {"oneOf": [ref("Job"), record({"jobs": many(ref("Job"))})]},
        params=(
            Param(
                "Idempotency-Key", KEY, "A word for this very request: asked again within a week, it brings the same "
                "jobs and stores nothing.", "header",
            ),
        ),
        body={
            "oneOf": [
                ref("NewJob"),
                many(ref("NewJob"), minItems=1, maxItems=MOST_JOBS),
                record({"jobs": many(ref("NewJob"), minItems=1, maxItems=MOST_JOBS)}),
            ]
        },
        status=201, more={404: "The job that this key brought is gone"}, example='{"command": "echo hello"}',
    ),
    Operation(
        "GET", "/jobs", VIEWER, "List jobs, the newest first", jobs.list_jobs,
        record({"jobs": many(ref("Job")), "next": NEXT}),
        params=(
            Param("q", SEARCH, 'As in the search box: `queue:mail state:dead exit:1 since:1h "some text"`.'),
            Param("state", STATE),
            Param("queue", TEXT),
            Param("tag", TEXT),
            Param("batch", TEXT),
            *PAGED,
        ),
    ),
    Operation("GET", "/jobs/{id}", VIEWER, "Get a job", jobs.get_job, ref("Job")),
    Operation("DELETE", "/jobs/{id}", ADMIN, "Delete a finished job", jobs.delete_job, None, status=204),
    Operation("POST", "/jobs/{id}/cancel", OPERATOR, "Cancel a job", jobs.cancel_job, ref("Job")),
    Operation("POST", "/jobs/{id}/retry", OPERATOR, "Run a dead job again", jobs.retry_job, ref("Job")),
    Operation(
        "GET", "/jobs/{id}/log", VIEWER, "Read what a job printed", streaming.get_log, None,
        params=(
            Param("tail", {"type": "integer", "minimum": 0, "maximum": 1_000_000}, "Only the last lines."),
            Param("follow", SWITCH, "1: go on until the job has finished."),
            Param("raw", SWITCH, "1: the file itself, of which a Range can be asked for."),
            Param("download", SWITCH, "1: for a browser to save."),
        ),
        more={206: "The part that was asked for", 409: "The log is on another machine", 416: "No such bytes"},
        live=True,
    ),
    Operation(
        "GET", "/jobs/{id}/history", VIEWER, "What happened to a job", jobs.get_history,
        record({"events": many(ref("Event"))}),
    ),
    Operation(
        "GET", "/jobs/{id}/explain", VIEWER, "Why a job is not running", jobs.explain_job,
        record({"id": TEXT, "state": STATE, "reasons": many(TEXT)}),
    ),
    Operation(
        "GET", "/jobs/{id}/wait", VIEWER, "Wait until a job has finished", streaming.wait_for_job,
        record({"finished": FLAG, "job": ref("Job")}),
        params=(
            Param("timeout", {"type": "number", "minimum": 0, "maximum": 60, "default": 30}, "Seconds."),
        ),
        live=True,
    ),
    Operation(
        "POST", "/jobs/cancel", OPERATOR, "Cancel many jobs", bulk.cancel_jobs, ref("ManyChanged"), body=CHOICE,
        more={404: "One of the ids is unknown"}, example='{"q": "queue:mail state:pending", "dry_run": true}',
    ),
    Operation(
        "POST", "/jobs/retry", OPERATOR, "Run many dead jobs again", bulk.retry_jobs, ref("ManyChanged"), body=CHOICE,
        more={404: "One of the ids is unknown"}, example='{"q": "queue:mail exit:1"}',
    ),
    Operation(
        "POST", "/jobs/delete", ADMIN, "Delete many finished jobs", bulk.delete_jobs, ref("ManyChanged"), body=CHOICE,
        more={404: "One of the ids is unknown"}, example='{"q": "tag:old state:completed", "dry_run": true}',
    ),
    # -- queues
    Operation(
        "GET", "/queues", VIEWER, "List the queues", queues.list_queues, record({"queues": many(ref("Queue"))})
    ),
    Operation("GET", "/queues/{name}", VIEWER, "Get a queue", queues.get_queue, ref("Queue")),
    Operation(
        "PATCH", "/queues/{name}", OPERATOR, "Pause a queue; an admin may limit it", queues.change_queue,
        ref("Queue"), body=QUEUE_CHANGE, example='{"paused": true}',
    ),
    # -- schedules
    Operation(
        "GET", "/schedules", VIEWER, "List the schedules", schedules.list_schedules,
        record({"schedules": many(ref("ListedSchedule"))}),
    ),
    Operation(
        "POST", "/schedules", ADMIN, "Make a schedule", schedules.create_schedule, ref("Schedule"),
        body=NEW_SCHEDULE, status=201,
        example='{"name": "nightly", "cron": "30 2 * * *", "zone": "UTC", "job": {"command": "./backup.sh"}}',
    ),
    Operation("GET", "/schedules/{name}", VIEWER, "Get a schedule", schedules.get_schedule, ref("Schedule")),
    Operation(
        "PUT", "/schedules/{name}", ADMIN, "Make or replace a schedule", schedules.replace_schedule, ref("Schedule"),
        body=SCHEDULE_IN_PLACE, more={201: "It is new"},
        example='{"every_seconds": 600, "job": {"command": "./sync.sh"}}',
    ),
    Operation("DELETE", "/schedules/{name}", ADMIN, "Forget a schedule", schedules.delete_schedule, None, status=204),
    Operation(
        "POST", "/schedules/{name}/pause", OPERATOR, "Let a schedule rest", schedules.pause_schedule, ref("Schedule")
    ),
    Operation(
        "POST", "/schedules/{name}/resume", OPERATOR, "Let a schedule go on", schedules.resume_schedule,
        ref("Schedule"),
    ),
    Operation(
        "POST", "/schedules/{name}/trigger", ADMIN, "Enqueue a schedule's job now", schedules.trigger_schedule,
        ref("Job"), status=201,
    ),
    Operation(
        "GET", "/schedules/{name}/firings", VIEWER, "What became of its firings", schedules.list_firings,
        record({"firings": many(ref("Firing"))}),
    ),
    # -- the whole
    Operation(
        "GET", "/workers", VIEWER, "List the workers", admin.list_workers, record({"workers": many(ref("Worker"))})
    ),
    Operation(
        "POST", "/workers/{id}/stop", OPERATOR, "Tell a worker to leave", admin.stop_worker,
        record({"id": TEXT, "stop": TEXT}),
        body=record({"how": {"type": "string", "enum": ["drain", "now"]}}), example='{"how": "drain"}',
    ),
    Operation(
        "GET", "/dlq", VIEWER, "The dead jobs, by what they died of", admin.list_dead,
        record({"dead": WHOLE, "looked_at": WHOLE, "groups": many(ref("DeadGroup"))}),
    ),
    Operation(
        "GET", "/config", VIEWER, "List the settings", admin.list_settings,
        record({"settings": many(ref("Setting"))}),
    ),
    Operation("GET", "/config/{key}", VIEWER, "Get a setting", admin.get_setting, ref("Setting")),
    Operation(
        "PUT", "/config/{key}", ADMIN, "Change a setting", admin.put_setting, ref("Setting"),
        body=record({"value": NUMBER}), example='{"value": 5}',
    ),
    Operation(
        "DELETE", "/config/{key}", ADMIN, "Put a setting back to its default", admin.delete_setting, ref("Setting")
    ),
    Operation("GET", "/stats", VIEWER, "Counts and figures", admin.get_stats, ref("Stats")),
    Operation(
        "GET", "/audit", VIEWER, "Who did what", admin.list_acts,
        record({"acts": many(ref("Act")), "next": NEXT}), params=PAGED,
    ),
    Operation("GET", "/whoami", VIEWER, "Who you are", admin.whoami, record({"name": TEXT, "role": TEXT})),
)  # fmt: skip
