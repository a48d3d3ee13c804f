"""Commands that are enqueued again and again."""

from __future__ import annotations

from typing import Any

from queuectl import times
from queuectl.errors import InvalidInput
from queuectl.remote import ROOT
from queuectl.schedule import Schedule
from queuectl.store import Store
from queuectl.web.afar import from_afar
from queuectl.web.api.operation import Call, Reply
from queuectl.zone import local_zone

SHOWN = 5


def list_schedules(store: Store, call: Call) -> dict[str, Any]:
    """List the schedules, each with its last firing."""
    found = store.schedules.all()
    return {"schedules": [{**one.as_json(), "last": last and last.as_json()} for one, last in found]}


def get_schedule(store: Store, call: Call) -> dict[str, Any]:
    """Get a schedule, its next five firings, and what became of the last ones."""
    return _details(store, store.schedules.get(call.path["name"]))


def list_firings(store: Store, call: Call) -> dict[str, Any]:
    """Tell what became of a schedule's last firings, the newest first."""
    name = store.schedules.get(call.path["name"]).name
    return {"firings": [firing.as_json() for firing in store.schedules.firings(name)]}


def create_schedule(store: Store, call: Call) -> Reply:
    """Make a schedule; refused if there is one of this name."""
    new = _add(store, call.body["name"], call.body, local_zone(), replace=False)
    return Reply(_details(store, new), 201, {"Location": f"{ROOT}/schedules/{new.name}"})


def replace_schedule(store: Store, call: Call) -> Reply:
    """Make a schedule, or put it in the place of the one of this name; it keeps that one's zone if it names none."""
    name = call.path["name"]
    old = next((one for one, _ in store.schedules.all() if one.name == name), None)
    new = _add(store, name, call.body, old.zone if old else local_zone(), replace=True)
    return Reply(_details(store, new), 200 if old else 201)


def _add(store: Store, name: str, body: dict[str, Any], zone: str, replace: bool) -> Schedule:
    every = body.get("every_seconds")
    if every is not None and not 1 <= every <= times.LONGEST_DELAY:
        raise InvalidInput('"every_seconds" is out of range', f"it takes 1 to {times.LONGEST_DELAY}")
    fields = {key: value for key, value in from_afar(store, body["job"]).items() if value is not None}
    return store.schedules.add(
        name, body.get("cron"), every, body.get("zone") or zone, fields, body.get("overlap"), body.get("missed"),
        replace,
    )  # fmt: skip


def delete_schedule(store: Store, call: Call) -> Reply:
    """Forget a schedule. Jobs that it has enqueued stay."""
    store.schedules.remove([call.path["name"]])
    return Reply(None, 204)


def pause_schedule(store: Store, call: Call) -> dict[str, Any]:
    """Let a schedule rest."""
    return _details(store, store.schedules.pause([call.path["name"]], paused=True)[0])


def resume_schedule(store: Store, call: Call) -> dict[str, Any]:
    """Let a schedule go on. What it would have done meanwhile is not made up for."""
    return _details(store, store.schedules.pause([call.path["name"]], paused=False)[0])


def trigger_schedule(store: Store, call: Call) -> Reply:
    """Enqueue a schedule's job now, besides its firings."""
    id = store.schedules.trigger(call.path["name"])
    return Reply(store.views.job(id).as_json(), 201, {"Location": f"{ROOT}/jobs/{id}"})


def _details(store: Store, one: Schedule) -> dict[str, Any]:
    return {
        **one.as_json(),
        "next": [times.iso(moment) for moment in one.coming(SHOWN)],
        "last": [firing.as_json() for firing in store.schedules.firings(one.name, SHOWN)],
    }
