"""How the whole queue is doing."""

from __future__ import annotations

from queuectl.store import Store
from queuectl.web.view import Ask, View


def show(store: Store, ask: Ask) -> View:
    views = store.views
    return View("overview.html", {"counts": views.counts(), "running": views.running(20), "workers": views.workers()})
