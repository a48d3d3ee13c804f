"""Doing something to all jobs that fit a search: asking first, then showing how far it is."""

from __future__ import annotations

from urllib.parse import urlencode

from queuectl.errors import did_you_mean
from queuectl.jobs import job_filter
from queuectl.store import Store
from queuectl.web.bulk_actions import WORKS, Work
from queuectl.web.http_errors import UnknownPage
from queuectl.web.job_actions import DEEDS, Deed
from queuectl.web.rendering import Ask, Done, Fields, View, given
from queuectl.web.routing import admit

EXAMPLES = 5


def show_new(store: Store, ask: Ask) -> View:
    """How many it would be, and who they are."""
    deed = _deed(ask.query.get("do", ""))
    admit(ask.user, deed.role)
    wanted = job_filter.parse(ask.query.get("q", ""))
    listing = store.views.listing
    total, exact = listing.count(wanted)
    examples = listing.page(wanted, limit=EXAMPLES).jobs
    shows = {"deed": deed, "q": wanted.words(), "total": total, "exact": exact, "examples": examples}
    return View("bulk_new.html", {**shows, "fit": [job for job in examples if job.state in deed.states]})


def _deed(name: str) -> Deed:
    if name not in DEEDS:
        raise UnknownPage(f'"{name[:40]}" cannot be done to jobs', did_you_mean(name, list(DEEDS)))
    return DEEDS[name]


def start_cancel(store: Store, ask: Ask, fields: Fields) -> Done:
    return _start(store, ask, fields, DEEDS["cancel"])


def start_retry(store: Store, ask: Ask, fields: Fields) -> Done:
    return _start(store, ask, fields, DEEDS["retry"])


def start_delete(store: Store, ask: Ask, fields: Fields) -> Done:
    return _start(store, ask, fields, DEEDS["delete"])


def _start(store: Store, ask: Ask, fields: Fields, deed: Deed) -> Done:
    wanted = job_filter.parse(given(fields, "q"))
    work = Work(deed, wanted, ask.user.name, *store.views.listing.count(wanted))
    WORKS.start(work, store.engine.url)
    return Done("", to=f"/bulk/{work.id}")


def show(store: Store, ask: Ask) -> View:
    work = WORKS.get(ask.path["id"])
    words = work.wanted.words()
    return View("bulk.html", {"work": work, "words": words, "list": "/jobs?" + urlencode({"q": words})})


def stop(store: Store, ask: Ask, fields: Fields) -> Done:
    work = WORKS.get(ask.path["id"])
    admit(ask.user, work.deed.role)
    work.stopping.set()
    return Done("It stops after the jobs that it is at.", to=f"/bulk/{work.id}")
