"""huey on SQLite: `fill N`, `workers`. Two worker processes, as its manual recommends for commands."""

import os
import subprocess
import sys

from huey import SqliteHuey

huey = SqliteHuey(filename=os.path.join(os.environ["PLACE"], "huey.db"), results=False)


@huey.task()
def shell(command):
    subprocess.run(["/bin/sh", "-c", command], check=True)
    with open(os.path.join(os.environ["PLACE"], "done"), "a") as ledger:
        ledger.write(".")


if __name__ == "__main__":
    from huey_tasks import shell  # under its own name, so that the workers find it

    if sys.argv[1] == "fill":
        for _ in range(int(sys.argv[2])):
            shell("true")
    else:
        os.execvp("huey_consumer", ["huey_consumer", "huey_tasks.huey", "-w", "2", "-k", "process", "-q"])
