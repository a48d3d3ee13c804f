"""Loaded by every Python that has this folder on its PYTHONPATH: kills, or stops, the process at a chosen step.

CRASH_AT is `sql:N` (just before the process's Nth SQL statement, BEGIN and COMMIT included) or
`before:module:Class.name` / `after:module:Class.name` (around a call). CRASH_ONCE names a file that is made at the
crash: whoever finds it there is spared, so that a successor can show what it makes of the mess. CRASH_WHEN names a
file: before that is there, nothing happens. CRASH_SIGNAL is sent instead of SIGKILL.
"""

import importlib
import os
import signal
from functools import reduce
from typing import Any

spot = os.environ.get("CRASH_AT", "")


def crash() -> None:
    if not os.path.exists(os.environ.get("CRASH_WHEN", "/")):
        return
    try:
        os.close(os.open(os.environ["CRASH_ONCE"], os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.Signals[os.environ.get("CRASH_SIGNAL", "SIGKILL")])


def crash_at_statement(number: int) -> None:
    import apsw

    left = {"pid": 0, "statements": number}

    def before_statement(cursor: object, sql: str, bindings: object) -> bool:
        if left["pid"] != os.getpid():  # each process counts its own, forked ones too
            left.update(pid=os.getpid(), statements=number)
        left["statements"] -= 1
        if left["statements"] == 0:
            crash()
        return True

    apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", before_statement))


def crash_around(when: str, module: str, path: str) -> None:
    *owner, name = path.split(".")
    holder = reduce(getattr, owner, importlib.import_module(module))
    original = getattr(holder, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if when == "before":
            crash()
        result = original(*args, **kwargs)
        if when == "after":
            crash()
        return result

    setattr(holder, name, wrapped)


if spot.startswith("sql:"):
    crash_at_statement(int(spot[4:]))
elif spot:
    crash_around(*spot.split(":"))
