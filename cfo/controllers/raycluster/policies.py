"""The desired NetworkPolicies of RayClusters: pure functions of a cluster and the configuration.

A rule without ports, or without peers, would allow all of them; :func:`_rule` therefore leaves out a rule of which
nothing remains. Ports are open to all sources only if what listens there authenticates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL, child_object, pod_labels
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import DEFAULT_DENY_LABEL, DEFAULT_DENY_NAME
from cfo.api.raycluster.ports import RayPorts
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.network import EgressConfiguration
from cfo.runtime import NETWORK_POLICY, Object
from cfo.runtime.objects import new_object

_KUBERAY_LABELS: Final = {"app.kubernetes.io/component": "kuberay-operator"}
_JOB_LABEL: Final = "batch.kubernetes.io/job-name"
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_DNS_PORTS: Final = (53, 5353)
"""The port of DNS, and of OpenShift's DNS pods: policies apply to the ports that pods use, not Services."""


def policy_types(config: KubeRayConfiguration) -> list[str]:
    """Return the directions that the policies restrict."""
    return ["Ingress", "Egress"] if config.network_policy.egress.restrict else ["Ingress"]


def desired_head_policy(
    facts: RayClusterFacts,
    config: KubeRayConfiguration,
    operator_namespaces: Sequence[str],
    *,
    behind_proxy: bool = False,
    requires_token: bool = False,
    direct_ingress: bool = True,
) -> Object:
    """Return the policy of the head.

    It admits the cluster itself, its namespace, KubeRay, monitoring and, on ports that require authentication, any
    client. ``operator_namespaces`` are the namespaces of the KubeRay operator. With ``behind_proxy``, only KubeRay, the
    pods of Jobs (which submit RayJobs) and the cluster itself reach the dashboard without the proxy.
    ``requires_token`` is whether the dashboard requires Ray's token. ``direct_ingress`` is whether ingress controllers
    connect to the dashboard itself, and not to a proxy: anyone in the namespace can create an Ingress for it.
    """
    ports = facts.ports
    kuberay = {**_namespaces(operator_namespaces), "podSelector": {"matchLabels": _KUBERAY_LABELS}}
    jobs = {"podSelector": {"matchExpressions": [{"key": _JOB_LABEL, "operator": "Exists"}]}}
    direct = None if behind_proxy else ports.dashboard
    rules = _own_cluster("from", facts)
    rules += _rule("from", [{"podSelector": {}}], _tcp(ports.client, direct, *ports.serve))
    if behind_proxy:
        rules += _rule("from", [jobs], _tcp(ports.dashboard))
    # KubeRay probes Serve's port of a RayService's head before it sends requests to the head
    rules += _rule("from", [kuberay], _tcp(ports.dashboard, ports.client, *ports.serve))
    rules += _rule("from", [_namespaces(["openshift-monitoring"])], _tcp(ports.metrics))
    if config.ingress.namespaces:
        peers = [_namespaces(config.ingress.namespaces)]
        dashboard = direct if direct_ingress else None
        rules += _rule("from", peers, _tcp(dashboard, ports.client, *ports.serve))
    rules += _serve_consumers(ports, config.network_policy.serve_namespaces)
    open_ports = _tcp(ports.proxy)
    if ports.client_is_started and requires_certificates(facts, config):
        open_ports += _tcp(ports.client)
    if ports.dashboard_is_started and requires_token:
        open_ports += _tcp(ports.dashboard)
    if open_ports:
        rules.append({"ports": open_ports})
    return _policy(facts, facts.names.head_policy, "head", rules, config)


def requires_certificates(facts: RayClusterFacts, config: KubeRayConfiguration) -> bool:
    """Return whether Ray accepts only clients with our certificates.

    Enabling mTLS changes no existing pod template, and whether KubeRay acts on ``tlsOptions`` is unknown. If another
    actor provides mTLS, parts that look like ours are the user's.
    """
    is_ours = facts.actor(Concern.MTLS, config.kuberay_features) is Actor.OPERATOR
    return config.mtls_enabled and is_ours and not facts.uses_kuberay_tls and facts.has_injected_tls


