"""Who did what."""

from __future__ import annotations

from queuectl import newjob
from queuectl.errors import InvalidInput
from queuectl.store import Store
from queuectl.web.view import Ask, View

ON_A_PAGE = 50
ACTIONS = ("cancel", "delete", "enqueue", "prune", "queue", "reset", "retry", "schedule", "set", "stop", "unset")


def show(store: Store, ask: Ask) -> View:
    who = newjob.text("who", ask.query.get("who", "").strip())
    action = newjob.text("action", ask.query.get("action", "").strip())
    before = _number(ask.query.get("before", ""))
    acts = store.views.acts(before, ON_A_PAGE + 1, who or None, action or None)
    older = acts[ON_A_PAGE - 1].n if len(acts) > ON_A_PAGE else None
    shows = {"acts": acts[:ON_A_PAGE], "older": older, "before": before, "who": who, "action": action}
    return View("audit.html", {**shows, "actions": ACTIONS})


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInput("this cursor is none of ours", "begin with the first page")
    return int(text)
