"""The Endpoints controller: one object of the Service's name lists the pods that a Service selects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import NamespacedName, Object
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

__all__ = ["MAX_ADDRESSES", "Endpoints", "pack_subsets", "service_subsets"]

ENDPOINTS: Final = GroupResource("", "endpoints")
MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
MAX_ADDRESSES: Final = 1000
"""The most addresses of one Endpoints object; ready ones are preferred."""

_MANAGER: Final = "endpoint-controller"


def _go_dump(port: Mapping[str, Any]) -> str:
    """Return a port as Go's spew prints an EndpointPort: kube-controller-manager sorts ports by the hash of it."""
    protocol = port.get("appProtocol")
    suffix = "<nil>" if protocol is None else str(protocol)
    fields = f"Name:(string){port['name']} Port:(int32){port['port']} Protocol:(v1.Protocol){port['protocol']}"
    return f"(v1.EndpointPort){{{fields} AppProtocol:(*string){suffix}}}"


def _port_order(port: Mapping[str, Any]) -> bytes:
    return hashlib.md5(_go_dump(port).encode(), usedforsecurity=False).digest()


def pack_subsets(
    entries: Iterable[tuple[dict[str, Any], bool, list[dict[str, Any]]]],
) -> list[dict[str, Any]]:
    """Return subsets of addresses that have the same ports, from (address, whether it is ready, ports)."""
    subsets: dict[tuple[bytes, ...], dict[str, Any]] = {}
    for address, is_ready, ports in entries:
        ordered = sorted(ports, key=_port_order)
        subset = subsets.setdefault(tuple(map(_port_order, ordered)), {"ports": ordered})
        list_name = "addresses" if is_ready else "notReadyAddresses"
        subset.setdefault(list_name, []).append(address)
    packed = []
    for _, subset in sorted(subsets.items()):
        for name in ("addresses", "notReadyAddresses"):
            subset.get(name, []).sort(
                key=lambda each: (each["ip"], each.get("hostname", ""), each["targetRef"]["uid"])
            )
        if not subset["ports"]:
            del subset["ports"]
        packed.append(subset)
    return packed


def truncate(subsets: list[dict[str, Any]]) -> bool:
    """Remove addresses beyond :data:`MAX_ADDRESSES`, first those that are not ready; return whether there were any."""
    room = MAX_ADDRESSES
    truncated = False
    for name in ("addresses", "notReadyAddresses"):
        for subset in subsets:
            addresses = subset.get(name)
            if addresses and len(addresses) > room:
                truncated = True
                del addresses[room:]
                if not addresses:
                    del subset[name]
            room -= len(subset.get(name) or ())
    subsets[:] = [
        each for each in subsets if each.get("addresses") or each.get("notReadyAddresses")
    ]
    return truncated


def service_subsets(service: Object, pods: Iterable[EndpointPod]) -> list[dict[str, Any]]:
    """Return the subsets of a Service that selects ``pods``: each has the pods whose ports are equal."""
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    family = (service["spec"].get("ipFamilies") or ["IPv4"])[0]
    without_ports = is_headless(service) and not service["spec"].get("ports")
    entries = []
    for pod in pods:
        addresses = addresses_of(pod, family)
        ports = service_ports(service, pod)
        if (
            not belongs(pod, include_terminating=publish)
            or not addresses
            or not (ports or without_ports)
        ):
            continue
        address: dict[str, Any] = {"ip": addresses[0], "targetRef": pod.target}
        hostname = hostname_for(pod, service)
        if hostname:
            address["hostname"] = hostname
        if pod.node:
            address["nodeName"] = pod.node
        entries.append((address, publish or pod.is_ready, ports))
    return pack_subsets(entries)


class Endpoints(ServiceController):
    """Reconciles the Endpoints of Services with a selector. Keys name Services."""

    account = "endpoint-controller"
    written = ENDPOINTS

    async def reconcile(self, key: NamespacedName) -> None:
        """Write the Endpoints of a Service, or delete those of a Service that was deleted."""
        service = await self.client.read(SERVICES, key.namespace, key.name)
        if service is None:
            await self._delete(key)
            return
        if self._index.selector(*key) is None:
            return
        pods = self.pods_of(key)
        subsets = service_subsets(service, pods)
        over_capacity = truncate(subsets)
        labels = {**(service["metadata"].get("labels") or {}), MANAGED_BY: _MANAGER}
        labels.pop(HEADLESS, None)
        if is_headless(service):
            labels[HEADLESS] = ""
        desired: Object = {"subsets": subsets} if subsets else {}

        def change(obj: Object) -> bool:
            annotations = dict(obj["metadata"].get("annotations") or {})
            is_equal = (obj.get("subsets") or []) == subsets and (
                obj["metadata"].get("labels") or {}
            ) == labels
            if is_equal and (OVER_CAPACITY in annotations) == over_capacity:
                return False
            obj["metadata"]["labels"] = labels
            obj["metadata"]["annotations"] = self._annotations(
                annotations, service, key, pods, over_capacity
            )
            obj.pop("subsets", None)
            obj.update(desired)
            return True

        if self.client.record(ENDPOINTS, key.namespace, key.name) is not None:
            await self.client.modify(ENDPOINTS, key.namespace, key.name, change)
            return
        annotations = self._annotations({}, service, key, pods, over_capacity)
        metadata = {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels,
            "annotations": annotations,
        }
        try:
            await self.client.create(ENDPOINTS, {"metadata": metadata, **desired})
        except StatusError as error:
            if not is_namespace_terminating(error):
                raise

    def _annotations(
        self,
        annotations: dict[str, str],
        service: Object,
        key: NamespacedName,
        pods: list[EndpointPod],
        over_capacity: bool,
    ) -> dict[str, str]:
        annotations.pop(OVER_CAPACITY, None)
        annotations.pop(TRIGGER_TIME, None)
        moment = self.triggered(service, key, pods)
        if moment:
            annotations[TRIGGER_TIME] = moment
        if over_capacity:
            annotations[OVER_CAPACITY] = "truncated"
        return annotations

    async def _delete(self, key: NamespacedName) -> None:
        """Delete the Endpoints of a Service that does not exist, unless another program created them."""
        record = self.client.record(ENDPOINTS, key.namespace, key.name)
        if record is not None and (record.labels or {}).get(MANAGED_BY) == _MANAGER:
            await self.client.delete(ENDPOINTS, key.namespace, key.name, uid=record.uid)
