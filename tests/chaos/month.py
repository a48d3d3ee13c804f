"""A month of firings, with clocks set forward and back in the middle of it, by four schedulers that are killed all
the time: each firing happens once."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from queuectl.store import Store, open_store
from queuectl.store.engine import Engine
from queuectl.store.postgres import PostgresEngine
from queuectl.store.sqlite import SqliteEngine
from tests.conftest import eventually

SCHEDULERS = 4
ZONE = "Africa/Cairo"  # back on 11 August 2010, forward again on 10 September
START, END = datetime(2010, 8, 6, tzinfo=UTC), datetime(2010, 9, 15, tzinfo=UTC)
# Name, expression, and how one would say for a minute on the wall if it is meant. Those with a time of day come once
# a day, whatever the clock does; the others as often as the clock shows it.
PLANS: dict[str, tuple[str, bool, Callable[[datetime], bool]]] = {
    "midnight": ("0 0 * * *", True, lambda wall: (wall.hour, wall.minute) == (0, 0)),
    "in-the-gap": ("30 0 * * *", True, lambda wall: (wall.hour, wall.minute) == (0, 30)),
    "late": ("45 23 * * *", True, lambda wall: (wall.hour, wall.minute) == (23, 45)),
    "half-hourly": ("*/30 * * * *", False, lambda wall: wall.minute % 30 == 0),
    "hourly": ("7 * * * *", False, lambda wall: wall.minute == 7),
}


def wanted() -> Counter[str]:
    """All firings by name and moment, found minute by minute."""
    found: Counter[str] = Counter()
    zone = ZoneInfo(ZONE)
    for name, (_, once_a_day, meant) in PLANS.items():
        moment, furthest = START, START.astimezone(zone).replace(tzinfo=None)
        while moment < END:
            moment += timedelta(minutes=1)
            wall = moment.astimezone(zone).replace(tzinfo=None)
            if not once_a_day:
                found[_name(name, moment)] += meant(wall)
            elif wall > furthest:
                passed = [furthest + timedelta(minutes=n + 1) for n in range((wall - furthest).seconds // 60)]
                found[_name(name, moment)] += any(map(meant, passed))
                furthest = wall
    return +found


def _name(schedule: str, moment: datetime) -> str:
    return f"{schedule}:{moment:%Y%m%dT%H%M%SZ}"


class Time:
    """A clock that several processes share."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "r+b")  # noqa: SIM115
        self._memory = mmap.mmap(self._file.fileno(), 8)

    def __call__(self) -> int:
        return int(struct.unpack("q", self._memory[:])[0])

    def set(self, moment: int) -> None:
        self._memory[:] = struct.pack("q", moment)


def opened(url: str, clock: Callable[[], int]) -> Store:
    engine: Engine = PostgresEngine(url, clock) if url.startswith("postgres") else SqliteEngine(url, clock)
    return Store(engine)


def month(url: str, folder: Path, seed: int = 1) -> tuple[list[str], int]:
    """What was wrong, and how often a scheduler was killed."""
    clock_file = folder / "clock"
    clock_file.write_bytes(bytes(8))
    clock, luck, kills = Time(clock_file), random.Random(seed), 0
    open_store(url).close()
    clock.set(round(START.timestamp() * 1000))
    store = opened(url, clock)
    for name, (text, _, _) in PLANS.items():
        fields = {"command": "true"}
        store.schedules.add(name, text, None, ZONE, fields, missed="all")
    command = [sys.executable, "-m", "tests.chaos.month", url, str(clock_file)]
    schedulers = [subprocess.Popen(command) for _ in range(SCHEDULERS)]
    end = round(END.timestamp() * 1000)
    try:
        while clock() < end:
            clock.set(min(end, clock() + luck.randrange(1, 4 * 3_600_000)))
            time.sleep(luck.uniform(0, 0.02))
            if luck.random() < 0.1:
                number = luck.randrange(SCHEDULERS)
                schedulers[number].kill()
                schedulers[number].wait()
                schedulers[number] = subprocess.Popen(command)
                kills += 1
        eventually(lambda: all((one.next_at or 0) > end for one, _ in store.schedules.all()), "all to be fired")
    finally:
        for scheduler in schedulers:
            scheduler.send_signal(signal.SIGKILL)
            scheduler.wait()
    found = Counter(job.id for job in store.views.jobs(limit=-1))
    store.close()
    expected = wanted()
    return [f"{id}: {found[id]} times, not {expected[id]}" for id in (found - expected) + (expected - found)], kills


def main(url: str, clock_file: str) -> None:
    """Be a scheduler."""
    parent = os.getppid()
    store = opened(url, Time(Path(clock_file)))
    while os.getppid() == parent:
        if not store.schedules.fire()[0]:
            time.sleep(0.001)


if __name__ == "__main__":
    main(*sys.argv[1:])
