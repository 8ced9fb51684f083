"""The objects that every control plane creates at its start, besides namespaces and the RBAC policy."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import uuid
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any, Final

from envtest.apimachinery.created_fields import API_SERVER, condition_entry, creation_entry
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.builtins.flow_control_defaults import (
    FLOW_SCHEMAS,
    LEVELS,
    PRIORITY_LEVELS,
    SCHEMAS,
    flow_schema,
    priority_level,
)
from envtest.registry.registry import Registry
from envtest.storage import Store

__all__ = ["create_initial_objects_in", "publish_address_in", "publish_authentication_in"]

_SERVICES: Final = GroupResource("", "services")
_NETWORKING: Final = "networking.k8s.io"
_REGISTRATION: Final = "apiregistration.k8s.io"
_CIDR_CONTROLLER: Final = "kubernetes-service-cidr-controller"
_PRIORITY_CLASSES: Final = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
_GROUP_PRIORITIES: Final = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "resource.k8s.io": 15900,
}
_VERSION_PRIORITIES: Final = {"v1": 15, "v2": 30}


def create_initial_objects_in(
    store: Store, registry: Registry, network: IPv4Network, now: str
) -> None:
    """Store the objects that do not exist yet; ``network`` contains the cluster IPs, ``now`` is the creation time."""
    for resource, obj in _objects(registry, network, now):
        metadata = obj["metadata"]
        if store.get(resource, metadata.get("namespace", ""), metadata["name"]) is None:
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
            store.create(resource, obj)


def publish_address_in(store: Store, address: str, port: int, now: str) -> None:
    """Store the Endpoints and the EndpointSlice of the Service ``kubernetes``, or update their address and port."""
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    family = "IPv6" if ":" in address else "IPv4"
    labels: dict[str, dict[str, str]] = {
        "Endpoints": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        "EndpointSlice": {"kubernetes.io/service-name": "kubernetes"},
    }
    bodies: dict[str, dict[str, Any]] = {
        "Endpoints": {"subsets": [{"addresses": [{"ip": address}], "ports": ports}]},
        "EndpointSlice": {
            "addressType": family,
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": ports,
        },
    }
    for kind, version in (("Endpoints", "v1"), ("EndpointSlice", "discovery.k8s.io/v1")):
        resource = GroupResource(version.rpartition("/")[0], kind.lower().removesuffix("s") + "s")
        record = store.get(resource, "default", "kubernetes")
        metadata: dict[str, Any] = {
            "name": "kubernetes",
            "namespace": "default",
            "labels": labels[kind],
        }
        obj = _object(version, kind, metadata, bodies[kind])
        if record is None:
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
            if kind == "EndpointSlice":
                metadata["generation"] = 1
            store.create(resource, obj)
            continue
        stored = record.obj()
        if any(stored.get(name) != value for name, value in bodies[kind].items()):
            if "generation" in stored["metadata"]:
                stored["metadata"]["generation"] += 1
            store.update(resource, {**stored, **bodies[kind]}, record)


def publish_authentication_in(store: Store, data: dict[str, str], now: str) -> None:
    """Store the ConfigMap ``extension-apiserver-authentication``, or add to it: several API servers may share it."""
    resource = GroupResource("", "configmaps")
    metadata: dict[str, Any] = {
        "name": "extension-apiserver-authentication",
        "namespace": "kube-system",
    }
    record = store.get(resource, metadata["namespace"], metadata["name"])
    if record is None:
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
        settings = _object("v1", "ConfigMap", metadata, {"data": data})
        metadata["managedFields"] = [creation_entry(settings, API_SERVER, now)]
        store.create(resource, settings)
        return
    stored = record.obj()
    present = stored.get("data") or {}
    combined = {name: _combined(name, present.get(name, ""), value) for name, value in data.items()}
    stored["data"] = {**present, **combined}
    store.update(resource, stored, record)


def _combined(name: str, present: str, own: str) -> str:
    """Return the certificates or names of both, each of them once; no allowed names mean that all are allowed."""
    if not present or present == own:
        return own
    if own.startswith("["):
        lists = [json.loads(present), json.loads(own)]
        if name == "requestheader-allowed-names" and not all(lists):
            return "[]"
        return json.dumps(list(dict.fromkeys([*lists[0], *lists[1]])), separators=(",", ":"))
    end = "-----END CERTIFICATE-----\n"
    certificates = [*present.split(end), *own.split(end)]
    return "".join(f"{each}{end}" for each in dict.fromkeys(certificates) if each.strip())


def _objects(
    registry: Registry, network: IPv4Network, now: str
) -> Iterator[tuple[GroupResource, Object]]:
    address = str(network[1])
    yield _SERVICES, _own_service(address)
    yield from _addresses(network, address, now)
    yield GroupResource("coordination.k8s.io", "leases"), _identity(now)
    metadata: dict[str, Any] = {
        "name": "kube-apiserver-legacy-service-account-token-tracking",
        "namespace": "kube-system",
    }
    tracking = _object("v1", "ConfigMap", metadata, {"data": {"since": now[:10]}})
    metadata["managedFields"] = [creation_entry(tracking, API_SERVER, now)]
    yield GroupResource("", "configmaps"), tracking
    for name, (value, description) in _PRIORITY_CLASSES.items():
        body = {
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        metadata = {"name": name, "generation": 1}
        resource = GroupResource("scheduling.k8s.io", "priorityclasses")
        yield resource, _object("scheduling.k8s.io/v1", "PriorityClass", metadata, body)
    for name, spec in LEVELS.items():
        yield PRIORITY_LEVELS, priority_level(name, spec, now)
    for name, spec in SCHEMAS.items():  # after the levels to which they refer
        yield FLOW_SCHEMAS, flow_schema(name, spec, now)
    for group, version in sorted(
        {(info.group, info.version) for info in registry if not info.is_crd}
    ):
        if group in _GROUP_PRIORITIES:
            yield GroupResource(_REGISTRATION, "apiservices"), _api_service(group, version, now)


def _object(api_version: str, kind: str, metadata: dict[str, Any], body: dict[str, Any]) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def _identity(now: str) -> Object:
    """Return the Lease of this API server. It is not renewed: nothing of envtest looks for servers that have ended."""
    host = socket.gethostname()
    name = (
        "apiserver-"
        + base64.b32encode(hashlib.sha256(host.encode()).digest()[:16]).decode().rstrip("=").lower()
    )
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": host}
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    moment = now.removesuffix("Z") + ".000000Z"
    spec = {
        "holderIdentity": f"{name}_{uuid.uuid4()}",
        "leaseDurationSeconds": 3600,
        "renewTime": moment,
    }
    return _object("coordination.k8s.io/v1", "Lease", metadata, {"spec": spec})


def _own_service(address: str) -> Object:
    """Return the Service ``kubernetes`` of the API server; no pods use it, but clients look it up."""
    labels = {"component": "apiserver", "provider": "kubernetes"}
    spec = {
        "clusterIP": address,
        "clusterIPs": [address],
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    metadata = {"name": "kubernetes", "namespace": "default", "labels": labels}
    return _object("v1", "Service", metadata, {"spec": spec, "status": {"loadBalancer": {}}})


def _addresses(
    network: IPv4Network, address: str, now: str
) -> Iterator[tuple[GroupResource, Object]]:
    condition = _condition("Ready", "True", "", "Kubernetes default Service CIDR is ready", now)
    body: dict[str, Any] = {
        "spec": {"cidrs": [str(network)]},
        "status": {"conditions": [condition]},
    }
    metadata: dict[str, Any] = {"name": "kubernetes"}
    block = _object(f"{_NETWORKING}/v1", "ServiceCIDR", metadata, body)
    metadata["managedFields"] = [
        condition_entry(condition, block["apiVersion"], _CIDR_CONTROLLER, now),
        creation_entry(block, API_SERVER, now),
    ]
    yield GroupResource(_NETWORKING, "servicecidrs"), block
    labels = {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    parent = {"resource": "services", "namespace": "default", "name": "kubernetes"}
    reserved = _object(
        f"{_NETWORKING}/v1",
        "IPAddress",
        {"name": address, "labels": labels},
        {"spec": {"parentRef": parent}},
    )
    reserved["metadata"]["managedFields"] = [creation_entry(reserved, API_SERVER, now)]
    yield GroupResource(_NETWORKING, "ipaddresses"), reserved


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _api_service(group: str, version: str, now: str) -> Object:
    spec: dict[str, Any] = {"group": group} if group else {}
    spec |= {
        "version": version,
        "groupPriorityMinimum": _GROUP_PRIORITIES[group],
        "versionPriority": _VERSION_PRIORITIES.get(version, 1) if group else 1,
    }
    condition = _condition(
        "Available", "True", "Local", "Local APIServices are always available", now
    )
    metadata = {
        "name": f"{version}.{group}",
        "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
    }
    body = {"spec": spec, "status": {"conditions": [condition]}}
    obj = _object(f"{_REGISTRATION}/v1", "APIService", metadata, body)
    obj["metadata"]["managedFields"] = [creation_entry(obj, API_SERVER, now)]
    return obj
