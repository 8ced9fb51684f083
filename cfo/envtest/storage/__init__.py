"""The versioned store: what etcd and the watch cache are to the real kube-apiserver."""

from cfo.envtest.storage.record import ADDED, DELETED, MODIFIED, Change, Record
from cfo.envtest.storage.store import Compacted, Store
from cfo.envtest.storage.watcher import Watcher, WatcherOverflow

__all__ = ["ADDED", "DELETED", "MODIFIED", "Change", "Compacted", "Record", "Store", "Watcher", "WatcherOverflow"]
