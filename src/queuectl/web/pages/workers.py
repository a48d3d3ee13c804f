"""The processes that run jobs."""

from __future__ import annotations

from queuectl.errors import InvalidInput, NotFound
from queuectl.store import Store
from queuectl.times import plural
from queuectl.turns import described
from queuectl.web.view import Ask, Done, Fields, View, given

SHOWN = 10  # running jobs of one worker
ORDERS = {"drain": "leave when their running jobs have finished", "now": "end their jobs, put them back, and leave"}


def show(store: Store, ask: Ask) -> View:
    workers = store.views.workers()
    shows = {
        "workers": workers,
        "described": described,
        "SHOWN": SHOWN,
        "to_drain": [worker.id for worker in workers if worker.alive and not worker.stop],
        "to_stop": [worker.id for worker in workers if worker.alive and worker.stop != "now"],
        "lost": sum(not worker.alive for worker in workers),
    }
    return View("workers.html", shows)


def stop(store: Store, ask: Ask, fields: Fields) -> Done:
    """Tell those workers that still live; a dead one hears nothing."""
    how = given(fields, "how")
    if how not in ORDERS:
        raise InvalidInput(f'"{how[:80]}" is no way to stop', "choose drain or now")
    alive = {worker.id for worker in store.views.workers() if worker.alive}
    ids = [id for id in dict.fromkeys(" ".join(fields.get("ids", [])).split()) if id in alive]
    if not ids:
        raise NotFound("none of these workers is running any more", "see the workers that are")
    store.stop_workers(ids, how)
    return Done(f"Told {plural(len(ids), 'worker')} to {ORDERS[how]}.", to="/workers")
