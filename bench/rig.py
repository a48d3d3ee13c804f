"""A queue to measure: the installed command in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store, open_store

QUEUECTL = str(Path(sys.executable).parent / "queuectl")
HERE = Path(__file__).parent


class Rig:
    """Commands on one queue, and its store for looking without disturbing."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.db = url or str(folder / "queue.db")
        self.env = {**os.environ, "QUEUECTL_DB": self.db}
        self.env.pop("QUEUECTL_LOG_DIR", None)
        self.store: Store = open_store(self.db)

    def queuectl(self, *args: str) -> str:
        done = subprocess.run([QUEUECTL, *args], env=self.env, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"queuectl {' '.join(args)}: {done.stderr}")
        return done.stdout

    def load(self, jobs: int, command: str = "true") -> None:
        self.store.enqueue([NewJob(command)] * jobs)

    def drain(self, *workers: str) -> float:
        """Start workers, wait until nothing is left, stop them; the seconds it took, starting them included."""
        began = time.perf_counter()
        self.queuectl("worker", "start", *workers)
        while True:
            counts = self.store.views.counts()
            if not counts["pending"] + counts["failed"] + counts["processing"]:
                break
            time.sleep(0.05)
        took = time.perf_counter() - began
        self.queuectl("worker", "stop")
        if counts["completed"] != sum(counts.values()):
            raise RuntimeError(f"not all jobs were completed: {counts}")
        return took


@contextmanager
def rig() -> Iterator[Rig]:
    folder = Path(tempfile.mkdtemp(prefix="queuectl-bench-"))
    made = Rig(folder)
    try:
        yield made
    finally:
        made.queuectl("worker", "stop", "--now")
        made.store.close()
        shutil.rmtree(folder)


def drained(jobs: int, *workers: str, command: str = "true") -> float:
    """Jobs a second of a whole drain."""
    with rig() as made:
        made.load(jobs, command)
        return jobs / made.drain(*workers)


def compiled(name: str) -> str:
    """The program from `name`.c, compiled if need be."""
    program = Path(tempfile.gettempdir()) / f"queuectl-bench-{os.getuid()}-{name}"
    source = HERE / f"{name}.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    return str(program)


def timed(command: list[str], **options: object) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, **options)  # type: ignore[call-overload]
    return time.perf_counter() - began
