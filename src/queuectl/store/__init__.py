"""The queue's memory: the only place that knows SQL."""

from queuectl.store.store import Store as Store
from queuectl.store.store import open_store as open_store
from queuectl.store.store import preload as preload
