"""Starting, stopping and listing workers."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import BinaryIO

import click

from queuectl.cli.app import json_option, jsonl_option, with_address, with_store
from queuectl.cli.render import ago, emit_list, note, say, table
from queuectl.cli.streams import changed
from queuectl.cli.worker_stop import stop
from queuectl.errors import QueuectlError
from queuectl.jobs.model import Worker
from queuectl.queues.selection import STRICT, Turns, described
from queuectl.store import Store
from queuectl.system import private_files, times
from queuectl.system.times import plural

MOST_WORKERS = 1000
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
    private_files.make_folder(store.engine.run_dir)  # likewise, if they cannot be trusted
    private_files.make_folder(store.engine.log_dir)
    words = Turns.parse([*([STRICT] if strict else []), *queues]).words
    command = [sys.executable, "-P", "-m", "queuectl.worker.manager", store.engine.run_dir]
    env = {**os.environ, "QUEUECTL_DB": store.engine.url}
    store.close()  # the workers may need the connection
    if foreground:
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
    changed(f"Started {plural(up, 'worker')} (manager pid {manager.pid})")
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
@with_address
def stop_command(db: str | None, ids: tuple[str, ...], timeout: str | None, now: bool, everywhere: bool) -> None:
    """Stop workers after their running jobs have finished: these, or all of this queue on this machine."""
    stop(db, ids, None if timeout is None else times.parse_duration(timeout), now, everywhere)


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


def _open_log(path: str) -> BinaryIO:
    return open(private_files.open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
