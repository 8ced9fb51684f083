"""The EndpointSlice controller: slices of at most 100 endpoints list the pods that a Service selects.

A change of pods changes as few slices as possible: an endpoint stays in the slice that has it, new ones fill the slices
with free places, and further ones are put into new slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.name_rules import dns_subdomain
from envtest.apimachinery.objects import NamespacedName, Object, labels_of, owner_reference
from envtest.controllers.pod_control import is_namespace_terminating
from envtest.controllers.service_endpoints import (
    HEADLESS,
    SERVICES,
    TRIGGER_TIME,
    EndpointPod,
    ServiceController,
    addresses_of,
    belongs,
    hostname_for,
    is_headless,
    service_ports,
)
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["MAX_ENDPOINTS", "EndpointSlices", "SlicePlan", "endpoint_of", "plan_slices"]

SLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")
NODES: Final = GroupResource("", "nodes")
SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
MANAGER: Final = "endpointslice-controller.k8s.io"
MAX_ENDPOINTS: Final = 100

_ZONE: Final = "topology.kubernetes.io/zone"
_RESERVED: Final = (SERVICE_NAME, MANAGED_BY, HEADLESS)

Ports = tuple[tuple[tuple[str, Any], ...], ...]


def endpoint_of(
    service: Object, pod: EndpointPod, addresses: list[str], zone: str
) -> dict[str, Any]:
    """Return the endpoint of a pod. A pod that is being deleted is ready only if the Service publishes all pods."""
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    ready = publish or (pod.is_ready and not pod.is_terminating)
    conditions = {"ready": ready, "serving": pod.is_ready, "terminating": pod.is_terminating}
    endpoint: dict[str, Any] = {
        "addresses": addresses,
        "conditions": conditions,
        "targetRef": pod.target,
    }
    hostname = hostname_for(pod, service)
    if hostname:
        endpoint["hostname"] = hostname
    if pod.node:
        endpoint["nodeName"] = pod.node
    if zone:
        endpoint["zone"] = zone
    return endpoint


class SlicePlan(NamedTuple):
    """What to do with the slices of a Service.

    ``updated`` are ports and endpoints of existing slices by name (including unchanged slices), ``created`` are
    (address type, ports, endpoints) of new slices, ``deleted`` are names.
    """

    updated: dict[str, tuple[Ports, list[dict[str, Any]]]]
    created: list[tuple[str, Ports, list[dict[str, Any]]]]
    deleted: list[str]


def plan_slices(
    existing: Iterable[Object],
    desired: Mapping[tuple[str, Ports], list[dict[str, Any]]],
    families: Iterable[str],
) -> SlicePlan:
    """Distribute the ``desired`` endpoints, by address type and ports, over the slices.

    Each address type of ``families`` keeps one slice without endpoints if it has none. Slices that would be deleted are
    used instead of new ones.
    """
    plan = SlicePlan({}, [], [])
    by_group: dict[tuple[str, Ports], list[Object]] = {}
    for each in existing:
        by_group.setdefault((each["addressType"], ports_key(each.get("ports") or ())), []).append(
            each
        )
    kept: dict[str, int] = {}
    for group, slices in by_group.items():
        missing = {each["targetRef"]["uid"]: each for each in desired.get(group, ())}
        contents = {}
        for each in slices:
            uids = (
                (endpoint.get("targetRef") or {}).get("uid")
                for endpoint in each.get("endpoints") or ()
            )
            contents[each["metadata"]["name"]] = [
                missing.pop(uid) for uid in uids if uid in missing
            ]
        rest = list(missing.values())
        for name in sorted(contents, key=lambda name: -len(contents[name])):
            room = MAX_ENDPOINTS - len(contents[name])
            contents[name] += rest[:room]
            del rest[:room]
            if contents[name]:
                plan.updated[name] = (group[1], contents[name])
                kept[group[0]] = kept.get(group[0], 0) + 1
            else:
                plan.deleted.append(name)
        _add_slices(plan, group, rest, kept)
    for group, endpoints in desired.items():
        if group not in by_group:
            _add_slices(plan, group, endpoints, kept)
    plan.created.extend((family, (), []) for family in families if not kept.get(family))
    _reuse_slices(
        plan, {each["metadata"]["name"]: each["addressType"] for each in slices_of(by_group)}
    )
    return plan


def slices_of(groups: Mapping[tuple[str, Ports], list[Object]]) -> Iterable[Object]:
    """Return the slices of all groups."""
    return (each for slices in groups.values() for each in slices)


def _reuse_slices(plan: SlicePlan, families: Mapping[str, str]) -> None:
    """Change deletions and creations of slices of the same address type into updates."""
    free: dict[str, list[str]] = {}
    for name in plan.deleted:
        free.setdefault(families[name], []).append(name)
    created = list(plan.created)
    plan.created.clear()
    for family, ports, endpoints in created:
        if free.get(family):
            plan.updated[free[family].pop(0)] = (ports, endpoints)
        else:
            plan.created.append((family, ports, endpoints))
    plan.deleted[:] = [name for names in free.values() for name in names]


def _add_slices(
    plan: SlicePlan, group: tuple[str, Ports], endpoints: list[dict[str, Any]], kept: dict[str, int]
) -> None:
    for start in range(0, len(endpoints), MAX_ENDPOINTS):
        plan.created.append((*group, endpoints[start : start + MAX_ENDPOINTS]))
        kept[group[0]] = kept.get(group[0], 0) + 1


def ports_key(ports: Iterable[Mapping[str, Any]]) -> Ports:
    """Return ports in a form that can be compared."""
    return tuple(sorted(tuple(sorted(port.items())) for port in ports))


class EndpointSlices(ServiceController):
    """Reconciles the EndpointSlices of Services with a selector. Keys name Services."""

    account = "endpointslice-controller"
    written = SLICES

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._slices: dict[NamespacedName, set[str]] = {}
        self._zones: dict[str, str] = {}

    def enqueue_all(self) -> None:
        """See :meth:`ServiceController.enqueue_all`; nodes have the zones of endpoints."""
        for record in self.client.records(NODES):
            self._zones[record.name] = (record.labels or {}).get(_ZONE, "")
        super().enqueue_all()

    def observe(self, resource: GroupResource, change: Change) -> None:
        """See :meth:`ServiceController.observe`."""
        if resource == NODES:
            zone = "" if change.type == "DELETED" else (change.record.labels or {}).get(_ZONE, "")
            if self._zones.get(change.record.name, "") != zone:
                self._zones[change.record.name] = zone
                for record in self.client.records(SERVICES):
                    self.queue.add(NamespacedName(record.namespace, record.name))
            return
        if resource == SLICES and change.type == "DELETED":
            for names in (self._slices.get(self._service_of(change.record)),):
                if names is not None:
                    names.discard(change.record.name)
        super().observe(resource, change)

    @staticmethod
    def _service_of(record: Record) -> NamespacedName:
        return NamespacedName(record.namespace, (record.labels or {}).get(SERVICE_NAME, ""))

    def _enqueue_written(self, record: Record) -> None:
        if (record.labels or {}).get(MANAGED_BY) == MANAGER:
            key = self._service_of(record)
            if self.client.record(SLICES, record.namespace, record.name) is not None:
                self._slices.setdefault(key, set()).add(record.name)
            self.queue.add(key)

    async def reconcile(self, key: NamespacedName) -> None:
        """Write the slices of a Service. Those of a deleted Service are left to the garbage collector."""
        service = await self.client.read(SERVICES, key.namespace, key.name)
        if service is None:
            self._slices.pop(key, None)
            return
        if self._index.selector(*key) is None or service["metadata"].get("deletionTimestamp"):
            return
        pods = self.pods_of(key)
        families = service["spec"].get("ipFamilies") or ["IPv4"]
        plan = plan_slices(
            await self._existing(key), self._desired(service, pods, families), families
        )
        labels = self._labels(service)
        moment: str | None = None
        for name, (ports, endpoints) in plan.updated.items():

            def change(
                obj: Object, ports: Ports = ports, endpoints: list[dict[str, Any]] = endpoints
            ) -> bool:
                nonlocal moment
                is_equal = (obj.get("endpoints") or []) == endpoints and ports_key(
                    obj.get("ports") or ()
                ) == ports
                if is_equal and labels_of(obj) == labels:
                    return False
                moment = self.triggered(service, key, pods) if moment is None else moment
                obj["endpoints"] = endpoints
                obj["ports"] = [dict(port) for port in ports]
                obj["metadata"]["labels"] = labels
                _annotate(obj["metadata"], moment)
                return True

            await self.client.modify(SLICES, key.namespace, name, change)
        for family, ports, endpoints in plan.created:
            moment = self.triggered(service, key, pods) if moment is None else moment
            await self._create(service, family, ports, endpoints, labels, moment)
        for name in plan.deleted:
            await self.client.delete(SLICES, key.namespace, name)

    async def _existing(self, key: NamespacedName) -> list[Object]:
        found = []
        for name in sorted(self._slices.get(key, ())):
            obj = await self.client.read(SLICES, key.namespace, name)
            if obj is not None and not obj["metadata"].get("deletionTimestamp"):
                found.append(obj)
        return found

    def _desired(
        self, service: Object, pods: list[EndpointPod], families: list[str]
    ) -> dict[tuple[str, Ports], list[dict[str, Any]]]:
        desired: dict[tuple[str, Ports], list[dict[str, Any]]] = {}
        for pod in pods:
            if not belongs(pod, include_terminating=True):
                continue
            ports = ports_key(service_ports(service, pod))
            for family in families:
                addresses = addresses_of(pod, family)
                if addresses:
                    endpoint = endpoint_of(service, pod, addresses, self._zones.get(pod.node, ""))
                    desired.setdefault((family, ports), []).append(endpoint)
        return desired

    @staticmethod
    def _labels(service: Object) -> dict[str, str]:
        labels = {
            name: value for name, value in labels_of(service).items() if name not in _RESERVED
        }
        labels |= {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}
        if is_headless(service):
            labels[HEADLESS] = ""
        return labels

    async def _create(
        self,
        service: Object,
        family: str,
        ports: Ports,
        endpoints: list[dict[str, Any]],
        labels: dict[str, str],
        moment: str,
    ) -> None:
        name = service["metadata"]["name"]
        namespace = service["metadata"]["namespace"]
        prefix = f"{name}-"
        metadata = {
            "generateName": name if dns_subdomain(f"{prefix}x") else prefix,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [
                owner_reference({"apiVersion": "v1", "kind": "Service", **service})
            ],
        }
        _annotate(metadata, moment)
        obj = {
            "metadata": metadata,
            "addressType": family,
            "endpoints": endpoints,
            "ports": [dict(port) for port in ports],
        }
        try:
            created = await self.client.create(SLICES, obj)
        except StatusError as error:
            if not is_namespace_terminating(error):
                raise
            return
        if created is not None:
            self._slices.setdefault(NamespacedName(namespace, name), set()).add(
                created["metadata"]["name"]
            )


def _annotate(metadata: dict[str, Any], moment: str) -> None:
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name != TRIGGER_TIME
    }
    if moment:
        annotations[TRIGGER_TIME] = moment
    metadata["annotations"] = annotations
