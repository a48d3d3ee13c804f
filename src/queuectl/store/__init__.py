"""The queue's memory: the only place that knows SQL."""

from queuectl.store.store import Store as Store
from queuectl.store.store import is_shared as is_shared
from queuectl.store.store import open_store as open_store
from queuectl.store.store import preload as preload
