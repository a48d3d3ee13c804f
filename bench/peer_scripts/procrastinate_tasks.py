"""procrastinate: `fill N` defers no-op jobs in batches, `work` runs them and prints when it began and ended."""

import asyncio
import os
import sys
import time

from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["URL"], min_size=2, max_size=10))


@app.task(name="noop")
async def noop() -> None:
    pass


async def fill(jobs: int) -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for first in range(0, jobs, 1000):
            await noop.batch_defer_async(*[{}] * min(1000, jobs - first))


async def work() -> None:
    async with app.open_async():
        began = time.time()
        await app.run_worker_async(wait=False, concurrency=100, install_signal_handlers=False)
        print(began, time.time())


asyncio.run(fill(int(sys.argv[2])) if sys.argv[1] == "fill" else work())
