"""Queues: what is in them, and what is said of them."""

from __future__ import annotations

from typing import Any

from queuectl.errors import NotFound, did_you_mean
from queuectl.jobs import job_spec
from queuectl.jobs.lifecycle import State
from queuectl.jobs.model import Queue
from queuectl.store import Store
from queuectl.web.api.operation import Call
from queuectl.web.auth import Role
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
    name = job_spec.name("queue", call.path["name"])
    changes = dict(call.body)
    if changes.keys() - {"paused"}:
        admit(call.user, Role.ADMIN)
    for field in ("retry_on", "no_retry_on"):
        if field in changes:
            changes[field] = " ".join(job_spec.ends(field, changes[field])) or None
    for field in ("at_once", "per_key", "rate", "rate_ms"):
        if changes.get(field) is not None:
            changes[field] = int(changes[field])
    # Counted before: a count after the commit could fail, and the change has happened.
    counts = {queue.name: queue.jobs for queue in store.views.queues()}
    rules = store.change_queue(name, **changes)
    return Queue(name, counts.get(name, dict.fromkeys(map(str, State), 0)), rules).as_json()
