"""The output of processes that completed jobs left running: read, and thrown away.

A process is ended by its own output if nobody reads that any more, so the worker keeps reading. Each stream costs it
a file handle for as long as the process lives; so their number is limited, and the oldest is closed for a new one.
"""

from __future__ import annotations

import os
import resource

from queuectl.worker.log import Log
from queuectl.worker.poller import Ears
from queuectl.worker.process import take

HANDLES_OF_WORKER = 64  # the database, its log, wake-ups, and some for looking around
HANDLES_OF_SLOT = 8  # pipes, the log of the run, and what starting a process takes


class LeftOutput:
    def __init__(self, ears: Ears, slots: int, log: Log) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(limit // 4, limit - HANDLES_OF_WORKER - slots * HANDLES_OF_SLOT)
        self._ears = ears
        self._log = log
        self._jobs: dict[int, str] = {}  # the job that left a process with this stream, the oldest first

    def keep(self, stream: int, job: str) -> None:
        """Read this stream to its end."""
        if len(self._jobs) >= self.most:
            oldest, closed = next(iter(self._jobs.items()))
            self._log.tell("output of a process left behind is no longer read", job=closed, streams=len(self._jobs))
            self._ears.turn_from(oldest)
            self._close(oldest)
        self._jobs[stream] = job
        self._ears.turn_to(stream, self._discard)

    def _discard(self, stream: int) -> bool:
        """Take what has come; False at the end, when it is closed."""
        try:
            at_end = not take(stream)
        except BlockingIOError:  # another process has read it: a job can open its own output
            return True
        if at_end:
            self._close(stream)
        return not at_end

    def _close(self, stream: int) -> None:
        del self._jobs[stream]
        os.close(stream)