def desired_workers_policy(facts: RayClusterFacts, config: KubeRayConfiguration) -> Object:
    """Return the policy of the workers, which admits the cluster itself, and to Serve those whom the head admits.

    KubeRay's Service for Serve selects heads and workers, with the ports of the head.
    """
    ports = facts.ports
    rules = [
        *_own_cluster("from", facts),
        *_rule("from", [{"podSelector": {}}], _tcp(*ports.serve)),
        *_serve_consumers(
            ports, [*config.ingress.namespaces, *config.network_policy.serve_namespaces]
        ),
    ]
    return _policy(facts, facts.names.workers_policy, "worker", rules, config)


def desired_default_deny(namespace: str) -> Object:
    """Return the policy that admits nothing to the Ray pods in ``namespace``; those of a RayCluster add to it.

    It selects the label that KubeRay sets on the pods of all RayClusters.
    """
    selector = {"matchExpressions": [{"key": POD_CLUSTER_LABEL, "operator": "Exists"}]}
    spec = {"podSelector": selector, "policyTypes": ["Ingress"]}
    return new_object(
        NETWORK_POLICY, DEFAULT_DENY_NAME, namespace, labels={DEFAULT_DENY_LABEL: "true"}, spec=spec
    )


def _egress(facts: RayClusterFacts, config: EgressConfiguration) -> list[Object]:
    dns_ports = [
        {"protocol": protocol, "port": port} for port in _DNS_PORTS for protocol in ("UDP", "TCP")
    ]
    rules = _own_cluster("to", facts)
    if config.own_namespace:
        rules.append({"to": [{"podSelector": {}}]})
    rules += _rule("to", _destinations(config.dns_namespaces, config.dns_cidrs), dns_ports)
    api_servers = _destinations([], config.api_server_cidrs)
    rules += _rule("to", api_servers, _tcp(*config.api_server_ports))
    for each in config.destinations:
        rules += _rule("to", _destinations(each.namespaces, each.cidrs), _tcp(*each.ports))
    return rules


def _policy(
    facts: RayClusterFacts,
    name: str,
    node_type: str,
    ingress: list[Object],
    config: KubeRayConfiguration,
) -> Object:
    spec: Object = {
        "podSelector": {"matchLabels": pod_labels(facts.cluster, node_type)},
        "ingress": ingress,
        "policyTypes": policy_types(config),
    }
    egress = config.network_policy.egress
    if egress.restrict:
        spec["egress"] = _egress(facts, egress)
    return child_object(facts.cluster, NETWORK_POLICY, name, spec=spec)


def _rule(direction: str, peers: Sequence[Object], ports: Sequence[Object]) -> list[Object]:
    """Return the rule for ``peers`` on ``ports``, or no rule if one of them is empty."""
    if not peers or not ports:
        return []
    return [{direction: list(peers), "ports": list(ports)}]


def _own_cluster(direction: str, facts: RayClusterFacts) -> list[Object]:
    return [{direction: [{"podSelector": {"matchLabels": pod_labels(facts.cluster)}}]}]


def _serve_consumers(ports: RayPorts, namespaces: Sequence[str]) -> list[Object]:
    return _rule("from", _destinations(namespaces, []), _tcp(*ports.serve))


def _namespaces(names: Sequence[str]) -> dict[str, Any]:
    expression = {"key": _NAMESPACE_NAME, "operator": "In", "values": list(names)}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _destinations(namespaces: Sequence[str], cidrs: Sequence[str]) -> list[Object]:
    blocks = [{"ipBlock": {"cidr": str(cidr)}} for cidr in cidrs]
    return [_namespaces(namespaces), *blocks] if namespaces else blocks


def _tcp(*numbers: int | None) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": number} for number in numbers if number is not None]
