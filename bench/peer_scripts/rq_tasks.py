"""rq on redis: `fill N`, `workers`. Two workers that fork for each job, which is its default."""

import os
import subprocess
import sys

from redis import Redis
from rq import Queue


def shell(command):
    subprocess.run(["/bin/sh", "-c", command], check=True)
    with open(os.path.join(os.environ["PLACE"], "done"), "a") as ledger:
        ledger.write(".")


if __name__ == "__main__":
    url = f"redis://127.0.0.1:{os.environ['REDIS_PORT']}"
    if sys.argv[1] == "fill":
        queue = Queue(connection=Redis.from_url(url))
        for _ in range(int(sys.argv[2])):
            queue.enqueue("rq_tasks.shell", "true")
    else:
        os.execvp("rq", ["rq", "worker-pool", "-n", "2", "-u", url, "--quiet"])
