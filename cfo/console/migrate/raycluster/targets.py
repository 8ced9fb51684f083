"""What a RayCluster becomes at each target: pure functions of the RayCluster and the operator's objects.

``kuberay``: the fields of KubeRay 1.7. KubeRay rejects ``networkPolicy`` and ``tlsOptions`` unless their feature gates
(``RayClusterNetworkPolicy`` and ``RayClusterMTLS``) are enabled, which they are not by default; ``authOptions`` and
``ingressOptions`` have no feature gate. ``rhoai``: the annotation with which the KubeRay of Open Data Hub 3 provides
TLS, authentication and network policies.

The operator opens the port of its proxy to everyone and, if Ray verifies client certificates, the port of the client.
Without the proxy and without TLS, both would give everyone access to Ray, so these ports are closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cfo.api.raycluster.cluster import SECURE_TRUSTED_NETWORK, pod_labels, uses_kuberay_tls
from cfo.api.raycluster.names import names_of
from cfo.api.raycluster.ports import CLIENT_PORT, PROXY_PORT
from cfo.console.migrate.raycluster.children import is_operators
from cfo.console.migrate.raycluster.injected import Cleaning
from cfo.runtime import INGRESS, NETWORK_POLICY, Object, annotations_of, gvk_of, name_of
from cfo.runtime.objects import copied, is_dns_label
from cfo.webhooks.raycluster.injection_plan import MTLS, OAUTH

_INGRESS_CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
"""KubeRay takes the class of the Ingress that it creates from this annotation of the RayCluster."""

_TOKEN_RAY_VERSION: Final = (2, 52)
"""The Ray version from which KubeRay accepts ``authOptions.mode: token``."""

GATES: Final = {"networkPolicy": "RayClusterNetworkPolicy", "tlsOptions": "RayClusterMTLS"}
"""The feature gates of KubeRay by the field that they enable."""

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")


class Target(StrEnum):
    """Where RayClusters are migrated to."""

    KUBERAY = "kuberay"
    RHOAI = "rhoai"
    CFO = "cfo"


@dataclass(frozen=True, slots=True)
class KubeRay:
    """What the installed KubeRay supports.

    ``fields`` are the fields of RayClusters in its CRD, those of the head group with the prefix ``headGroupSpec.``.
    ``features`` are the fields whose feature gate is known to be enabled. ``cert_manager``: whether cert-manager, which
    issues the certificates for ``tlsOptions``, is installed.
    """

    fields: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    cert_manager: bool = False

    def missing_for(self, name: str) -> str:
        """Return why KubeRay would not act on the field ``name``; empty if it would."""
        if name not in self.fields:
            return f"the CRD of KubeRay has no field {name}"
        if name in GATES and name not in self.features:
            return f"the feature gate {GATES[name]} is not known to be enabled (--kuberay-feature {name})"
        if name == "tlsOptions" and not self.cert_manager:
            return "cert-manager is not installed"
        return ""


@dataclass(slots=True)
class Conversion:
    """A RayCluster at its target, the fields and annotations that were set, and what the owner has to know.

    ``lost``: protections that the target does not provide, with the reasons.
    """

    cluster: Object
    set: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def convert(
    cleaning: Cleaning, children: Sequence[Object], target: Target, kuberay: KubeRay
) -> Conversion:
    """Return the RayCluster of ``cleaning`` at ``target``. ``children`` are the objects of its namespace."""
    result = Conversion(copied(cleaning.cluster))
    if target is Target.RHOAI:
        _secure_network(result)
        return result
    own = [obj for obj in children if is_operators(obj, cleaning.cluster)]
    has_tls = _convert_tls(result, cleaning, kuberay)
    _convert_authentication(result, cleaning, kuberay)
    _convert_policy(result, own, kuberay, has_tls=has_tls)
    _convert_ingress(result, own, kuberay)
    return result


def _annotate(result: Conversion, name: str, value: str) -> None:
    result.cluster["metadata"]["annotations"] = {**annotations_of(result.cluster), name: value}
    result.set.append(f"annotation {name}")


def _secure_network(result: Conversion) -> None:
    if annotations_of(result.cluster).get(SECURE_TRUSTED_NETWORK) != "true":
        _annotate(result, SECURE_TRUSTED_NETWORK, "true")
    head = result.cluster["spec"].get("headGroupSpec") or {}
    if head.get("enableIngress"):  # Open Data Hub exposes RayClusters only through its gateway
        head["enableIngress"] = False
        result.set.append("enableIngress: false")


def _convert_tls(result: Conversion, cleaning: Cleaning, kuberay: KubeRay) -> bool:
    """Enable KubeRay's TLS if mTLS was injected; return whether the RayCluster has TLS afterwards."""
    spec = result.cluster["spec"]
    missing = kuberay.missing_for("tlsOptions")
    if MTLS.name not in cleaning.features:
        return not missing and uses_kuberay_tls(result.cluster)
    if missing:
        result.lost.append(f"mutual TLS, because {missing}")
        return False
    if not uses_kuberay_tls(result.cluster):
        spec["tlsOptions"] = {**(spec.get("tlsOptions") or {}), "enabled": True}
        result.set.append("tlsOptions")
    return True


def _convert_authentication(result: Conversion, cleaning: Cleaning, kuberay: KubeRay) -> None:
    spec = result.cluster["spec"]
    if OAUTH.name not in cleaning.features or spec.get("authOptions") is not None:
        return
    found = _VERSION.match(str(spec.get("rayVersion") or ""))
    is_new = found is not None and tuple(map(int, found.groups())) >= _TOKEN_RAY_VERSION
    missing = kuberay.missing_for("authOptions")
    if not missing and not is_new:
        missing = "rayVersion is not 2.52 or newer"
    if missing:
        result.notes.append(f"no token authentication, because {missing}")
        return
    spec["authOptions"] = {"mode": "token"}
    result.set.append("authOptions")


