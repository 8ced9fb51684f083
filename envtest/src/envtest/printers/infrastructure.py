"""Rows of what a cluster is built upon: storage drivers, devices, addresses, the server's own queues."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from envtest.objects import Object
from envtest.printers.columns import AGE, NAME, NONE, Column, Printer, age

__all__ = ["INFRASTRUCTURE"]

_UNSET: Final = "<unset>"


def _head(obj: Object, now: datetime) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    metadata = obj["metadata"]
    return (
        metadata.get("name", ""),
        age(metadata.get("creationTimestamp"), now),
        obj.get("spec") or {},
        obj.get("status") or {},
    )


def _named(obj: Object, now: datetime) -> list[Any]:
    return list(_head(obj, now)[:2])


def _driver(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, _ = _head(obj, now)
    requests = spec.get("tokenRequests")
    return [
        name,
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        _UNSET if requests is None else ",".join(one.get("audience", "") for one in requests),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        old,
    ]


def _storage_node(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, _ = _head(obj, now)
    return [name, len(spec.get("drivers") or ()), old]


def _capacity(obj: Object, now: datetime) -> list[Any]:
    return [_head(obj, now)[0], obj.get("storageClassName", ""), obj.get("capacity", _UNSET)]


def _attachment(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    volume = (spec.get("source") or {}).get("persistentVolumeName", "")
    return [name, spec.get("attacher", ""), volume, spec.get("nodeName", ""), bool(status.get("attached")), old]


def _attributes_class(obj: Object, now: datetime) -> list[Any]:
    name, old, _, _ = _head(obj, now)
    return [name, obj.get("driverName", ""), old]


def _address(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, _ = _head(obj, now)
    text = NONE
    if parent := spec.get("parentRef"):
        group = f".{parent['group']}" if parent.get("group") else ""
        parts = (f"{parent.get('resource', '')}{group}".lower(), parent.get("namespace"), parent.get("name", ""))
        text = "/".join(part for part in parts if part is not None)
    return [name, text, old]


def _address_range(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, _ = _head(obj, now)
    return [name, ",".join(spec.get("cidrs") or ()), old]


def _claim(obj: Object, now: datetime) -> list[Any]:
    name, old, _, status = _head(obj, now)
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [name, ",".join(states), old]


def _slice(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, _ = _head(obj, now)
    return [name, spec.get("nodeName", ""), spec.get("driver", ""), (spec.get("pool") or {}).get("name", ""), old]


def _flow(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    dangling = "?"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Dangling":
            dangling = condition.get("status", "")
            break
    return [
        name,
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        spec.get("matchingPrecedence") or 0,
        (spec.get("distinguisherMethod") or {}).get("type", NONE),
        old,
        dangling,
    ]


def _level(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, _ = _head(obj, now)
    limited = spec.get("limited")
    cells: list[Any] = [NONE] * 4
    if limited is not None:
        cells[0] = limited.get("nominalConcurrencyShares") or 0
        queuing = (limited.get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            cells[1:] = [queuing.get(field) or 0 for field in ("queues", "handSize", "queueLengthLimit")]
    return [name, spec.get("type", ""), *cells, old]


_STORAGE: Final[dict[tuple[str, str], Printer]] = {
    ("storage.k8s.io", "CSIDriver"): (
        (
            NAME,
            Column(
                "AttachRequired",
                "Whether volumes of the driver have to be attached to a node before they can be mounted there.",
                "boolean",
            ),
            Column(
                "PodInfoOnMount",
                "Whether the driver is told, at every mount, of the pod that the volume is mounted for.",
                "boolean",
            ),
            Column(
                "StorageCapacity",
                "Whether the scheduler should look at the capacity that the driver says is left, per place.",
                "boolean",
            ),
            Column("TokenRequests", "The audiences of the service account tokens that the driver is handed at mounts."),
            Column(
                "RequiresRepublish",
                "Whether the driver wants to be called again and again for volumes that are mounted already.",
                "boolean",
            ),
            Column("Modes", "Which kinds of volumes the driver supports: persistent ones, or those inline in a pod."),
            AGE,
        ),
        _driver,
    ),
    ("storage.k8s.io", "CSINode"): (
        (
            NAME,
            Column("Drivers", "Drivers indicates the number of CSI drivers registered on the node", "integer"),
            AGE,
        ),
        _storage_node,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): (
        (
            NAME,
            Column(
                "StorageClassName", "The class of the volumes that the capacity is meant for; it cannot be changed."
            ),
            Column("Capacity", "What the driver says can still be allocated of the storage class in this place."),
        ),
        _capacity,
    ),
    ("storage.k8s.io", "VolumeAttachment"): (
        (
            NAME,
            Column("Attacher", "The driver that has to handle the request to attach the volume.", format="name"),
            Column("PV", "The volume to attach, where it is one that stands on its own, by its name."),
            Column("Node", "The node that the volume should be attached to, by the name of its object."),
            Column(
                "Attached", "Whether the volume is attached; only who attaches volumes may set this field.", "boolean"
            ),
            AGE,
        ),
        _attachment,
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): (
        (NAME, Column("DriverName", "Name of the CSI driver This field is immutable."), AGE),
        _attributes_class,
    ),
}

_DEVICES: Final[dict[tuple[str, str], Printer]] = {
    ("resource.k8s.io", "DeviceClass"): ((NAME, AGE), _named),
    ("resource.k8s.io", "ResourceClaim"): (
        (NAME, Column("State", "A summary of the current state (allocated, pending, reserved, etc.)."), AGE),
        _claim,
    ),
    ("resource.k8s.io", "ResourceClaimTemplate"): ((NAME, AGE), _named),
    ("resource.k8s.io", "ResourceSlice"): (
        (
            NAME,
            Column("Node", "The node that the devices are attached to, where they are attached to a single one."),
            Column("Driver", "The driver that offers the devices, named by a domain of whoever made the driver."),
            Column("Pool", "The pool that the devices belong to; within a driver pools are told apart by their names."),
            AGE,
        ),
        _slice,
    ),
}

INFRASTRUCTURE: Final[dict[tuple[str, str], Printer]] = {
    **_STORAGE,
    **_DEVICES,
    ("networking.k8s.io", "IPAddress"): (
        (NAME, Column("ParentRef", "The object that the address was given to; there has to be one."), AGE),
        _address,
    ),
    ("networking.k8s.io", "ServiceCIDR"): (
        (NAME, Column("CIDRs", "The ranges that services' addresses are taken from: at most one of each family."), AGE),
        _address_range,
    ),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): (
        (
            NAME,
            Column("PriorityLevel", "The priority level that the requests of the schema are given to, by its name."),
            Column(
                "MatchingPrecedence",
                "Which schema goes first where several match a request: that of the smallest number.",
            ),
            Column("DistinguisherMethod", "By what the requests of the schema are told apart into flows, if at all."),
            AGE,
            Column("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
        ),
        _flow,
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): (
        (
            NAME,
            Column("Type", "Whether the number of concurrent requests of the level is limited: Limited or Exempt."),
            Column(
                "NominalConcurrencyShares", "The share of the server's concurrency that the level gets, of all shares."
            ),
            Column("Queues", "How many queues the level has; more of them let flows disturb one another less."),
            Column("HandSize", "How many of the queues a flow may use: the shortest of a few is chosen per request."),
            Column("QueueLengthLimit", "How many requests may wait in one queue; those beyond it are turned away."),
            AGE,
        ),
        _level,
    ),
}
