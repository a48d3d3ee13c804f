"""Stands before the app: whatever comes in passes here first, on every route."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queuectl.errors import QueuectlError
from queuectl.web.allowed_hosts import Hosts
from queuectl.web.auth import Access, User
from queuectl.web.http_errors import Forbidden, Malformed, Misdirected, TooLarge, TooSlow
from queuectl.web.routing import refuse_nul

log = logging.getLogger("queuectl.web")
LARGEST_BODY = 1 << 20
LARGEST_LOGIN = 4096
BODY_WITHIN = 10.0  # seconds
BODIES_AT_ONCE = 32
LOGINS_AT_ONCE = 8
SAFE = ("GET", "HEAD", "OPTIONS")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # not no-referrer: browsers would then hide the Origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Checks where a request was sent to, which page it comes from, who sends it, and how much of it there is.

    The app finds the user in `request.state.user` (None: nobody we know) and the body in `request.state.body`.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        hosts: Hosts,
        cookie: str,
        refuse: Callable[[Request, QueuectlError], Response],
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._access = access
        self._hosts = hosts
        self._cookie = cookie
        self._bodies = asyncio.Semaphore(BODIES_AT_ONCE)
        self._logins = asyncio.Semaphore(LOGINS_AT_ONCE)  # strangers keep only strangers waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        answering = False

        async def send_with_headers(message: Message) -> None:
            nonlocal answering
            if message["type"] == "http.response.start":
                answering = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        state = scope.setdefault("state", {})
        state |= {"user": None, "body": b""}
        try:
            state["user"] = self._admitted(scope)
            refuse_nul("address", f"{scope['path']}?{scope['query_string'].decode('latin-1')}")
            if scope["method"] not in SAFE:
                state["body"] = await self._body(scope, receive, state["user"])
                self._check_csrf(scope, state["user"], state["body"])
                receive = _nothing_more(receive)
        except QueuectlError as refused:
            await self._refuse(Request(scope), refused)(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            log.exception("bug method=%s path=%s", scope["method"], scope["path"])
            if not answering:
                bug = QueuectlError("this is a bug in queuectl", "the server's log says more; please report it")
                await self._refuse(Request(scope), bug)(scope, receive, send_with_headers)

    def _admitted(self, scope: Scope) -> User | None:
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or headers["host"] not in self._hosts:
            raise Misdirected(
                "this server does not answer to that name", "use its address, or serve with --allow-host NAME"
            )
        if scope["method"] not in SAFE:
            self._check_origin(headers)
        words = headers.get("authorization", "").split()
        if words:
            return self._access.by_token(words[1]) if len(words) == 2 and words[0].lower() == "bearer" else None
        session = self._session(headers)
        return self._access.by_session(session) if session else None

    def _session(self, headers: Headers) -> str | None:
        """Our own cookie, whatever others have left here: all ports of a machine share theirs."""
        for pair in "; ".join(headers.getlist("cookie")).split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self._cookie:
                return value
        return None

    def _check_origin(self, headers: Headers) -> None:
        """A change may be asked for by our own pages, and by programs, which send neither of these."""
        ours = [f"{scheme}://{headers['host']}".lower() for scheme in ("http", "https")]
        foreign = headers.get("origin", ours[0]).lower() not in ours
        if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("a page of another site must not do this", "open the dashboard itself")

    async def _body(self, scope: Scope, receive: Receive, user: User | None) -> bytes:
        """All of it, in time. Of strangers nothing is read but what a login takes."""
        if user is None and scope["path"] != "/login":
            return b""
        most = LARGEST_BODY if user else LARGEST_LOGIN
        too_large = TooLarge(f"the request is larger than {most >> 10} KiB", "send it in several parts")
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdigit():
            raise Malformed(f'invalid Content-Length header "{length[:20]}"', "send the body's length in bytes")
        if int(length[:12]) > most:
            raise too_large
        body = b""
        try:
            async with asyncio.timeout(BODY_WITHIN), self._bodies if user else self._logins:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Malformed("the request was cut off", "send it again")
                    body += bytes(message.get("body", b""))
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body"):
                        return body
        except TimeoutError:
            raise TooSlow("the request took too long to arrive", "try again") from None

    def _check_csrf(self, scope: Scope, user: User | None, body: bytes) -> None:
        """Only for browsers: whoever brings the token itself cannot be anybody's puppet."""
        if user is None or user.session is None or scope["path"] == "/login":
            return
        headers = Headers(scope=scope)
        given = headers.get("x-csrf-token")
        if given is None and headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            given = parse_qs(body.decode("utf-8", "replace")).get("csrf", [""])[0]
        if not hmac.compare_digest((given or "").encode(), self._access.csrf(user).encode()):
            raise Forbidden("this form is too old, or not one of ours", "reload the page and try again")


def _nothing_more(receive: Receive) -> Receive:
    """The body has been read; what still comes is that the client went away."""
    read = False

    async def replay() -> Message:
        nonlocal read
        if not read:
            read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return await receive()

    return replay
