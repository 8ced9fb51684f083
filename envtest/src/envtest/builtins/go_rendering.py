"""Go's rendering of kube-apiserver's internal types, for the messages that quote them.

Internal types have no JSON names: ``{"Volumes":null,...}`` lists all fields in the order of their declaration. Only
types that appear in known messages are defined here; types nested in them are approximated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

from envtest.apimachinery.field_errors import Verbatim, go_json

__all__ = [
    "ATTACHMENT_SOURCE",
    "BUDGET",
    "CSI_NODE_DRIVER",
    "FAILURE_RULE",
    "PARENT",
    "REFERENCE",
    "STATEFUL_ROLLOUT",
    "SUCCESS_RULE",
    "TAINT",
    "TOLERATION",
    "TRUST_BUNDLE",
    "UNCOUNTED_PODS",
    "claim_spec_difference",
    "difference",
    "internal",
    "internal_fields",
    "internal_job_policy",
    "internal_pod_spec",
    "internal_pod_template",
    "internal_scope_selector",
    "internal_security_context",
    "internal_selector",
    "internal_term",
    "internal_terms",
    "internal_update_strategy",
    "internal_volume_source",
    "pod_spec_difference",
]

_POD_SPEC = (
    "Volumes InitContainers Containers EphemeralContainers RestartPolicy! TerminationGracePeriodSeconds "
    "ActiveDeadlineSeconds DNSPolicy! NodeSelector ServiceAccountName! AutomountServiceAccountToken NodeName! "
    "SecurityContext ImagePullSecrets Hostname! Subdomain! SetHostnameAsFQDN Affinity SchedulerName! Tolerations "
    "HostAliases PriorityClassName! Priority PreemptionPolicy DNSConfig ReadinessGates RuntimeClassName Overhead "
    "EnableServiceLinks TopologySpreadConstraints OS SchedulingGates ResourceClaims Resources HostnameOverride "
    "SchedulingGroup"
)
_CONTAINER = (
    "Name! Image! Command Args WorkingDir! Ports EnvFrom Env Resources ResizePolicy RestartPolicy RestartPolicyRules "
    "VolumeMounts VolumeDevices LivenessProbe ReadinessProbe StartupProbe Lifecycle TerminationMessagePath! "
    "TerminationMessagePolicy! ImagePullPolicy! SecurityContext Stdin? StdinOnce? TTY?"
)
_SECURITY = (
    "HostNetwork? HostPID? HostIPC? ShareProcessNamespace HostUsers SELinuxOptions WindowsOptions RunAsUser RunAsGroup "
    "RunAsNonRoot SupplementalGroups SupplementalGroupsPolicy FSGroup FSGroupChangePolicy Sysctls SeccompProfile "
    "AppArmorProfile SELinuxChangePolicy"
)
_CLAIM_SPEC = (
    "AccessModes Selector= Resources VolumeName! StorageClassName VolumeMode DataSource DataSourceRef "
    "VolumeAttributesClassName"
)
_EXIT_CODES = "ContainerName Operator! Values"
_SPECIAL_NAMES = {
    "apiversion": "apiVersion",
    "uid": "uid",
    "dnspolicy": "dnsPolicy",
    "dnsconfig": "dnsConfig",
    "sethostnameasfqdn": "setHostnameAsFQDN",
    "os": "os",
    "tty": "tty",
    "hostpid": "hostPID",
    "hostipc": "hostIPC",
    "selinuxoptions": "seLinuxOptions",
    "fsgroup": "fsGroup",
    "fsgroupchangepolicy": "fsGroupChangePolicy",
    "selinuxchangepolicy": "seLinuxChangePolicy",
    "gmsacredentialspecname": "gmsaCredentialSpecName",
    "gmsacredentialspec": "gmsaCredentialSpec",
}
_UPPER = ("api", "ip", "uid", "gid", "url", "os", "dns", "tls", "cidr", "tcp", "http", "id")


def _json_name(go_name: str) -> str:
    return _SPECIAL_NAMES.get(go_name.lower()) or go_name[0].lower() + go_name[1:]


_MAPS = frozenset(
    {"annotations", "labels", "limits", "matchLabels", "options", "requests", "volumeAttributes"}
)
"""The fields of nested types that are maps: Go prints their keys as they are."""


def _go_name(json_name: str) -> str:
    for prefix in _UPPER:
        if json_name == prefix or (
            json_name.startswith(prefix) and json_name[len(prefix) : len(prefix) + 1].isupper()
        ):
            return prefix.upper() + json_name[len(prefix) :]
    return json_name[0].upper() + json_name[1:]


def internal(value: Any) -> str:
    """Return a value of a type that is not defined here: fields by their Go names, omitting unset ones."""
    if isinstance(value, Mapping):
        parts = [
            f'"{_go_name(name)}":{_internal_field(name, item)}' for name, item in value.items()
        ]
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(internal, value)) + "]"
    return go_json(value)


def _internal_field(name: str, value: Any) -> str:
    return go_json(value) if name in _MAPS else internal(value)


def internal_selector(selector: Mapping[str, Any] | None) -> Verbatim:
    """Return a LabelSelector, which has JSON names in internal types, too."""
    if selector is None:
        return Verbatim("null")
    parts = [
        f'"{name}":{go_json(selector[name])}'
        for name in ("matchLabels", "matchExpressions")
        if name in selector
    ]
    return Verbatim("{" + ",".join(parts) + "}")


_GO_ZEROS = {"!": '""', "?": "false", "#": "0"}
"""The zero values of Go by the mark of a field (see :func:`internal_fields`); those of pointers are ``null``."""


def _fields(layout: str, value: Mapping[str, Any], overrides: Mapping[str, str]) -> str:
    parts = []
    for word in layout.split():
        name = word.rstrip("!?#=")
        json_name = _json_name(name)
        zero = _GO_ZEROS.get(word[-1], "null")
        show = internal_selector if word.endswith("=") else internal
        text = overrides.get(name) or (show(value[json_name]) if json_name in value else zero)
        parts.append(f'"{name}":{text}')
    return "{" + ",".join(parts) + "}"


TOLERATION = "Key! Operator! Value! Effect! TolerationSeconds"
TAINT = "Key! Value! Effect! TimeAdded"
BUDGET = "MinAvailable Selector= MaxUnavailable UnhealthyPodEvictionPolicy"
REFERENCE = "Kind! Namespace! Name! UID! APIVersion! ResourceVersion! FieldPath!"
ATTACHMENT_SOURCE = "PersistentVolumeName InlineVolumeSpec"
CSI_NODE_DRIVER = "Name! NodeID! TopologyKeys Allocatable"
PARENT = "Group! Resource! Namespace! Name!"
TRUST_BUNDLE = "Name SignerName LabelSelector= Optional Path!"
SUCCESS_RULE = "SucceededIndexes SucceededCount"
FAILURE_RULE = "Action! OnExitCodes OnPodConditions"
STATEFUL_ROLLOUT = "Partition# MaxUnavailable"
UNCOUNTED_PODS = "Succeeded Failed"
"""The fields of internal types, for :func:`internal_fields`."""


def internal_fields(layout: str, value: Mapping[str, Any]) -> Verbatim:
    """Return a struct as Go prints its internal type.

    ``layout`` has the names of all fields in their order, with ``!`` for strings, ``?`` for booleans and ``#`` for
    numbers that are no pointers, and ``=`` for a LabelSelector.
    """
    return Verbatim(_fields(layout, value, {}))


_SECURITY_CONTEXT = (
    "Capabilities Privileged SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot ReadOnlyRootFilesystem "
    "AllowPrivilegeEscalation ProcMount SeccompProfile AppArmorProfile"
)
_SECURITY_PARTS = {
    "Capabilities": "Add Drop",
    "SELinuxOptions": "User! Role! Type! Level!",
    "WindowsOptions": "GMSACredentialSpecName GMSACredentialSpec RunAsUserName HostProcess",
    "SeccompProfile": "Type! LocalhostProfile",
    "AppArmorProfile": "Type! LocalhostProfile",
}


def internal_security_context(security: Mapping[str, Any]) -> Verbatim:
    """Return the SecurityContext of a container as Go prints its internal type."""
    parts = {name: security.get(_json_name(name)) for name in _SECURITY_PARTS}
    shown = {
        name: _fields(_SECURITY_PARTS[name], part, {})
        for name, part in parts.items()
        if part is not None
    }
    return Verbatim(_fields(_SECURITY_CONTEXT, security, shown))


def internal_terms(terms: Sequence[Mapping[str, Any]] | None) -> Verbatim:
    """Return the terms of a NodeSelector as Go prints their internal type."""
    if terms is None:
        return Verbatim("null")
    return Verbatim(f"[{','.join(map(internal_term, terms))}]")


def internal_term(term: Mapping[str, Any]) -> Verbatim:
    """Return a NodeSelectorTerm as Go prints its internal type."""
    parts = {}
    for name in ("matchExpressions", "matchFields"):
        if name in term:
            parts[_go_name(name)] = (
                f"[{','.join(_fields('Key! Operator! Values', each, {}) for each in term[name])}]"
            )
    return Verbatim(_fields("MatchExpressions MatchFields", {}, parts))


def _container(container: Mapping[str, Any]) -> str:
    resources = container.get("resources") or {}
    resource_fields = ",".join(
        f'"{name.capitalize()}":{go_json(resources.get(name))}'
        for name in ("limits", "requests", "claims")
    )
    return _fields(_CONTAINER, container, {"Resources": "{" + resource_fields + "}"})


def _containers(containers: Sequence[Mapping[str, Any]] | None) -> str:
    return "null" if not containers else "[" + ",".join(map(_container, containers)) + "]"


def internal_pod_spec(spec: Mapping[str, Any]) -> Verbatim:
    """Return a PodSpec as Go prints its internal type."""
    security = spec.get("securityContext")
    host = {
        name: spec[name]
        for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
        if name in spec
    }
    node_selector = spec.get("nodeSelector")
    overrides = {
        "Containers": _containers(spec.get("containers")),
        "InitContainers": _containers(spec.get("initContainers")),
        "SecurityContext": "null"
        if security is None
        else _fields(_SECURITY, {**security, **host}, {}),
        "NodeSelector": go_json(node_selector) if node_selector else "null",
    }
    return Verbatim(_fields(_POD_SPEC, spec, overrides))


def internal_pod_template(template: Mapping[str, Any]) -> Verbatim:
    """Return a PodTemplateSpec as Go prints its internal type, in which only the metadata has JSON names."""
    metadata = {name: value for name, value in (template.get("metadata") or {}).items() if value}
    fields = [f'"{name}":{go_json(value)}' for name, value in metadata.items()]
    return Verbatim(
        "{" + ",".join([*fields, f'"Spec":{internal_pod_spec(template["spec"])}']) + "}"
    )


def internal_job_policy(policy: Mapping[str, Any] | None, layout: str) -> Verbatim | None:
    """Return a Job's policy as Go prints its internal type; ``layout`` are the fields of its rules."""
    if policy is None:
        return None
    rules = []
    for rule in policy.get("rules") or ():
        codes = rule.get("onExitCodes")
        shown = {} if codes is None else {"OnExitCodes": _fields(_EXIT_CODES, codes, {})}
        rules.append(_fields(layout, rule, shown))
    return Verbatim(
        '{"Rules":' + ("null" if policy.get("rules") is None else f"[{','.join(rules)}]") + "}"
    )


