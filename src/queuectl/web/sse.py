"""Keeping open pages fresh: one stream a tab, one poller for all of them, and nothing is read while nobody looks."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.requests import Request

from queuectl.errors import QueuectlError, StoreUnavailable
from queuectl.store import Store
from queuectl.web.auth import Role, User
from queuectl.web.routing import desk, refuse_nul, user_of
from queuectl.web.store_pool import Stores
from queuectl.web.streams import LimitedStream, client_of

log = logging.getLogger("queuectl.web")
SHORTEST_PAUSE = 1.0  # seconds between two updates
LOOK_ANYWAY = 10.0
SHARE = 0.03  # of one processor: the more there is to draw, the longer the pauses
STILL_HERE = 15.0  # seconds of silence after which a word is said, so that both sides notice if the other is gone

Draw = Callable[[Stores, str, User], dict[str, str]]
"""Draws the live regions of the page at an address, for somebody."""


@dataclass
class Topic:
    """A page that some tabs show, and what they were last told of it."""

    page: str
    user: User
    regions: dict[str, str] = field(default_factory=dict)
    trouble: str | None = None
    version: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    tabs: int = 0

    def tell(self, regions: dict[str, str], trouble: str | None) -> None:
        if trouble == self.trouble and (trouble or regions == self.regions):
            return
        self.regions, self.trouble = regions or self.regions, trouble
        self.version += 1
        self.changed.set()
        self.changed = asyncio.Event()


class Live:
    """All streams. Tabs that show the same page share its drawing."""

    def __init__(self, stores: Stores, draw: Draw) -> None:
        self._stores = stores
        self._draw = draw
        self._topics: dict[tuple[str, Role], Topic] = {}
        self._watch: Store | None = None  # never writes: a connection does not notice its own changes
        self._looked_at = 0.0
        self._poller: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End all streams: the server is about to."""
        self._closed.set()
        for topic in self._topics.values():
            topic.changed.set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def tabs(self) -> int:
        return sum(topic.tabs for topic in self._topics.values())

    async def follow(self, page: str, user: User) -> AsyncIterator[str]:
        """What a tab is told: first everything, then what has changed."""
        topic = self._topics.setdefault((page, user.role), Topic(page, user))
        topic.tabs += 1
        try:
            await self._refresh(topic)  # what others were told may be older than the page that this tab has
            if self._poller is None or self._poller.done():
                self._poller = asyncio.create_task(self._poll())
            told: dict[str, str] = {}
            version = -1
            yield "retry: 2000\n\n"
            while not self._closed.is_set():
                if topic.version == version:
                    try:
                        await asyncio.wait_for(topic.changed.wait(), STILL_HERE)
                    except TimeoutError:
                        yield _event("here", None)  # not a comment: a page does not learn of those
                    continue
                version = topic.version
                if topic.trouble:
                    yield _event("trouble", topic.trouble)
                    continue
                news = {name: text for name, text in topic.regions.items() if told.get(name) != text}
                told = topic.regions
                yield _event("regions", news)
        finally:
            topic.tabs -= 1
            if not topic.tabs:
                self._topics.pop((page, user.role), None)

    async def _poll(self) -> None:
        try:
            while self._topics and not self._closed.is_set():
                await self.rest(max(SHORTEST_PAUSE, await self._look() / SHARE))
        finally:
            await asyncio.to_thread(self._forget_watch)

    async def _look(self) -> float:
        """Draw what is open, if anything has changed; the processor time that took."""
        try:
            if not await asyncio.to_thread(self._changed):
                return 0.0
        except Exception as error:
            told = error.message if isinstance(error, QueuectlError) else _bug("looking")
            for topic in self._topics.values():
                topic.tell({}, told)
            return 0.0
        return sum([await self._refresh(topic) for topic in list(self._topics.values())])

    async def rest(self, seconds: float) -> bool:
        """Wait so long; True, and at once, if the server is about to end."""
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            pass
        return self._closed.is_set()

    def _changed(self) -> bool:
        """Is it worth looking again? Now and then it is anyway: a worker's death is not written down."""
        try:
            if self._watch is None:
                self._watch = self._stores.open()
            if not self._watch.engine.changed() and time.monotonic() - self._looked_at < LOOK_ANYWAY:
                return False
        except StoreUnavailable:  # what lies there now is looked at the next time
            self._forget_watch()
            raise
        self._looked_at = time.monotonic()
        return True

    def _forget_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch:
            watch.close()

    async def _refresh(self, topic: Topic) -> float:
        """Draw it anew; the processor time that took."""

        def drawn() -> tuple[dict[str, str], str | None, float]:
            began = time.thread_time()
            try:
                regions, trouble = self._draw(self._stores, topic.page, topic.user), None
            except QueuectlError as error:
                regions, trouble = {}, error.message
            except Exception:  # one page that cannot be drawn must not keep the others from being
                regions, trouble = {}, _bug(topic.page)
            return regions, trouble, time.thread_time() - began

        regions, trouble, spent = await asyncio.to_thread(drawn)
        topic.tell(regions, trouble)
        return spent


def _bug(where: str) -> str:
    log.exception("bug live page=%s", where)
    return "this is a bug in queuectl; the server's log says more"


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def stream(request: Request) -> LimitedStream:
    """`/live?page=/jobs?state=dead`: what changes on that page."""
    page = request.query_params.get("page", "/")
    refuse_nul("page's address", page)
    events = desk(request).live.follow(page, user_of(request))
    return LimitedStream(desk(request).streams, client_of(request), events, "text/event-stream")
