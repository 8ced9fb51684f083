"""The versioned store, which replaces etcd and kube-apiserver's watch cache."""

from envtest.storage.record import ADDED, DELETED, MODIFIED, Change, Record
from envtest.storage.store import Compacted, Store
from envtest.storage.watcher import Watcher, WatcherOverflow

__all__ = [
    "ADDED",
    "DELETED",
    "MODIFIED",
    "Change",
    "Compacted",
    "Record",
    "Store",
    "Watcher",
    "WatcherOverflow",
]
