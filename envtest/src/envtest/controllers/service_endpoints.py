"""Which addresses and ports of pods belong to a Service: the rules that Endpoints and EndpointSlices share.

:class:`ServiceController` is the base of the two controllers. It indexes Services by selector, and pods by label.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, ClassVar, Final, NamedTuple

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName, Object, find_condition
from envtest.controllers.controller import Controller
from envtest.controllers.pod_state import PODS, is_finished, is_ready
from envtest.controllers.selector_index import SelectorIndex
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = [
    "HEADLESS",
    "SERVICES",
    "TRIGGER_TIME",
    "EndpointPod",
    "ServiceController",
    "addresses_of",
    "belongs",
    "endpoint_pod",
    "hostname_for",
    "is_headless",
    "service_ports",
    "trigger_time",
]

SERVICES: Final = GroupResource("", "services")
HEADLESS: Final = "service.kubernetes.io/headless"
TRIGGER_TIME: Final = "endpoints.kubernetes.io/last-change-trigger-time"


class EndpointPod(NamedTuple):
    """What Services need to know of a pod. ``ports`` are the named container ports by (name, protocol)."""

    namespace: str
    name: str
    uid: str
    addresses: tuple[str, ...]
    node: str
    hostname: str
    subdomain: str
    is_ready: bool
    is_terminating: bool
    is_finished: bool
    ready_since: str
    ports: tuple[tuple[tuple[str, str], int], ...]

    @property
    def target(self) -> dict[str, str]:
        """The reference to the pod in endpoints."""
        return {"kind": "Pod", "namespace": self.namespace, "name": self.name, "uid": self.uid}


def endpoint_pod(pod: Object) -> EndpointPod:
    """Return what Services need to know of a pod."""
    metadata = pod["metadata"]
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    addresses = [each.get("ip", "") for each in status.get("podIPs") or ()] or [
        status.get("podIP") or ""
    ]
    sidecars = [
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    ports: dict[tuple[str, str], int] = {}
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            if port.get("name"):
                ports.setdefault(
                    (port["name"], port.get("protocol") or "TCP"), port["containerPort"]
                )
    return EndpointPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        addresses=tuple(address for address in addresses if address),
        node=spec.get("nodeName") or "",
        hostname=spec.get("hostname") or "",
        subdomain=spec.get("subdomain") or "",
        is_ready=is_ready(pod),
        is_terminating=bool(metadata.get("deletionTimestamp")),
        is_finished=is_finished(pod),
        ready_since=(find_condition(status.get("conditions"), "Ready") or {}).get(
            "lastTransitionTime"
        )
        or "",
        ports=tuple(ports.items()),
    )


def belongs(pod: EndpointPod, *, include_terminating: bool) -> bool:
    """Return whether a pod that a Service selects has endpoints."""
    return (
        bool(pod.addresses)
        and not pod.is_finished
        and (include_terminating or not pod.is_terminating)
    )


def is_headless(service: Object) -> bool:
    """Return whether a Service has no cluster IP."""
    return (service["spec"].get("clusterIP") or "None") == "None"


def hostname_for(pod: EndpointPod, service: Object) -> str:
    """Return the DNS name of the pod in a Service that is its subdomain; otherwise an empty string."""
    return pod.hostname if pod.subdomain == service["metadata"]["name"] else ""


def service_ports(service: Object, pod: EndpointPod) -> list[dict[str, Any]]:
    """Return the ports of the endpoints of a pod; a port is missing if the pod has no container port of its name."""
    named = dict(pod.ports)
    ports = []
    for port in service["spec"].get("ports") or ():
        target = port.get("targetPort") or port["port"]
        protocol = port.get("protocol") or "TCP"
        number = target if isinstance(target, int) else named.get((target, protocol))
        if number is None:
            continue
        entry = {"name": port.get("name") or "", "port": number, "protocol": protocol}
        if port.get("appProtocol"):
            entry["appProtocol"] = port["appProtocol"]
        ports.append(entry)
    return ports


def addresses_of(pod: EndpointPod, family: str) -> list[str]:
    """Return the addresses of a pod of the family ``IPv4`` or ``IPv6``, in canonical form."""
    parsed = (ip_address(text) for text in pod.addresses)
    return [str(address) for address in parsed if address.version == int(family[-1])]


def trigger_time(times: Mapping[str, str], known: Mapping[str, str]) -> str:
    """Return when the change happened that endpoints are written for, or an empty string if it is unknown.

    ``times`` are the creation of the Service (with an empty name) and the latest readiness change of each pod;
    ``known`` are those of the previous write. The earliest of those that changed counts.
    """
    return min(
        (moment for name, moment in times.items() if moment > known.get(name, "")), default=""
    )


class ServiceController(Controller[NamespacedName]):
    """Base of the controllers whose objects, of the resource ``written``, list a Service's pods."""

    written: ClassVar[GroupResource]

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._index: SelectorIndex[EndpointPod] = SelectorIndex()
        self._triggered: dict[NamespacedName, dict[str, str]] = {}

    def enqueue_all(self) -> None:
        """Index pods and selectors, and enqueue all Services."""
        for record in self.client.records(PODS):
            self._index.set_object(
                record.namespace, record.name, record.labels or {}, endpoint_pod(record.obj())
            )
        for record in self.client.records(SERVICES):
            self._observe_service(record)
        for record in self.client.records(self.written):
            self._enqueue_written(record)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a Service that changed, and the Services that select a pod that changed."""
        record = change.record
        deleted = change.type == "DELETED"
        if resource == PODS:
            self._observe_pod(record, deleted=deleted)
        elif resource == SERVICES:
            if deleted:
                key = NamespacedName(record.namespace, record.name)
                self._index.set_selector(*key, None)
                self._triggered.pop(key, None)
                self.queue.add(key)
            else:
                self._observe_service(record)
        elif resource == self.written:
            self._enqueue_written(record)

    def _observe_pod(self, record: Record, *, deleted: bool) -> None:
        namespace = record.namespace
        labels = record.labels or {}
        before = self._index.object(namespace, record.name)
        labels_before = self._index.labels(namespace, record.name)
        after = None if deleted else endpoint_pod(record.obj())
        if after == before and labels == labels_before:
            return
        self._index.set_object(namespace, record.name, labels, after)
        relevant = [labels] if labels == labels_before else [labels, labels_before]
        for each in relevant:
            for name in self._index.selectors_of(namespace, each):
                self.queue.add(NamespacedName(namespace, name))

    def _observe_service(self, record: Record) -> None:
        spec = record.obj()["spec"]
        selector = spec.get("selector")
        has_endpoints = bool(selector) and spec.get("type") != "ExternalName"
        labels = {"matchLabels": selector} if has_endpoints else None
        self._index.set_selector(record.namespace, record.name, labels)
        self.queue.add(NamespacedName(record.namespace, record.name))

    def _enqueue_written(self, record: Record) -> None:
        """Enqueue the Service of an object that this controller writes."""
        self.queue.add(NamespacedName(record.namespace, record.name))

    def pods_of(self, key: NamespacedName) -> list[EndpointPod]:
        """Return the pods that a Service selects, sorted by name."""
        selector = self._index.selector(*key)
        return (
            []
            if selector is None
            else [pod for _, pod in self._index.objects_of(key.namespace, selector)]
        )

    def triggered(self, service: Object, key: NamespacedName, pods: list[EndpointPod]) -> str:
        """Return the trigger time of a write, and remember it for the next."""
        times = {
            "": service["metadata"]["creationTimestamp"],
            **{pod.name: pod.ready_since for pod in pods},
        }
        moment = trigger_time(times, self._triggered.get(key, {}))
        self._triggered[key] = times
        return moment
