"""celery on redis: `fill N`, `workers`. Two prefork workers, acknowledged after the run so that nothing is lost."""

import os
import subprocess
import sys

from celery import Celery

app = Celery("celery_tasks", broker=f"redis://127.0.0.1:{os.environ['REDIS_PORT']}/0")
app.conf.task_acks_late = True
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True


@app.task(name="celery_tasks.shell")
def shell(command):
    subprocess.run(["/bin/sh", "-c", command], check=True)
    with open(os.path.join(os.environ["PLACE"], "done"), "a") as ledger:
        ledger.write(".")


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        for _ in range(int(sys.argv[2])):
            shell.delay("true")
    else:
        os.execvp("celery", ["celery", "-A", "celery_tasks", "worker", "--concurrency", "2", "--loglevel", "ERROR"])
