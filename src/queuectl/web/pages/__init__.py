"""The pages of the dashboard, and what their buttons do. Each page shows; each action does one thing and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from queuectl.store import Store
from queuectl.web.access import Role
from queuectl.web.pages import job, overview
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
    Page("/jobs/new", job.new, Role.ADMIN),  # before the jobs: none of them is looked for by this name
    Page("/jobs/{id}", job.show),
)

ACTIONS: tuple[Action, ...] = (
    Action("/jobs/new", job.create, Role.ADMIN),
    Action("/jobs/{id}/cancel", job.cancel, Role.OPERATOR),
    Action("/jobs/{id}/retry", job.retry, Role.OPERATOR),
    Action("/jobs/{id}/delete", job.delete, Role.ADMIN),
)
