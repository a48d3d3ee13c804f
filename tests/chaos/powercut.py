"""A power cut: a disk image of its own, cut off at a moment, and what a machine would find on it after the reboot."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store
from queuectl.store.sqlite import SqliteEngine

Need = Callable[[list[str]], None]


def lost_by_power_cut(folder: Path, need: Need, durable: bool, jobs: int = 10) -> tuple[int, bool]:
    """Enqueue jobs and cut the power behind the last answer: how many are lost, and is the database sound?"""

    kept = []

    def enqueue(path: str) -> list[str]:
        kept.append(store := Store(SqliteEngine(path, durable=durable)))
        return [store.enqueue([NewJob("true")])[0] for _ in range(jobs)]

    acknowledged, found, sound = after_power_cut(folder, need, enqueue)
    return jobs - len(found.keys() & set(acknowledged)), sound


def after_power_cut(
    folder: Path, need: Need, work: Callable[[str], list[str]]
) -> tuple[list[str], dict[str, str], bool]:
    """Do some work and cut the power right behind it: what the work answered, the states of all jobs after the
    reboot, and is the database sound? The work must keep its stores open: closing one writes it out.

    The image holds what the file system has handed to its disk; what only sits in memory is not in it.
    """
    image, after = folder / "disk.img", folder / "after.img"
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    need(["mkfs.ext4", "-q", "-F", "-O", "^metadata_csum", str(image)])
    with mounted(need, image, folder / "before") as disk:
        store = Store(SqliteEngine(str(disk / "queue.db")))
        subprocess.run(["sync", "-f", str(disk)], check=True)
        store.close()
        answer = work(str(disk / "queue.db"))
        shutil.copyfile(image, after)
    with mounted(need, after, folder / "reboot") as disk:
        store = Store(SqliteEngine(str(disk / "queue.db")))
        states = {job.id: job.state for job in store.views.jobs(limit=-1)}
        sound = all(finding.ok for finding in store.engine.checkup() if finding.check == "integrity")
        store.close()
    return answer, states, sound


@contextmanager
def mounted(need: Need, image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    need(["mount", "-o", "loop,commit=300", str(image), str(folder)])
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # the work may still hold its files
