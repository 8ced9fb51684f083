"""What an administrator applies to each namespace of tenants: limits of objects, and isolation from other namespaces.

The aggregated role ``edit`` does not allow tenants to change ResourceQuotas, LimitRanges and Namespaces. It allows them
to change NetworkPolicies, so these protect a tenant only from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cfo.api.quantity import format_quantity
from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL
from cfo.manifests import host_policy, job_pod_policy
from cfo.manifests.names import PREFIX, named
from cfo.runtime import Object
from cfo.runtime.objects import parse_quantity

_PODS: Final = "pods"
_PODS_WITH_ENDED: Final = "count/pods"

_COMPUTE: Final = {
    "requests.cpu": "64",
    "requests.memory": "256Gi",
    "requests.nvidia.com/gpu": "8",
    "requests.storage": "1Ti",
}

_COUNTS: Final = {
    _PODS: "200",
    _PODS_WITH_ENDED: "400",  # with those that have ended, which "pods" and "requests" do not count
    "persistentvolumeclaims": "50",
    "services.loadbalancers": "0",
    "services.nodeports": "0",
    "count/configmaps": "200",
    "count/secrets": "200",
    "count/serviceaccounts": "100",
    "count/services": "100",
    "count/deployments.apps": "100",
    "count/statefulsets.apps": "50",
    "count/jobs.batch": "100",
    "count/horizontalpodautoscalers.autoscaling": "50",
    "count/poddisruptionbudgets.policy": "50",
    "count/ingresses.networking.k8s.io": "50",
    "count/networkpolicies.networking.k8s.io": "100",
    "count/leases.coordination.k8s.io": "50",
    "count/appwrappers.workload.codeflare.dev": "100",
    "count/rayclusters.ray.io": "20",
    "count/rayjobs.ray.io": "20",
    "count/rayservices.ray.io": "20",
    "count/localqueues.kueue.x-k8s.io": "20",
    "count/fluxsetups.flux-framework.org": "5",
    "count/fluxjobs.flux-framework.org": "200",
    "count/miniclusters.flux-framework.org": "50",
    "count/inferencestacks.doublewordai.co": "10",
    "count/inferencestacks.models.takeoff.co": "10",
    "count/httproutes.gateway.networking.k8s.io": "50",
    "count/tlsroutes.gateway.networking.k8s.io": "50",
    "count/backendtlspolicies.gateway.networking.k8s.io": "50",
    "count/routes.route.openshift.io": "50",
    "count/scaledobjects.keda.sh": "50",
    "count/servicemonitors.monitoring.coreos.com": "50",
    "count/workloads.kueue.x-k8s.io": "400",
    "count/jobsets.jobset.x-k8s.io": "50",
    "count/leaderworkersets.leaderworkerset.x-k8s.io": "50",
    "count/mpijobs.kubeflow.org": "50",
    "count/pytorchjobs.kubeflow.org": "50",
    "count/trainjobs.trainer.kubeflow.org": "50",
    "count/podgroups.scheduling.sigs.k8s.io": "100",
    "count/podgroups.scheduling.x-k8s.io": "100",
}
"""Every kind in a namespace that the operator caches or creates for tenants; a RayCluster needs some five of each."""

NAMESPACE_LABELS: Final = {
    "pod-security.kubernetes.io/enforce": "baseline",
    job_pod_policy.TENANT_LABEL: "true",
}
"""The labels of a Namespace: its pods can neither be privileged, nor use files of nodes, nor imitate pods of Jobs."""


_QUOTA_PREFIXES: Final = ("requests.", "limits.", "count/")
_MAX_QUOTA_NAME: Final = 316


def is_quota_name(name: str) -> bool:
    """Return whether a ResourceQuota can limit ``name``: one of ours, or of a resource that the cluster may have."""
    if len(name) > _MAX_QUOTA_NAME or not name.isascii() or not name.isprintable():
        return False
    if name in _COMPUTE or name in _COUNTS:
        return True
    return any(name.startswith(prefix) and name != prefix for prefix in _QUOTA_PREFIXES)


def quota(namespace: str = "", adapted: Mapping[str, str] | None = None) -> Object:
    """Return the ResourceQuota, with other numbers for what is ``adapted``.

    More pods leave more that have ended, so a higher number of ``pods`` raises ``count/pods`` in proportion, unless
    that is adapted as well. Without ``namespace``, kubectl's option decides where it is applied.
    """
    hard = {**_COMPUTE, **_COUNTS, **(adapted or {})}
    if adapted and _PODS in adapted and _PODS_WITH_ENDED not in adapted:
        hard[_PODS_WITH_ENDED] = _number_with_ended(adapted[_PODS])
    return _guardrail("v1", "ResourceQuota", "quota", namespace, hard=hard)


def _number_with_ended(pods: str) -> str:
    """Return the number of pods, with those that have ended, for ``pods`` at a time: at least the default."""
    default = parse_quantity(_COUNTS[_PODS_WITH_ENDED])
    ratio = default / parse_quantity(_COUNTS[_PODS])
    return format_quantity(max(default, parse_quantity(pods) * ratio))


def limit_range(namespace: str = "") -> Object:
    """Return the LimitRange: with the quota, pods without requests would be refused.

    The requests are 0, because queues count a pod as it was before the API server has added them.
    """
    limits = {"type": "Container", "defaultRequest": {"cpu": "0", "memory": "0"}}
    return _guardrail("v1", "LimitRange", "requests", namespace, limits=[limits])


def network_policies(namespace: str = "") -> list[Object]:
    """Return NetworkPolicies that deny what other namespaces send, except where another policy allows it.

    Policies add up, so pods of RayClusters are not opened to their namespace: those of the operator decide.
    """
    everyone: dict[str, Any] = {}
    not_ray = {"matchExpressions": [{"key": POD_CLUSTER_LABEL, "operator": "DoesNotExist"}]}
    deny = {"podSelector": everyone, "policyTypes": ["Ingress"]}
    allow = {
        "podSelector": not_ray,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": everyone}]}],
    }
    api = "networking.k8s.io/v1"
    return [
        _guardrail(api, "NetworkPolicy", "default-deny", namespace, **deny),
        _guardrail(api, "NetworkPolicy", "same-namespace", namespace, **allow),
    ]


def namespaced(namespace: str = "", adapted: Mapping[str, str] | None = None) -> list[Object]:
    """Return the objects in a namespace of tenants; ``adapted``: the other numbers of the quota."""
    return [quota(namespace, adapted), limit_range(namespace), *network_policies(namespace)]


def render(namespaces: Iterable[str], adapted: Mapping[str, str] | None = None) -> list[Object]:
    """Return everything for ``namespaces``: each Namespace with its labels, its objects, and the policies.

    The policies are for the whole cluster. ``adapted``: the other numbers of the quotas.
    """
    objects: list[Object] = []
    for namespace in namespaces:
        labelled = named("v1", "Namespace", namespace)
        labelled["metadata"]["labels"] = dict(NAMESPACE_LABELS)
        objects += [labelled, *namespaced(namespace, adapted)]
    return [*objects, *job_pod_policy.policies(), *host_policy.policy()]


def _guardrail(api_version: str, kind: str, name: str, namespace: str, **spec: Any) -> Object:
    return named(api_version, kind, f"{PREFIX}-tenant-{name}", namespace, spec=spec)
