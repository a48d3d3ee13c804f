"""The tests themselves: they pass on no ignored signals, none of them hangs, and none is left out unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = """
import signal, time, pytest

def test_that_waits_for_ever():
    time.sleep(1000)

def test_that_cannot_be_interrupted():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGVTALRM])
    time.sleep(1000)

@pytest.mark.parametrize("n", [1, 2])
def test_without_its_program(n):
    pytest.skip("there is no program")

@pytest.mark.xfail(reason="not yet")
def test_to_come():
    assert False

def test_that_passes():
    pass
"""


def session(*args: str, start: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with one process of pytest-xdist, started by this shell command."""
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", "-p", "no:cacheprovider", *args]
    return subprocess.run(
        ["sh", "-c", f'{start} exec "$@"', "sh", *command],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},  # to load them takes a second
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_programs_ignore_no_signals() -> None:
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    [ignored] = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
    assert int(ignored, 16) == 0


def test_nor_if_the_session_was_started_by_nohup_and_in_the_background() -> None:
    here = f"{__file__}::{test_programs_ignore_no_signals.__name__}"
    done = session(here, start="trap '' HUP INT QUIT;")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_test_that_hangs_fails_by_name_and_what_was_left_out_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "test_sample.py"
    file.write_text(TESTS)
    done = session(
        "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "tests.session", str(file), TEST_TIME_LIMIT="1"
    )
    assert done.returncode == 1, done.stdout
    assert "test_sample.py::test_that_waits_for_ever took longer than 1 s" in done.stdout
    assert "time.sleep(1000)" in done.stdout
    assert "crashed while running 'test_sample.py::test_that_cannot_be_interrupted'" in done.stdout
    counts, *left_out = done.stdout.splitlines()[-4:]
    assert "2 failed, 1 passed, 2 skipped, 1 xfailed" in counts
    assert left_out == [
        " left out ".center(80, "="),
        "2 × there is no program (test_sample.py)",
        "1 × expected to fail: not yet (test_sample.py)",
    ]
