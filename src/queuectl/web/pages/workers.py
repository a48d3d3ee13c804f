"""The processes that run jobs."""

from __future__ import annotations

from queuectl.errors import InvalidInput
from queuectl.queues.selection import described
from queuectl.store import Store
from queuectl.system.times import plural
from queuectl.web import workers
from queuectl.web.rendering import Ask, Done, Fields, View, given

SHOWN = 10  # running jobs of one worker
ORDERS = {"drain": "leave when their running jobs have finished", "now": "end their jobs, put them back, and leave"}


def show(store: Store, ask: Ask) -> View:
    known = store.views.workers()
    shows = {
        "workers": known,
        "described": described,
        "SHOWN": SHOWN,
        "to_drain": [worker.id for worker in known if worker.alive and not worker.stop],
        "to_stop": [worker.id for worker in known if worker.alive and worker.stop != "now"],
        "lost": sum(not worker.alive for worker in known),
    }
    return View("workers.html", shows)


def stop(store: Store, ask: Ask, fields: Fields) -> Done:
    how = given(fields, "how")
    if how not in ORDERS:
        raise InvalidInput(f'"{how[:80]}" is no way to stop', "choose drain or now")
    told = workers.stop(store, " ".join(fields.get("ids", [])).split(), how)
    return Done(f"Told {plural(len(told), 'worker')} to {ORDERS[how]}.", to="/workers")