def _convert_policy(
    result: Conversion, own: Iterable[Object], kuberay: KubeRay, *, has_tls: bool
) -> None:
    cluster = result.cluster
    spec = cluster["spec"]
    names = names_of(cluster)
    policies = {name_of(obj): obj for obj in own if gvk_of(obj) == NETWORK_POLICY}
    if not policies or spec.get("networkPolicy") is not None:
        return
    missing = kuberay.missing_for("networkPolicy")
    groups = [str(group.get("groupName")) for group in spec.get("workerGroupSpecs") or ()]
    if not missing and not all(map(is_dns_label, groups)):
        missing = "a worker group's name is not a DNS label, which KubeRay requires"
    if missing:
        result.notes.append(f"no network policy of KubeRay, because {missing}")
        return
    head = policies.get(names.head_policy)
    spec["networkPolicy"] = kuberay_network_policy(
        cluster, head, policies.get(names.workers_policy), has_tls=has_tls
    )
    result.set.append("networkPolicy")
    if not has_tls and other_open_ports(head):
        ports = ", ".join(map(str, other_open_ports(head)))
        result.notes.append(
            f"ports {ports} are not open to everyone any more: open them in spec.networkPolicy"
        )


def _convert_ingress(result: Conversion, own: Iterable[Object], kuberay: KubeRay) -> None:
    """Let KubeRay create an Ingress like the dashboard's; nothing else that exposes a RayCluster has a counterpart."""
    names = names_of(result.cluster)
    exposing = {(obj["kind"], name_of(obj)): obj for obj in own}
    if any(name == names.client for _, name in exposing):
        result.notes.append(
            "the Ray client is not exposed any more, because KubeRay does not expose it"
        )
    dashboard = exposing.get((INGRESS.kind, names.dashboard))
    head = result.cluster["spec"]["headGroupSpec"]
    if dashboard is None and any(name == names.dashboard for _, name in exposing):
        result.notes.append(
            "the dashboard is not exposed any more, because KubeRay does not protect it with a login"
        )
    if dashboard is None or head.get("enableIngress"):
        return
    missing = kuberay.missing_for("headGroupSpec.ingressOptions")
    if missing:
        result.notes.append(f"the dashboard is not exposed any more, because {missing}")
        return
    spec: Mapping[str, Any] = dashboard.get("spec") or {}
    host = next((rule.get("host") for rule in spec.get("rules") or ()), None)
    options = {"host": host, "path": "/", "pathType": "Prefix", "tls": spec.get("tls")}
    head["enableIngress"] = True
    head["ingressOptions"] = {key: value for key, value in options.items() if value}
    result.set.append("ingressOptions")
    class_name = spec.get("ingressClassName")
    if class_name and _INGRESS_CLASS_ANNOTATION not in annotations_of(result.cluster):
        _annotate(result, _INGRESS_CLASS_ANNOTATION, class_name)


def kuberay_network_policy(
    cluster: Object, head: Object | None, workers: Object | None, *, has_tls: bool
) -> dict[str, Any]:
    """Return ``networkPolicy`` for a RayCluster with these policies; ``has_tls``: Ray will verify certificates.

    KubeRay itself admits all traffic within the RayCluster. Its mode applies to the head and to the workers: if only
    one of them restricts egress, all egress of the other one is allowed.
    """
    parts = {"head": head, "worker": workers}
    restricts_egress = any(_restricts_egress(policy) for policy in parts.values())
    result: dict[str, Any] = {"mode": "DenyAll" if restricts_egress else "DenyAllIngress"}
    for name, policy in parts.items():
        rules: dict[str, list[Object]] = {}
        ingress = [
            rule
            for rule in _protected_rules(policy, has_tls=has_tls)
            if rule.get("from") != _inside(cluster)
        ]
        if ingress:
            rules["ingressRules"] = ingress
        if restricts_egress:
            egress: list[Object] = [{}]
            if _restricts_egress(policy):
                egress = list(_spec_of(policy).get("egress") or ())
            rules["egressRules"] = [rule for rule in egress if rule.get("to") != _inside(cluster)]
        if rules:
            result[name] = rules
    return result


def closed_policy(policy: Object) -> Object:
    """Return the head's policy for a RayCluster without proxy and TLS of the operator: it admits only known clients."""
    return {
        **policy,
        "spec": {**policy["spec"], "ingress": list(_protected_rules(policy, has_tls=False))},
    }


def other_open_ports(policy: Object | None) -> list[int | str]:
    """Return the ports that ``policy`` opens to everyone, apart from the default ports of the proxy and the client."""
    return [
        port["port"]
        for rule in _spec_of(policy).get("ingress") or ()
        if not rule.get("from")
        for port in rule.get("ports") or ()
        if port.get("port") not in (PROXY_PORT, CLIENT_PORT, None)
    ]


def _protected_rules(policy: Object | None, *, has_tls: bool) -> Iterator[Object]:
    """Yield the ingress rules without the port of the proxy and, unless TLS protects them, without open ports."""
    for rule in _spec_of(policy).get("ingress") or ():
        if rule.get("from"):
            yield rule
            continue
        ports = [port for port in rule.get("ports") or () if port.get("port") != PROXY_PORT]
        if has_tls and ports:
            yield {**rule, "ports": ports}


def _inside(cluster: Object) -> list[Object]:
    return [{"podSelector": {"matchLabels": pod_labels(cluster)}}]


def _restricts_egress(policy: Object | None) -> bool:
    return "Egress" in (_spec_of(policy).get("policyTypes") or ())


def _spec_of(policy: Object | None) -> Mapping[str, Any]:
    return (policy or {}).get("spec") or {}
