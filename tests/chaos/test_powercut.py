"""What `enqueue` said yes to survives a power cut."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.conftest import need
from tests.chaos.powercut import lost_by_power_cut


def test_acknowledged_jobs_survive_a_power_cut(tmp_path: Path) -> None:
    assert lost_by_power_cut(tmp_path, need, durable=True) == (0, True)


def test_the_power_cut_is_real_because_without_a_sync_jobs_are_lost(tmp_path: Path) -> None:
    lost, sound = lost_by_power_cut(tmp_path, need, durable=False)
    assert lost > 0
    assert sound
