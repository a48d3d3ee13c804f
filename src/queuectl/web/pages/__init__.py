"""The pages of the dashboard, and what their buttons do. Each page shows; each action does one thing and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from queuectl.store import Store
from queuectl.web.auth import Role
from queuectl.web.pages import audit, bulk, dlq, job, jobs, new_job, overview, queues, schedules, settings, workers
from queuectl.web.rendering import Ask, Done, Fields, View


class Page(NamedTuple):
    path: str
    show: Callable[[Store, Ask], View]
    role: Role = Role.VIEWER


class Action(NamedTuple):
    """What a form asks for with POST; the form's fields come as lists. If it cannot be done as it was filled in, the
    form is shown again: then it should be sent to the address of its own page, so that this stays fresh."""

    path: str
    do: Callable[[Store, Ask, Fields], Done | View]
    role: Role
    asks: str = ""  # what somebody is asked whose page could not ask him before


PAGES = (
    Page("/", overview.show),
    Page("/jobs", jobs.show),
    Page("/jobs/new", new_job.show, Role.ADMIN),  # before the jobs: none of them is looked for by this name
    Page("/jobs/{id}", job.show),
    Page("/bulk/new", bulk.show_new, Role.OPERATOR),
    Page("/bulk/{id}", bulk.show),
    Page("/dead", dlq.show),
    Page("/queues", queues.show),
    Page("/schedules", schedules.show_all),
    Page("/schedules/new", schedules.show_new, Role.ADMIN),
    Page("/schedules/{name}", schedules.show_one),
    Page("/schedules/{name}/edit", schedules.show_edit, Role.ADMIN),
    Page("/workers", workers.show),
    Page("/settings", settings.show),
    Page("/audit", audit.show),
)

ACTIONS: tuple[Action, ...] = (
    Action("/jobs/new", new_job.create, Role.ADMIN),
    Action("/jobs/{id}/cancel", job.cancel, Role.OPERATOR),
    Action("/jobs/{id}/retry", job.retry, Role.OPERATOR),
    Action("/jobs/{id}/delete", job.delete, Role.ADMIN, "Delete this job with its history and its log?"),
    Action("/chosen/cancel", jobs.cancel, Role.OPERATOR),
    Action("/chosen/retry", jobs.retry, Role.OPERATOR),
    Action("/chosen/delete", jobs.delete, Role.ADMIN, "Delete these jobs with their history and logs?"),
    Action("/bulk/new/cancel", bulk.start_cancel, Role.OPERATOR),
    Action("/bulk/new/retry", bulk.start_retry, Role.OPERATOR),
    Action("/bulk/new/delete", bulk.start_delete, Role.ADMIN),
    Action("/bulk/{id}/stop", bulk.stop, Role.OPERATOR),
    Action("/dead/retry", dlq.retry, Role.OPERATOR),
    Action("/dead/delete", dlq.delete, Role.ADMIN, "Delete these jobs with their history and logs?"),
    Action("/queues", queues.change, Role.ADMIN),
    Action("/queues/pause", queues.pause, Role.OPERATOR),
    Action("/queues/resume", queues.resume, Role.OPERATOR),
    Action("/schedules/new", schedules.add, Role.ADMIN),
    Action("/schedules/{name}/edit", schedules.replace, Role.ADMIN),
    Action("/schedules/{name}/run", schedules.run, Role.ADMIN),
    Action("/schedules/{name}/pause", schedules.pause, Role.OPERATOR),
    Action("/schedules/{name}/resume", schedules.resume, Role.OPERATOR),
    Action(
        "/schedules/{name}/remove",
        schedules.remove,
        Role.ADMIN,
        "Remove this schedule? Jobs that it has enqueued stay.",
    ),
    Action("/workers/stop", workers.stop, Role.OPERATOR),
    Action("/settings", settings.change, Role.ADMIN),
    Action("/settings/unset", settings.unset, Role.ADMIN),
)
