"""Warnings about pods and pod templates that are valid but questionable.

The messages equal those in ``GetWarningsForPod`` and in the strategies of the kinds that create pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from envtest.apimachinery.field_errors import go_quote, key
from envtest.apimachinery.name_rules import dns_label
from envtest.builtins.ip_rules import ip_warnings
from envtest.builtins.node_labels import DEPRECATED_LABELS, term_warnings
from envtest.schema.quantity import is_integer

__all__ = [
    "claim_warnings",
    "name_warnings",
    "pod_warnings",
    "source_warnings",
    "template_warnings",
]

_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_CONTAINER_SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
_CONTAINER_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_VOLUMES = {
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "gitRepo": "deprecated in v1.11",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
}
_MAX_COMPARED = 50
"""How many overlapping files a volume may have that are compared with each other."""
_MAX_OVERLAPS = 100
"""The most warnings about a pod's volumes; without a limit, they grow with the square of the files."""
_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def name_warnings(name: str, used: str = "in Pod names and hostnames") -> Iterator[str]:
    """Warn about a name that is valid but not a valid hostname; ``used`` describes where the name is used."""
    problems = dns_label(name)
    if problems:
        text = "which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: this is used {used}, {text}: [{' '.join(problems)}]"


def pod_warnings(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the warnings about a pod that is created."""
    yield from name_warnings(pod["metadata"].get("name") or "", "in the Pod's hostname")
    yield from _warnings(pod, "", is_template=False)


def template_warnings(template: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    """Yield the warnings about the template at ``path``."""
    if template is not None:
        yield from _warnings(template, f"{path}.", is_template=True)


def _warnings(pod: Mapping[str, Any], prefix: str, *, is_template: bool) -> Iterator[str]:
    spec = pod.get("spec") or {}
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    spec_path = f"{prefix}spec"
    annotations_path = f"{prefix}metadata.annotations"
    for label in spec.get("nodeSelector") or ():
        if label in DEPRECATED_LABELS:
            yield f"{key(f'{spec_path}.nodeSelector', label)}: {DEPRECATED_LABELS[label]}"
    yield from _node_affinity(spec, f"{spec_path}.affinity.nodeAffinity")
    for position, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        item_path = f"{spec_path}.topologySpreadConstraints[{position}]"
        label = constraint.get("topologyKey")
        if label in DEPRECATED_LABELS:
            yield f"{item_path}.topologyKey: {label} is {DEPRECATED_LABELS[label]}"
        if constraint.get("labelSelector") is None:
            yield f"{item_path}.labelSelector: {_NULL_SELECTOR}"
    for name, text in _ANNOTATIONS.items():
        if name in annotations:
            yield f"{key(annotations_path, name)}: {text}"
    for position, volume in enumerate(spec.get("volumes") or ()):
        yield from source_warnings(volume, f"{spec_path}.volumes[{position}]")
        claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if claim is not None:
            yield from claim_warnings(
                claim.get("spec") or {},
                f"{spec_path}.volumes[{position}].ephemeral.volumeClaimTemplate.spec",
            )
    overlaps = (
        warning for volume in spec.get("volumes") or () for warning in _overlapping_paths(volume)
    )
    yield from islice(overlaps, _MAX_OVERLAPS)
    yield from _duplicate_items(spec.get("hostAliases") or (), f"{spec_path}.hostAliases", "ip")
    yield from _duplicate_items(
        spec.get("imagePullSecrets") or (), f"{spec_path}.imagePullSecrets", "name"
    )
    for position, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{spec_path}.imagePullSecrets[{position}].name: invalid empty name ""'
    yield from _fractional_bytes(spec.get("overhead") or {}, f"{spec_path}.overhead")
    security = spec.get("securityContext") or {}
    if _SECCOMP in annotations and security.get("seccompProfile") is None:
        yield f'{key(annotations_path, _SECCOMP)}: non-functional in v1.27+; use the "seccompProfile" field instead'
    containers = list(_containers(spec, spec_path))
    for container, item_path in containers:
        own = container.get("securityContext") or {}
        name = container.get("name") or ""
        if _CONTAINER_SECCOMP + name in annotations and own.get("seccompProfile") is None:
            text = 'non-functional in v1.27+; use the "seccompProfile" field instead'
            yield f"{key(annotations_path, _CONTAINER_SECCOMP + name)}: {text}"
        has_profile = (
            security.get("appArmorProfile") is not None or own.get("appArmorProfile") is not None
        )
        if is_template and not has_profile and _CONTAINER_APP_ARMOR + name in annotations:
            text = 'deprecated since v1.30; use the "appArmorProfile" field instead'
            yield f"{key(annotations_path, _CONTAINER_APP_ARMOR + name)}: {text}"
        for part in ("limits", "requests"):
            quantities = (container.get("resources") or {}).get(part) or {}
            yield from _fractional_bytes(quantities, f"{item_path}.resources.{part}")
        yield from _hidden_variables(container, f"{item_path}.env")
    yield from _port_clashes(containers)
    yield from _port_names(containers)
    if is_template and (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{spec_path}.terminationGracePeriodSeconds: {text}"
    yield from _pod_affinity(spec, f"{spec_path}.affinity")
    for position, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from ip_warnings(f"{spec_path}.dnsConfig.nameservers[{position}]", server)
    for position, alias in enumerate(spec.get("hostAliases") or ()):
        yield from ip_warnings(f"{spec_path}.hostAliases[{position}].ip", alias.get("ip") or "")


def source_warnings(volume: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the warnings about the sources of a volume that no longer work."""
    for source in sorted(volume.keys() & _VOLUMES.keys()):
        yield f"{path}.{source.replace('storageos', 'storageOS')}: {_VOLUMES[source]}"


def claim_warnings(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the warnings about the spec of a claim at ``path``."""
    for part in ("requests", "limits"):
        quantities = (spec.get("resources") or {}).get(part) or {}
        yield from _fractional_bytes(quantities, f"{path}.resources.{part}", ("storage",))


def _overlapping_paths(volume: Mapping[str, Any]) -> Iterator[str]:
    """Warn about files of a volume that have the same path, or the path of another's folder."""
    name = go_quote(volume.get("name") or "")
    for field, kind, key_name in (
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
    ):
        source = volume.get(field)
        if source is not None:
            shown = f"{kind} {go_quote(source.get(key_name) or '')}"
            yield from _overlaps(
                f"volume {name} ({shown})", [(path, "") for path in _item_paths(source)]
            )
    source = volume.get("downwardAPI")
    if source is not None:
        yield from _overlaps(
            f"volume {name} (DownwardAPI)", [(path, "") for path in _item_paths(source)]
        )
    files: list[tuple[str, str]] = []
    for source in (volume.get("projected") or {}).get("sources") or ():
        if not source:
            yield f"volume {name} (Projected) has no sources provided"
        files += _projected_files(source)
    yield from _overlaps(f"volume {name} (Projected)", files)


def _item_paths(source: Mapping[str, Any]) -> list[str]:
    return [item.get("path") or "" for item in source.get("items") or ()]


def _projected_files(source: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the paths of a projected source with the description of the source."""
    for field, kind in (
        ("configMap", "ConfigMap"),
        ("secret", "Secret"),
        ("downwardAPI", "DownwardAPI"),
    ):
        part = source.get(field)
        if part is not None and part.get("items"):
            shown = kind if field == "downwardAPI" else f"{kind} {go_quote(part.get('name') or '')}"
            return [(path, shown) for path in _item_paths(part)]
    token = source.get("serviceAccountToken")
    if token is not None:
        return [(token.get("path") or "", "ServiceAccountToken")]
    bundle = source.get("clusterTrustBundle")
    if bundle is not None:
        owner = (
            bundle.get("name") if bundle.get("name") is not None else bundle.get("signerName") or ""
        )
        return [(bundle.get("path") or "", f"ClusterTrustBundle {go_quote(owner)}")]
    certificate = source.get("podCertificate") or {}
    return [
        (certificate[field], f"PodCertificate {shown}")
        for field, shown in (
            ("certificateChainPath", "chain"),
            ("keyPath", "key"),
            ("credentialBundlePath", "credential bundle"),
        )
        if certificate.get(field)
    ]


def _overlaps(volume: str, files: Sequence[tuple[str, str]]) -> Iterator[str]:
    named = [(f"{path.rstrip('/')}/", source) for path, source in files if path.rstrip("/")]
    overlapping: set[str] = set()
    first = ""
    for folder, _ in sorted(named):  # what is in a folder follows it
        if first and folder.startswith(first):
            overlapping |= {first, folder}
        else:
            first = folder
    seen: list[tuple[str, str]] = []
    for folder, source in [each for each in named if each[0] in overlapping][:_MAX_COMPARED]:
        for other, other_source in seen:
            if folder.startswith(other) or other.startswith(folder):
                one = _file(folder[:-1], source)
                two = _file(other[:-1], other_source)
                yield f"{volume}: overlapping paths: {one} with {two}"
        seen.append((folder, source))


def _file(path: str, source: str) -> str:
    return f"{go_quote(path)} ({source})" if source else go_quote(path)


def _containers(spec: Mapping[str, Any], path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for position, container in enumerate(spec.get(name) or ()):
            yield container, f"{path}.{name}[{position}]"


def _node_affinity(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = [
        (term, f"{path}.{_REQUIRED}.nodeSelectorTerms[{position}]")
        for position, term in enumerate(
            (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
        )
    ]
    terms += [
        (each.get("preference") or {}, f"{path}.{_PREFERRED}[{position}].preference")
        for position, each in enumerate(affinity.get(_PREFERRED) or ())
    ]
    for term, item_path in terms:  # the values of required terms are validated instead
        yield from term_warnings(term, item_path, values=item_path.endswith(".preference"))


def _pod_affinity(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        for position, term in enumerate(affinity.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{_REQUIRED}[{position}].labelSelector: {_NULL_SELECTOR}"
        for position, term in enumerate(affinity.get(_PREFERRED) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{_PREFERRED}[{position}].podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


def _duplicate_items(items: Any, path: str, name: str) -> Iterator[str]:
    seen: set[str] = set()
    for position, item in enumerate(items):
        value = item.get(name) or ""
        if value in seen:
            yield f"{path}[{position}].{name}: duplicate {name} {go_quote(value)}"
        seen.add(value)


def _fractional_bytes(
    quantities: Mapping[str, str], path: str, names: Sequence[str] = ("memory", "ephemeral-storage")
) -> Iterator[str]:
    for name in names:
        quantity = quantities.get(name)
        if quantity is not None and not is_integer(quantity):
            yield f"{key(path, name)}: fractional byte value {go_quote(quantity)} is invalid, must be an integer"


def _hidden_variables(container: Mapping[str, Any], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for position, variable in enumerate(container.get("env") or ()):
        name = variable.get("name") or ""
        value = variable.get("value") or ""
        reference = f"$({name})"
        extends = reference in value and value != reference and variable.get("valueFrom") is None
        if name in seen and not extends:
            text = f"hides previous definition of {go_quote(name)}, which may be dropped when using apply"
            yield f"{path}[{position}]: {text}"
        seen.add(name)


def _port_clashes(containers: list[tuple[Mapping[str, Any], str]]) -> Iterator[str]:
    seen_ports: dict[tuple[Any, Any], list[tuple[Mapping[str, Any], str]]] = {}
    for container, path in containers:
        for position, port in enumerate(container.get("ports") or ()):
            item_path = f"{path}.ports[{position}]"
            if port.get("hostIP") and not port.get("hostPort"):
                shown = f"Name:{port.get('name') or ''} HostPort:0 ContainerPort:{port.get('containerPort')}"
                protocol = f"Protocol:{port.get('protocol') or ''}"
                yield f"{item_path}: hostIP set without hostPort: {{{shown} {protocol} HostIP:{port['hostIP']}}}"
            others = seen_ports.setdefault((port.get("containerPort"), port.get("protocol")), [])
            for other, other_place in others:
                text = _port_clash(port, other)
                if text:
                    yield f"{item_path}: {text} with {other_place}"
            others.append((port, item_path))


def _port_names(containers: list[tuple[Mapping[str, Any], str]]) -> Iterator[str]:
    first: dict[str, str] = {}
    for container, path in containers:
        for position, port in enumerate(container.get("ports") or ()):
            name = port.get("name")
            item_path = f"{path}.ports[{position}]"
            if name in first:
                rule = f"services and probes that select ports by name will use {first[name]}"
                yield f"{item_path}: duplicate port name {go_quote(name)} with {first[name]}, {rule}"
            elif name:
                first[name] = item_path


def _port_clash(port: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    address = port.get("hostIP") or ""
    number = port.get("hostPort") or 0
    other_address = other.get("hostIP") or ""
    other_number = other.get("hostPort") or 0
    if (address, number) == (other_address, other_number):
        return "duplicate port definition"
    if not number or not other_number:
        return "overlapping port definition"
    if number == other_number and bool(address) != bool(other_address):
        return "dangerously ambiguous port definition"
    return ""
