"""What holds for a whole test session, whoever starts it and however: the signals and programs it starts with, a time
limit for each test, and at its end the list of what was left out."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

TIME_LIMIT = float(os.environ.get("TEST_TIME_LIMIT", "300"))  # seconds for one test with its fixtures
LAST_GRACE = TIME_LIMIT / 5  # for a test that is over its limit to clean up
TIME_TO_END = 60  # seconds for a session whose tests are over
OVER = signal.SIGVTALRM  # not SIGALRM, which tests use themselves
PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}  # by itself, and resets them for each program it starts
SYSTEM_PROGRAMS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


# -- how it starts ---------------------------------------------------------------------------------------


def pass_on_no_ignored_signals() -> None:
    """Start programs with the default signal dispositions, although this session may ignore some of them.

    nohup ignores SIGHUP and a shell's `&` ignores SIGINT and SIGQUIT, and every program inherits that. A handler that
    does nothing keeps the session as immune as it was, and ends with the exec of another program.
    """
    for number in signal.valid_signals() - PYTHON_IGNORES:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


def find_system_programs() -> None:
    """mkfs.ext4, ip and pgbouncer are where only root's PATH looks."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*path, *(folder for folder in SYSTEM_PROGRAMS if folder not in path)])


# In the controller and in each process of pytest-xdist, before any test starts a program.
pass_on_no_ignored_signals()
find_system_programs()


# -- no test hangs ---------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with time_limit(item):
        return (yield)


@contextmanager
def time_limit(item: pytest.Item) -> Iterator[None]:
    """Fail a test that takes too long, with the stacks of all threads. If that does not end it, end the process:
    pytest-xdist then names the test and goes on with another process."""
    main = threading.main_thread().ident
    assert main is not None

    def is_over(number: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(2)  # pytest captures it and shows it with the failure
        pytest.fail(f"{item.nodeid} took longer than {TIME_LIMIT:g} s")

    signal.signal(OVER, is_over)
    timer = threading.Timer(TIME_LIMIT, signal.pthread_kill, (main, OVER))
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(TIME_LIMIT + LAST_GRACE, exit=True, file=UNCAPTURED)
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
        signal.signal(OVER, signal.SIG_DFL)


def pytest_sessionfinish() -> None:
    """What a test left behind, a thread for example, must not keep the session from ending."""
    faulthandler.dump_traceback_later(TIME_TO_END, exit=True, file=UNCAPTURED)


UNCAPTURED = os.dup(2)


# -- what was left out -----------------------------------------------------------------------------------


def pytest_unconfigure(config: pytest.Config) -> None:
    """Behind everything else that pytest prints."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter):  # the processes of pytest-xdist have none
        reporter.section("left out")
        for line in left_out(reporter.stats) or ["Nothing."]:
            reporter.line(line)


def left_out(stats: dict[str, list[object]]) -> list[str]:
    """One line for each reason: how many tests, why, and of which files."""
    groups: dict[str, list[str]] = defaultdict(list)
    for kind in ("skipped", "xfailed"):
        for report in stats.get(kind, ()):
            assert isinstance(report, pytest.TestReport | pytest.CollectReport)
            groups[_reason(report)].append(Path(report.nodeid.partition("::")[0]).name)
    for item in stats.get("deselected", ()):
        assert isinstance(item, pytest.Item)
        groups["deselected on the command line"].append(item.path.name)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return [f"{len(files)} × {reason} ({', '.join(sorted(set(files)))})" for reason, files in ordered]


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return f"expected to fail: {getattr(report, 'wasxfail', '')}"
