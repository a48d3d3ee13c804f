"""The queue as a whole: the first screen, `status`, `metrics`."""

from __future__ import annotations

import sys
import time

import click

from queuectl import __version__
from queuectl.cli.app import json_option, with_store
from queuectl.cli.render import BOLD, COLOURS, DIM, advice, emit_json, note, paint, remember_address, say
from queuectl.cli.worker import worker_table
from queuectl.metrics import prometheus as exposition
from queuectl.store import Store, open_store
from queuectl.store.views import Metrics, Spread
from queuectl.system import times


def welcome(db: str | None) -> None:
    """`queuectl` alone: where things stand, and the next step."""
    remember_address(db)
    store = open_store(db)
    counts = store.views.counts()
    workers = sum(worker.alive for worker in store.views.workers())
    total, waiting = sum(counts.values()), counts["pending"] + counts["failed"]
    say(paint("queuectl", BOLD) + ", a durable background job queue for shell commands")
    say(f"Queue:    {store.engine.name}")
    states = ", ".join(f"{n:,} {state}" for state, n in counts.items() if n)
    say(f"Jobs:     {states or 'none yet'}")
    say(f"Workers:  {workers or 'none'} running")
    say()
    if not total:
        step, why = "queuectl enqueue 'echo hello'", "stores a first job"
    elif waiting and not workers:
        step, why = "queuectl worker start --count 2", "runs what is waiting"
    elif counts["dead"]:
        step, why = "queuectl dlq list", "shows the jobs that failed for good"
    elif waiting or counts["processing"]:
        step, why = "queuectl status --watch", "shows how it goes on"
    else:
        step, why = "queuectl list", "shows the jobs"
    step = advice(step)
    say(f"Next:     {paint(f'{step:<32}', BOLD)} {why}")
    say(paint(f"          {'queuectl --help':<32} lists all commands", DIM))
    store.close()


@click.command("status")
@click.option("-w", "--watch", is_flag=True, help="Show it again each second, until Ctrl-C.")
@json_option
@with_store
def status_command(store: Store, watch: bool, as_json: bool) -> None:
    """Count the jobs in each state and list the active workers."""
    while True:
        if watch and sys.stdout.isatty() and not as_json:
            sys.stdout.write("\x1b[H\x1b[2J")
        _status(store, as_json)
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(1)


def _status(store: Store, as_json: bool) -> None:
    counts = store.views.counts()
    everyone = store.views.workers()
    workers = [worker for worker in everyone if worker.alive]
    if as_json:
        emit_json({"jobs": counts, "workers": [worker.as_json() for worker in workers]})
        return
    say(paint("Jobs", BOLD))
    for state, n in counts.items():
        if n or state != "blocked":
            say(f"  {paint(f'{state:<11}', COLOURS[state])}{n:>9,}")
    say()
    say(paint(f"Workers: {len(workers)} active", BOLD))
    if workers:
        worker_table(workers)
    if len(everyone) > len(workers):
        lost = len(everyone) - len(workers)
        note(f"Lost workers: {lost}. The next one to start puts their jobs back: queuectl worker start")
    elif not workers and counts["pending"] + counts["failed"]:
        note("Start some: queuectl worker start --count 2")


@click.command("metrics")
@json_option
@click.option("--prometheus", is_flag=True, help="Print in Prometheus' text format.")
@with_store
def metrics_command(store: Store, as_json: bool, prometheus: bool) -> None:
    """Show totals, run times, waiting times, throughput and success rate."""
    if prometheus:
        sys.stdout.write(exposition.text(store.figures.snapshot(), __version__))
        return
    metrics = store.views.metrics()
    if as_json:
        emit_json(metrics.as_json())
    else:
        _show_metrics(metrics)


def _show_metrics(metrics: Metrics) -> None:
    states = ", ".join(f"{n:,} {state}" for state, n in metrics.jobs.items() if n)
    lines = [
        ("Jobs", f"{metrics.total:,}" + (f" ({states})" if states else "")),
        ("Success rate", "-" if metrics.success_rate is None else f"{int(metrics.success_rate * 1000) / 10:.1f}%"),
        (
            "Finished",
            f"{metrics.finished_last_minute:,} in the last minute, {metrics.finished_last_hour:,} in the last hour",
        ),
        (
            "Failed runs",
            "-" if metrics.average_attempts is None else f"{metrics.average_attempts:.2f} a job on average",
        ),
        ("Run time", _spread(metrics.run_ms)),
        ("Waiting time", _spread(metrics.wait_ms)),
        ("Workers", f"{metrics.workers} active"),
    ]
    for name, text in lines:
        say(f"{name + ':':<15}{text}")
    if metrics.window < metrics.jobs["completed"] + metrics.jobs["dead"] + metrics.jobs["cancelled"]:
        note(f"Times and averages are those of the newest {metrics.window:,} finished jobs.")


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    parts = {name: times.span(getattr(spread, name) / 1000) for name in ("avg", "min", "max", "p50", "p95", "p99")}
    return "  ".join(f"{name} {value}" for name, value in parts.items())
