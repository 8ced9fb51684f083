"""The versioned store: what etcd and the watch cache are to the real kube-apiserver."""

from envtest.storage.record import ADDED, DELETED, MODIFIED, Change, Record
from envtest.storage.store import Compacted, Store
from envtest.storage.watcher import Watcher, WatcherOverflow

__all__ = ["ADDED", "DELETED", "MODIFIED", "Change", "Compacted", "Record", "Store", "Watcher", "WatcherOverflow"]
