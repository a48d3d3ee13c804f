"""A power cut: a disk image of its own, cut off at a moment, and what a machine would find on it after the reboot."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from queuectl.newjob import NewJob
from queuectl.store import Store
from queuectl.store.sqlite import SqliteEngine

Need = Callable[[list[str]], None]


def lost_by_power_cut(folder: Path, need: Need, durable: bool, jobs: int = 10) -> tuple[int, bool]:
    """Enqueue jobs and cut the power behind the last answer: how many are lost, and is the database sound?

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
        store = Store(SqliteEngine(str(disk / "queue.db"), durable=durable))
        acknowledged = [store.enqueue([NewJob("true")])[0] for _ in range(jobs)]
        shutil.copyfile(image, after)
        store.close()
    with mounted(need, after, folder / "reboot") as disk:
        store = Store(SqliteEngine(str(disk / "queue.db")))
        found = store.views.states(acknowledged)
        sound = all(finding.ok for finding in store.engine.checkup() if finding.check == "integrity")
        store.close()
    return jobs - len(found), sound


@contextmanager
def mounted(need: Need, image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    need(["mount", "-o", "loop,commit=300", str(image), str(folder)])
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
