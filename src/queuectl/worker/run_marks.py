"""The mark of a run: a number that all of its processes inherit, and that none of them sheds by accident.

It is their soft limit of resident memory (RLIMIT_RSS). Linux has not enforced that limit since 2.4.30, but passes it
on through fork and exec, into new sessions and past cleared environments. The numbers are far above any memory size:
a program that reads the limit (sort does) behaves as if there were none.
"""

from __future__ import annotations

import resource
from hashlib import blake2b

_LOWEST = 1 << 61  # every mark is at least this, and less than twice this
Limits = tuple[int, int]  # soft and hard
_prlimit = getattr(resource, "prlimit", None)  # Linux only


def of(tag: str) -> int:
    """The mark of the run with this tag."""
    return _LOWEST + int.from_bytes(blake2b(tag.encode(), digest_size=8).digest()) % _LOWEST


def is_mark(number: int) -> bool:
    return _LOWEST <= number < 2 * _LOWEST


class limits_of_run:  # noqa: N801  (used like a function)
    """`with limits_of_run(mark, files):` a process that is started inherits these limits instead of our own."""

    def __init__(self, mark: int, files: Limits | None) -> None:
        self._rss = resource.getrlimit(resource.RLIMIT_RSS)
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Below a hard limit there is no mark: the tag in the environment has to do.
        self._rss_of_run = (mark, self._rss[1]) if self._rss[1] == resource.RLIM_INFINITY else self._rss
        self._files_of_run = files or self._files

    def __enter__(self) -> None:
        self._set(self._rss_of_run, self._files_of_run)

    def __exit__(self, *_: object) -> None:
        self._set(self._rss, self._files)  # else we would pass for a process of the run

    def _set(self, rss: Limits, files: Limits) -> None:
        resource.setrlimit(resource.RLIMIT_RSS, rss)
        if self._files != self._files_of_run:
            resource.setrlimit(resource.RLIMIT_NOFILE, files)


def read(pid: int) -> int:
    """The mark of a process, also of a dead one that was not reaped yet; 0 if it has none or is gone."""
    try:
        soft = _prlimit(pid, resource.RLIMIT_RSS)[0] if _prlimit else 0
    except ProcessLookupError:
        return 0
    except PermissionError:  # it runs as another user
        soft = _from_proc(pid)
    return soft if is_mark(soft) else 0


def _from_proc(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii") as file:
            words = next((line.split() for line in file if line.startswith("Max resident set")), [])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return int(words[3]) if len(words) > 3 and words[3].isdigit() else 0


def raise_file_limit(most: int = 65536) -> Limits:
    """Allow this process as many file handles as it may have, up to `most`; the limits before, for its children."""
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return before
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS refuses more than its own constant
        pass
    return before
