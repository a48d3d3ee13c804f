"""Processes of every kind that are stopped (SIGSTOP) for a while and continued, as Ctrl-Z, a debugger, `docker pause`
or a suspended laptop do it: they go on, or give up what they no longer own; they never crash."""

from __future__ import annotations

import http.client
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.chaos import ledger
from tests.chaos.commands_storm import PATIENCE, TOKEN, Serving, serving
from tests.chaos.conftest import send
from tests.chaos.rest import complaints
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import QUEUECTL, Cli, pids_in, processes_with, read_until, status_of

CRASH = Path(__file__).parent / "crash"
LEASE = 30  # seconds, the default: a worker that is stopped for two thirds of it gives up its runs (PostgreSQL)
LINES = 3

JOB = """
say() { echo "$1 $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"; }
echo $$ >> run
say S
n=0
while [ ! -e go ]; do sleep 0.05; say B; done
while [ $n -lt %d ]; do n=$((n + 1)); echo "line $n"; done
say E
"""


class Stage:
    """A queue with a process of every kind, each in the middle of what it does."""

    def __init__(self, q: Cli, server: Serving) -> None:
        self.q = q
        self.server = server
        self.problems: list[str] = []
        self._ledger = q.folder / "ledger"
        q.env["LEDGER"] = str(self._ledger)
        (q.folder / "job.sh").write_text(JOB % LINES)
        q.ok("worker", "start")
        self.id = q.enqueue(f". {q.folder}/job.sh", cwd=str(q.folder))
        [run] = pids_in(q.folder / "run")
        worker = q.worker()
        self._wait = q.start("wait", self.id)
        self._logs = q.start("logs", "--follow", self.id)
        self._enqueue = subprocess.Popen(
            [QUEUECTL, "enqueue", "--quiet", "--lines", "-"],
            env=q.env,
            cwd=q.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._screen, self._top = q.in_terminal(QUEUECTL, "top")
        read_until(self._screen, self.id.encode())
        self.pids = {
            "run": run,
            "worker": worker["pid"],
            "manager": worker["manager_pid"],
            "serve": server.process.pid,
            "wait": self._wait.pid,
            "logs --follow": self._logs.pid,
            "enqueue": self._enqueue.pid,
            "top": self._top.pid,
        }

    def finish(self, longest: float) -> list[str]:
        """Let everything come to its end. `longest` is for how many seconds something was stopped."""
        out, err = self._enqueue.communicate("true\ntrue\n", timeout=DEADLINE)
        self._expect("enqueue", (self._enqueue.returncode, len(out.split())), (0, 2), err)
        (self.q.folder / "go").touch()
        job = self.q.until(self.id, "completed")
        given_up = "://" in self.q.url and longest > LEASE / 2
        told = ledger.read(self._ledger)
        self._expect("the job", (job["attempts"], job["crashes"]), (0, 0), self.q.ok("history", self.id))
        self._expect("its runs", given_up or told.runs, given_up or 1)
        self.problems += told.problems
        self._expect("wait", self._wait.wait(DEADLINE), 0)
        printed, err_bytes = self._logs.communicate(timeout=DEADLINE)
        self._expect("logs", (self._logs.returncode, b"line %d\n" % LINES in printed), (0, True), err_bytes.decode())
        os.write(self._screen, b"q")
        seen = read_until(self._screen, None)
        self._expect("top", self._top.wait(DEADLINE), 0, seen.decode(errors="replace"))
        self._expect("serve", self.ask(), 200)
        self.q.ok("wait", *out.split())
        if not given_up:
            self._expect("the workers", [worker["pid"] for worker in self.q.workers()], [self.pids["worker"]])
        self.q.ok("worker", "stop")
        log = (self.q.logs / "workers.log").read_text() + self.server.printed
        return self.problems + complaints(log)

    def _expect(self, what: str, found: object, wanted: object, more: str = "") -> None:
        if found != wanted:
            self.problems.append(f"{what}: {found} instead of {wanted}. {more[-300:]}")

    def ask(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=2 * DEADLINE)
        connection.request("GET", "/api/v1/stats", headers={"Authorization": f"Bearer {TOKEN}"})
        status = connection.getresponse().status
        connection.close()
        return status


def stop_each(q: Cli, seconds: float) -> list[str]:
    """Stop one kind after the other, each for so long."""
    with staged(q) as stage:
        for kind, pid in stage.pids.items():
            asking = Thread(target=stage.ask)
            with stopped([pid]):
                if kind == "serve":
                    asking.start()
                time.sleep(seconds)
            if kind == "serve":
                asking.join()
            if status_of(pid) is None:
                stage.problems.append(f"{kind}: gone after it was continued")
        return stage.finish(seconds)


def stop_all(q: Cli, seconds: float) -> list[str]:
    """Stop all at the same time, as if the machine slept."""
    with staged(q) as stage:
        with stopped(processes_with(f"HOME={q.folder}")):
            time.sleep(seconds)
        return stage.finish(seconds)


def stop_at_random(q: Cli, seed: int, seconds: float, longest: float = 60) -> list[str]:
    """Stop each kind again and again, beside the others, for 0.1 to `longest` seconds: short stops more often."""

    def torment(kind: str, pid: int) -> None:
        pick = random.Random(f"{seed} {kind}")
        while (left := end - time.monotonic()) > 0:
            with stopped([pid]):
                time.sleep(min(left, 0.1 * (longest / 0.1) ** pick.random()))
            time.sleep(pick.uniform(0, 0.5))

    with staged(q) as stage:
        end = time.monotonic() + seconds
        threads = [Thread(target=torment, args=process) for process in stage.pids.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return stage.finish(longest)


@contextmanager
def staged(q: Cli) -> Iterator[Stage]:
    q.env["QUEUECTL_TOKEN"] = TOKEN
    with serving(q) as server:
        yield Stage(q, server)


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    pids = list(pids)
    for pid in pids:
        send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


def _stopped_ones(q: Cli) -> list[int]:
    return [pid for pid in processes_with(f"HOME={q.folder}") if (status_of(pid) or "?")[0] == "T"]


# -- in a transaction ------------------------------------------------------------------------------------

# Where a process stops itself, having the write lock of SQLite, or a row locked.
SPOTS = {
    "enqueue": "after:queuectl.store.insert_jobs:insert",
    "claim": "after:queuectl.store.claim_settle:claim",
    "settle": "after:queuectl.store.claim_settle:settle",
    "cancel": "before:queuectl.store.limits:follow",
}


def stop_in_transaction(q: Cli, what: str, seconds: float) -> list[str]:
    """Stop a process in the middle of its transaction; commands wait for it, and it goes on."""
    q.ok("status")
    mark = q.folder / "stopped"
    at = {"CRASH_AT": SPOTS[what], "CRASH_ONCE": str(mark), "CRASH_SIGNAL": "SIGSTOP", "PYTHONPATH": str(CRASH)}
    job = q.enqueue("true") if what != "enqueue" else ""
    args = {"enqueue": ["enqueue", "true"], "cancel": ["cancel", job]}.get(what, ["worker", "start", "--foreground"])
    process = subprocess.Popen(
        [QUEUECTL, *args],
        env={**q.env, **at},
        cwd=q.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        ours = f"HOME={q.folder}"
        [pid] = eventually(
            lambda: [pid for pid in processes_with(ours) if (status_of(pid) or "?")[0] == "T"], "it to stop"
        )
        other = q.start("enqueue", "--quiet", "true")
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        out, err = other.communicate(timeout=DEADLINE)
        if what in ("claim", "settle"):
            q.ok("wait", job, *out.decode().split())
            q.ok("worker", "stop")
        said = process.communicate(timeout=DEADLINE)[0]
    finally:
        process.kill()
    codes = {process.returncode, other.returncode}
    if seconds > PATIENCE:  # then others give up, and on PostgreSQL the server ends its transaction: both say so
        codes.discard(5)
    stored = len(q.json("list")) - (what != "enqueue")
    acknowledged = (other.returncode == 0) + (what == "enqueue" and process.returncode == 0)
    wrong = [] if codes <= {0} and stored == acknowledged else [f"{what}: {codes}, {stored} stored: {said} {err!r}"]
    return wrong + complaints(said + err.decode())
