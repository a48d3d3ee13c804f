"""Light, dark, or as the system has it: kept in a cookie, so that the first drawing is right."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from queuectl.web.auth import Role
from queuectl.web.routing import Door, form, local_path

COOKIE = "queuectl_theme"
KEPT = 400 * 86400  # seconds: no browser keeps one for longer
CHOICES = ("light", "dark")


def of(request: Request) -> str:
    """What somebody has chosen; empty: as the system has it."""
    chosen = request.cookies.get(COOKIE, "")
    return chosen if chosen in CHOICES else ""


def choose(request: Request) -> Response:
    """Without JavaScript; the page's own script sets the same cookie."""
    fields = form(request)
    chosen = fields.get("theme", [""])[0]
    response = RedirectResponse(local_path(fields.get("back", ["/"])[0]), 303)
    if chosen in CHOICES:
        response.set_cookie(COOKIE, chosen, max_age=KEPT, samesite="strict")
    else:
        response.delete_cookie(COOKIE, samesite="strict")
    return response


ROUTES = (Door("/theme", choose, Role.VIEWER, ["POST"]),)
