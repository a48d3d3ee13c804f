"""A queue with something of everything in it, for those who look at pages."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

from queuectl.jobs import log_files
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import COMPLETED, Settlement, State
from queuectl.jobs.model import Claim, Report
from queuectl.metrics.run_stats import MINUTE, Tally
from queuectl.queues.selection import Turns
from queuectl.store import Store

NASTY = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "'\"><b>bold</b> &amp; {{ 7 * 7 }}",
    "\u202eright to left\u202c, and مرحبا",
    "averyverylongwordwithoutanyspace" * 20,
)
WORKER = "w-sample"
FAILED = Settlement(State.FAILED, "exited", "exit code 75: the mail server is busy", True, delay=600, exit_code=75)
DEAD = Settlement(State.DEAD, "exited", "exit code 1: Error: cannot reach db-2.internal:5432", True, exit_code=1)


def fill(store: Store, nasty: Sequence[str] = NASTY) -> None:
    """Jobs in every state, queues with rules, schedules, and a worker: this process."""
    host = os.uname().nodename
    store.register(WORKER, os.getpid(), host, os.getpid(), ["default", "mail", "reports", "images"], 4)
    _run(
        store, [NewJob(f"./thumbnail.sh --size 640 photos/{n:04}.jpg", queue="images") for n in range(12)], COMPLETED
    )
    _run(store, [NewJob(f"send-mail --to user{n}@example.org welcome", queue="mail") for n in range(6)], COMPLETED)
    _run(store, [NewJob(f"send-mail --to user{n}@example.org digest", queue="mail") for n in range(3)], FAILED)
    _run(
        store,
        [NewJob(f"python report.py --month 2026-{n:02}", queue="reports", tags=("monthly",)) for n in range(1, 5)],
        DEAD,
    )
    _run(store, [NewJob("true", tags=("odd",)), *(NewJob(f"echo {text}", batch="nasty") for text in nasty)], DEAD)
    running = [
        NewJob("pg_dump --format=custom shop > /backup/shop.dump"),
        NewJob("ffmpeg -i talk.mov talk.mp4", queue="images"),
    ]
    claims = _claims(store, running)
    said = {"progress": 42, "message": "table orders, 4 of 9"}
    store.report(WORKER, [(claims[0], json.dumps(said))])
    parent, *_ = store.enqueue([NewJob(f"./import.sh part-{n}", priority=n % 3) for n in range(8)])
    store.enqueue([NewJob("./publish.sh", depends_on=(parent,)), NewJob("sleep 600", id="cancelled-one")])
    store.cancel(["cancelled-one"])
    store.change_queue("reports", paused=True)
    store.change_queue("mail", at_once=3, rate=10, rate_ms=60_000)
    store.schedules.add("nightly-backup", "0 3 * * *", None, "UTC", {"command": "./backup.sh"})
    store.schedules.add("poll-inbox", None, 300, "UTC", {"command": "./poll.sh", "queue": "mail"})


LOG = """\
\x1b[1mCollecting\x1b[0m 214 pages
\x1b[32mok\x1b[0m   index.html
\x1b[32mok\x1b[0m   guide/install.html
\x1b[33mwarn\x1b[0m guide/faq.html: a link leads to a page that has moved
\x1b[32mok\x1b[0m   reference/api.html
\x1b[31mfail\x1b[0m reference/cli.html: template "command.html" is missing
"""


def a_job_with_a_past(store: Store) -> str:
    """One that has failed once, runs again, has printed in colours, and stands between others; its id."""
    site = Turns.parse(["site"])
    store.enqueue(
        [
            NewJob("./fetch-content.sh", id="fetch", queue="site"),
            NewJob("npm ci", id="packages", queue="site"),
            NewJob("./build-site.sh --strict", id="build-site", queue="site", depends_on=("fetch", "packages")),
            NewJob("./check-links.sh", id="check-links", queue="site", depends_on=("build-site",)),
            NewJob("./publish.sh", id="publish", queue="site", depends_on=("build-site", "check-links")),
        ]
    )
    before = store.tick(WORKER, slots=2, turns=site).claims
    [first] = store.tick(WORKER, [(claim, COMPLETED, Report(duration_ms=2100)) for claim in before], 1, site).claims
    end = Settlement(State.FAILED, "exited", "exit code 1", True, exit_code=1)
    store.tick(WORKER, [(first, end, Report(duration_ms=61_400, cpu_ms=58_210, max_rss_kb=231_000))])
    [second] = store.tick(WORKER, slots=1, turns=site).claims
    store.report(WORKER, [(second, json.dumps({"progress": 71, "message": "reference, 152 of 214"}))])
    job = store.views.job("build-site")
    marks = [
        log_files.start_mark(first.started_at, 1, WORKER),
        LOG.encode(),
        log_files.end_mark(first.started_at, "1", 61_400),
    ]
    marks += [log_files.start_mark(second.started_at, 2, WORKER), *LOG.encode().splitlines(True)[:5]]
    log_files.append(job.log_path, b"".join(marks))
    return job.id


class Earlier(Tally):
    """Of runs that ended some minutes ago."""

    def __init__(self, minutes: int) -> None:
        super().__init__()
        self._ago = minutes * MINUTE

    def rows(self, now: int) -> list[dict[str, Any]]:
        return super().rows(now - self._ago)


def an_hour(store: Store) -> None:
    """Figures of runs whose jobs are gone."""
    for minute in range(55):
        tally = Earlier(minute)
        for n in range(round(30 + 18 * math.sin(minute / 8) + minute * 7 % 9)):
            state = "failed" if (n + minute) % 31 == 0 else "completed"
            tally.add("mail", state, 400 + n * 20, (200 + n * 30) * (6 if 20 < minute < 26 else 1))
        store.tick(WORKER, tally=tally)


def _claims(store: Store, jobs: list[NewJob]) -> list[Claim]:
    store.enqueue(jobs)
    return store.tick(WORKER, slots=len(jobs)).claims


def _run(store: Store, jobs: list[NewJob], end: Settlement) -> None:
    report = Report(duration_ms=1234, stdout="", stderr="")
    store.tick(WORKER, [(claim, end, report) for claim in _claims(store, jobs)])
