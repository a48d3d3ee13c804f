"""The pages of the dashboard, and what their buttons do. Each page shows; each action does one thing and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from queuectl.store import Store
from queuectl.web.access import Role
from queuectl.web.pages import bulk, jobs, overview
from queuectl.web.view import Ask, Done, Fields, View


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


PAGES = (
    Page("/", overview.show),
    Page("/jobs", jobs.show),
    Page("/bulk/new", bulk.show_new, Role.OPERATOR),
    Page("/bulk/{id}", bulk.show),
)

ACTIONS: tuple[Action, ...] = (
    Action("/chosen/cancel", jobs.cancel, Role.OPERATOR),
    Action("/chosen/retry", jobs.retry, Role.OPERATOR),
    Action("/chosen/delete", jobs.delete, Role.ADMIN),
    Action("/bulk/new/cancel", bulk.start_cancel, Role.OPERATOR),
    Action("/bulk/new/retry", bulk.start_retry, Role.OPERATOR),
    Action("/bulk/new/delete", bulk.start_delete, Role.ADMIN),
    Action("/bulk/{id}/stop", bulk.stop, Role.OPERATOR),
)
