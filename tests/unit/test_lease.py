"""A worker's promise on file, and the manager who keeps it when the worker cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuectl.worker import lease
from queuectl.worker.lease import Lease

NEVER = float("inf")


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The time, in `now`: it passes only when a test says so."""
    clock = {"now": 1000.0}
    monkeypatch.setattr(lease, "now", lambda: clock["now"])
    return clock


@pytest.fixture
def promise(tmp_path: Path) -> Lease:
    return Lease(str(tmp_path), "w1")


def test_a_worker_that_promised_nothing_may_go_on_for_ever(promise: Lease, tmp_path: Path) -> None:
    assert (promise.over, promise.left, lease.ends_at(str(tmp_path), "w1")) == (False, NEVER, NEVER)
    promise.end()


def test_runs_are_asked_to_go_before_they_are_ended_and_that_before_others_take_over(
    promise: Lease, tmp_path: Path, moment: dict[str, float]
) -> None:
    promise.renew(since=1000.0, seconds=30)
    assert 0 < promise.left < lease.ends_at(str(tmp_path), "w1") - 1000 < 30
    moment["now"] += promise.left - 0.001
    assert not promise.over
    moment["now"] += 0.002
    assert promise.over


def test_who_has_asked_waits_for_nothing_more_until_there_is_another_sign_of_life(
    promise: Lease, moment: dict[str, float]
) -> None:
    """Else a worker that is cut off would turn and turn without a pause."""
    promise.renew(since=1000.0, seconds=30)
    moment["now"] += 25
    assert promise.left < 0
    promise.asked = True
    assert (promise.left, promise.over) == (NEVER, True)
    promise.renew(since=1025.0, seconds=30)
    assert (promise.left, promise.over) == (20, False)


def test_a_later_sign_of_life_takes_the_place_of_an_earlier_one(promise: Lease, tmp_path: Path) -> None:
    promise.renew(since=123456.789, seconds=3600)
    promise.renew(since=2.0, seconds=3)
    assert lease.ends_at(str(tmp_path), "w1") == 4.5


def test_whoever_leaves_takes_his_promise_along(promise: Lease, tmp_path: Path) -> None:
    promise.renew(since=1000.0, seconds=30)
    promise.end()
    assert list(tmp_path.iterdir()) == []


def test_the_runs_that_the_manager_ends_are_known_to_the_worker_for_good(promise: Lease, tmp_path: Path) -> None:
    assert not promise.ended("db:w1:7:1")
    promise.renew(since=1000.0, seconds=30)
    for _ in range(2):
        lease.mark_ended(str(tmp_path), "w1", ["db:w1:7:1", "db:w1:8:1"])
    promise.renew(since=1030.0, seconds=30)
    assert [promise.ended(f"db:w1:{run}") for run in ("7:1", "8:1", "7:11", "8:")] == [True, True, False, False]
    assert lease.ends_at(str(tmp_path), "w1") == 1055.0
    assert (tmp_path / "w1.lease").read_text().count("db:") == 2


def test_half_a_promise_is_none(tmp_path: Path) -> None:
    (tmp_path / "w1.lease").touch()
    assert lease.ends_at(str(tmp_path), "w1") == NEVER
