"""Converts the operator's NetworkPolicies to KubeRay's ``networkPolicy``, and closes ports that nothing protects.

The operator opens the port of its proxy to everyone and, if Ray verifies client certificates, the port of the client.
Without the proxy and without TLS, both would give everyone access to Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.raycluster.cluster import pod_labels
from cfo.runtime import Object

_PROXY_PORT: Final = 8443
_CLIENT_PORT: Final = 10001


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
        ingress = [rule for rule in _protected_rules(policy, has_tls=has_tls) if rule.get("from") != _inside(cluster)]
        if ingress:
            rules["ingressRules"] = ingress
        if restricts_egress:
            egress: list[Object] = list(_spec_of(policy).get("egress") or ()) if _restricts_egress(policy) else [{}]
            rules["egressRules"] = [rule for rule in egress if rule.get("to") != _inside(cluster)]
        if rules:
            result[name] = rules
    return result


def closed_policy(policy: Object) -> Object:
    """Return the head's policy for a RayCluster without proxy and TLS of the operator: it admits only known clients."""
    return {**policy, "spec": {**policy["spec"], "ingress": list(_protected_rules(policy, has_tls=False))}}


def other_open_ports(policy: Object | None) -> list[int | str]:
    """Return the ports that ``policy`` opens to everyone, apart from the default ports of the proxy and the client."""
    return [
        port["port"]
        for rule in _spec_of(policy).get("ingress") or ()
        if not rule.get("from")
        for port in rule.get("ports") or ()
        if port.get("port") not in (_PROXY_PORT, _CLIENT_PORT, None)
    ]


def _protected_rules(policy: Object | None, *, has_tls: bool) -> Iterator[Object]:
    """Yield the ingress rules without the port of the proxy and, unless TLS protects them, without open ports."""
    for rule in _spec_of(policy).get("ingress") or ():
        if rule.get("from"):
            yield rule
            continue
        ports = [port for port in rule.get("ports") or () if port.get("port") != _PROXY_PORT]
        if has_tls and ports:
            yield {**rule, "ports": ports}


def _inside(cluster: Object) -> list[Object]:
    return [{"podSelector": {"matchLabels": pod_labels(cluster)}}]


def _restricts_egress(policy: Object | None) -> bool:
    return "Egress" in (_spec_of(policy).get("policyTypes") or ())


def _spec_of(policy: Object | None) -> Mapping[str, Any]:
    return (policy or {}).get("spec") or {}
