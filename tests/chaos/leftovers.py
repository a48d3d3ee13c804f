"""Jobs whose last act is to start processes that try to outlive their failed, timed-out or cancelled run.

Each run holds a lock through a descriptor that all of its processes inherit: as long as one of them lives, whatever
it did to its parents, session or environment, the next run of the job cannot take the lock, and says so.
"""

from __future__ import annotations

import fcntl
import os

from queuectl.jobs.job_spec import NewJob
from queuectl.store import open_store
from tests.conftest import eventually
from tests.e2e.conftest import Cli

# Links of a chain start the next one, in a session of its own, and exit at once.
CHAIN = 'if [ "$1" -gt 0 ]; then setsid sh ./chain.sh $(($1 - 1)) & else exec sleep 45; fi'
WAYS = {
    "daemonise": '(setsid sh -c "sleep 45 & exit" &)',
    "background": "setsid sleep 45 &",
    "chain": "setsid sh ./chain.sh 20 &",
    "no environment": '(env -i setsid sh -c "sleep 45 & exit" &)',
}
LOCK = 'exec 9>>"lock.$QUEUECTL_JOB_ID"; flock -n 9 || echo "$QUEUECTL_JOB_ID" >> overlaps; echo >> runs; '
ENDS = ("exit", "timeout", "cancel")


def leftovers(q: Cli, jobs: int, slots: int, ways: list[str], end: str = "exit", runs: int = 2) -> list[str]:
    """Run jobs that start processes in these ways when they end; what was wrong."""
    (q.folder / "chain.sh").write_text(CHAIN)
    store = open_store(q.url)
    for key, value in (("backoff_base", "0"), ("kill_grace", "0.2"), ("max_retries", str(runs))):
        store.set_config(key, value)
    timeout = 0.2 if end == "timeout" else None
    commands = [_command(ways[number % len(ways)], end) for number in range(jobs)]
    store.enqueue([NewJob(command, cwd=str(q.folder), timeout_seconds=timeout) for command in commands])
    q.ok("worker", "start", "--concurrency", str(slots))
    if end == "cancel":
        eventually(lambda: _lines(q, "runs") >= slots, "the first jobs to run", 300)
        store.cancel([job.id for job in store.views.jobs(limit=-1)])
    eventually(lambda: not store.views.unfinished(), "all jobs to finish", 300)
    overlaps = _lines(q, "overlaps")
    problems = [f"{overlaps} runs began beside processes of an earlier run"] if overlaps else []
    survivors = sum(_is_held(q, name) for name in os.listdir(q.folder) if name.startswith("lock."))
    problems += [f"{survivors} jobs have processes that outlive them"] if survivors else []
    expected = {"exit": jobs * runs, "timeout": jobs * runs, "cancel": slots}[end]
    ran = sum(job.run for job in store.views.jobs(limit=-1))
    if ran < expected:
        problems.append(f"{ran} runs, not {expected}")
    if _lines(q, "runs") < expected // 2:  # on a busy machine a run may time out before its first command
        problems.append(f"only {_lines(q, 'runs')} of {expected} runs got as far as starting processes")
    q.ok("worker", "stop")
    store.close()
    return problems


def _command(way: str, end: str) -> str:
    if end == "exit":
        return f"{LOCK}{WAYS[way]}\nexit 1"
    return f"{LOCK}trap '{WAYS[way]}\nexit 1' TERM; sleep 1000 & wait"


def _lines(q: Cli, name: str) -> int:
    path = q.folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def _is_held(q: Cli, name: str) -> bool:
    with (q.folder / name).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
