"""Every command at once, beside workers that are killed and stopped. `scripts/chaos` runs this for longer."""

from __future__ import annotations

import pytest

from tests.chaos.commands_storm import CommandStorm
from tests.e2e.conftest import Cli

both_engines = pytest.mark.parametrize("engine_name", ["sqlite", "postgres"])


@both_engines
def test_a_storm_of_commands_breaks_no_promise(q: Cli) -> None:
    storm = CommandStorm(q, seed=1)
    verdict = storm.rage(2.5)
    assert not verdict.problems, "\n".join([f"seed {storm.seed}", *verdict.problems])
    assert verdict.runs > 20, "the storm ran no jobs, so it showed nothing"


@both_engines
def test_the_checker_finds_nothing_wrong_with_a_quiet_queue(q: Cli) -> None:
    """The mutants are tried on this one."""
    verdict = CommandStorm(q, seed=1).lull()
    assert not verdict.problems, "\n".join(verdict.problems)
    assert verdict.runs >= 10
