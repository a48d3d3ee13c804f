"""Many short jobs, while again and again something goes wrong that is no reason to run any of them twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from queuectl.jobs.job_spec import NewJob
from queuectl.store import open_store
from tests.chaos.ledger import SCRIPT, Verdict, check
from tests.chaos.storm import WORKERS
from tests.conftest import eventually
from tests.e2e.conftest import Cli


def trial(
    q: Cli,
    jobs: int,
    mishap: Callable[[], object],
    times: int,
    safe: str = "",
    then: str = "true",
    start: Callable[[], object] | None = None,
) -> Verdict:
    """Let it happen so often, evenly spread over the jobs, and judge. `safe` is a way to the queue that it spares;
    `then` is what each job does in the end; `start` starts the workers."""
    ledger = q.folder / "ledger"
    q.env["LEDGER"] = str(ledger)
    (q.folder / "job.sh").write_text(SCRIPT)
    store = open_store(safe or q.url)

    def done(count: int) -> bool:
        return list(store.views.states(ids).values()).count("completed") >= count

    ids = store.enqueue([NewJob(f". {q.folder}/job.sh; {then}") for _ in range(jobs)])
    (start or partial(q.ok, *WORKERS))()
    before = _processes(q)
    for number in range(times):
        eventually(partial(done, jobs * (number + 1) // (times + 1)), "some jobs more", deadline=300)
        mishap()
    eventually(partial(done, jobs), "all jobs", deadline=300)
    verdict = check(store, ledger, ids)
    if verdict.runs != jobs:
        verdict.problems.append(f"{verdict.runs} runs of {jobs} jobs")
    if _processes(q) != before:
        verdict.problems.append("the workers are not the same processes as before")
    q.ok("worker", "stop")
    store.close()
    return verdict


def _processes(q: Cli) -> set[tuple[str, int]]:
    return {(worker["id"], worker["pid"]) for worker in q.workers()}
