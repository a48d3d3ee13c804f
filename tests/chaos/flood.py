"""A job that prints far more than anyone can keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.conftest import eventually
from tests.e2e.conftest import Cli


@dataclass(frozen=True)
class Flood:
    state: str
    log_size: int
    peak_memory: int
    start_kept: bool
    end_kept: bool
    cut_marked: bool


def flood(q: Cli, command: str, megabytes: int, limit: int) -> Flood:
    """Let a job print so much, and see what is left of it."""
    q.ok("config", "set", "log_max_bytes", str(limit))
    q.ok("worker", "start")
    [worker] = q.workers()
    id = q.enqueue(f"echo the-start; {command} | head -c {megabytes}M; echo; echo the-end")
    eventually(lambda: q.state(id) in ("completed", "dead"), "the flood to end", deadline=600)
    log = (q.logs / f"job_{id}.log").read_bytes()
    status = Path(f"/proc/{worker['pid']}/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return Flood(
        state=q.state(id),
        log_size=len(log),
        peak_memory=peak,
        start_kept=b"the-start" in log[:200],
        end_kept=b"the-end\n--- END" in log[-200:],
        cut_marked=b"--- CUT here" in log,
    )
