"""Tables of storage drivers, devices, IP addresses, and API priority and fairness."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.printers.columns import AGE, NAME, NONE, Column, Printer, common_fields

__all__ = ["INFRASTRUCTURE"]

_UNSET: Final = "<unset>"


def _named(obj: Object, now: datetime) -> list[Any]:
    return list(common_fields(obj, now)[:2])


def _driver(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, _ = common_fields(obj, now)
    requests = spec.get("tokenRequests")
    return [
        name,
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        _UNSET if requests is None else ",".join(one.get("audience", "") for one in requests),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        object_age,
    ]


def _storage_node(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, _ = common_fields(obj, now)
    return [name, len(spec.get("drivers") or ()), object_age]


def _attachment(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    volume = (spec.get("source") or {}).get("persistentVolumeName", "")
    return [
        name,
        spec.get("attacher", ""),
        volume,
        spec.get("nodeName", ""),
        bool(status.get("attached")),
        object_age,
    ]


def _attributes_class(obj: Object, now: datetime) -> list[Any]:
    name, object_age, _, _ = common_fields(obj, now)
    return [name, obj.get("driverName", ""), object_age]


def _address(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, _ = common_fields(obj, now)
    text = NONE
    parent = spec.get("parentRef")
    if parent:
        group = f".{parent['group']}" if parent.get("group") else ""
        parts = (
            f"{parent.get('resource', '')}{group}".lower(),
            parent.get("namespace"),
            parent.get("name", ""),
        )
        text = "/".join(part for part in parts if part is not None)
    return [name, text, object_age]


def _address_range(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, _ = common_fields(obj, now)
    return [name, ",".join(spec.get("cidrs") or ()), object_age]


def _claim(obj: Object, now: datetime) -> list[Any]:
    name, object_age, _, status = common_fields(obj, now)
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [name, ",".join(states), object_age]


def _slice(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, _ = common_fields(obj, now)
    return [
        name,
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        (spec.get("pool") or {}).get("name", ""),
        object_age,
    ]


def _flow(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
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
        object_age,
        dangling,
    ]


def _level(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, _ = common_fields(obj, now)
    limited = spec.get("limited")
    cells: list[Any] = [NONE] * 4
    if limited is not None:
        cells[0] = limited.get("nominalConcurrencyShares") or 0
        queuing = (limited.get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            cells[1:] = [
                queuing.get(field) or 0 for field in ("queues", "handSize", "queueLengthLimit")
            ]
    return [name, spec.get("type", ""), *cells, object_age]


_STORAGE: Final[dict[tuple[str, str], Printer]] = {
    ("storage.k8s.io", "CSIDriver"): (
        (
            NAME,
            Column(
                "AttachRequired",
                "Whether volumes of this driver must be attached to a node before they can be mounted.",
                "boolean",
            ),
            Column(
                "PodInfoOnMount",
                "Whether the driver receives information about the pod with each mount of a volume.",
                "boolean",
            ),
            Column(
                "StorageCapacity",
                "Whether the scheduler considers the storage capacity that the driver reports per topology segment.",
                "boolean",
            ),
            Column(
                "TokenRequests",
                "The audiences of the service account tokens that the driver receives with mounts.",
            ),
            Column(
                "RequiresRepublish",
                "Whether the kubelet periodically calls the driver again for volumes that are already mounted.",
                "boolean",
            ),
            Column(
                "Modes",
                "The kinds of volumes that the driver supports: Persistent, Ephemeral (inline in a pod).",
            ),
            AGE,
        ),
        _driver,
    ),
    ("storage.k8s.io", "CSINode"): (
        (
            NAME,
            Column(
                "Drivers",
                "Drivers indicates the number of CSI drivers registered on the node",
                "integer",
            ),
            AGE,
        ),
        _storage_node,
    ),
    ("storage.k8s.io", "VolumeAttachment"): (
        (
            NAME,
            Column(
                "Attacher",
                "The name of the volume driver that must handle this attachment.",
                format="name",
            ),
            Column(
                "PV", "The name of the PersistentVolume to attach, if it is not an inline volume."
            ),
            Column(
                "Node",
                "The name of the Node object of the node that the volume should be attached to.",
            ),
            Column(
                "Attached",
                "Whether the volume is attached; only the component that attaches volumes sets this.",
                "boolean",
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
        (
            NAME,
            Column("State", "A summary of the current state (allocated, pending, reserved, etc.)."),
            AGE,
        ),
        _claim,
    ),
    ("resource.k8s.io", "ResourceClaimTemplate"): ((NAME, AGE), _named),
    ("resource.k8s.io", "ResourceSlice"): (
        (
            NAME,
            Column(
                "Node",
                "The name of the node that provides the devices, if they belong to a single node.",
            ),
            Column(
                "Driver",
                "The name of the driver that provides the devices: a DNS subdomain of its vendor.",
            ),
            Column(
                "Pool",
                "The name of the pool that the devices belong to, which is unique within the driver.",
            ),
            AGE,
        ),
        _slice,
    ),
}

INFRASTRUCTURE: Final[dict[tuple[str, str], Printer]] = {
    **_STORAGE,
    **_DEVICES,
    ("networking.k8s.io", "IPAddress"): (
        (
            NAME,
            Column(
                "ParentRef", "The object that the address is allocated to; this field is required."
            ),
        ),  # kube-apiserver describes no column of the age, which is the third cell
        _address,
    ),
    ("networking.k8s.io", "ServiceCIDR"): (
        (
            NAME,
            Column(
                "CIDRs",
                "The ranges from which cluster IPs are allocated: at most one per IP family.",
            ),
            AGE,
        ),
        _address_range,
    ),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): (
        (
            NAME,
            Column(
                "PriorityLevel",
                "The name of the priority level that requests of this flow schema are assigned to.",
            ),
            Column(
                "MatchingPrecedence",
                "The precedence among flow schemas that match a request: the lowest number applies.",
            ),
            Column(
                "DistinguisherMethod",
                "How requests of this flow schema are divided into flows: ByUser or ByNamespace.",
            ),
            AGE,
            Column("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
        ),
        _flow,
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): (
        (
            NAME,
            Column(
                "Type",
                "Whether the concurrency of requests of this priority level is limited: Limited or Exempt.",
            ),
            Column(
                "NominalConcurrencyShares",
                "The shares of the server's concurrency that this level gets, out of all shares.",
            ),
            Column(
                "Queues",
                "The number of queues of this level; more queues reduce collisions between flows.",
            ),
            Column(
                "HandSize",
                "The number of queues that a flow is assigned; each request joins the shortest of them.",
            ),
            Column(
                "QueueLengthLimit",
                "The maximum number of requests in a queue; excess requests are rejected.",
            ),
            AGE,
        ),
        _level,
    ),
}
