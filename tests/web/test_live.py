"""What an open page is told."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from queuectl.store import Store, open_store
from queuectl.web.auth import Role, User
from queuectl.web.sse import Live
from queuectl.web.store_pool import Stores
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import Cli
from tests.web.conftest import Served, enqueue


def events(stream: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Each event in its turn; none for too long is a failure."""
    name, end = "", time.monotonic() + DEADLINE
    for line in stream.iter_lines():
        assert time.monotonic() < end, "nothing new was told"
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: ") and name != "here":
            yield name, json.loads(line.removeprefix("data: "))
            end = time.monotonic() + DEADLINE


def test_a_tab_is_told_everything_and_then_what_changes(served: Served, store: Store) -> None:
    with served.session("viewer") as browser, browser.stream("GET", "/live", params={"page": "/"}) as stream:
        news = events(stream)
        name, first = next(news)
        assert name == "regions"
        assert "tiles" in first
        enqueue(store)
        name, second = next(news)
        assert name == "regions"
        assert second["tiles"] != first["tiles"]


def test_a_change_made_by_the_server_itself_is_told_too(served: Served, store: Store) -> None:
    id = enqueue(store)
    with served.session() as browser, browser.stream("GET", "/live", params={"page": "/"}) as stream:
        news = events(stream)
        _, first = next(news)
        assert browser.post("/chosen/cancel", data={"id": id}).status_code == 303
        _, second = next(news)
        assert second["tiles"] != first["tiles"]


def test_trouble_is_told_and_so_is_its_end(served: Served, store: Store, cli: Cli, tmp_path: Path) -> None:
    enqueue(store)
    with served.session() as browser, browser.stream("GET", "/live", params={"page": "/"}) as stream:
        news = events(stream)
        assert next(news)[0] == "regions"
        away = tmp_path / "away"
        cli.db.rename(away)
        cli.db.mkdir()
        assert next(news)[0] == "trouble"
        cli.db.rmdir()
        away.rename(cli.db)
        assert next(news)[0] == "regions"


def test_a_queue_that_was_moved_away_is_not_made_anew(served: Served, store: Store, cli: Cli) -> None:
    enqueue(store, id="kept")
    store.close()
    away = cli.db.with_name("away.db")
    cli.db.rename(away)
    with served.http() as program:
        for _ in range(3):
            assert program.get("/api/v1/stats").status_code == 503
            assert program.post("/api/v1/jobs", json={"command": "true"}).status_code == 503
            assert program.get("/health").status_code == 503
        assert not cli.db.exists()
        away.rename(cli.db)
        assert program.get("/api/v1/jobs/kept").status_code == 200


def test_nothing_is_read_while_nobody_looks(served: Served) -> None:
    with served.session() as browser:
        with browser.stream("GET", "/live", params={"page": "/"}) as stream:
            next(events(stream))
            watching = eventually(lambda: _connections(served) > 1 and _connections(served))
        eventually(lambda: _connections(served) < watching, "the poller has let go of its connection")


def _connections(served: Served) -> int:
    """How many the server has to the queue: the poller has one of its own."""
    found = 0
    for entry in os.scandir(f"/proc/{served.process.pid}/fd"):
        with suppress(FileNotFoundError):  # closed just now
            found += os.readlink(entry.path).endswith("queue.db-wal")
    return found


def test_a_page_that_cannot_be_drawn_does_not_stop_the_others(tmp_path: Path) -> None:
    stores = Stores(str(tmp_path / "queue.db"))
    drawn = 0

    def draw(stores: Stores, page: str, user: User) -> dict[str, str]:
        nonlocal drawn
        drawn += 1
        if page == "/broken":
            raise ZeroDivisionError
        return {"n": str(drawn)}

    async def look() -> list[str]:
        live = Live(stores, draw)
        tabs = [live.follow(page, User("ann", Role.VIEWER)) for page in ("/broken", "/")]
        told = [await anext(tab) + await anext(tab) for tab in tabs]
        with closing(open_store(stores.url)) as other:
            enqueue(other)
            told.append(await anext(tabs[1]))
        live.close()
        return told

    with ThreadPoolExecutor(1) as thread:  # where no browser of another test has its loop
        broken, first, second = thread.submit(asyncio.run, asyncio.wait_for(look(), DEADLINE)).result()
    stores.close()
    assert "bug in queuectl" in broken
    assert "regions" in first
    assert "regions" in second


@pytest.mark.parametrize(
    "page",
    ["/nothing", "https://evil.example/", "//x", "//[", "/login", "not a path", "/jobs?at=9999999999999999999"],
)
def test_what_is_no_page_is_no_trouble_for_the_server(served: Served, page: str) -> None:
    with served.session() as browser, browser.stream("GET", "/live", params={"page": page}) as stream:
        assert next(events(stream))[0] == "trouble"
