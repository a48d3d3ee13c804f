"""The whole app: its routes, and how errors are said."""

from __future__ import annotations

import asyncio
import http
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Match, compile_path

from queuectl import __version__
from queuectl.errors import QueuectlError
from queuectl.metrics import prometheus
from queuectl.web import api, bulk_actions, login, pages, theme
from queuectl.web.allowed_hosts import Hosts
from queuectl.web.app_state import Desk
from queuectl.web.auth import Access, Role, User
from queuectl.web.http_errors import Malformed, Unauthorized, UnknownPage, WrongMethod, headers_of, problem
from queuectl.web.rendering import FOLDER, Ask, View, answer, ask_of, draw, regions
from queuectl.web.routing import Door, admit, desk, form, local_path, user_of, wants_page
from queuectl.web.security import Guard
from queuectl.web.sse import Live, stream
from queuectl.web.store_pool import Stores
from queuectl.web.streams import StreamLimits

THREADS = 100  # more than can wait for the database at once: others are answered meanwhile
FLASH = 10  # seconds that what was said about an action waits for the next page


def make_app(
    stores: Stores,
    access: Access,
    hosts: Hosts,
    port: int,
    where_is_the_token: str,
    routes: Sequence[Door] | None = None,
) -> Starlette:
    cookie = f"queuectl_{port}"
    live = Live(stores, draw_live)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        live.close()
        await asyncio.to_thread(bulk_actions.WORKS.stop)
        stores.close()

    app = Starlette(
        routes=list(ROUTES if routes is None else routes),
        middleware=[Middleware(Guard, access=access, hosts=hosts, cookie=cookie, refuse=_say)],
        exception_handlers={QueuectlError: _say, HTTPException: _say_http},  # type: ignore[dict-item]
        lifespan=lifespan,
    )
    app.state.desk = Desk(stores, access, live, StreamLimits(), cookie, where_is_the_token)
    return app


# -- pages and actions -----------------------------------------------------------------------------------


def _page(page: pages.Page) -> Door:
    def show(request: Request) -> Response:
        flash = request.cookies.get(f"{desk(request).cookie}_said")
        ask = ask_of(request, user_of(request), unquote(flash or ""))
        with desk(request).stores.lend() as store:
            view = page.show(store, ask)
        response = answer(request, view, ask)
        if flash:
            response.delete_cookie(f"{desk(request).cookie}_said", httponly=True, samesite="strict")
        return response

    return Door(page.path, show, page.role)


def _action(action: pages.Action) -> Door:
    def do(request: Request) -> Response:
        fields = form(request)
        user = user_of(request)
        ask = ask_of(request, user)
        if action.asks and "sure" not in fields:
            again = [(name, value) for name, values in fields.items() for value in values if name != "csrf"]
            return answer(request, View("sure.html", {"question": action.asks, "again": again}), ask)
        with desk(request).stores.lend(user.name) as store:
            done = action.do(store, ask, fields)
        if isinstance(done, View):  # a form with something wrong in it, or not sent off yet
            return answer(request, done, ask)
        response = RedirectResponse(done.to or local_path(fields.get("back", ["/"])[0]), 303)
        response.set_cookie(
            f"{desk(request).cookie}_said", quote(done.said), max_age=FLASH, httponly=True, samesite="strict"
        )
        return response

    return Door(action.path, do, action.role, ["POST"])


def draw_live(stores: Stores, address: str, user: User) -> dict[str, str]:
    """The live regions of the page at this address."""
    if local_path(address) != address:
        raise UnknownPage("there is no such page", "go back to the overview")
    parts = urlsplit(address)
    for pattern, page in _PATTERNS:
        if match := pattern.match(parts.path):
            admit(user, page.role)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            ask = Ask(user, match.groupdict(), query, here=address)
            with stores.lend() as store:
                view = page.show(store, ask)
            return regions(draw(view, ask, "", live=True))
    raise UnknownPage("there is no such page", "go back to the overview")


_PATTERNS = [(compile_path(page.path)[0], page) for page in pages.PAGES]


# -- errors ----------------------------------------------------------------------------------------------


def _say(request: Request, error: QueuectlError) -> Response:
    """To a program as a problem, to a person as a page."""
    if not wants_page(request):
        return problem(error)
    if isinstance(error, Unauthorized) and request.method in ("GET", "HEAD"):
        return login.ask_for_it(request)
    title = http.HTTPStatus(error.http_status).phrase
    ask = ask_of(request, getattr(request.state, "user", None) or login.NOBODY)
    ask = replace(ask, here="/")  # what was sent to this address cannot be sent again by a link
    view = View("error.html", {"title": title, "message": error.message, "hint": error.hint}, error.http_status)
    response = answer(request, view, ask)
    response.headers.update(headers_of(error))
    return response


def _say_http(request: Request, error: HTTPException) -> Response:
    match error.status_code:
        case 404:
            return _say(request, UnknownPage("there is nothing here", "see the overview, or /api/v1"))
        case 405:
            allow = ", ".join(sorted(_methods_at(request)))
            response = _say(request, WrongMethod("not with this method", f"here you can use {allow}"))
            response.headers["Allow"] = allow
            return response
    return _say(request, Malformed(error.detail, ""))


def _methods_at(request: Request) -> set[str]:
    """All that can be asked with at this address: several doors may lead to it."""
    doors = [door for door in request.app.routes if door.matches(request.scope)[0] is not Match.NONE]
    return {method for door in doors for method in door.methods}


# -- the rest --------------------------------------------------------------------------------------------


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    path = os.path.join(FOLDER, "static", name)
    if name not in os.listdir(os.path.join(FOLDER, "static")):
        raise UnknownPage("there is no such file", "")
    return FileResponse(path, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _health(request: Request) -> Response:
    """For load balancers and Docker: does the server answer, and does the queue?"""
    try:
        with desk(request).stores.lend() as store:
            store.views.clock()
    except QueuectlError:  # strangers need not know where it lies
        return PlainTextResponse("the queue does not answer\n", 503)
    return PlainTextResponse("ok\n")


def _metrics(request: Request) -> Response:
    with desk(request).stores.lend() as store:
        snapshot = store.figures.snapshot()
    return Response(prometheus.text(snapshot, __version__), media_type=prometheus.CONTENT_TYPE)


ROUTES: tuple[Door, ...] = (
    *(_page(page) for page in pages.PAGES),
    *(_action(action) for action in pages.ACTIONS),
    *pages.job.DOORS,
    Door("/live", stream, Role.VIEWER),
    Door("/metrics", _metrics, Role.VIEWER),
    *login.ROUTES,
    *theme.ROUTES,
    *api.ROUTES,
    Door("/static/{name}", _static, None),
    Door("/health", _health, None),
)
