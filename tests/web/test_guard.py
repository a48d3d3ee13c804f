"""Every route with every method, sent to us or to another name, from our pages or foreign ones, by whoever: each cell
of the matrix has one right answer."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from queuectl.store import Store
from queuectl.web import app as web_app
from queuectl.web.allowed_hosts import Hosts
from queuectl.web.auth import Access, Role, Token, User
from queuectl.web.routing import Door
from queuectl.web.security import SAFE
from queuectl.web.store_pool import Stores
from tests.web.conftest import Served

PORT = 8642
OUR_HOST = f"127.0.0.1:{PORT}"
TOKENS = [Token(role.word, role, f"secret-of-the-{role.word}") for role in Role]
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW")
HOSTS = {
    "ours": [OUR_HOST],
    "by another name of ours": [f"localhost:{PORT}"],
    "foreign": [f"evil.example:{PORT}"],
    "without the port": ["127.0.0.1"],
    "missing": [],
    "twice": [OUR_HOST, OUR_HOST],
}
ORIGINS = {
    "none": {},
    "ours": {"origin": f"http://{OUR_HOST}", "sec-fetch-site": "same-origin"},
    "typed": {"sec-fetch-site": "none"},
    "foreign": {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    "foreign, old browser": {"origin": "http://evil.example"},
    "another port": {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"},
    "hidden": {"origin": "null"},
    "no origin, cross-site": {"sec-fetch-site": "cross-site"},
}
FINE_ORIGINS = ("none", "ours", "typed")
PASSED = 299
OF_ONES_OWN = ("/login", "/logout", "/theme")  # changes nothing but what one's own browser knows

Credentials = tuple[str, dict[str, str], Role | None, bool]


@pytest.fixture(scope="module")
def access() -> Access:
    return Access(TOKENS, b"key")


def credentials(access: Access) -> Iterator[Credentials]:
    """A name, the headers, whose they are, and whether a change may be asked for with them."""
    yield "nobody", {}, None, False
    yield "wrong token", {"authorization": "Bearer secret-of-the-amin"}, None, False
    yield "basic", {"authorization": "Basic YWRtaW46YWRtaW4="}, None, False
    yield "forged session", {"cookie": f"queuectl_{PORT}=admin.9999999999.0.00"}, None, False
    other_port = access.session(User("admin", Role.ADMIN))
    yield "session of another port", {"cookie": f"queuectl_1={other_port}"}, None, False
    stolen_name = Access([Token("admin", Role.ADMIN, "x" * 16)], b"key").session(User("admin", Role.ADMIN))
    yield "session of an old token", {"cookie": f"queuectl_{PORT}={stolen_name}"}, None, False
    for token in TOKENS:
        yield f"token of {token.name}", {"authorization": f"Bearer {token.secret}"}, token.role, True
        cookie = access.session(User(token.name, token.role))
        user = access.by_session(cookie)
        assert user
        session = {"cookie": f"queuectl_{PORT}={cookie}"}
        yield f"session of {token.name}", session, token.role, False
        yield f"session of {token.name}, old form", {**session, "x-csrf-token": "0" * 64}, token.role, False
        yield f"session of {token.name} with form", {**session, "x-csrf-token": access.csrf(user)}, token.role, True


def doors() -> list[Door]:
    """The real ones, with nothing behind them."""

    async def behind(request: Request) -> Response:
        return Response(status_code=PASSED)

    return [Door(door.path, behind, door.role, sorted(door.methods or ())) for door in web_app.ROUTES]


@pytest.fixture(scope="module")
def app(access: Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starlette]:
    stores = Stores(str(tmp_path_factory.mktemp("queue") / "queue.db"))
    yield web_app.make_app(stores, access, Hosts("127.0.0.1", PORT), PORT, "", doors())
    stores.close()


async def ask(app: Starlette, method: str, path: str, hosts: list[str], headers: dict[str, str]) -> int:
    pairs = [(b"host", host.encode()) for host in hosts]
    pairs += [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": pairs,
        "scheme": "http",
        "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 5),
        "http_version": "1.1",
        "root_path": "",
    }
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return int(statuses[0])


def right_answer(
    door: Door, methods: set[str], method: str, host: str, origin: str, role: Role | None, may_change: bool
) -> set[int]:
    if host not in ("ours", "by another name of ours"):
        return {421}
    changes = method not in SAFE
    if changes and (origin not in FINE_ORIGINS or (host != "ours" and origin == "ours")):
        return {403}
    if changes and role is not None and not may_change and door.path != "/login":
        return {403}
    if method not in methods:
        return {405}
    needed = door.role
    if needed is None:
        return {PASSED}
    if role is None:
        page = door.path == "/api/v1" or not door.path.startswith(("/api/", "/metrics", "/live"))
        return {303} if page and method in ("GET", "HEAD") else {401}
    return {PASSED} if role >= needed else {403}


PATHS = sorted({door.path for door in web_app.ROUTES})


@pytest.mark.parametrize("path", PATHS)
def test_every_cell_of_the_matrix(app: Starlette, access: Access, path: str) -> None:
    with ThreadPoolExecutor(1) as thread:  # where no browser of another test has its loop
        assert thread.submit(asyncio.run, check_cells(app, [*credentials(access)], path)).result() > 1000


async def check_cells(
    app: Starlette, everybody: list[tuple[str, dict[str, str], Role | None, bool]], path: str
) -> int:
    address = path.replace("{", "").replace("}", "")
    here = [door for door in web_app.ROUTES if door.path_regex.match(address)]  # a job may be called "cancel"
    methods = {method for door in here for method in door.methods or ()}
    cells = 0
    for method, (host, hosts), (origin, origin_headers) in itertools.product(METHODS, HOSTS.items(), ORIGINS.items()):
        for who, headers, role, may_change in everybody:
            if host not in ("ours", "by another name of ours") and (who != "token of admin" or origin != "none"):
                continue  # nobody gets further, whoever he is
            door = next((door for door in here if method in (door.methods or ())), here[0])
            got = await ask(app, method, address, hosts, {**origin_headers, **headers})
            right = right_answer(door, methods, method, host, origin, role, may_change)
            assert got in right, f"{method} {path}, host {host}, origin {origin}, {who}: {got}, not {right}"
            cells += 1
    return cells


def test_strangers_find_only_these_doors_open() -> None:
    assert {door.path for door in web_app.ROUTES if door.role is None} == {"/login", "/static/{name}", "/health"}


def test_looking_is_for_viewers_and_changing_is_not() -> None:
    for door in web_app.ROUTES:
        changes = not (door.methods or set()) <= set(SAFE)
        if changes and door.path not in OF_ONES_OWN:
            assert door.role is not None
            assert door.role >= Role.OPERATOR, door.path
        if door.role is Role.VIEWER and door.path not in OF_ONES_OWN:
            assert not changes, door.path


def test_without_javascript_the_form_itself_brings_the_proof(served: Served) -> None:
    with served.session() as browser:
        csrf = browser.headers.pop("X-CSRF-Token")
        assert browser.post("/logout", data={"csrf": "0" * 64}).status_code == 403
        assert browser.post("/logout", content=f"csrf={csrf}").status_code == 403  # not said to be a form
        assert browser.post("/logout", data={"csrf": csrf}).status_code == 303


def test_a_session_has_a_cookie_that_scripts_and_other_sites_cannot_use(served: Served) -> None:
    with httpx.Client(base_url=served.url) as browser:
        cookie = browser.post("/login", data={"token": served.tokens["viewer"]}).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))


@pytest.mark.parametrize(
    "next",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "x", "/\n/evil", "//["],
)
def test_a_login_leads_nowhere_else(served: Served, next: str) -> None:
    with httpx.Client(base_url=served.url) as browser:
        answer = browser.post("/login", data={"token": served.tokens["viewer"], "next": next})
    assert answer.headers["location"] == "/"


def test_every_answer_forbids_what_pages_should_not_do(served: Served) -> None:
    with served.http() as program:
        for path in ("/", "/login", "/nothing", "/health", "/api/v1/nothing", "/static/style.css"):
            headers = program.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert "server" not in headers


def test_a_form_that_was_cut_off_does_nothing(served: Served, store: Store) -> None:
    """Whatever arrived before the line was cut may look like all of it."""
    head = (
        f"POST /queues/pause HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 100\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\n"
        f"Authorization: Bearer {served.tokens['admin']}\r\n\r\nqueue=mail"
    )
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.sendall(head.encode())
        line.shutdown(socket.SHUT_WR)
        assert b" 303 " not in line.recv(65536)
    with served.http() as program:
        assert program.get("/health").status_code == 200
    assert [queue.rules.paused for queue in store.views.queues() if queue.name == "mail"] == []


@pytest.mark.parametrize("other", ['foo={"a":1}', "a[b]=1", "x=\xe9", 'foo="unclosed', "noequals", "path=2"])
def test_cookies_of_others_do_no_harm(served: Served, other: str) -> None:
    with served.session() as browser:
        [ours] = [f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar]
    with httpx.Client(base_url=served.url) as raw:
        assert raw.get("/", headers={b"Cookie": f"{other}; {ours}".encode("latin-1")}).status_code == 200


def test_whoever_is_logged_in_can_log_in_as_somebody_else(served: Served) -> None:
    with served.session("viewer") as browser:
        del browser.headers["X-CSRF-Token"]
        assert browser.post("/login", data={"token": served.tokens["admin"]}).status_code == 303
        assert browser.get("/api/v1/whoami").json()["role"] == "admin"


def test_a_bug_is_answered_with_all_headers(access: Access, app: Starlette, tmp_path: Path) -> None:
    async def behind(request: Request) -> Response:
        raise ZeroDivisionError

    stores = Stores(str(tmp_path / "queue.db"))
    broken = web_app.make_app(stores, access, Hosts("127.0.0.1", PORT), PORT, "", [Door("/api/x", behind, None)])
    transport = httpx.ASGITransport(broken)

    async def ask_it() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{OUR_HOST}") as client:
            return await client.get("/api/x")

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(asyncio.run, ask_it()).result()
    stores.close()
    assert answer.status_code == 500
    assert answer.json()["detail"] == "this is a bug in queuectl"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_bodies_are_bounded(served: Served) -> None:
    large = b"x" * ((1 << 20) + 1)
    with served.http() as program, served.http(None) as stranger:
        assert program.post("/logout", content=large).status_code == 413
        assert program.post("/logout", content=iter([large])).status_code == 413  # in pieces, of unknown length
        assert stranger.post("/logout", content=large).status_code == 401
        assert stranger.post("/login", data={"token": "x" * 5000}).status_code == 413
        assert program.get("/health").status_code == 200
