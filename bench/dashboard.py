"""The dashboard: how long its pages take with a million jobs, and what fifty open tabs cost a drain."""

from __future__ import annotations

import re
import selectors
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import apsw

from bench.measure import Bar, Contender, Figure, percentile, take_turns
from bench.measure import table as show
from bench.rig import QUEUECTL, Rig, rig

JOBS = 12_000
ROWS = 1_000_000
TABS = 50
REPEAT = 20
ALONE = "queuectl, 2 workers with 4 slots, nobody looks"
WATCHED = f"queuectl, 2 workers with 4 slots, {TABS} open tabs"

# A queue with a past: most jobs done, some dead, some waiting, in four queues, one in a hundred with a tag.
FILL = """
WITH RECURSIVE numbers (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < :count)
INSERT INTO jobs (id, command, queue, state, ready, priority, run_at, finished_at, exit_code, error, attempts, run,
                  started_at, duration_ms, max_retries, backoff_base, created_at, updated_at)
SELECT printf('fill%08d', value), printf('process --part %d of the data', value),
       CASE value % 4 WHEN 0 THEN 'mail' WHEN 1 THEN 'video' WHEN 2 THEN 'default' ELSE 'reports' END,
       CASE WHEN value % 100 = 0 THEN 'dead' WHEN value % 10 = 1 THEN 'pending' ELSE 'completed' END,
       value % 100 <> 0 AND value % 10 = 1, 0, :now - (:count - value) * 100,
       CASE WHEN value % 100 <> 0 AND value % 10 = 1 THEN NULL ELSE :now - (:count - value) * 100 END,
       CASE WHEN value % 100 = 0 THEN value % 7 ELSE 0 END,
       CASE WHEN value % 100 = 0 THEN printf('exit code %d', value % 7) END,
       CASE WHEN value % 100 = 0 THEN 3 ELSE 0 END, 1, :now - (:count - value) * 100, 50, 3, 2,
       :now - (:count - value) * 100, :now - (:count - value) * 100
  FROM numbers
"""
TAG = "INSERT INTO tags (tag, job) SELECT 'nightly', seq FROM jobs WHERE seq % 100 = 7"

PAGES = (
    "/", "/?span=7d", "/jobs", "/jobs?q=state:dead", "/jobs?q=queue:mail", "/jobs?q=tag:nightly", "/jobs?q=exit:3",
    "/jobs?q=nothing-like-this", "/jobs/fill00000100", "/dead", "/queues", "/schedules", "/workers", "/settings",
    "/audit", "/metrics", "/api/v1/jobs?limit=50", "/api/v1/stats", "/api/v1/queues",
)  # fmt: skip


class Dashboard:
    def __init__(self, made: Rig) -> None:
        self._process = subprocess.Popen(
            [QUEUECTL, "serve", "--port", "0"], env=made.env, cwd=made.folder, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        printed = ""
        while "Ctrl-C" not in printed:
            printed += self._process.stdout.readline()
        self.url = re.findall(r"(http://\S+)/login", printed)[0]
        with open(f"{made.db}.serve/token") as file:
            self.token = file.read().strip()

    def get(self, path: str) -> float:
        """The milliseconds until all of it was here."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        began = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            answer.read()
        return (time.perf_counter() - began) * 1000

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


@contextmanager
def dashboard(made: Rig) -> Iterator[Dashboard]:
    served = Dashboard(made)
    try:
        yield served
    finally:
        served.close()


@contextmanager
def tabs(served: Dashboard, count: int = TABS) -> Iterator[None]:
    """Open streams, half of them on the overview, read by a thread as they come."""
    host, port = served.url.removeprefix("http://").split(":")
    addresses = ("/", "/jobs", "/", "/workers", "/", "/queues", "/", "/jobs?q=state:completed")
    waiting = selectors.DefaultSelector()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            for key, _ in waiting.select(0.2):
                if not key.fileobj.recv(1 << 20):  # type: ignore[union-attr]
                    waiting.unregister(key.fileobj)

    reader = threading.Thread(target=read)
    for number in range(count):
        page = quote(addresses[number % len(addresses)], safe="")
        tab = socket.create_connection((host, int(port)))
        headers = f"Host: {host}:{port}\r\nAuthorization: Bearer {served.token}\r\n"
        tab.sendall(f"GET /live?page={page} HTTP/1.1\r\n{headers}\r\n".encode())
        waiting.register(tab, selectors.EVENT_READ)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()
        for key in list(waiting.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]


def drain(watched: bool) -> float:
    with rig() as made, dashboard(made) as served:
        made.load(JOBS)
        if not watched:
            return JOBS / made.drain("--count", "2", "--concurrency", "4")
        with tabs(served):
            return JOBS / made.drain("--count", "2", "--concurrency", "4")


def measure(rounds: int, rows: int = ROWS) -> tuple[dict[str, Figure], Iterator[Bar]]:
    pages = page_times(rows)
    figures = take_turns(
        [Contender(ALONE, lambda: drain(False)), Contender(WATCHED, lambda: drain(True))], rounds, "jobs/s"
    )
    show(list(figures.values()), figures[ALONE])
    return {**pages, **figures}, bars(pages, figures, rows)


def page_times(rows: int) -> dict[str, Figure]:
    found = {}
    with rig() as made:
        made.store.close()
        db = apsw.Connection(made.db)
        db.execute(FILL, {"count": rows, "now": time.time_ns() // 1_000_000})
        db.execute(TAG)
        db.close()
        with dashboard(made) as served:
            for path in PAGES:
                served.get(path)  # the first one loads templates and pages of the file
                figure = Figure(f"{path}, {rows:,} jobs", "ms", [served.get(path) for _ in range(REPEAT)])
                found[path] = figure
                print(f"  {path:32} {figure}", flush=True)
        made.store = type(made)(made.folder).store
    return {figure.name: figure for figure in found.values()}


def bars(pages: dict[str, Figure], figures: dict[str, Figure], rows: int) -> Iterator[Bar]:
    slowest = max(pages.values(), key=lambda figure: percentile(figure.values, 0.95))
    p95 = percentile(slowest.values, 0.95)
    yield Bar(f"slowest page ({slowest.name}), p95 ms", p95, f"{p95:.0f}", 200, None, at_least=False)
    ratio = figures[WATCHED].to(figures[ALONE])
    yield Bar(f"drain with {TABS} open tabs against none", ratio.median, str(ratio), 0.95, None)
