"""Tables of the core group, networking.k8s.io and discovery.k8s.io, and storage classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.printers.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    Printer,
    age,
    containers_and_images,
    labels_text,
    named_list,
    object_age,
    object_name,
    selector_text,
)

__all__ = ["CORE"]

_UNSET: Final = "<unset>"


def _config_map(obj: Object, now: datetime) -> list[Any]:
    return [
        object_name(obj),
        len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
        object_age(obj, now),
    ]


def _secret(obj: Object, now: datetime) -> list[Any]:
    return [object_name(obj), obj.get("type", ""), len(obj.get("data") or ()), object_age(obj, now)]


def _service_account(obj: Object, now: datetime) -> list[Any]:
    return [object_name(obj), object_age(obj, now)]


def _namespace(obj: Object, now: datetime) -> list[Any]:
    return [object_name(obj), (obj.get("status") or {}).get("phase", ""), object_age(obj, now)]


def _addresses(status: Mapping[str, Any] | None) -> str:
    ingress = ((status or {}).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""}))


def _external_ips(obj: Object) -> str:
    spec = obj.get("spec") or {}
    kind = spec.get("type")
    external = spec.get("externalIPs") or []
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind == "LoadBalancer":
        load_balancer = _addresses(obj.get("status"))
        if external:
            addresses = [load_balancer, *external] if load_balancer else external
            return ",".join(addresses)
        return load_balancer or "<pending>"
    return ",".join(external) or NONE


def _ports(ports: Iterable[Mapping[str, Any]]) -> str:
    texts = []
    for port in ports:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(texts) or NONE


def _component_status(obj: Object, now: datetime) -> list[Any]:
    health: Mapping[str, Any] = next(
        (each for each in obj.get("conditions") or () if each.get("type") == "Healthy"), {}
    )
    words = {"True": "Healthy", "False": "Unhealthy"}
    status = words.get(health.get("status", ""), "Unknown")
    return [object_name(obj), status, health.get("message", ""), health.get("error", "")]


def _service(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        object_name(obj),
        spec.get("type", ""),
        (spec.get("clusterIPs") or [spec.get("clusterIP")])[0] or NONE,
        _external_ips(obj),
        _ports(spec.get("ports") or ()),
        object_age(obj, now),
        labels_text(spec.get("selector")),
    ]


def _endpoints(obj: Object, now: datetime) -> list[Any]:
    texts = []
    for subset in obj.get("subsets") or ():
        addresses = [one.get("ip", "") for one in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            texts += addresses
        for port in ports:
            texts += [
                f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}"
                for ip in addresses
            ]
    return [
        object_name(obj),
        named_list(texts, empty=NONE if not obj.get("subsets") else ""),
        object_age(obj, now),
    ]


def _endpoint_slice(obj: Object, now: datetime) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [
        address for one in obj.get("endpoints") or () for address in one.get("addresses") or ()
    ]
    return [
        object_name(obj),
        obj.get("addressType", ""),
        named_list(ports),
        named_list(addresses),
        object_age(obj, now),
    ]


def _hosts(rules: list[Mapping[str, Any]]) -> str:
    named = [(position, rule["host"]) for position, rule in enumerate(rules) if rule.get("host")]
    if not named:
        return "*"
    limit = 3
    first_hosts = ",".join(host for _, host in named[:limit])
    truncated = len(named) >= limit and named[limit - 1][0] < len(rules) - 1
    return f"{first_hosts} + {len(rules) - limit} more..." if truncated else first_hosts


def _ingress(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        object_name(obj),
        spec.get("ingressClassName") or NONE,
        _hosts(spec.get("rules") or []),
        _addresses(obj.get("status")),
        "80, 443" if spec.get("tls") else "80",
        object_age(obj, now),
    ]


def _ingress_class(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    text = NONE
    parameters = spec.get("parameters")
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        text = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"
    return [object_name(obj), spec.get("controller", ""), text, object_age(obj, now)]


def _network_policy(obj: Object, now: datetime) -> list[Any]:
    return [
        object_name(obj),
        selector_text((obj.get("spec") or {}).get("podSelector")),
        object_age(obj, now),
    ]


def _node(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    state = "Unknown"
    if ready:
        state = "Ready" if ready[-1].get("status") == "True" else "NotReady"
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = set()
    for label, value in (obj["metadata"].get("labels") or {}).items():
        if label.startswith(prefix) and label != prefix:
            roles.add(label.removeprefix(prefix))
        elif label == "kubernetes.io/role" and value:
            roles.add(value)
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"

    def address(kind: str) -> str:
        matching = (
            one.get("address", "")
            for one in status.get("addresses") or ()
            if one.get("type") == kind
        )
        return next(matching, NONE)

    return [
        object_name(obj),
        state,
        ",".join(sorted(roles)) or NONE,
        object_age(obj, now),
        info.get("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(obj: Object, now: datetime) -> list[Any]:
    """Return the cells of an Event, which is stored in the core version but may have the fields of both groups."""
    first = age(
        obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"),
        now,
    )
    moment = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    last = age(moment, now) if moment else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    series = obj.get("series")
    if series:
        last = age(series.get("lastObservedTime"), now)
        count = series.get("count") or 0
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    kind = str(target.get("kind", "")).lower()
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = (
        source.get("component")
        or obj.get("reportingComponent")
        or obj.get("reportingController")
        or ""
    )
    host = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{target['name']}" if target.get("name") else kind,
        target.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message") or obj.get("note") or "").strip(),
        first,
        count,
        object_name(obj),
    ]


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(modes: Iterable[str] | None) -> str:
    mode_set = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in mode_set)


_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def _storage_class_of(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(_CLASS) or (obj.get("spec") or {}).get("storageClassName") or ""


def _volume(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    claim = spec.get("claimRef")
    return [
        object_name(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class_of(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        status.get("reason", ""),
        object_age(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def _claim(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        object_name(obj),
        "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        _storage_class_of(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        object_age(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def _storage_class(obj: Object, now: datetime) -> list[Any]:
    name = object_name(obj)
    annotations = obj["metadata"].get("annotations") or {}
    if "true" in (
        annotations.get("storageclass.kubernetes.io/is-default-class"),
        annotations.get("storageclass.beta.kubernetes.io/is-default-class"),
    ):
        name += " (default)"
    return [
        name,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        object_age(obj, now),
    ]


def _quota(obj: Object, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    requests: list[str] = []
    limits: list[str] = []
    used = status.get("used") or {}
    for name, hard in sorted((status.get("hard") or {}).items()):
        (limits if name.startswith("limits.") else requests).append(
            f"{name}: {used.get(name, '0')}/{hard}"
        )
    return [object_name(obj), ", ".join(requests), ", ".join(limits), object_age(obj, now)]


def _pod_template(obj: Object, now: datetime) -> list[Any]:
    template = obj.get("template") or {}
    return [
        object_name(obj),
        *containers_and_images(template),
        labels_text((template.get("metadata") or {}).get("labels")),
    ]


CORE: Final[dict[tuple[str, str], Printer]] = {
    ("", "ConfigMap"): (
        (
            NAME,
            Column(
                "Data",
                "The number of entries; keys consist of alphanumeric characters, '-', '_' and '.'.",
            ),
            AGE,
        ),
        _config_map,
    ),
    ("", "Secret"): (
        (
            NAME,
            Column(
                "Type",
                "The type of the secret, which facilitates its use by programs; some types require certain keys.",
            ),
            Column(
                "Data",
                "The number of entries; values are arbitrary bytes, which JSON represents in base64.",
            ),
            AGE,
        ),
        _secret,
    ),
    ("", "ServiceAccount"): ((NAME, AGE), _service_account),
    ("", "Namespace"): ((NAME, Column("Status", "The status of the namespace"), AGE), _namespace),
    ("", "ComponentStatus"): (
        (
            NAME,
            Column("Status", "Whether the component is healthy"),
            Column("Message", "What the component reports about its health"),
            Column("Error", "Why the health of the component is unknown"),
        ),
        _component_status,
    ),
    ("", "Service"): (
        (
            NAME,
            Column(
                "Type",
                "How the service is exposed: ClusterIP, NodePort, LoadBalancer or ExternalName.",
            ),
            Column(
                "Cluster-IP",
                "The IP address of the service within the cluster; allocated by the API server by default.",
            ),
            Column(
                "External-IP",
                "The addresses outside the cluster at which the service is also available.",
            ),
            Column(
                "Port(s)",
                "The ports that the service exposes, each with its node port if it has one.",
            ),
            AGE,
            Column(
                "Selector",
                "The labels of the pods that the service routes to; without one, endpoints are managed manually.",
                priority=1,
            ),
        ),
        _service,
    ),
    ("", "Endpoints"): (
        (
            NAME,
            Column(
                "Endpoints",
                "The endpoints of the service: the product of addresses and ports of each subset.",
            ),
            AGE,
        ),
        _endpoints,
    ),
    ("discovery.k8s.io", "EndpointSlice"): (
        (
            NAME,
            Column(
                "AddressType",
                "The type of all addresses of this slice: IPv4, IPv6 or FQDN; this field is immutable.",
            ),
            Column(
                "Ports",
                "The ports that each endpoint of this slice exposes; a port without a number means all ports.",
            ),
            Column(
                "Endpoints",
                "The addresses of the endpoints of this slice; a slice has at most 1000 endpoints.",
            ),
            AGE,
        ),
        _endpoint_slice,
    ),
    ("networking.k8s.io", "Ingress"): (
        (
            NAME,
            Column(
                "Class",
                "The name of the IngressClass, whose controller implements this Ingress, if it has one.",
            ),
            Column(
                "Hosts",
                "The host names of the rules; a request must match the host of a rule for the rule to apply.",
            ),
            Column(
                "Address",
                "The addresses at which the load balancer of this Ingress receives requests.",
            ),
            Column("Ports", "Ports of TLS configurations that open"),
            AGE,
        ),
        _ingress,
    ),
    ("networking.k8s.io", "IngressClass"): (
        (
            NAME,
            Column("Controller", "Controller that is responsible for handling this class"),
            Column("Parameters", "A reference to a resource with additional parameters"),
            AGE,
        ),
        _ingress_class,
    ),
    ("networking.k8s.io", "NetworkPolicy"): (
        (
            NAME,
            Column(
                "Pod-Selector",
                "The labels of the pods that this policy applies to; an empty selector matches all pods.",
            ),
            AGE,
        ),
        _network_policy,
    ),
    ("", "Node"): (
        (
            NAME,
            Column("Status", "The status of the node"),
            Column("Roles", "The roles of the node"),
            AGE,
            Column("Version", "Kubelet Version reported by the node."),
            Column(
                "Internal-IP",
                "The address of the node within the cluster, as reported by the kubelet or the cloud provider.",
                priority=1,
            ),
            Column(
                "External-IP",
                "The address of the node outside the cluster, if the cloud provider reports one.",
                priority=1,
            ),
            Column(
                "OS-Image",
                "The operating system of the node, as reported in /etc/os-release of the node.",
                priority=1,
            ),
            Column(
                "Kernel-Version",
                "The kernel version of the node, as reported by 'uname -r' on the node.",
                priority=1,
            ),
            Column(
                "Container-Runtime",
                "The container runtime of the node and its version, such as containerd://2.1.0.",
                priority=1,
            ),
        ),
        _node,
    ),
    ("", "Event"): (
        (
            Column(
                "Last Seen",
                "The time of the most recent occurrence of the event, as recorded by its reporter.",
            ),
            Column(
                "Type",
                "The type of the event, currently Normal or Warning; new types may be added in the future.",
            ),
            Column(
                "Reason",
                "The reason for the transition of the object: a short, machine-readable string.",
            ),
            Column("Object", "The object that this event is about."),
            Column(
                "Subobject",
                "The part of the object that the event is about, for example a container of a pod.",
                priority=1,
            ),
            Column(
                "Source",
                "The component that reports the event and, if it is known, the host that it runs on.",
                priority=1,
            ),
            Column(
                "Message",
                "A human-readable description of what happened to the object that the event is about.",
            ),
            Column(
                "First Seen",
                "The time at which the event was first recorded, by the clock of its reporter.",
                priority=1,
            ),
            Column("Count", "The number of times this event has occurred.", priority=1),
            NAME._replace(priority=1),
        ),
        _event,
    ),
    ("", "PersistentVolume"): (
        (
            NAME,
            Column(
                "Capacity",
                "The resources and capacity of the volume; currently storage, in bytes, is the only one.",
            ),
            Column(
                "Access Modes",
                "All the modes in which the volume can be mounted, in their usual abbreviations.",
            ),
            Column(
                "Reclaim Policy",
                "What happens to the volume when its claim releases it: Retain, Delete or Recycle.",
            ),
            Column(
                "Status",
                "Whether the volume is available, bound to a claim, released by its claim, or failed.",
            ),
            Column(
                "Claim",
                "The namespace and name of the claim that the volume is bound to or reserved for.",
            ),
            Column("StorageClass", "StorageClass of the pv"),
            Column("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
            Column(
                "Reason",
                "The reason for the failure of the volume: a short, machine-readable CamelCase string.",
            ),
            AGE,
            Column(
                "VolumeMode",
                "Whether the volume is used with a formatted file system or as a raw block device.",
                priority=1,
            ),
        ),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): (
        (
            NAME,
            Column("Status", "phase represents the current phase of PersistentVolumeClaim."),
            Column(
                "Volume",
                "The name of the PersistentVolume that the claim is bound to, if it is bound to one.",
            ),
            Column(
                "Capacity",
                "The actual resources and capacity of the volume that the claim is bound to.",
            ),
            Column(
                "Access Modes",
                "The modes in which the bound volume can be mounted, in their usual abbreviations.",
            ),
            Column("StorageClass", "StorageClass of the pvc"),
            Column("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
            AGE,
            Column(
                "VolumeMode",
                "Whether the claim requires a formatted file system (the default) or a raw block device.",
                priority=1,
            ),
        ),
        _claim,
    ),
    ("storage.k8s.io", "StorageClass"): (
        (
            NAME,
            Column("Provisioner", "provisioner indicates the type of the provisioner."),
            Column(
                "ReclaimPolicy",
                "The reclaim policy of the volumes of this class: Delete (the default) or Retain.",
            ),
            Column(
                "VolumeBindingMode",
                "When claims are bound: immediately, or when the first pod that uses them is scheduled.",
            ),
            Column(
                "AllowVolumeExpansion",
                "Whether volumes of this class can be expanded by an update of their claim.",
            ),
            AGE,
        ),
        _storage_class,
    ),
    ("", "ResourceQuota"): (
        (
            NAME,
            Column(
                "Request",
                "Used and hard amount of the requests of each resource that the quota constrains.",
            ),
            Column(
                "Limit",
                "Used and hard amount of the limits of each resource that the quota constrains.",
            ),
            AGE,
        ),
        _quota,
    ),
    ("", "PodTemplate"): (
        (
            NAME,
            Column("Containers", "Names of each container in the template."),
            Column("Images", "Images referenced by each container in the template."),
            Column("Pod Labels", "The labels for the pod template."),
        ),
        _pod_template,
    ),
}
CORE["events.k8s.io", "Event"] = CORE["", "Event"]
