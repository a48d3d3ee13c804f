"""Turning what was found into a page: templates, and the words they use."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from queuectl import __version__
from queuectl.jobs.job_filter import Filter
from queuectl.system import times
from queuectl.system.escaping import visible_lines
from queuectl.system.times import plural
from queuectl.web import theme
from queuectl.web.auth import Role, User
from queuectl.web.routing import here

FOLDER = os.path.dirname(__file__)
_REGION = re.compile(r"<!--live (\w[\w-]*)-->(.*?)<!--/live-->", re.DOTALL)


@dataclass(frozen=True)
class Ask:
    """What somebody wants to see. Pages know no more of a request, so that a live stream can draw them, too."""

    user: User
    path: Mapping[str, str] = field(default_factory=dict)  # the parameters in the path
    query: Mapping[str, str] = field(default_factory=dict)
    said: str = ""  # about what was done before this page
    here: str = "/"  # the address of this page, to come back to
    theme: str = ""  # light or dark; empty: as the system has it

    def may(self, role: Role) -> bool:
        return self.user.role >= role


def ask_of(request: Request, user: User, said: str = "") -> Ask:
    return Ask(user, request.path_params, dict(request.query_params), said, here(request), theme.of(request))


@dataclass(frozen=True)
class View:
    """A page before it is drawn: its template, and all that this shows."""

    template: str
    shows: Mapping[str, Any]
    status: int = 200
    to: str = ""  # where this page really lies, if that is not where somebody looked


class Done(NamedTuple):
    """What came of an action: a sentence for whoever asked, and where to go now (back, if it is not said)."""

    said: str
    to: str | None = None


Fields = dict[str, list[str]]
"""What a form sent; a field may be there several times."""


def given(fields: Fields, name: str) -> str:
    """The text of one field, without the space around it and with the line ends of Unix; "" if it is not there."""
    return fields.get(name, [""])[-1].replace("\r\n", "\n").strip()


@functools.cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.join(FOLDER, "templates")),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"version": __version__, "Role": Role, "static": static, "sought": sought}
    templates.filters |= {
        "span": span,
        "iso": times.iso,
        "clock": clock,
        "plural": plural,
        "number": "{:,}".format,
        "visible": visible_lines,
        "as_it_is": escape,  # for what a form sends back
    }
    return templates


def _shown(value: object) -> object:
    """What a template shows of a value: of text that others wrote, nothing may act unseen. Markup is ours."""
    return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def static(name: str) -> str:
    """The address of a file of ours; another one when its content is another, so that browsers can keep it."""
    import hashlib

    with open(os.path.join(FOLDER, "static", name), "rb") as file:
        return f"/static/{name}?v={hashlib.sha256(file.read()).hexdigest()[:12]}"


def draw(view: View, ask: Ask, csrf: str, live: bool) -> str:
    """`live`: for those who have the page already, and see times pass by themselves."""
    shows = {"ask": ask, "user": ask.user, "csrf": csrf, "live": live, "now": times.now_ms(), **view.shows}
    return _templates().get_template(view.template).render(shows)


def regions(page: str) -> dict[str, str]:
    """The parts of a page that change while somebody looks at it: what stands between `live` comments."""
    return {match[1]: match[2] for match in _REGION.finditer(page)}


def answer(request: Request, view: View, ask: Ask) -> Response:
    if view.to:
        return RedirectResponse(view.to, 303)
    csrf = request.app.state.desk.access.csrf(ask.user) if ask.user.session else ""
    return HTMLResponse(draw(view, ask, csrf, live=False), view.status)


def sought(**fields: Any) -> str:
    """What to search for, to find the jobs with these."""
    return Filter(**fields).words()


def span(milliseconds: float | None) -> str:
    return "" if milliseconds is None else times.span(milliseconds / 1000)


def clock(moment: int | None) -> Markup:
    """A moment, which the page itself turns into `3 minutes ago` where it can."""
    if moment is None:
        return Markup("")
    return Markup('<time datetime="{iso}" title="{iso}">{text}</time>').format(
        iso=times.iso(moment), text=times.local(moment)
    )
