"""`queuectl worker stop`: by an order in the database, or, if that cannot be reached, by signals to managers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping

from queuectl.cli.app import whoever_typed_this
from queuectl.cli.render import note, say
from queuectl.cli.streams import changed
from queuectl.errors import InvalidInput, NotFound, StoreUnavailable, TimedOut
from queuectl.jobs.model import Worker
from queuectl.store import Store, open_store, whereabouts
from queuectl.system import procfs, times
from queuectl.system.times import plural
from queuectl.worker import manager_pidfile
from queuectl.worker.process_tree import current_worker, signal_one
from queuectl.worker.worker_config import RETIRE

ANSWER_WITHIN = 10.0  # seconds
OPEN_WITHIN = 2.0  # seconds: there is another way
KILL_GRACE = 5.0  # seconds, where the setting cannot be read
SIGNAL_EVERY = 0.2  # seconds: two signals that come at once count as one


PUT_BACK = "Its jobs are put back by the next worker that starts."
Managers = Mapping[int, int]  # pid and start time


def stop(db: str | None, ids: tuple[str, ...], patience: float | None, now: bool, everywhere: bool) -> None:
    """Stop these workers, or all of this host or of all hosts, and say what became of them."""
    try:
        store = open_store(db, patience=OPEN_WITHIN)
        store.actor = whoever_typed_this()
        try:
            _by_order(store, ids, patience, now, everywhere)
        finally:
            store.close()
    except StoreUnavailable as error:
        name, folders = whereabouts(db)
        managers = {pid: start for folder in folders for pid, start in manager_pidfile.managers(folder, name).items()}
        if ids or not managers:
            raise
        _by_signal(db, managers, patience, now, error)
        if everywhere:
            raise StoreUnavailable(
                f"stopped the workers of this host, but those of others could not be told: {error.message}",
                error.hint,
            ) from None


# -- by an order in the database -------------------------------------------------------------------------


def _by_order(store: Store, ids: tuple[str, ...], patience: float | None, now: bool, everywhere: bool) -> None:
    chosen = _chosen(store, ids, everywhere)
    managers = {} if ids else manager_pidfile.managers(store.engine.run_dir)
    if not chosen and not managers:
        note("No workers are running.")
        return
    names = [worker.id for worker in chosen]
    store.stop_workers(names, "now" if now else "drain")
    for pid, started in managers.items():
        signal_one(pid, started, RETIRE)
    changed(f"Told {plural(len(names), 'worker')} to stop")
    own = current_worker()
    if own in names:  # waiting for ourselves, or for another job that waits for us, would take for ever
        say(f"Told {plural(len(names), 'worker')} to stop. Not waiting: worker {own} runs this very job.")
        return
    busy = sum(len(worker.jobs) for worker in chosen)
    if busy and not now:
        limit = f" for up to {times.span(patience)}" if patience is not None else ""
        note(
            f"Waiting{limit} for {plural(busy, 'running job')} to finish. (Ctrl-C ends this wait, not the stopping.)"
        )
    lost: dict[str, Worker] = {}
    if not now and not _wait_until_gone(store, names, managers, patience, lost):
        now = True
    if now:  # also those that have taken the places of workers that died meanwhile
        store.stop_workers([worker.id for worker in _living(store, names, managers)], "now")
    if now and not _wait_until_gone(store, names, managers, store.config()["kill_grace"] + ANSWER_WITHIN, lost):
        stuck = [f"worker {worker.id} (pid {worker.pid})" for worker in _living(store, names, managers)]
        raise _no_answer(stuck or _named(managers))
    say(f"Stopped {plural(len(names) - len(lost), 'worker')}.")
    _name_lost(lost.values())


def _chosen(store: Store, ids: tuple[str, ...], everywhere: bool) -> list[Worker]:
    alive = [worker for worker in store.views.workers() if worker.alive]
    if not ids:
        return [worker for worker in alive if worker.here or everywhere]
    chosen = []
    for text in ids:
        found = [worker for worker in alive if worker.id == text or (len(text) >= 3 and worker.id.startswith(text))]
        if len(found) > 1:
            raise InvalidInput(f'"{text}" could be several workers', "give more of the id's characters")
        if not found:
            raise NotFound(f'there is no worker "{text}"', "see them with queuectl worker list")
        chosen += found
    return chosen


def _living(store: Store, ids: list[str], managers: Managers) -> list[Worker]:
    mine = (
        worker
        for worker in store.views.workers()
        if worker.id in ids or (worker.here and worker.manager_pid in managers)
    )
    return [worker for worker in mine if worker.alive]


def _wait_until_gone(
    store: Store, ids: list[str], managers: Managers, patience: float | None, lost: dict[str, Worker]
) -> bool:
    """Wait until none of these lives; False if that takes too long. Those that did not leave in order, and so left
    their rows behind, are added to `lost`."""
    deadline = None if patience is None else time.monotonic() + patience
    dead: set[str] = set()
    while True:
        mine = {worker.id: worker for worker in store.views.workers() if worker.id in ids}
        living = {id for id, worker in mine.items() if worker.alive}
        before, dead = dead, mine.keys() - living
        # Seen dead twice: one that left in order after its row was read looks dead once.
        lost.update({id: mine[id] for id in dead & before})
        for id in living & lost.keys():  # it has given a sign of life since
            del lost[id]
        if not living and not dead - lost.keys() and not _live(managers):
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(0.02)


# -- by signals ------------------------------------------------------------------------------------------


def _by_signal(
    db: str | None, managers: Managers, patience: float | None, now: bool, error: StoreUnavailable
) -> None:
    """Stop the pools of these managers without the database."""
    pids = ", ".join(map(str, managers))
    note(f"The database cannot be reached: {error.message}.")
    note(f"Telling the managers on this host by signal instead (pid {pids}).")
    for pid, started in managers.items():
        signal_one(pid, started, RETIRE)
    changed(f"Told {plural(len(managers), 'manager')} to stop")
    if current_worker():
        say(f"Told {plural(len(managers), 'manager')} to stop. Not waiting: this is a job of a worker.")
        return
    end = None if patience is None else time.monotonic() + patience
    while _live(managers) and not now:
        now = end is not None and time.monotonic() >= end
        time.sleep(0.02)
    if not _end_by_signal(managers):
        raise _no_answer(_named(managers))
    say(f"Stopped {plural(len(managers), 'manager')} with all workers (pid {pids}).")
    _confirm(db)


def _end_by_signal(managers: Managers) -> bool:
    """Have the jobs ended that still run; False if a manager does not leave. A second SIGTERM puts them back."""
    end = time.monotonic() + KILL_GRACE + ANSWER_WITHIN
    while _live(managers):
        if time.monotonic() >= end:
            return False
        for pid, started in managers.items():
            signal_one(pid, started, signal.SIGTERM)
        time.sleep(SIGNAL_EVERY)
    return True


def _confirm(db: str | None) -> None:
    """Say if the workers have left in order, as far as the database can be asked by now."""
    try:
        store = open_store(db, patience=OPEN_WITHIN)
        try:
            left = [worker for worker in store.views.workers() if worker.here and not worker.alive]
        finally:
            store.close()
        for worker in left:
            note(f"Worker {worker.id} could not store its last results. {PUT_BACK}")
    except StoreUnavailable:
        note(
            "Not confirmed, as the database still cannot be reached: that the results of their jobs are stored. "
            "See later: queuectl worker list"
        )


def _live(managers: Managers) -> list[int]:
    """Their pids. One that has left may have given its pid to a stranger."""
    return [pid for pid, started in managers.items() if procfs.start_time(pid) == started]


def _named(managers: Managers) -> list[str]:
    return [f"manager {pid}" for pid in _live(managers)]


def _no_answer(who: list[str]) -> TimedOut:
    hint = "if it is stopped, kill -CONT it; kill -9 it to have its jobs put back"
    return TimedOut("no answer from " + ", ".join(who), hint)


def _name_lost(lost: Iterable[Worker]) -> None:
    for worker in lost:
        note(f"Lost, not stopped: worker {worker.id} (pid {worker.pid} on {worker.host}). {PUT_BACK}")
