"""Limits under pressure, in real workers of two managers. `scripts/chaos` runs it for longer."""

from __future__ import annotations

import pytest

from tests.chaos.crowd import crowd, pace
from tests.e2e.conftest import Cli
from tests.e2e.conftest import engine_name as engine_name  # both


@pytest.mark.parametrize("how", ["at_once", "key"])
def test_three_at_once_are_three_at_once(q: Cli, how: str) -> None:
    assert crowd(q, jobs=500 if how == "at_once" else 80, limit=3, how=how) == []


@pytest.mark.parametrize("how", ["at_once", "key"])
def test_nor_are_they_more_or_forgotten_when_workers_are_killed(q: Cli, how: str) -> None:
    assert crowd(q, jobs=60, limit=3, how=how, kills=5) == []


def test_no_window_has_one_start_more_than_the_rate(q: Cli) -> None:
    assert pace(q, jobs=60, rate=7, per_ms=300) == []
