"""queuectl: a durable background job queue for shell commands.

>>> from queuectl import Queue
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queuectl.client.queue import Queue as Queue

__version__ = "0.1.0"
__all__ = ["Queue"]


def __getattr__(name: str) -> object:
    """Load the Python API when it is asked for; the command line starts faster without it."""
    if name == "Queue":
        from queuectl.client.queue import Queue

        return Queue
    raise AttributeError(f"module 'queuectl' has no attribute {name!r}")
