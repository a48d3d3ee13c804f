"""A worker's promise on file, and the manager who keeps it when the worker cannot."""

from __future__ import annotations

from pathlib import Path

from queuectl.worker import lease
from queuectl.worker.lease import Lease


def test_a_worker_that_promised_nothing_has_no_end(tmp_path: Path) -> None:
    promise = Lease(str(tmp_path), "w1")
    assert promise.ask_at == lease.ends_at(str(tmp_path), "w1") == float("inf")
    promise.end()


def test_its_runs_are_asked_to_go_before_they_are_ended_and_that_before_others_take_over(tmp_path: Path) -> None:
    promise = Lease(str(tmp_path), "w1")
    promise.renew(since=1000.0, seconds=30)
    assert 1000 < promise.ask_at < lease.ends_at(str(tmp_path), "w1") < 1030


def test_a_later_sign_of_life_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    promise = Lease(str(tmp_path), "w1")
    promise.renew(since=123456.789, seconds=3600)
    promise.renew(since=2.0, seconds=3)
    assert lease.ends_at(str(tmp_path), "w1") == 4.5


def test_whoever_leaves_takes_his_promise_along(tmp_path: Path) -> None:
    promise = Lease(str(tmp_path), "w1")
    promise.renew(since=1000.0, seconds=30)
    promise.end()
    assert list(tmp_path.iterdir()) == []


def test_half_a_promise_is_none(tmp_path: Path) -> None:
    (tmp_path / "w1.lease").touch()
    assert lease.ends_at(str(tmp_path), "w1") == float("inf")


def test_the_clock_goes_on() -> None:
    assert lease.now() <= lease.now()
