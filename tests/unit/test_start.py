"""`worker start` waits for its workers, but not for one that cannot come."""

from __future__ import annotations

import os

import pytest

from queuectl.cli import worker


def test_it_waits_until_all_have_come_up() -> None:
    answers, workers = os.pipe()
    os.write(workers, b"..")
    os.write(workers, b".")
    assert worker._wait_until_ready(answers, 3) == 3
    os.close(workers)
    os.close(answers)


def test_one_that_does_not_come_up_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "READY_WITHIN", 0.05)
    answers, workers = os.pipe()
    os.write(workers, b".")
    assert worker._wait_until_ready(answers, 3) == 1
    os.close(workers)  # the manager has given up
    assert worker._wait_until_ready(answers, 3) is None
    os.close(answers)
