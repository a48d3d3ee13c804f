"""Queues: what is in them, pausing them, and what is said of them."""

from __future__ import annotations

from queuectl.errors import InvalidInput, QueuectlError
from queuectl.jobs import job_spec
from queuectl.jobs.model import Rules
from queuectl.queues import policy
from queuectl.store import Store
from queuectl.system import times
from queuectl.web.auth import Role
from queuectl.web.rendering import Ask, Done, Fields, View, given


def show(store: Store, ask: Ask) -> View:
    return _view(store, ask)


def _view(store: Store, ask: Ask, filled: dict[str, str] | None = None, wrong: QueuectlError | None = None) -> View:
    """`filled`: what stands in the form, if somebody has filled it in."""
    queues = store.views.queues()
    edit = ask.query.get("edit", "").strip() if ask.may(Role.ADMIN) else ""
    if edit:
        name = job_spec.name("queue", edit)
        said = next((queue.rules for queue in queues if queue.name == name), None)
        filled = filled or _as_written(said or Rules(name))
    shows = {
        "queues": queues,
        "waits": store.figures.oldest_wait(),
        "edit": edit,
        "known": edit in [queue.name for queue in queues],
        "filled": filled,
        "wrong": wrong,
    }
    return View("queues.html", shows, wrong.http_status if wrong else 200)


def _as_written(said: Rules) -> dict[str, str]:
    return {
        "at_once": str(said.at_once or ""),
        "per_key": str(said.per_key or ""),
        "rate": str(said.rate or ""),
        "per": times.exactly(said.rate_ms) if said.rate_ms else "",
        "retry_on": said.retry_on or "",
        "no_retry_on": said.no_retry_on or "",
    }


def change(store: Store, ask: Ask, fields: Fields) -> Done | View:
    name = job_spec.name("queue", ask.query.get("edit", "").strip())
    filled = {field: given(fields, field) for field in _as_written(Rules(name))}
    said = next((queue.rules for queue in store.views.queues() if queue.name == name), Rules(name))
    try:
        changes = {field: value for field, value in _meant(filled).items() if getattr(said, field) != value}
        if changes:
            said = store.change_queue(name, **changes)
    except InvalidInput as wrong:
        return _view(store, ask, filled, wrong)
    words = f"{said.limits or 'no limits'}; retries {said.retries or 'as its jobs say'}"
    return Done(f"Queue {name}: {words}.", to="/queues")


def _meant(filled: dict[str, str]) -> dict[str, object]:
    """The fields of `Rules`; what is left empty is not limited."""
    return {
        "at_once": policy.limit(filled["at_once"] or "none"),
        "per_key": policy.limit(filled["per_key"] or "none"),
        "rate": policy.limit(filled["rate"] or "none"),
        "rate_ms": policy.span(filled["per"]) if filled["per"] else None,
        "retry_on": policy.ends("retry_on", filled["retry_on"]),
        "no_retry_on": policy.ends("no_retry_on", filled["no_retry_on"]),
    }


def pause(store: Store, ask: Ask, fields: Fields) -> Done:
    name = job_spec.name("queue", given(fields, "queue"))
    store.change_queue(name, paused=True)
    return Done(f"Queue {name} is paused. What runs goes on.", to="/queues")


def resume(store: Store, ask: Ask, fields: Fields) -> Done:
    name = job_spec.name("queue", given(fields, "queue"))
    store.change_queue(name, paused=False)
    return Done(f"Queue {name} goes on.", to="/queues")
