"""Rows of the kinds of the core group, and of what belongs to networks and storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from envtest.objects import Object
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
    selector_text,
)

__all__ = ["CORE"]

_UNSET: Final = "<unset>"


def _name(obj: Object) -> str:
    name: str = obj["metadata"].get("name", "")
    return name


def _age(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _config_map(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _age(obj, now)]


def _secret(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), _age(obj, now)]


def _service_account(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), len(obj.get("secrets") or ()), _age(obj, now)]


def _namespace(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj, now)]


def _addresses(status: Mapping[str, Any] | None) -> str:
    ingress = ((status or {}).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""}))


def _external(obj: Object) -> str:
    spec = obj.get("spec") or {}
    kind, external = spec.get("type"), spec.get("externalIPs") or []
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind == "LoadBalancer":
        balanced = _addresses(obj.get("status"))
        if external:
            return ",".join([balanced, *external] if balanced else external)
        return balanced or "<pending>"
    return ",".join(external) or NONE


def _ports(ports: Iterable[Mapping[str, Any]]) -> str:
    texts = []
    for port in ports:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(texts) or NONE


def _service(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        _name(obj),
        spec.get("type", ""),
        (spec.get("clusterIPs") or [spec.get("clusterIP")])[0] or NONE,
        _external(obj),
        _ports(spec.get("ports") or ()),
        _age(obj, now),
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
            texts += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    return [_name(obj), named_list(texts, empty=NONE if not obj.get("subsets") else ""), _age(obj, now)]


def _endpoint_slice(obj: Object, now: datetime) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [address for one in obj.get("endpoints") or () for address in one.get("addresses") or ()]
    return [_name(obj), obj.get("addressType", ""), named_list(ports), named_list(addresses), _age(obj, now)]


def _hosts(rules: list[Mapping[str, Any]]) -> str:
    named = [(at, rule["host"]) for at, rule in enumerate(rules) if rule.get("host")]
    if not named:
        return "*"
    most = 3
    shown = ",".join(host for _, host in named[:most])
    more = len(named) >= most and named[most - 1][0] < len(rules) - 1
    return f"{shown} + {len(rules) - most} more..." if more else shown


def _ingress(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        _name(obj),
        spec.get("ingressClassName") or NONE,
        _hosts(spec.get("rules") or []),
        _addresses(obj.get("status")),
        "80, 443" if spec.get("tls") else "80",
        _age(obj, now),
    ]


def _ingress_class(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    text = NONE
    if parameters := spec.get("parameters"):
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        text = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"
    return [_name(obj), spec.get("controller", ""), text, _age(obj, now)]


def _network_policy(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), selector_text((obj.get("spec") or {}).get("podSelector")), _age(obj, now)]


def _node(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    state = "Unknown" if not ready else "Ready" if ready[-1].get("status") == "True" else "NotReady"
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

    def address(kind: str) -> str:
        found = (one.get("address", "") for one in status.get("addresses") or () if one.get("type") == kind)
        return next(found, NONE)

    return [
        _name(obj),
        state,
        ",".join(sorted(roles)) or NONE,
        _age(obj, now),
        info.get("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        *(info.get(name) or "<unknown>" for name in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _event(obj: Object, now: datetime) -> list[Any]:
    """Events of both groups are stored as those of the core group, and may carry the fields of either."""
    first = age(obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"), now)
    moment = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    last = age(moment, now) if moment else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series := obj.get("series"):
        last, count = age(series.get("lastObservedTime"), now), series.get("count") or 0
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    kind = str(target.get("kind", "")).lower()
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
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
        _name(obj),
    ]


_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Iterable[str] | None) -> str:
    wanted = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in wanted)


_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def _storage_class_of(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(_CLASS) or (obj.get("spec") or {}).get("storageClassName") or ""


def _volume(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    claim = spec.get("claimRef")
    return [
        _name(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class_of(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        status.get("reason", ""),
        _age(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def _claim(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        _name(obj),
        "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        _storage_class_of(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        _age(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def _storage_class(obj: Object, now: datetime) -> list[Any]:
    name = _name(obj)
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
        _age(obj, now),
    ]


def _quota(obj: Object, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    requests: list[str] = []
    limits: list[str] = []
    used = status.get("used") or {}
    for name, hard in sorted((status.get("hard") or {}).items()):
        (limits if name.startswith("limits.") else requests).append(f"{name}: {used.get(name, '0')}/{hard}")
    return [_name(obj), ", ".join(requests), ", ".join(limits), _age(obj, now)]


def _pod_template(obj: Object, now: datetime) -> list[Any]:
    template = obj.get("template") or {}
    return [_name(obj), *containers_and_images(template), labels_text((template.get("metadata") or {}).get("labels"))]


CORE: Final[dict[tuple[str, str], Printer]] = {
    ("", "ConfigMap"): (
        (
            NAME,
            Column("Data", "How many entries the object has; keys consist of letters, digits, '-', '_' and '.'."),
            AGE,
        ),
        _config_map,
    ),
    ("", "Secret"): (
        (
            NAME,
            Column("Type", "What the secret is for, so that programs can tell; some types have rules for their keys."),
            Column("Data", "How many entries the secret has; values are arbitrary bytes, in base64 on the wire."),
            AGE,
        ),
        _secret,
    ),
    ("", "ServiceAccount"): (
        (
            NAME,
            Column(
                "Secrets", "How many secrets pods that run as this account may use, where use is restricted to them."
            ),
            AGE,
        ),
        _service_account,
    ),
    ("", "Namespace"): ((NAME, Column("Status", "The status of the namespace"), AGE), _namespace),
    ("", "Service"): (
        (
            NAME,
            Column("Type", "How the service is exposed: ClusterIP, NodePort, LoadBalancer or ExternalName."),
            Column("Cluster-IP", "The address of the service within the cluster, allocated by the server if not said."),
            Column("External-IP", "The addresses outside of the cluster at which the service can be reached, too."),
            Column("Port(s)", "The ports that the service exposes, with the ports of nodes that lead there."),
            AGE,
            Column(
                "Selector",
                "The labels of the pods to which the service routes; without, endpoints are made by hand.",
                priority=1,
            ),
        ),
        _service,
    ),
    ("", "Endpoints"): (
        (
            NAME,
            Column("Endpoints", "The addresses and ports that make up the service; each subset is their product."),
            AGE,
        ),
        _endpoints,
    ),
    ("discovery.k8s.io", "EndpointSlice"): (
        (
            NAME,
            Column("AddressType", "The type of all addresses of the slice: IPv4, IPv6 or FQDN; it never changes."),
            Column("Ports", "The ports that each endpoint of the slice exposes; a port without number means all."),
            Column("Endpoints", "The addresses of the endpoints of the slice, of which there may be a thousand."),
            AGE,
        ),
        _endpoint_slice,
    ),
    ("networking.k8s.io", "Ingress"): (
        (
            NAME,
            Column("Class", "The IngressClass whose controller is to implement the object, if it names one of them."),
            Column("Hosts", "The hosts against which requests are matched before the rules are applied to them."),
            Column("Address", "The addresses at which the load balancer of the Ingress takes its requests."),
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
                "Pod-Selector", "The labels of the pods that the policy is about; empty selects all of the namespace."
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
                "The address of the node within the cluster, as the kubelet or its cloud reports it.",
                priority=1,
            ),
            Column(
                "External-IP",
                "The address of the node outside of the cluster, where its cloud reports one.",
                priority=1,
            ),
            Column(
                "OS-Image",
                "The operating system of the node, as it says in /etc/os-release on the node itself.",
                priority=1,
            ),
            Column(
                "Kernel-Version", "The version of the kernel of the node, as 'uname -r' prints it there.", priority=1
            ),
            Column(
                "Container-Runtime",
                "The container runtime of the node and its version, containerd://2.1.0 for one.",
                priority=1,
            ),
        ),
        _node,
    ),
    ("", "Event"): (
        (
            Column("Last Seen", "When the event happened last, as far as its reporter told; older ones may be merged."),
            Column("Type", "The type of the event, Normal or Warning at present; there may be new ones later."),
            Column("Reason", "Why the object got into the state that it is in; short and readable for programs."),
            Column("Object", "The object that this event is about."),
            Column(
                "Subobject",
                "The part of the object that the event is about, a container of a pod for example.",
                priority=1,
            ),
            Column(
                "Source",
                "The component that reports the event, and the host that it runs on where that matters.",
                priority=1,
            ),
            Column("Message", "What happened to the object, in a sentence that is written for people to read."),
            Column(
                "First Seen",
                "When the event was first recorded, by the clock of the component that reported it.",
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
            Column("Capacity", "The resources of the volume, of which there is one at present: storage, in bytes."),
            Column("Access Modes", "All the ways in which the volume can be mounted, in the usual abbreviations."),
            Column("Reclaim Policy", "What happens to the volume once its claim releases it: Retain, Delete, Recycle."),
            Column("Status", "Whether the volume is available, bound to a claim, released by one, or has failed."),
            Column("Claim", "The claim that the volume is bound to, or that it is reserved for, by name."),
            Column("StorageClass", "StorageClass of the pv"),
            Column(
                "VolumeAttributesClass", "The class of attributes that the volume has; empty for those without one."
            ),
            Column("Reason", "Why the volume failed, in one word in CamelCase that programs may read and show."),
            AGE,
            Column(
                "VolumeMode",
                "Whether the volume is used with a file system on it or as a raw block device.",
                priority=1,
            ),
        ),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): (
        (
            NAME,
            Column("Status", "phase represents the current phase of PersistentVolumeClaim."),
            Column("Volume", "The name of the volume that the claim is bound to, once there is such a volume."),
            Column("Capacity", "The resources of the volume that the claim is bound to, as they really are."),
            Column("Access Modes", "The ways in which the volume of the claim can be mounted, as abbreviations."),
            Column("StorageClass", "StorageClass of the pvc"),
            Column(
                "VolumeAttributesClass", "The class of attributes that the claim asks for; it may be changed later."
            ),
            AGE,
            Column(
                "VolumeMode",
                "Whether the claim wants a file system or a raw block device; the former if unsaid.",
                priority=1,
            ),
        ),
        _claim,
    ),
    ("storage.k8s.io", "StorageClass"): (
        (
            NAME,
            Column("Provisioner", "provisioner indicates the type of the provisioner."),
            Column("ReclaimPolicy", "What happens to volumes of the class once they are released; Delete if unsaid."),
            Column("VolumeBindingMode", "When claims are bound: at once, or when a pod that uses them was scheduled."),
            Column(
                "AllowVolumeExpansion", "Whether volumes of the class can be made larger by a change of their claim."
            ),
            AGE,
        ),
        _storage_class,
    ),
    ("", "ResourceQuota"): (
        (
            NAME,
            Column("Request", "What is requested of what may be, for each resource that the quota limits."),
            Column("Limit", "What is claimed by limits of what may be, for each resource that the quota limits."),
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
