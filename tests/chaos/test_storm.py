"""Nothing lost, nothing twice, whoever is killed. `scripts/chaos` runs this for longer."""

from __future__ import annotations

import pytest

from tests.chaos.storm import Storm
from tests.e2e.conftest import Cli


@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_storm_loses_nothing_and_overlaps_nothing(q: Cli, seed: int) -> None:
    storm = Storm(q, seed)
    verdict = storm.rage(jobs=150, seconds=8.0, pause=(0.05, 0.4))
    assert verdict.problems == [], f"seed {seed}, {storm.kills} kills"
    assert verdict.jobs == 150
    assert verdict.crashes > 0, "the storm hit no running job, so it showed nothing"
