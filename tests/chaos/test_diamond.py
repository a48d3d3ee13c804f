"""`scripts/chaos` runs this with a thousand parents, two hundred times."""

from __future__ import annotations

from tests.chaos.diamond import stranded
from tests.e2e.conftest import Cli


def test_no_child_is_stranded_when_its_parents_end_together(q: Cli) -> None:
    assert stranded(q, parents=100, rounds=5) == []
