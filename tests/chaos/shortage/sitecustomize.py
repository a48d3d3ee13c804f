"""Loaded by every Python that has this folder on its PYTHONPATH: a worker's fifth to eighth run find no room."""

import errno
import importlib
import os
from typing import Any

if os.environ.get("SHORTAGE"):
    process = importlib.import_module("queuectl.worker.process")
    posix_spawn, calls = os.posix_spawn, 0

    def spawn(*args: Any, **kwargs: Any) -> int:
        global calls
        calls += 1
        if 5 <= calls <= 8:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return posix_spawn(*args, **kwargs)

    process.os.posix_spawn = spawn
