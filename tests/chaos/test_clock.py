"""A clock that is set back and forth by an hour under running workers, through libfaketime."""

from __future__ import annotations

import glob
import itertools

import pytest

from tests.chaos.trial import trial
from tests.e2e.conftest import Cli

LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), "")
pytestmark = pytest.mark.skipif(not LIBRARY, reason="libfaketime is not installed")
LEAPS = ("-1h", "+1h", "-30s", "+2h", "+0s")


class FakeClock:
    """The clock of the workers of a queue, and of what is enqueued. The monotonic clocks go on as ever."""

    def __init__(self, q: Cli) -> None:
        self._q = q
        self._file = q.folder / "clock"
        self.leap("+0s")
        q.env |= {
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def start_workers(self) -> None:
        """Not for other commands: the library knows no clock_nanosleep, with which Python sleeps."""
        done = self._q.shell(f"LD_PRELOAD={LIBRARY} queuectl worker start --count 4 --concurrency 2")
        assert done.code == 0

    def leap(self, offset: str) -> None:
        self._file.write_text(offset)


@pytest.fixture
def fake_clock(q: Cli) -> FakeClock:
    return FakeClock(q)


def enqueue(q: Cli, command: str) -> str:
    """In a process of its own: the tests' own would not see the leap."""
    done = q.shell(f"LD_PRELOAD={LIBRARY} queuectl enqueue --quiet {command}")
    assert done.code == 0
    return done.out.strip()


def test_the_clock_of_runs_leaps(q: Cli, fake_clock: FakeClock) -> None:
    fake_clock.start_workers()
    seconds = []
    for offset in LEAPS[:2]:
        fake_clock.leap(offset)
        id = enqueue(q, "'date +%s'")
        seconds.append(int(str(q.finished(id)["stdout"])))
    assert 7100 < seconds[1] - seconds[0] < 7300


def test_a_clock_that_leaps_loses_and_repeats_no_job(q: Cli, fake_clock: FakeClock) -> None:
    leaps, later = itertools.cycle(LEAPS), []

    def leap() -> None:
        fake_clock.leap(next(leaps))
        q.finished(enqueue(q, "true"))  # what is enqueued after a leap does not wait for the old time
        later.append(enqueue(q, "--delay 2s true"))

    verdict = trial(q, 80, leap, times=len(LEAPS), start=fake_clock.start_workers)
    assert (verdict.problems, verdict.crashes) == ([], 0)
    fake_clock.start_workers()
    fake_clock.leap("+4h")
    for id in later:
        assert q.finished(id)["state"] == "completed"
        assert q.job(id)["attempts"] == 0
