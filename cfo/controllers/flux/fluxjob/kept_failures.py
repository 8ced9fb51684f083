"""Which failed FluxJobs keep their MiniCluster, and so their logs, although no field says so: the newest ones.

A MiniCluster is kept only once its Job has ended: then its pods have ended as well, and it never runs again.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cfo.runtime import NamespacedName

KEEP_FAILED_SECONDS: Final = 3600
"""For how long the MiniCluster of a failed job is kept."""

MAX_KEPT: Final = 5
"""How many failed jobs of a namespace keep their MiniCluster, so that failing jobs do not fill the cluster."""


def exceeds_quota(refusal: str) -> bool:
    """Return whether a ResourceQuota refused an object; the objects of kept failures may have used it up."""
    return "exceeded quota: " in refusal


@dataclass(eq=False)
class KeptFailures:
    """The failed jobs of each namespace that keep their MiniCluster.

    It is filled again after a restart, because each job is reconciled then.
    """

    _kept: dict[str, list[tuple[datetime, str]]] = field(default_factory=dict)
    """End and name of the jobs of each namespace, the oldest first."""
    _released: set[NamespacedName] = field(default_factory=set)

    def may_keep(self, key: NamespacedName, ended: datetime) -> bool:
        """Return whether the job, which failed at ``ended``, is one of the newest."""
        if key in self._released:
            return False
        others = [entry for entry in self._kept.get(key.namespace, ()) if entry[1] != key.name]
        return len(others) < MAX_KEPT or (ended, key.name) > others[0]

    def keep(self, key: NamespacedName, ended: datetime) -> list[NamespacedName]:
        """Record that a job keeps its MiniCluster; return those that must not keep theirs any more."""
        kept = [entry for entry in self._kept.get(key.namespace, ()) if entry[1] != key.name]
        insort(kept, (ended, key.name))
        self._kept[key.namespace] = kept[-MAX_KEPT:]
        return [NamespacedName(key.namespace, name) for _, name in kept[:-MAX_KEPT]]

    def release(self, namespace: str) -> list[NamespacedName]:
        """Let no job of a namespace keep its MiniCluster, because its ResourceQuota is used up; return these jobs."""
        released = [NamespacedName(namespace, name) for _, name in self._kept.pop(namespace, ())]
        self._released.update(released)
        return released

    def forget(self, key: NamespacedName) -> None:
        """Forget a job that keeps no MiniCluster."""
        self._released.discard(key)
        kept = self._kept.get(key.namespace)
        if kept is None:
            return
        remaining = [entry for entry in kept if entry[1] != key.name]
        if remaining:
            self._kept[key.namespace] = remaining
        else:
            del self._kept[key.namespace]
