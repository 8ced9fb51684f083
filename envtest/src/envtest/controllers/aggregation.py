"""Role aggregation: a ClusterRole with an ``aggregationRule`` has the rules of all ClusterRoles that it selects."""

from __future__ import annotations

from typing import Any, Final

from envtest.controllers.controller import Controller
from envtest.errors import GroupResource
from envtest.label_selectors import matches_label_selector
from envtest.objects import Object
from envtest.server_core import Core
from envtest.storage import Change, Record

__all__ = ["RoleAggregation"]

CLUSTER_ROLES: Final = GroupResource("rbac.authorization.k8s.io", "clusterroles")


class RoleAggregation(Controller[str]):
    """Keys are the names of ClusterRoles that aggregate."""

    account = "clusterrole-aggregation-controller"
    manager = "clusterrole-aggregation-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._aggregating: set[str] = set()

    def begin(self) -> None:
        """Looks at all ClusterRoles."""
        for record in self.actor.records(CLUSTER_ROLES):
            self._note(record)
        self._look_at_all()

    def _note(self, record: Record) -> None:
        if b'"aggregationRule":{' in record.data:
            self._aggregating.add(record.name)
        else:
            self._aggregating.discard(record.name)

    def _look_at_all(self) -> None:
        for name in self._aggregating:
            self.queue.add(name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Any ClusterRole may be a part of any that aggregates."""
        if resource != CLUSTER_ROLES:
            return
        if change.type == "DELETED":
            self._aggregating.discard(change.record.name)
        else:
            self._note(change.record)
        self._look_at_all()

    async def work(self, key: str) -> None:
        """Gathers the rules, each once, by the names of their roles."""
        record = self.actor.record(CLUSTER_ROLES, "", key)
        if record is None:
            return
        rule = record.obj().get("aggregationRule")
        if not rule:
            return
        gathered: list[Any] = []
        for other in self.actor.records(CLUSTER_ROLES):
            selectors = rule.get("clusterRoleSelectors") or ()
            if other.name == key or not any(matches_label_selector(one, other.labels or {}) for one in selectors):
                continue
            gathered += [one for one in other.obj().get("rules") or () if one not in gathered]

        def change(role: Object) -> bool:
            if (role.get("rules") or []) == gathered:
                return False
            role["rules"] = gathered
            return True

        await self.actor.modify(CLUSTER_ROLES, "", key, change, uid=record.uid)
