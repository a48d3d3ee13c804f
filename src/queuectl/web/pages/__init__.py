"""The pages of the dashboard, and what their buttons do. Each page shows; each action does one thing and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from queuectl.store import Store
from queuectl.web.access import Role
from queuectl.web.pages import overview
from queuectl.web.view import Ask, View


class Page(NamedTuple):
    path: str
    show: Callable[[Store, Ask], View]
    role: Role = Role.VIEWER


class Done(NamedTuple):
    """What came of an action: a sentence for whoever asked, and where to go now (back, if it is not said)."""

    said: str
    to: str | None = None


class Action(NamedTuple):
    """What a form asks for with POST; the form's fields come as lists."""

    path: str
    do: Callable[[Store, Ask, dict[str, list[str]]], Done]
    role: Role


PAGES = (Page("/", overview.show),)

ACTIONS: tuple[Action, ...] = ()
