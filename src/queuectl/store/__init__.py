"""The queue's memory: the only place that knows SQL."""

from queuectl.store.opening import is_shared as is_shared
from queuectl.store.opening import open_store as open_store
from queuectl.store.opening import preload as preload
from queuectl.store.store import Store as Store
