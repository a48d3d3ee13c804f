"""How soon a dead worker is replaced."""

from __future__ import annotations

from queuectl.worker.manager import LONGEST_PAUSE, LONGEST_PAUSE_AFTER_KILL, restart_pause


def test_the_first_deaths_cost_no_time() -> None:
    assert {restart_pause(lives, killed) for lives in range(11) for killed in (True, False)} == {0.0}


def test_workers_that_do_not_come_up_are_started_ever_more_slowly() -> None:
    pauses = [restart_pause(lives, killed=False) for lives in range(10, 40)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


def test_a_killed_worker_is_replaced_in_a_moment_however_often_it_happens() -> None:
    assert max(restart_pause(lives, killed=True) for lives in range(1000)) == LONGEST_PAUSE_AFTER_KILL <= 0.1
