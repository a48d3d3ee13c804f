"""Routes that say who may pass, and what the code behind them is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from queuectl.client.http_client import ROOT
from queuectl.web.auth import Role, User
from queuectl.web.http_errors import Forbidden, Malformed, Unauthorized

if TYPE_CHECKING:
    from queuectl.web.app_state import Desk

MOST_FIELDS = 10_000


class Door(Route):
    """A route with the role that it takes; None: open to strangers."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        role: Role | None,
        methods: Sequence[str] = ("GET",),
        **more: Any,
    ) -> None:
        super().__init__(path, endpoint, methods=list(methods), **more)
        self.role = role

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.role is not None and scope["method"] in (self.methods or ()):
            admit(scope["state"]["user"], self.role)
        await super().handle(scope, receive, send)


def admit(user: User | None, role: Role) -> None:
    if user is None:
        raise Unauthorized("who are you?", "log in, or send your token: Authorization: Bearer TOKEN")
    if user.role < role:
        raise Forbidden(f'"{user.name}" is {_a(user.role)}; this takes {_a(role)}', "ask for a token with that role")


def _a(role: Role) -> str:
    return f"an {role.word}" if role is not Role.VIEWER else "a viewer"


def desk(request: Request) -> Desk:
    """What the server has: the stores, the access, the live streams."""
    found: Desk = request.app.state.desk
    return found


def user_of(request: Request) -> User:
    found: User = request.state.user
    return found


def form(request: Request) -> dict[str, list[str]]:
    """The fields of a form that was sent; the same one may be there several times."""
    text = request.state.body.decode("utf-8", "replace")
    refuse_nul("form", text)
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Malformed(f"the form has more than {MOST_FIELDS:,} fields", "send fewer") from None


def refuse_nul(what: str, text: str) -> None:
    """Refuse percent-encoded text with a NUL byte in it, which PostgreSQL cannot store and a shell cannot take."""
    if "\0" in text or "%00" in text:
        raise Malformed(f"the {what} contains a NUL byte", "remove it")


def local_path(text: str) -> str:
    """A path of this server, or its front page: nobody is sent to another site."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    safe = not parts.scheme and not parts.netloc and text.startswith("/") and not text.startswith("//")
    return text if safe and "\\" not in text and text.isprintable() else "/"


def here(request: Request) -> str:
    """Its path and query."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def wants_page(request: Request) -> bool:
    """Is it a person who asks, rather than a program?"""
    path = request.url.path
    return path == ROOT or not path.startswith(("/api/", "/metrics", "/live"))
