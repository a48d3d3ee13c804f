"""All jobs: searched, page by page, and doing something to those that were chosen."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from queuectl.errors import InvalidInput
from queuectl.jobs import job_filter
from queuectl.jobs.job_filter import Filter
from queuectl.jobs.lifecycle import State
from queuectl.store import Store
from queuectl.store.listing import Page
from queuectl.system.times import plural
from queuectl.web import cursors
from queuectl.web.bulk_actions import WORKS
from queuectl.web.job_actions import DEEDS, apply
from queuectl.web.rendering import Ask, Done, Fields, View

ON_A_PAGE = 50
STEPS_BACK = 50  # pages that "Newer" knows the way to


class Tab(NamedTuple):
    href: str
    state: str | None
    n: int | None  # None: counting would take a look at all of them
    here: bool


def show(store: Store, ask: Ask) -> View:
    q = ask.query.get("q", "").strip()
    try:
        wanted = job_filter.parse(q)
    except InvalidInput as wrong:
        nothing = Page([], None, True)
        return _view(store, ask, Filter(), q, [], nothing, wrong)
    at = ask.query.get("at", "")
    way = [cursors.place(part) for part in at.split(",")] if at else []  # through which pages; this one is the last
    page = store.views.listing.page(wanted, way[-1] if way else None, ON_A_PAGE)
    return _view(store, ask, wanted, q, way, page, None)


def _view(
    store: Store, ask: Ask, wanted: Filter, q: str, way: list[int], page: Page, wrong: InvalidInput | None
) -> View:
    words = wanted.words()
    older = None if page.next is None else _address(words, [*way, page.next][-STEPS_BACK:])
    return View(
        "jobs.html",
        {
            "q": q,
            "words": words,
            "wrong": wrong,
            "tabs": _tabs(store, wanted),
            "jobs": page.jobs,
            "older": older,
            "newer": _address(words, way[:-1]) if way else None,
            "seen_all": page.seen_all,
            "reached": None if page.seen_all or page.next is None else _moment(store, page.next),
            "any": bool(words) or bool(page.jobs) or any(store.views.counts().values()),
            "deeds": [deed for deed in DEEDS.values() if ask.may(deed.role)],
            "query": lambda **more: urlencode({**more, "q": words}),
            "works": WORKS.running,
        },
        200 if wrong is None else wrong.http_status,
    )


def _tabs(store: Store, wanted: Filter) -> list[Tab]:
    """With counts, as long as these are known: of all jobs, or of a queue."""
    known = wanted.but(state=None, queue=None) == Filter()
    counts = store.views.counts()
    if wanted.queue is not None:
        here = next((queue.jobs for queue in store.views.queues() if queue.name == wanted.queue), None)
        counts = here or dict.fromkeys(counts, 0)
    tabs = [(None, sum(counts.values())), *((state, counts[state]) for state in State)]
    return [
        Tab(_address(wanted.but(state=state).words()), state, n if known else None, state == wanted.state)
        for state, n in tabs
    ]


def _moment(store: Store, cursor: int) -> int | None:
    """When the job at a cursor was enqueued."""
    found = store.views.listing.page(Filter(), cursor + 1, 1).jobs
    return found[0].created_at if found else None


def _address(words: str, way: list[int] | None = None) -> str:
    query = {"q": words} if words else {}
    if way:
        query["at"] = ",".join(map(str, way))
    return "/jobs?" + urlencode(query) if query else "/jobs"


# -- what is done to those that were chosen ---------------------------------------------------------------


def cancel(store: Store, ask: Ask, fields: Fields) -> Done:
    return _done(store, "cancel", fields)


def retry(store: Store, ask: Ask, fields: Fields) -> Done:
    return _done(store, "retry", fields)


def delete(store: Store, ask: Ask, fields: Fields) -> Done:
    return _done(store, "delete", fields)


def _done(store: Store, name: str, fields: Fields) -> Done:
    deed, ids = DEEDS[name], fields.get("id", [])
    if not ids:
        return Done("No job is selected: tick some first.")
    outcome = apply(store, deed, ids)
    said = f"{plural(outcome.done, 'job')} {deed.past}"
    if outcome.unfit:
        said += f"; {plural(outcome.unfit, 'job')} left alone: {outcome.refused or deed.others}"
    return Done(f"{said}.")
