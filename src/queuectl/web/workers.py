"""Telling workers to leave, by the API or from the dashboard."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.errors import NotFound
from queuectl.store import Store


def stop(store: Store, ids: Iterable[str], how: str) -> list[str]:
    """Tell those of them that still live, and say which; a dead one hears nothing."""
    alive = {worker.id for worker in store.views.workers() if worker.alive}
    told = [id for id in dict.fromkeys(ids) if id in alive]
    if not told:
        raise NotFound("no such worker is running", "see the workers that are")
    store.stop_workers(told, how)
    return told
