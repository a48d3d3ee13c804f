"""Recurring jobs: when they come, what became of them, and making them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from queuectl.errors import Conflict, InvalidInput, QueuectlError
from queuectl.schedules import schedule
from queuectl.schedules.cron import firings
from queuectl.schedules.local_timezone import local_zone
from queuectl.schedules.schedule import Firing, Schedule
from queuectl.store import Store
from queuectl.system import times
from queuectl.web.remote_cwd import from_afar
from queuectl.web.rendering import Ask, Done, Fields, View, given

COMING = 5
RECENT = 20
OWN_FIELDS = ("name", "cron", "every", "zone", "command", "queue", "priority", "overlap", "missed")


class Row(NamedTuple):
    one: Schedule
    last: Firing | None
    words: str
    page: str


class Coming(NamedTuple):
    """A firing to come: the moment, and what a clock shows then in the schedule's zone and here."""

    moment: int
    there: str
    here: str


def show_all(store: Store, ask: Ask) -> View:
    rows = [Row(one, last, _words(one), address(one.name)) for one, last in store.schedules.all()]
    return View("schedules.html", {"rows": rows, "in_zone": times.in_zone})


def show_one(store: Store, ask: Ask) -> View:
    one = store.schedules.get(_name(ask))
    last = store.schedules.firings(one.name, RECENT)
    shows = {
        "one": one,
        "words": _words(one),
        "page": address(one.name),
        "coming": _coming(one),
        "here": local_zone(),
        "last": [(firing, times.in_zone(firing.moment, one.zone)) for firing in last],
        "fields": {name: _shown(value) for name, value in one.job.items() if name != "command"},
        "overlap": schedule.OVERLAP_WORDS[one.overlap],
        "missed": schedule.MISSED_WORDS[one.missed],
    }
    return View("schedule.html", shows)


def address(name: str) -> str:
    """Its page. No name begins with a +, and `new` is where new ones are made."""
    return f"/schedules/{'+' if name == 'new' else ''}{name}"


def _name(ask: Ask) -> str:
    return ask.path["name"].removeprefix("+")


def _words(one: Schedule) -> str:
    try:
        words = one.plan.words
    except InvalidInput as error:  # a zone that only this machine does not know
        return error.message
    return words[:1].lower() + words[1:]


def _coming(one: Schedule) -> list[Coming]:
    if one.paused or one.next_at is None:
        return []
    try:
        moments = firings(one.plan, one.next_at - 1, COMING)
    except InvalidInput:
        moments = [one.next_at]
    return [Coming(moment, times.in_zone(moment, one.zone), times.local(moment)) for moment in moments]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- making and changing them ----------------------------------------------------------------------------


def show_new(store: Store, ask: Ask) -> View:
    fresh = dict.fromkeys(OWN_FIELDS, "") | {"zone": local_zone(), "queue": "default", "priority": "0"}
    return _form(fresh | {"overlap": "skip", "missed": "latest"})


def show_edit(store: Store, ask: Ask) -> View:
    one = store.schedules.get(_name(ask))
    return _form(_as_written(one), old=one)


def _as_written(one: Schedule) -> dict[str, str]:
    return {
        "name": one.name,
        "cron": one.cron or "",
        "every": times.exactly(one.every_ms) if one.every_ms else "",
        "zone": one.zone,
        "command": str(one.job.get("command", "")),
        "queue": str(one.job.get("queue", "default")),
        "priority": str(one.job.get("priority", 0)),
        "overlap": one.overlap,
        "missed": one.missed,
    }


def _form(
    filled: Mapping[str, str],
    old: Schedule | None = None,
    preview: Schedule | None = None,
    wrong: QueuectlError | None = None,
) -> View:
    kept = {name: _shown(value) for name, value in (old.job if old else {}).items() if name not in OWN_FIELDS}
    shows = {
        "filled": filled,
        "old": old,
        "page": address(old.name) if old else "/schedules",
        "kept": kept,
        "preview": preview,
        "words": _words(preview) if preview else "",
        "coming": _coming(preview) if preview else [],
        "here": local_zone(),
        "wrong": wrong,
        "overlaps": schedule.OVERLAP_WORDS,
        "misseds": schedule.MISSED_WORDS,
    }
    return View("schedule_form.html", shows, wrong.http_status if wrong else 200)


def add(store: Store, ask: Ask, fields: Fields) -> Done | View:
    return _save(store, fields, None)


def replace(store: Store, ask: Ask, fields: Fields) -> Done | View:
    return _save(store, fields, store.schedules.get(_name(ask)))


def _save(store: Store, fields: Fields, old: Schedule | None) -> Done | View:
    filled = {field: given(fields, field) for field in OWN_FIELDS}
    if old:
        filled["name"] = old.name
    try:
        wanted = _meant(store, filled, old)
        if given(fields, "do") == "preview":
            return _form(filled, old, preview=schedule.make(now=store.views.clock(), **wanted))
        made = store.schedules.add(**wanted, replace_it=old is not None)
    except Conflict as wrong:
        return _form(filled, old, wrong=Conflict(wrong.message, "choose another name, or change that one"))
    except InvalidInput as wrong:
        return _form(filled, old, wrong=wrong)
    return Done(f"Schedule {made.name}: {_words(made)}. {_next(made)}", to=address(made.name))


def _meant(store: Store, filled: Mapping[str, str], old: Schedule | None) -> dict[str, Any]:
    if bool(filled["cron"]) == bool(filled["every"]):
        raise InvalidInput("say when, or how often", "fill in Cron or Every, one of them")
    job = dict(old.job) if old else from_afar(store, {})
    job |= {"command": filled["command"], "queue": filled["queue"] or "default", "priority": _priority(filled)}
    return {
        "name": filled["name"],
        "when": filled["cron"] or None,
        "every": times.parse_duration(filled["every"]) if filled["every"] else None,
        "zone": filled["zone"] or local_zone(),
        "fields": {name: value for name, value in job.items() if value is not None},
        "overlap": filled["overlap"] or None,
        "missed": filled["missed"] or None,
    }


def _priority(filled: Mapping[str, str]) -> int:
    try:
        return int(filled["priority"] or 0)
    except ValueError:
        raise InvalidInput(f'"{filled["priority"][:80]}" is no priority', "write a whole number, such as 5") from None


# -- the rest --------------------------------------------------------------------------------------------


def run(store: Store, ask: Ask, fields: Fields) -> Done:
    return Done(f"Enqueued {store.schedules.trigger(_name(ask)).id}.")


def pause(store: Store, ask: Ask, fields: Fields) -> Done:
    [one] = store.schedules.pause([_name(ask)], paused=True)
    return Done(f"Schedule {one.name} is paused.")


def resume(store: Store, ask: Ask, fields: Fields) -> Done:
    [one] = store.schedules.pause([_name(ask)], paused=False)
    return Done(f"Schedule {one.name} goes on. {_next(one)}")


def remove(store: Store, ask: Ask, fields: Fields) -> Done:
    name = _name(ask)
    store.schedules.remove([name])
    return Done(f"Schedule {name} removed. Its jobs stay.", to="/schedules")


def _next(one: Schedule) -> str:
    if one.paused:
        return "It is paused."
    return f"Next: {times.in_zone(one.next_at, one.zone) if one.next_at else 'never'}."
