"""Dead jobs, by what they died of."""

from __future__ import annotations

from typing import NamedTuple

from queuectl.jobs import dead_letters
from queuectl.jobs.model import Job
from queuectl.store import Store
from queuectl.system.times import plural
from queuectl.web.rendering import Ask, Done, Fields, View

ON_A_PAGE = 100


class Cluster(NamedTuple):
    """A group, and what there is to say of it."""

    name: str
    cause: str
    jobs: tuple[Job, ...]
    first: int
    last: int
    queues: list[str]

    @property
    def ids(self) -> str:
        """For a button: it does to these what it says, whatever has died since."""
        return " ".join(job.id for job in self.jobs)


def show(store: Store, ask: Ask) -> View:
    found = [
        _cluster(group) for group in dead_letters.groups(store.views.jobs(state="dead", limit=dead_letters.GROUPED))
    ]
    grouped = sum(len(one.jobs) for one in found)
    shows = {"groups": found, "grouped": grouped, "total": max(grouped, store.views.counts()["dead"])}
    if "group" not in ask.query:
        return View("dead.html", shows)
    name = ask.query["group"]
    group = next((one for one in found if one.name == name), None)
    number = ask.query.get("page", "1")
    page = int(number) if number.isascii() and number.isdigit() and len(number) < 5 else 1
    start = (max(page, 1) - 1) * ON_A_PAGE
    jobs = group.jobs[start : start + ON_A_PAGE] if group else ()
    more = group is not None and start + ON_A_PAGE < len(group.jobs)
    return View("dead_group.html", {**shows, "name": name, "group": group, "jobs": jobs, "page": page, "more": more})


def _cluster(group: dead_letters.Group) -> Cluster:
    ends = [job.finished_at or job.updated_at for job in group.jobs]
    queues = sorted({job.queue for job in group.jobs})
    return Cluster(group.name, group.cause, group.jobs, min(ends), max(ends), queues)


def retry(store: Store, ask: Ask, fields: Fields) -> Done:
    ids, others = _still_dead(store, fields)
    n = len(store.retry(ids[::-1]))  # the oldest first, as they were enqueued
    return Done(f"{plural(n, 'job')} {'is' if n == 1 else 'are'} pending again.{others}")


def delete(store: Store, ask: Ask, fields: Fields) -> Done:
    ids, others = _still_dead(store, fields)
    return Done(f"{plural(store.purge_dead(ids), 'job')} deleted.{others}")


def _still_dead(store: Store, fields: Fields) -> tuple[list[str], str]:
    """Those of the jobs shown that nobody has retried or deleted since, and a word on the others."""
    shown = " ".join(fields.get("ids", [])).split()
    states = store.views.states(shown)
    ids = [id for id in dict.fromkeys(shown) if states.get(id) == "dead"]
    others = len(set(shown)) - len(ids)
    return ids, f" {others:,} {'was' if others == 1 else 'were'} not dead any more." if others else ""
