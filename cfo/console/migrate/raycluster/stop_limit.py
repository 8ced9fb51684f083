"""Limits how many RayClusters a run suspends and waits for, after pods of others were not deleted.

One that does not stop must not keep others from being migrated: its owner can hold pods by finalizers. But if KubeRay
deletes no pods any more, for example because it does not run, the run must not suspend all RayClusters.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from cfo.api.raycluster.cluster import is_suspended
from cfo.console.migrate.raycluster.planning import SUSPENDED_ANNOTATION
from cfo.console.migrate.raycluster.steps import ObjectPlan
from cfo.runtime import Object, annotations_of, namespace_of

_MAX_FAILURES: Final = 3
"""After how many RayClusters of a namespace that did not stop the run waits for no other one there."""

_MAX_NAMESPACES: Final = 3
"""After how many namespaces in which KubeRay deleted no pods, without one that stopped, no other one is suspended."""


class StopLimit:
    """Counts the RayClusters of one run that did not stop."""

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()
        """By namespace."""
        self._namespaces: set[str] = set()
        """Those in which KubeRay deleted no pods, since a RayCluster stopped."""

    def record_stopped(self) -> None:
        """Record that the pods of a RayCluster were deleted."""
        self._namespaces.clear()

    def record_failure(self, cluster: Object, *, are_pods_deleted: bool) -> None:
        """Record that pods of a RayCluster, as it was before the run suspended it, still exist after the timeout.

        It only counts in its namespace if ``are_pods_deleted``: something, such as a finalizer or a node, delays their
        deletion. So does one that its owner has suspended: KubeRay does not delete pods that are added then.
        """
        namespace = namespace_of(cluster)
        self._failures[namespace] += 1
        if are_pods_deleted:
            return
        if not is_suspended(cluster) or SUSPENDED_ANNOTATION in annotations_of(cluster):
            self._namespaces.add(namespace)

    def reason_against(self, plan: ObjectPlan) -> str:
        """Return why a RayCluster must not be migrated, whose ``plan`` waits for pods; empty if it may be."""
        failures = self._failures[namespace_of(plan.object)]
        if failures >= _MAX_FAILURES:
            return f"{failures} other RayClusters of its namespace did not stop: solve that, and run the command again"
        if plan.restarts and len(self._namespaces) >= _MAX_NAMESPACES:
            found = ", ".join(sorted(self._namespaces))
            return (
                f"KubeRay deleted no pods of RayClusters in the namespaces {found}, so no other one is suspended: "
                "check KubeRay, or migrate this namespace with -n"
            )
        return ""
