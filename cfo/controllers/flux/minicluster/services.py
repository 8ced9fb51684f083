"""The Services of a MiniCluster, whose names other objects may have.

``spec.network.headlessName`` names the headless Service, and the container the Service of a sidecar,
as in the Go operator. Two MiniClusters in a namespace may request the same name. The second one then gets Services with
names of its own; an Event says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cfo.api.flux import MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.children import Children, belongs_to
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.resources import desired_service, desired_sidecar_service
from cfo.runtime import SERVICE, Entry, Informer, NamespacedName, Object, Reader, key_of, name_of

__all__ = ["ServiceWriter", "add_index"]

_CLUSTER_INDEX: Final = "minicluster"
_HEADLESS: Final = "None"


def add_index(services: Informer) -> None:
    """Add the index with which :meth:`ServiceWriter.prune` finds Services."""
    services.add_index(_CLUSTER_INDEX, _index_cluster)


class ServiceWriter:
    """Writes the Services in one reconcile."""

    def __init__(self, children: Children, services: Reader) -> None:
        self._children = children
        self._services = services
        self._names: set[str] = set()

    async def apply_main(self, plan: Plan, *, fixed: bool) -> Plan:
        """Create or update the Service that gives the pods their DNS names; return the plan with its name.

        With ``fixed``, pods with this name in their specs may exist, so it cannot be another.
        """
        if not fixed and plan.service != plan.name:
            if self._is_own(plan, plan.name):
                plan = replace(plan, service=plan.name)
            elif not await self._apply(desired_service(plan), required=False):
                if self._children.problem is not None:
                    return plan
                self._children.record_name_conflict(
                    f"Service {plan.service}", f"the pods of this MiniCluster have names below {plan.name} instead"
                )
                plan = replace(plan, service=plan.name)
            else:
                return plan
        await self._apply(desired_service(plan))
        return plan

    async def apply_sidecars(self, plan: Plan) -> None:
        """Create or update a Service for each container with ports that does not run Flux."""
        ambiguous = _ambiguous_names(plan)
        for container in plan.sidecars:
            if not container.get("ports"):
                continue
            name = str(container.get("name"))
            own_name = f"{plan.name}-{name}"
            if name in ambiguous or own_name in ambiguous:
                # Validation refuses such names. Two desired states of one Service would replace each other forever.
                self._children.add_problem("NameTaken", f"Several Services would have the name {name} or {own_name}.")
                continue
            if self._is_own(plan, own_name):
                await self._apply(desired_sidecar_service(plan, container, own_name))
                continue
            if await self._apply(desired_sidecar_service(plan, container, name), required=False):
                continue
            if self._children.problem is None and await self._apply(desired_sidecar_service(plan, container, own_name)):
                self._children.record_name_conflict(
                    f"Service {name}", f"the container {name} of this MiniCluster has the Service {own_name} instead"
                )

    async def prune(self, plan: Plan) -> None:
        """Delete Services of the MiniCluster that were not applied in this reconcile."""
        for service in self._services.entries(index=(_CLUSTER_INDEX, f"{plan.namespace}/{plan.name}")):
            if service.key.name not in self._names:
                await self._children.delete(SERVICE, service)

    def _is_own(self, plan: Plan, name: str) -> bool:
        entry = self._services.entry(NamespacedName(plan.namespace, name))
        return belongs_to(entry, self._children.cluster)

    async def _apply(self, desired: Object, *, required: bool = True) -> bool:
        current = self._services.entry(key_of(desired))
        children = self._children
        can_replace = not children.keep_existing and belongs_to(current, children.cluster)
        if current is not None and can_replace and _changes_type(current, desired):
            # The API server refuses to give a headless Service an address, or to take one away.
            await self._children.delete(SERVICE, current)
            self._children.add_problem("Creating", f"Service {name_of(desired)} is being replaced.")
            return False
        applied = await self._children.ensure(desired, current, required=required)
        if applied:
            self._names.add(name_of(desired))
        return applied


def _ambiguous_names(plan: Plan) -> set[str]:
    """Return the names that more than one Service of the MiniCluster could have."""
    headless = (plan.spec.get("network") or {}).get("headlessName") or plan.name
    names = Counter({plan.name, plan.service, headless})
    for container in plan.sidecars:
        if container.get("ports"):
            names.update((str(container.get("name")), f"{plan.name}-{container.get('name')}"))
    return {name for name, count in names.items() if count > 1}


def _changes_type(current: Entry, desired: Object) -> bool:
    address = (current.object().get("spec") or {}).get("clusterIP")
    return bool(address) and (address == _HEADLESS) != (desired["spec"].get("clusterIP") == _HEADLESS)


def _index_cluster(service: Entry) -> Iterable[str]:
    name = service.meta.labels.get(MINICLUSTER_LABEL)
    return [f"{service.key.namespace}/{name}"] if name else []
