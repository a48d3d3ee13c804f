"""Coming in and going out: by the link that is printed at the start, or with a token."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from queuectl.web import theme
from queuectl.web.auth import SESSION_SECONDS, Role, User
from queuectl.web.rendering import Ask, View, draw
from queuectl.web.routing import Door, desk, form, here, local_path

NOBODY = User("", Role.VIEWER)
WRONG_LINK = "This link has been used, or was printed by an earlier start. Use the token instead."


def show(request: Request) -> Response:
    """The form; or, with the code of the printed link, straight in."""
    if request.state.user:
        return RedirectResponse(local_path(request.query_params.get("next", "/")), 303)
    code = request.query_params.get("code")
    if code is None or request.method != "GET":
        return _form(request, "")
    user = desk(request).access.redeem(code)
    return _enter(request, user, "/") if user else _form(request, WRONG_LINK, 401)


def enter(request: Request) -> Response:
    fields = form(request)
    user = desk(request).access.by_token(fields.get("token", [""])[0].strip())
    if user is None:
        return _form(request, "That is not a token of this server.", 401)
    return _enter(request, user, local_path(fields.get("next", ["/"])[0]))


def leave(request: Request) -> Response:
    response = RedirectResponse("/login", 303)
    response.delete_cookie(desk(request).cookie, httponly=True, samesite="strict")
    return response


def ask_for_it(request: Request) -> Response:
    """Where somebody goes who has to say who he is."""
    back = here(request)
    return RedirectResponse("/login" if back == "/" else f"/login?next={quote(back)}", 303)


def _enter(request: Request, user: User, to: str) -> Response:
    response = RedirectResponse(to, 303)
    response.set_cookie(
        desk(request).cookie,
        desk(request).access.session(user),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.headers.get("origin", "").startswith("https:"),  # a proxy speaks TLS for us
    )
    return response


def _form(request: Request, wrong: str, status: int = 200) -> Response:
    next = local_path(request.query_params.get("next", "/"))
    view = View("login.html", {"wrong": wrong, "next": next, "help": desk(request).where_is_the_token}, status)
    return HTMLResponse(draw(view, Ask(NOBODY, theme=theme.of(request)), "", live=False), status)


ROUTES = (
    Door("/login", show, None),
    Door("/login", enter, None, ["POST"]),
    Door("/logout", leave, Role.VIEWER, ["POST"]),
)
