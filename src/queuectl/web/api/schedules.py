"""Commands that are enqueued again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuectl.client.http_client import ROOT
from queuectl.errors import InvalidInput
from queuectl.schedules.local_timezone import local_zone
from queuectl.schedules.schedule import Firing, Schedule
from queuectl.store import Store
from queuectl.store.schedules import FiringReader
from queuectl.system import times
from queuectl.web.api.operation import Call, Reply
from queuectl.web.remote_cwd import from_afar

SHOWN = 5


def list_schedules(store: Store, call: Call) -> dict[str, Any]:
    """List the schedules, each with its last firing."""
    found = store.schedules.all()
    return {"schedules": [{**one.as_json(), "last": last and last.as_json()} for one, last in found]}


def get_schedule(store: Store, call: Call) -> dict[str, Any]:
    """Get a schedule, its next five firings, and what became of the last ones."""
    found = store.schedules.get(call.path["name"])
    return _details(found, store.schedules.firings(found.name, SHOWN))


def list_firings(store: Store, call: Call) -> dict[str, Any]:
    """Tell what became of a schedule's last firings, the newest first."""
    name = store.schedules.get(call.path["name"]).name
    return {"firings": [firing.as_json() for firing in store.schedules.firings(name)]}


def create_schedule(store: Store, call: Call) -> Reply:
    """Make a schedule; refused if there is one of this name."""
    new = _add(store, call.body["name"], call.body, local_zone(), replace=False)
    return Reply(new, 201, {"Location": f"{ROOT}/schedules/{new['name']}"})


def replace_schedule(store: Store, call: Call) -> Reply:
    """Make a schedule, or put it in the place of the one of this name; it keeps that one's zone if it names none."""
    name = call.path["name"]
    old = next((one for one, _ in store.schedules.all() if one.name == name), None)
    new = _add(store, name, call.body, old.zone if old else local_zone(), replace=True)
    return Reply(new, 200 if old else 201)


def _add(store: Store, name: str, body: dict[str, Any], zone: str, replace: bool) -> dict[str, Any]:
    every = body.get("every_seconds")
    if every is not None and not 1 <= every <= times.LONGEST_DELAY:
        raise InvalidInput('"every_seconds" is out of range', f"it takes 1 to {times.LONGEST_DELAY}")
    fields = {key: value for key, value in from_afar(store, body["job"]).items() if value is not None}
    firings = FiringReader(SHOWN)
    new = store.schedules.add(
        name, body.get("cron"), every, body.get("zone") or zone, fields, body.get("overlap"), body.get("missed"),
        replace, firings,
    )  # fmt: skip
    return _details(new, firings.last)


def delete_schedule(store: Store, call: Call) -> Reply:
    """Forget a schedule. Jobs that it has enqueued stay."""
    store.schedules.remove([call.path["name"]])
    return Reply(None, 204)


def pause_schedule(store: Store, call: Call) -> dict[str, Any]:
    """Let a schedule rest."""
    return _pause(store, call.path["name"], paused=True)


def resume_schedule(store: Store, call: Call) -> dict[str, Any]:
    """Let a schedule go on. What it would have done meanwhile is not made up for."""
    return _pause(store, call.path["name"], paused=False)


def _pause(store: Store, name: str, paused: bool) -> dict[str, Any]:
    firings = FiringReader(SHOWN)
    [one] = store.schedules.pause([name], paused, firings)
    return _details(one, firings.last)


def trigger_schedule(store: Store, call: Call) -> Reply:
    """Enqueue a schedule's job now, besides its firings."""
    job = store.schedules.trigger(call.path["name"])
    return Reply(job.as_json(), 201, {"Location": f"{ROOT}/jobs/{job.id}"})


def _details(one: Schedule, last: Sequence[Firing]) -> dict[str, Any]:
    return {
        **one.as_json(),
        "next": [times.iso(moment) for moment in one.coming(SHOWN)],
        "last": [firing.as_json() for firing in last],
    }
