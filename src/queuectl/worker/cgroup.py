"""A control group (cgroup v2) for each worker, where the system has put that into our hands.

A process is born into its parent's group and does not leave it by accident, so whatever a worker's runs start stays
in the worker's group. One group a worker, not a run: moving each run into a group of its own would make it wait for
the whole machine (docs/adr/0004).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection

_PREFIX = "queuectl-"
OFF = "QUEUECTL_NO_CGROUP"
ATTEMPTS = 20


def join(worker_id: str) -> str:
    """Move into a group of our own; its path, or "" if there is none to be had."""
    group = path_of(worker_id)
    for _ in range(ATTEMPTS if group else 0):
        try:
            os.mkdir(group)
            _write(group, "cgroup.procs", "0")
            return group
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # not ours after all
                remove(group)
                break
            # else somebody has swept it away while it was still empty
    return ""


def path_of(worker_id: str) -> str:
    """Where a worker that we started has its group; "" if there are no groups to be had."""
    place = "" if os.environ.get(OFF) else delegated()
    return place and os.path.join(place, _PREFIX + worker_id)


def delegated(mounts: str = "/proc/self/mountinfo", membership: str = "/proc/self/cgroup") -> str:
    """The folder of the group we live in, if we may make groups below it; else ""."""
    try:
        with open(membership, encoding="utf-8", errors="surrogateescape") as file:
            own = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), "")
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            roots = [line.split() for line in file if " - cgroup2 " in line]
    except OSError:
        return ""
    for _, _, _, root, point, *_ in roots:
        if own and (own + "/").startswith(root.rstrip("/") + "/"):
            folder = os.path.normpath(point + "/" + own[len(root.rstrip("/")) :])
            return folder if _is_ours(folder, own) else ""
    return ""


def _is_ours(folder: str, path: str) -> bool:
    """Being able to write is not enough: root can write everywhere, and systemd minds its own groups."""
    if not (os.access(folder, os.W_OK) and os.access(os.path.join(folder, "cgroup.procs"), os.W_OK)):
        return False
    if path == "/":  # all there is to see is ours: a container, or a machine without systemd
        return True
    if 0 != os.geteuid() == os.stat(folder).st_uid:
        return True
    return b"1" in (_attribute(folder, "trusted.delegate"), _attribute(folder, "user.delegate"))


def members(group: str) -> set[int]:
    """The pids in a group; none if there is no such group."""
    if not group:
        return set()
    try:
        with open(os.path.join(group, "cgroup.procs"), encoding="ascii") as file:
            return {int(line) for line in file}
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):  # ENODEV: removed after it was opened
            return set()
        raise


def is_all_in(group: str, pids: Collection[int]) -> bool:
    """Is everyone in the group one of these, and is it undivided? (A kill would reach into its subgroups.)"""
    try:
        divided = any(entry.is_dir() for entry in os.scandir(group))
    except FileNotFoundError:
        return False
    return not divided and members(group).issubset(pids)


def kill(group: str) -> None:
    """SIGKILL for everything in it."""
    try:
        _write(group, "cgroup.kill", "1")
    except OSError:  # gone by now; or a kernel before 5.14, which does not know it
        pass


def remove(group: str) -> None:
    """Remove a group if nobody is left in it."""
    try:
        os.rmdir(group)
    except OSError:
        pass


def sweep(group: str) -> None:
    """Remove the groups beside ours that are empty."""
    place = os.path.dirname(group)
    for name in os.listdir(place) if place else []:
        if name.startswith(_PREFIX):
            remove(os.path.join(place, name))


def _write(group: str, name: str, text: str) -> None:
    file = os.open(os.path.join(group, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _attribute(folder: str, name: str) -> bytes:
    try:
        return os.getxattr(folder, name)
    except (OSError, AttributeError):
        return b""