def internal_update_strategy(
    strategy: Mapping[str, Any], layout: str = "MaxUnavailable# MaxSurge#"
) -> Verbatim:
    """Return the update strategy of a workload as Go prints its internal type.

    ``layout`` are the fields of ``rollingUpdate``; the default is that of Deployments and DaemonSets.
    """
    rolling = strategy.get("rollingUpdate")
    shown = {} if rolling is None else {"RollingUpdate": _fields(layout, rolling, {})}
    return Verbatim(_fields("Type! RollingUpdate", strategy, shown))


def internal_scope_selector(selector: Mapping[str, Any]) -> Verbatim:
    """Return the scope selector of a quota as Go prints its internal type."""
    requirements = selector.get("matchExpressions")
    if requirements is None:
        return internal_fields("MatchExpressions", {})
    shown = ",".join(_fields("ScopeName! Operator! Values", each, {}) for each in requirements)
    return Verbatim('{"MatchExpressions":[' + shown + "]}")


_VOLUME_SOURCES = (
    "GCEPersistentDisk AWSElasticBlockStore HostPath Glusterfs NFS RBD Quobyte ISCSI FlexVolume Cinder CephFS FC "
    "Flocker AzureFile VsphereVolume AzureDisk PhotonPersistentDisk PortworxVolume ScaleIO Local StorageOS CSI"
)


