"""A month of firings through two changes of the clock, with four schedulers and random kills."""

from __future__ import annotations

from tests.chaos.month import PLANS, month, wanted
from tests.e2e.conftest import Cli
from tests.e2e.conftest import engine_name as engine_name  # both


def test_each_firing_happens_once(q: Cli) -> None:
    problems, kills = month(q.url if "://" in q.url else str(q.folder / "queue.db"), q.folder)
    assert problems == []
    assert kills > 20


def test_the_month_has_what_it_needs() -> None:
    expected = wanted()
    days = 40
    assert all(expected[name] == 1 for name in expected)
    assert sum(name.startswith("in-the-gap") for name in expected) == days
    assert sum(name.startswith("half-hourly") for name in expected) == days * 24 * 2
    assert len({name.partition(":")[0] for name in expected}) == len(PLANS)
