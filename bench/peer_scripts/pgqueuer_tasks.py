"""pgqueuer: `fill N` enqueues no-op jobs in batches, `work` runs them and prints when it began and ended."""

import os
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def fill(jobs: int) -> None:
    queries = Queries.from_asyncpg_connection(await asyncpg.connect(os.environ["URL"]))
    await queries.install()
    for first in range(0, jobs, 1000):
        count = min(1000, jobs - first)
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)


async def work() -> None:
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(os.environ["URL"]))

    @queue.entrypoint("noop")
    async def noop(job: object) -> None:
        pass

    began = time.time()
    await queue.run(dequeue_timeout=timedelta(seconds=1), batch_size=300, mode=QueueExecutionMode.drain)
    print(began, time.time())


uvloop.run(fill(int(sys.argv[2])) if sys.argv[1] == "fill" else work())
