"""Queues: what is in them, and what is said of them."""

from __future__ import annotations

from typing import Any

from queuectl import newjob
from queuectl.errors import NotFound, did_you_mean
from queuectl.model import Queue
from queuectl.store import Store
from queuectl.web.access import Role
from queuectl.web.api.operation import Call
from queuectl.web.routing import admit


def list_queues(store: Store, call: Call) -> dict[str, Any]:
    """List the queues: how many jobs are in each state, and what is said of them."""
    return {"queues": [queue.as_json() for queue in store.views.queues()]}


def get_queue(store: Store, call: Call) -> dict[str, Any]:
    """Get a queue."""
    queues = {queue.name: queue for queue in store.views.queues()}
    name = call.path["name"]
    if name not in queues:
        hint = did_you_mean(name, list(queues)) if queues else "the first job makes one"
        raise NotFound(f'there is no queue "{name}"', hint)
    return queues[name].as_json()


def change_queue(store: Store, call: Call) -> dict[str, Any]:
    """Pause a queue or let it go on; an admin may also limit it, or say how its jobs are retried."""
    name = newjob.name("queue", call.path["name"])
    changes = dict(call.body)
    if changes.keys() - {"paused"}:
        admit(call.user, Role.ADMIN)
    for field in ("retry_on", "no_retry_on"):
        if field in changes:
            changes[field] = " ".join(newjob.ends(field, changes[field])) or None
    for field in ("at_once", "per_key", "rate", "rate_ms"):
        if changes.get(field) is not None:
            changes[field] = int(changes[field])
    rules = store.change_queue(name, **changes)
    jobs = next((queue.jobs for queue in store.views.queues() if queue.name == name), None)
    return Queue(name, jobs if jobs is not None else _none(store), rules).as_json()


def _none(store: Store) -> dict[str, int]:
    return dict.fromkeys(store.views.counts(), 0)
