"""A NUL byte, which no database takes as text, is refused with 400 or 422 in every field of every request, on both
engines. The same for half a character, which only JSON can bring."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from queuectl.client.http_client import ROOT
from queuectl.store import Store, open_store
from queuectl.web import pages
from queuectl.web.allowed_hosts import Hosts
from queuectl.web.api.operations import OPERATIONS
from queuectl.web.api.schemas import SCHEMAS
from queuectl.web.app import ROUTES, make_app
from queuectl.web.auth import Access, Role, Token
from queuectl.web.store_pool import Stores
from tests.conftest import DEADLINE
from tests.postgres import Queues
from tests.postgres import postgres as postgres
from tests.postgres import postgres_queues as postgres_queues
from tests.web.conftest import enqueue

PORT = 8642
SECRET = "secret-of-the-admin"
REFUSED = (400, 422)
NAMES = {"id": "a-job", "name": "nightly", "key": "max_retries"}  # of what is there
FIELDS = sorted(  # of all forms
    {
        name
        for template in (Path(pages.__file__).parents[1] / "templates").glob("*.html")
        for name in re.findall(r'name="(\w+)"', template.read_text())
    }
    | {"name", "cron", "every", "zone", "queue", "priority", "overlap", "missed", "ids", "clone"}
)


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("queue")
    if request.param == "sqlite":
        yield str(folder / "queue.db")
        return
    queues: Queues = request.getfixturevalue("postgres_queues")
    with pytest.MonkeyPatch.context() as patch, queues.lend() as url:
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield url


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    enqueue(store, id="a-job")
    store.schedules.add("nightly", "0 1 * * *", None, "UTC", {"command": "true"})
    yield store
    store.close()


class Client:
    """Talks to an app without a socket, in a thread where no browser of another test has its loop."""

    def __init__(self, app: Starlette) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._runner = self._thread.submit(asyncio.Runner).result()
        headers = {"authorization": f"Bearer {SECRET}"}
        base = f"http://127.0.0.1:{PORT}"
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, headers=headers)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        asked = asyncio.wait_for(self._client.request(method, path, **more), DEADLINE)
        return self._thread.submit(self._runner.run, asked).result()

    def close(self) -> None:
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()


@pytest.fixture(scope="module")
def client(url: str, store: Store) -> Iterator[Client]:
    stores = Stores(url)
    access = Access([Token("admin", Role.ADMIN, SECRET)], b"key")
    client = Client(make_app(stores, access, Hosts("127.0.0.1", PORT), PORT, ""))
    yield client
    client.close()
    stores.close()


@pytest.fixture(autouse=True)
def nothing_changes(store: Store) -> Iterator[None]:
    before = (store.views.jobs(), store.schedules.all(), store.config(), store.views.queues())
    yield
    assert (store.views.jobs(), store.schedules.all(), store.config(), store.views.queues()) == before


def filled(path: str, **names: str) -> str:
    return re.sub(r"{(\w+)}", lambda match: {**NAMES, **names}[match[1]], path)


def refused(client: Client, method: str, path: str, **more: Any) -> None:
    answer = client.request(method, path, **more)
    assert answer.status_code in REFUSED, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
    assert "NUL" in answer.text or "UTF-8" in answer.text, answer.text[:300]


@pytest.mark.parametrize("place", ["path", "query", "name"])
def test_in_an_address(client: Client, place: str) -> None:
    for door in ROUTES:
        [method, *_] = sorted((door.methods or set()) - {"HEAD"})
        if place == "path":
            for name in re.findall(r"{(\w+)}", door.path):
                refused(client, method, filled(door.path, **{name: "a%00b"}))
        else:
            query = "q=a%00b" if place == "query" else "a%00b=q"
            refused(client, method, f"{filled(door.path)}?{query}")


@pytest.mark.parametrize("path", [*(action.path for action in pages.ACTIONS), "/login", "/theme"])
def test_in_a_form(client: Client, path: str) -> None:
    for field in (*FIELDS, "a%00b"):
        content = f"{field}=a&{field}=a%00b&sure=1"
        headers = {"content-type": "application/x-www-form-urlencoded"}
        refused(client, "POST", filled(path), content=content, headers=headers)


def test_in_the_address_of_a_page_that_is_watched(client: Client) -> None:
    refused(client, "GET", "/live?page=/jobs?q=%2500")
    refused(client, "GET", "/live?page=/jobs/a%2500b")


def bodies(schema: dict[str, Any], bad: str) -> Iterator[Any]:
    """Bodies that fit a schema, but for one bad text in each."""
    if "$ref" in schema:
        yield from bodies(SCHEMAS[schema["$ref"].rpartition("/")[2]], bad)
    elif "properties" in schema:
        for name, inner in schema["properties"].items():
            for value in bodies(inner, bad):
                yield {**needed(schema), name: value}
        yield {**needed(schema), bad: "x"}
    elif "oneOf" in schema:
        for choice in schema["oneOf"]:
            yield from bodies(choice, bad)
    elif "items" in schema:
        yield from ([value] for value in bodies(schema["items"], bad))
    elif "additionalProperties" in schema:
        yield from ({"A": bad}, {bad: "x"})
    elif "string" in schema.get("type", ()):
        yield bad


def needed(schema: dict[str, Any]) -> dict[str, Any]:
    examples = {"name": "new", "command": "true", "job": {"command": "true"}, "value": 5, "how": "drain"}
    return {name: examples.get(name, "x") for name in schema.get("required", ())}


@pytest.mark.parametrize("bad", ["/a\0b", "/a\ud800b"], ids=["nul", "half"])
def test_in_json(client: Client, bad: str) -> None:
    tried = 0
    for operation in OPERATIONS:
        for body in bodies(operation.body or {}, bad):
            answer = client.request(
                operation.method,
                filled(ROOT + operation.path),
                content=json.dumps(body),
                headers={"content-type": "application/json"},
            )
            assert answer.status_code in REFUSED, f"{operation.path} {body}: {answer.status_code} {answer.text}"
            tried += 1
    assert tried > 60
