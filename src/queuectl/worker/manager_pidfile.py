"""A manager's card beside the bells: by it `worker stop` finds the manager even if none of its workers lives."""

from __future__ import annotations

import os
from collections.abc import Iterator

from queuectl.system import private_files, procfs

SUFFIX = ".manager"  # the dot tells cards from bells


def post(folder: str, queue: str = "") -> None:
    """Leave our own card, with the name of the queue: where that lies in PostgreSQL, the folder does not tell it."""
    private_files.make_folder(folder)
    remove(folder)  # one that a dead manager with our pid has left
    card = private_files.open_file(_own(folder), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(
            card, f"{procfs.start_time(os.getpid())} {procfs.here()}\n{queue}".encode("utf-8", "surrogateescape")
        )
    finally:
        os.close(card)


def remove(folder: str) -> None:
    """Take our own card away."""
    try:
        os.unlink(_own(folder))
    except OSError:
        pass


def managers(folder: str, queue: str | None = None) -> dict[int, int]:
    """The living managers of this machine, or only those of this queue, as pid and start time. Raises Untrusted: they
    would be signalled."""
    here = procfs.here()
    return {
        pid: started
        for pid, started, place, name in _cards(folder)
        if place == here and queue in (None, name) and _is(pid, started)
    }


def wanted(folder: str) -> list[str]:
    """The names of the cards whose managers live, or may live: in another pid namespace of this boot."""
    here = procfs.here()
    return [
        f"{pid}{SUFFIX}"
        for pid, started, place, _ in _cards(folder)
        if (_is(pid, started) if place == here else place.split(" ")[0] == here.split(" ")[0])
    ]


def _is(pid: int, started: int) -> bool:
    return started != 0 and procfs.start_time(pid) == started


def _own(folder: str) -> str:
    return os.path.join(folder, f"{os.getpid()}{SUFFIX}")


def _cards(folder: str) -> Iterator[tuple[int, int, str, str]]:
    """The pid of each card, when that process was started, where its pid means something, and its queue."""
    try:
        private_files.check_folder(folder)
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        pid = name.removesuffix(SUFFIX)
        if pid == name or not (pid.isascii() and pid.isdigit()):
            continue
        try:
            path = os.path.join(folder, name)
            with open(private_files.open_file(path, os.O_RDONLY), encoding="utf-8", errors="surrogateescape") as card:
                first, _, queue = card.read().partition("\n")
            started, _, place = first.partition(" ")
            yield int(pid), int(started), place, queue
        except (OSError, ValueError):  # it is gone; or it is no card, or not ours
            pass
