"""One job that waits for very many, which end in several workers at the same moment: it must never be forgotten."""

from __future__ import annotations

from queuectl.jobs.job_spec import NewJob
from queuectl.store import open_store
from tests.e2e.conftest import Cli

WORKERS = 4


def stranded(q: Cli, parents: int, rounds: int) -> list[str]:
    """The children that did not run, of so many rounds, one after the other."""
    q.ok("worker", "start", "--count", str(WORKERS), "--concurrency", "4")
    store = open_store(q.url)
    left = []
    for number in range(rounds):
        names = [f"p{number}-{parent}" for parent in range(parents)]
        child = NewJob("true", id=f"c{number}", depends_on=list(names))
        store.enqueue([child, *(NewJob("true", id=name) for name in names)])
        store.views.wait(names)
        # Its last parent has released it, or it is forgotten: nothing else would.
        if store.views.states([f"c{number}"])[f"c{number}"] == "blocked":
            left.append(f"c{number}")
    store.views.wait([f"c{number}" for number in range(rounds) if f"c{number}" not in left])
    q.ok("worker", "stop")
    store.close()
    return left
