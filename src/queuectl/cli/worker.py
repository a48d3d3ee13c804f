"""Starting, stopping and listing workers."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import BinaryIO

import click

from queuectl import private, procfs, times
from queuectl.cli.app import json_option, jsonl_option, with_store
from queuectl.cli.render import ago, emit_list, note, say, table
from queuectl.errors import InvalidInput, NotFound, QueuectlError, TimedOut
from queuectl.model import Worker
from queuectl.store import Store
from queuectl.times import plural
from queuectl.turns import STRICT, Turns, described
from queuectl.worker import card
from queuectl.worker.assignment import RETIRE
from queuectl.worker.kin import current_worker, signal_one

MOST_WORKERS = 1000
ANSWER_WITHIN = 10.0  # seconds
READY_WITHIN = 20.0  # seconds that the next worker may take to come up


@click.group("worker")
def worker_command() -> None:
    """Start, stop and list the processes that run jobs."""


@worker_command.command("start")
@click.option(
    "-n", "--count", type=click.IntRange(1, MOST_WORKERS), default=1, show_default=True, help="Worker processes."
)
@click.option(
    "-k", "--concurrency", type=click.IntRange(1, MOST_WORKERS), default=1, show_default=True,
    help="Jobs each of them runs at once.",
)  # fmt: skip
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=WEIGHT]",
    help="Only serve this queue; repeatable. A weight is its share of the turns.  [default: all]",
)
@click.option("--strict", is_flag=True, help="Serve a queue only when those named before it are empty.")
@click.option("--foreground", is_flag=True, help="Stay here, tell what happens, stop on Ctrl-C.")
@with_store
def start(
    store: Store, count: int, concurrency: int, queues: tuple[str, ...], strict: bool, foreground: bool
) -> None:
    """Start workers, in the background unless --foreground. More can be added by starting again."""
    store.probe()  # workers wait patiently for a database; whoever starts them wants to know at once
    words = Turns.parse([*([STRICT] if strict else []), *queues]).words
    command = [sys.executable, "-P", "-m", "queuectl.worker.manager", store.engine.run_dir]
    env = {**os.environ, "QUEUECTL_DB": store.engine.url}
    if foreground:
        store.close()
        sys.stdout.flush()
        os.execve(command[0], [*command, str(count), str(concurrency), "-1", "1", *words], env)
    log_path = os.path.join(store.engine.log_dir, "workers.log")
    ready, tell = os.pipe()
    with _open_log(log_path) as log:
        manager = subprocess.Popen(
            [*command, str(count), str(concurrency), str(tell), "0", *words],
            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=[tell],
        )  # fmt: skip
    os.close(tell)
    up = _wait_until_ready(ready, count)
    if up is None:
        manager.terminate()
        raise QueuectlError(f"the {plural(count, 'worker')} could not be started", f"see {log_path}")
    slots = f", {concurrency} jobs at once each" if concurrency > 1 else ""
    say(f"Started {plural(up, 'worker')}{slots} (manager pid {manager.pid}).")
    if up < count:
        note(f"{count - up} more cannot start yet, and keep trying. The log says why.")
    say(f"Log: {log_path}")


def _wait_until_ready(answers: int, count: int) -> int | None:
    """How many workers have come up, each with a byte in this pipe; None if that was given up. One that waits for the
    database is not waited for."""
    up = 0
    while up < count and select.select([answers], [], [], READY_WITHIN)[0]:
        news = os.read(answers, count)
        if not news:
            return None
        up += len(news)
    return up


@worker_command.command("stop")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--timeout", metavar="DURATION", help="End the running jobs after this long, and put them back.")
@click.option("--now", is_flag=True, help="End the running jobs at once, and put them back.")
@click.option("--everywhere", is_flag=True, help="On all machines, not only on this one.")
@with_store
def stop(store: Store, ids: tuple[str, ...], timeout: str | None, now: bool, everywhere: bool) -> None:
    """Stop workers after their running jobs have finished: these, or all of this queue on this machine."""
    patience = None if timeout is None else times.parse_duration(timeout)
    chosen = _chosen(store, ids, everywhere)
    managers = {} if ids else card.managers(store.engine.run_dir)
    if not chosen and not managers:
        note("No workers are running.")
        return
    names = [worker.id for worker in chosen]
    store.stop_workers(names, "now" if now else "drain")
    for pid, started in managers.items():
        signal_one(pid, started, RETIRE)
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
    if not now and not _wait_until_gone(store, names, managers, patience):
        now = True
    if now:  # also those that have taken the places of workers that died meanwhile
        store.stop_workers([worker.id for worker in _living(store, names, managers)], "now")
    if now and not _wait_until_gone(store, names, managers, store.config()["kill_grace"] + ANSWER_WITHIN):
        stuck = [f"worker {worker.id} (pid {worker.pid})" for worker in _living(store, names, managers)]
        raise TimedOut(
            "no answer from " + ", ".join(stuck or [f"manager {pid}" for pid in managers]),
            "if it is stopped, kill -CONT it; kill -9 it to have its jobs put back",
        )
    say(f"Stopped {plural(len(names), 'worker')}.")


@worker_command.command("list")
@json_option
@jsonl_option
@with_store
def list_workers(store: Store, as_json: bool, jsonl: bool) -> None:
    """List the workers: id, process, what they run."""
    workers = store.views.workers()
    if as_json or jsonl:
        emit_list((worker.as_json() for worker in workers), jsonl)
    elif workers:
        worker_table(workers)
        if any(not worker.alive for worker in workers):
            note("Lost workers' jobs are put back by the next worker that starts: queuectl worker start")
    else:
        note("No workers are running. Start some: queuectl worker start --count 2")


def worker_table(workers: Sequence[Worker]) -> None:
    rows = [
        [
            worker.id,
            str(worker.pid),
            worker.host,
            worker.state,
            f"{len(worker.jobs)}/{worker.concurrency}",
            described(worker.queues),
            ago(worker.started_at),
            " ".join(worker.jobs) or "-",
        ]
        for worker in workers
    ]
    table(
        ["Worker", "PID", "Host", "State", "Busy", "Queues", "Since", "Current Job"], rows, stretch=("Current Job",)
    )


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


def _living(store: Store, ids: list[str], managers: dict[int, int]) -> list[Worker]:
    mine = (
        worker
        for worker in store.views.workers()
        if worker.id in ids or (worker.here and worker.manager_pid in managers)
    )
    return [worker for worker in mine if worker.alive]


def _wait_until_gone(store: Store, ids: list[str], managers: dict[int, int], patience: float | None) -> bool:
    deadline = None if patience is None else time.monotonic() + patience
    while _living(store, ids, {}) or any(procfs.start_time(pid) == started for pid, started in managers.items()):
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _open_log(path: str) -> BinaryIO:
    private.make_folder(os.path.dirname(path))
    return open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "ab")
