"""Who did what."""

from __future__ import annotations

from queuectl.jobs import job_spec
from queuectl.store import Store
from queuectl.web import cursors
from queuectl.web.rendering import Ask, View

ON_A_PAGE = 50
ACTIONS = ("cancel", "delete", "enqueue", "prune", "queue", "reset", "retry", "schedule", "set", "stop", "unset")


def show(store: Store, ask: Ask) -> View:
    who = job_spec.text("who", ask.query.get("who", "").strip())
    action = job_spec.text("action", ask.query.get("action", "").strip())
    cursor = ask.query.get("before", "")
    before = cursors.place(cursor) if cursor else None
    acts = store.views.acts(before, ON_A_PAGE + 1, who or None, action or None)
    older = acts[ON_A_PAGE - 1].n if len(acts) > ON_A_PAGE else None
    shows = {"acts": acts[:ON_A_PAGE], "older": older, "before": before, "who": who, "action": action}
    return View("audit.html", {**shows, "actions": ACTIONS})
