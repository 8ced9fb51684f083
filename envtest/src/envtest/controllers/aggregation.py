"""The ClusterRole aggregation controller.

A ClusterRole with an ``aggregationRule`` gets the rules of all ClusterRoles that it selects.
"""

from __future__ import annotations

from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.label_selectors import matches_label_selector
from envtest.apimachinery.objects import Object
from envtest.controllers.controller import Controller
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["RoleAggregation"]

CLUSTER_ROLES: Final = GroupResource("rbac.authorization.k8s.io", "clusterroles")


class RoleAggregation(Controller[str]):
    """Reconciles ClusterRoles with an aggregation rule; keys are their names."""

    account = "clusterrole-aggregation-controller"
    manager = "clusterrole-aggregation-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._aggregating: set[str] = set()

    def enqueue_all(self) -> None:
        """Enqueue all ClusterRoles with an aggregation rule."""
        for record in self.client.records(CLUSTER_ROLES):
            self._track(record)
        self._enqueue_aggregating()

    def _track(self, record: Record) -> None:
        if b'"aggregationRule":{' in record.data:
            self._aggregating.add(record.name)
        else:
            self._aggregating.discard(record.name)

    def _enqueue_aggregating(self) -> None:
        for name in self._aggregating:
            self.queue.add(name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue every ClusterRole with an aggregation rule, because each may select the ClusterRole that changed."""
        if resource != CLUSTER_ROLES:
            return
        if change.type == "DELETED":
            self._aggregating.discard(change.record.name)
        else:
            self._track(change.record)
        self._enqueue_aggregating()

    async def reconcile(self, key: str) -> None:
        """Collect the rules of the selected roles, in the order of the roles' names and without duplicates."""
        record = self.client.record(CLUSTER_ROLES, "", key)
        if record is None:
            return
        rule = record.obj().get("aggregationRule")
        if not rule:
            return
        aggregated_rules: list[Any] = []
        for other in self.client.records(CLUSTER_ROLES):
            selectors = rule.get("clusterRoleSelectors") or ()
            if other.name == key or not any(
                matches_label_selector(item, other.labels or {}) for item in selectors
            ):
                continue
            aggregated_rules += [
                item for item in other.obj().get("rules") or () if item not in aggregated_rules
            ]

        def change(role: Object) -> bool:
            if (role.get("rules") or []) == aggregated_rules:
                return False
            role["rules"] = aggregated_rules
            return True

        await self.client.modify(CLUSTER_ROLES, "", key, change, uid=record.uid)
