"""Why a job is not running: asks the store for all that `explain` has to be told."""

from __future__ import annotations

from collections.abc import Sequence

from queuectl.explain import explain
from queuectl.model import Job, Worker
from queuectl.states import WAITING
from queuectl.store import Store


def reasons_for(store: Store, job: Job, workers: Sequence[Worker], now: int) -> list[str]:
    """Why a job is not running, with all that it takes to tell."""
    waits = store.views.waits(job.id) if job.state == "blocked" else []
    obstacles = store.views.obstacles(job) if job.state in WAITING else None
    return explain(job, workers, store.views.ahead_of(job), now, waits, obstacles)
