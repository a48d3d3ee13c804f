"""Short stops of every kind of process. `scripts/chaos` stops them for up to a minute."""

from __future__ import annotations

import pytest

from tests.chaos.stops import SPOTS, stop_all, stop_each, stop_in_transaction
from tests.e2e.conftest import Cli

both_engines = pytest.mark.parametrize("engine_name", ["sqlite", "postgres"])


@both_engines
def test_each_process_goes_on_after_it_was_stopped(q: Cli) -> None:
    assert stop_each(q, 0.1) == []


@both_engines
def test_all_of_them_go_on_after_they_were_stopped_at_once(q: Cli) -> None:
    assert stop_all(q, 0.6) == []


@both_engines
@pytest.mark.parametrize("what", SPOTS)
def test_a_process_stopped_in_its_transaction_finishes_it_and_others_wait(q: Cli, what: str) -> None:
    assert stop_in_transaction(q, what, 0.3) == []
