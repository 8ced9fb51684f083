"""The EndpointSlice mirroring controller: slices of the Endpoints that users write for Services without a selector."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import (
    NamespacedName,
    Object,
    annotations_of,
    labels_of,
    owner_reference,
)
from envtest.controllers.controller import Controller
from envtest.controllers.endpoint_slices import MANAGED_BY, SERVICE_NAME, SLICES, Ports, ports_key
from envtest.controllers.endpoints import ENDPOINTS, MAX_ADDRESSES
from envtest.controllers.pod_control import is_namespace_terminating
from envtest.controllers.service_endpoints import SERVICES, TRIGGER_TIME
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["EndpointMirroring", "is_mirrored", "mirrored_endpoints"]

MANAGER: Final = "endpointslicemirroring-controller.k8s.io"
SKIP_MIRROR: Final = "endpointslice.kubernetes.io/skip-mirror"

_LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def is_mirrored(endpoints: Object, service: Object | None) -> bool:
    """Return whether Endpoints are mirrored: their Service exists and has no selector, and they do not opt out."""
    if (
        service is None
        or service["spec"].get("selector") is not None
        or endpoints["metadata"].get("deletionTimestamp")
    ):
        return False
    return labels_of(endpoints).get(SKIP_MIRROR) != "true" and _LEADER not in annotations_of(
        endpoints
    )


def mirrored_endpoints(endpoints: Object) -> dict[tuple[str, Ports], list[dict[str, Any]]]:
    """Return the endpoints of the slices by address type and ports, at most 1,000 of each subset."""
    mirrored: dict[tuple[str, Ports], list[dict[str, Any]]] = {}
    for subset in endpoints.get("subsets") or ():
        ports = ports_key({"name": "", **port} for port in subset.get("ports") or ())
        room = MAX_ADDRESSES
        for name, is_ready in (("addresses", True), ("notReadyAddresses", False)):
            addresses = (subset.get(name) or ())[:room]
            room -= len(addresses)
            for address in addresses:
                family = f"IPv{ip_address(address['ip']).version}"
                mirrored.setdefault((family, ports), []).append(
                    _endpoint(address, is_ready=is_ready)
                )
    return mirrored


def _endpoint(address: Mapping[str, Any], *, is_ready: bool) -> dict[str, Any]:
    copied = {
        name: address[name] for name in ("hostname", "nodeName", "targetRef") if address.get(name)
    }
    return {"addresses": [address["ip"]], "conditions": {"ready": is_ready}, **copied}


class EndpointMirroring(Controller[NamespacedName]):
    """Reconciles the slices of Endpoints. Keys name Endpoints and their Service."""

    account = "endpointslicemirroring-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._slices: dict[NamespacedName, set[str]] = {}

    def enqueue_all(self) -> None:
        """Index the slices, and enqueue all Endpoints."""
        for record in self.client.records(SLICES):
            self._observe_slice(record, deleted=False)
        for record in self.client.records(ENDPOINTS):
            self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue Endpoints if they, their Service or their slices changed."""
        if resource == SLICES:
            self._observe_slice(change.record, deleted=change.type == "DELETED")
        elif resource in (ENDPOINTS, SERVICES):
            self.queue.add(NamespacedName(change.record.namespace, change.record.name))

    def _observe_slice(self, record: Record, *, deleted: bool) -> None:
        labels = record.labels or {}
        if labels.get(MANAGED_BY) != MANAGER:
            return
        key = NamespacedName(record.namespace, labels.get(SERVICE_NAME, ""))
        names = self._slices.setdefault(key, set())
        if deleted:
            names.discard(record.name)
        else:
            names.add(record.name)
        self.queue.add(key)

    async def reconcile(self, key: NamespacedName) -> None:
        """Write the slices of Endpoints, or delete those of Endpoints that are not mirrored."""
        endpoints = await self.client.read(ENDPOINTS, key.namespace, key.name)
        service = await self.client.read(SERVICES, key.namespace, key.name)
        missing = {}
        if endpoints is not None and is_mirrored(endpoints, service):
            missing = mirrored_endpoints(endpoints)
        for name in sorted(self._slices.get(key, ())):
            existing = await self.client.read(SLICES, key.namespace, name)
            if existing is None or existing["metadata"].get("deletionTimestamp"):
                continue
            # A slice whose ports are not needed is used for other ports of the same address type.
            families = [group for group in missing if group[0] == existing["addressType"]]
            own = (existing["addressType"], ports_key(existing.get("ports") or ()))
            if endpoints is None or not families:
                await self.client.delete(SLICES, key.namespace, name)
                continue
            group = own if own in missing else families[0]
            await self._update(endpoints, name, group[1], missing.pop(group))
        for (family, ports), addresses in missing.items():
            if endpoints is not None:
                await self._create(endpoints, family, ports, addresses)
        if not self._slices.get(key):
            self._slices.pop(key, None)

    async def _update(
        self, endpoints: Object, name: str, ports: Ports, addresses: list[dict[str, Any]]
    ) -> None:
        metadata = self._metadata(endpoints)

        def change(obj: Object) -> bool:
            is_equal = (obj.get("endpoints") or []) == addresses and ports_key(
                obj.get("ports") or ()
            ) == ports
            if (
                is_equal
                and labels_of(obj) == metadata["labels"]
                and annotations_of(obj) == metadata["annotations"]
            ):
                return False
            obj["endpoints"] = addresses
            obj["ports"] = [dict(port) for port in ports]
            obj["metadata"].update(labels=metadata["labels"], annotations=metadata["annotations"])
            return True

        await self.client.modify(SLICES, endpoints["metadata"]["namespace"], name, change)

    async def _create(
        self, endpoints: Object, family: str, ports: Ports, addresses: list[dict[str, Any]]
    ) -> None:
        name = endpoints["metadata"]["name"]
        namespace = endpoints["metadata"]["namespace"]
        reference = owner_reference(
            {"apiVersion": "v1", "kind": "Endpoints", "metadata": endpoints["metadata"]}
        )
        metadata = {**self._metadata(endpoints), "generateName": f"{name}-", "namespace": namespace}
        obj = {
            "metadata": {**metadata, "ownerReferences": [reference]},
            "addressType": family,
            "endpoints": addresses,
            "ports": [dict(port) for port in ports],
        }
        try:
            await self.client.create(SLICES, obj)
        except StatusError as error:
            if not is_namespace_terminating(error):
                raise

    @staticmethod
    def _metadata(endpoints: Object) -> dict[str, Any]:
        name = endpoints["metadata"]["name"]
        kept = annotations_of(endpoints).items()
        return {
            "labels": {**labels_of(endpoints), SERVICE_NAME: name, MANAGED_BY: MANAGER},
            "annotations": {
                key: value for key, value in kept if key not in (TRIGGER_TIME, _LAST_APPLIED)
            },
        }
