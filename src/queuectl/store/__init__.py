"""The queue's memory: the only place that knows SQL."""

from queuectl.store.factory import is_shared as is_shared
from queuectl.store.factory import open_store as open_store
from queuectl.store.factory import preload as preload
from queuectl.store.factory import whereabouts as whereabouts
from queuectl.store.store import Store as Store
