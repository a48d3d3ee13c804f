"""A manager's card beside the bells: by it `worker stop` finds the manager even if none of its workers lives."""

from __future__ import annotations

import os

from queuectl import private, procfs

SUFFIX = ".manager"  # the dot tells cards from bells


def post(folder: str) -> None:
    """Leave our own card."""
    private.make_folder(folder)
    card = os.open(_own(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(card, f"{procfs.start_time(os.getpid())} {procfs.here()}".encode())
    finally:
        os.close(card)


def remove(folder: str) -> None:
    """Take our own card away."""
    try:
        os.unlink(_own(folder))
    except OSError:
        pass


def managers(folder: str) -> dict[int, int]:
    """The living managers of this machine, as pid and start time."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    pids = [int(stem) for name in names if name != (stem := name.removesuffix(SUFFIX)) and stem.isdigit()]
    cards = {pid: _started(os.path.join(folder, f"{pid}{SUFFIX}")) for pid in pids}
    return {pid: started for pid, started in cards.items() if started and procfs.start_time(pid) == started}


def _own(folder: str) -> str:
    return os.path.join(folder, f"{os.getpid()}{SUFFIX}")


def _started(path: str) -> int:
    """What a card says; 0 if it is gone, or was written where pids mean something else."""
    try:
        with open(path, encoding="ascii") as card:
            started, _, place = card.read().partition(" ")
    except (OSError, ValueError):
        return 0
    return int(started) if place == procfs.here() and started.isdigit() else 0