def internal_volume_source(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sources of a persistent volume's ``spec`` with the names of Go's internal type; most are null."""
    sources = {name.lower(): value for name, value in spec.items()}
    return {name: _with_go_names(sources.get(name.lower())) for name in _VOLUME_SOURCES.split()}


def _with_go_names(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_go_name(name): _with_go_names(item) for name, item in value.items()}
    return [_with_go_names(item) for item in value] if isinstance(value, list) else value


def pod_spec_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return :func:`difference` of two PodSpecs as Go prints their internal type."""
    return difference(json.loads(internal_pod_spec(old)), json.loads(internal_pod_spec(new)))


def claim_spec_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return :func:`difference` of two specs of PersistentVolumeClaims as Go prints their internal type."""
    before = internal_fields(_CLAIM_SPEC, old)
    after = internal_fields(_CLAIM_SPEC, new)
    return difference(json.loads(before), json.loads(after))


def difference(old: Any, new: Any) -> str:
    """Return the difference between two values as messages show it: of indented JSON, with three lines around it.

    The order of keys is no difference, because the fields of a Go type have a fixed order.
    """
    before = json.dumps(old, indent=1, ensure_ascii=False).splitlines()
    after = json.dumps(_in_order_of(old, new), indent=1, ensure_ascii=False).splitlines()
    lines = list(unified_diff(before, after, lineterm="", n=3))[2:]
    return "\n".join([*lines, ""])


def _in_order_of(model: Any, value: Any) -> Any:
    """Return ``value`` with the keys that ``model`` also has in the order of ``model``, before all others."""
    if isinstance(model, Mapping) and isinstance(value, Mapping):
        names = dict.fromkeys([*(name for name in model if name in value), *value])
        return {name: _in_order_of(model.get(name), value[name]) for name in names}
    if isinstance(model, list) and isinstance(value, list):
        return [_in_order_of(old, new) for old, new in zip_longest(model[: len(value)], value)]
    return value
