"""Names of the objects that belong to a RayCluster.

Clients find these objects by name (CodeFlare SDK looks for ``ray-dashboard-<cluster>`` and ``<cluster>-ca-secret-``),
pod templates refer to them, and a cluster that the Go operator created keeps its objects. Therefore every name equals
the Go operator's name. There are two generations: a cluster with the annotation :data:`VERSION_ANNOTATION` (any value,
even an empty one) has names that end in a hash of the preceding characters; a cluster without it has the older, plain
names.

Only names that the API server would reject are changed: see :func:`fit` and :func:`service_name`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from cfo.runtime import Rule, annotations_of, name_of, namespace_of

__all__ = [
    "CLUSTER_LABEL",
    "DEFAULT_DENY_LABEL",
    "DEFAULT_DENY_NAME",
    "FIELD_MANAGER",
    "FINALIZER",
    "FINALIZER_MANAGER",
    "NAMESPACE_LABEL",
    "REQUESTERS_LABEL",
    "REQUESTER_ROLE",
    "REQUESTER_RULES",
    "VERSION_ANNOTATION",
    "Names",
    "client_host",
    "dashboard_host",
    "digest",
    "fit",
    "head_service_name",
    "label_value",
    "names_of",
    "service_name",
]

FIELD_MANAGER = "codeflare-raycluster-controller"
VERSION_ANNOTATION = "ray.openshift.ai/version"
CLUSTER_LABEL = "ray.openshift.ai/cluster-name"
NAMESPACE_LABEL = "ray.openshift.ai/cluster-namespace"

FINALIZER: Final = "ray.openshift.ai/oauth-finalizer"
"""Keeps a RayCluster until its ClusterRoleBindings are deleted; name and field manager equal the Go operator's."""
FINALIZER_MANAGER: Final = "codeflare-operator"

DEFAULT_DENY_NAME: Final = "ray-default-deny"
DEFAULT_DENY_LABEL: Final = "ray.openshift.ai/default-deny"
"""The label of the NetworkPolicies for whole namespaces that the operator creates."""

REQUESTER_ROLE: Final = "codeflare-operator-certificate-requester-role"
"""The ClusterRole of pods that request certificates; the manifests contain it."""

REQUESTER_RULES: Final = (Rule("certificates.k8s.io", "certificatesigningrequests", ("create", "get")),)
"""The rules of the role. Names of requests are random, and requests contain no secrets; listing is not allowed."""

REQUESTERS_LABEL: Final = "ray.openshift.ai/certificate-requesters"
"""The label of the bindings of this role; its value is the namespace."""

_LABEL_LIMIT = 63
_SUBDOMAIN_LIMIT = 253
_KUBERAY_LIMIT = 50
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def digest(text: str) -> str:
    """Return the first eight hexadecimal digits of a hash of ``text``, for use in names."""
    return sha256(f"{FIELD_MANAGER}{text}".encode()).hexdigest()[:8]


def fit(name: str, limit: int = _SUBDOMAIN_LIMIT) -> str:
    """Return ``name`` or, if it is longer than ``limit`` characters, truncate it and append its hash."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{digest(name)}"


def label_value(name: str) -> str:
    """Return ``name`` as a label value, which has at most 63 characters."""
    return fit(name, _LABEL_LIMIT)


def service_name(name: str) -> str:
    """Return ``name`` as the name of a Service, which is a DNS label: at most 63 characters and no dots."""
    if _DNS_LABEL.fullmatch(name):
        return name
    return f"{name.replace('.', '-')[: _LABEL_LIMIT - 9].rstrip('-')}-{digest(name)}"


@dataclass(frozen=True, slots=True)
class Names:
    """The names of all objects that belong to one RayCluster."""

    ca_secret: str
    cookie_secret: str
    proxy_service: str
    proxy_service_account: str
    proxy_tls_secret: str
    cluster_role_binding: str
    head_policy: str
    workers_policy: str
    dashboard: str
    """The name of the dashboard's Route or Ingress."""
    client: str
    """The name of the Ray client's Route or Ingress."""


def names_of(cluster: Mapping[str, Any]) -> Names:
    """Return the names for ``cluster``, of the generation that its version annotation indicates."""
    name, namespace = name_of(cluster), namespace_of(cluster)
    versioned = VERSION_ANNOTATION in annotations_of(cluster)

    def derived(base: str) -> str:
        return f"{base}-{digest(base)}" if versioned else base

    return Names(
        ca_secret=fit(derived(f"{name}-ca-secret") if versioned else f"ca-secret-{name}"),
        cookie_secret=fit(derived(f"{name}-oauth-config")),
        proxy_service=service_name(derived(f"{name}-oauth")),
        proxy_service_account=fit(derived(f"{name}-oauth-proxy")),
        proxy_tls_secret=fit(derived(f"{name}-proxy-tls-secret")),
        cluster_role_binding=fit(derived(f"{name}-{namespace}-auth")),
        head_policy=fit(derived(f"{name}-head")),
        workers_policy=fit(derived(f"{name}-workers")),
        dashboard=fit(f"ray-dashboard-{name}"),
        client=fit(f"rayclient-{name}"),
    )


def head_service_name(cluster: Mapping[str, Any]) -> str:
    """Return the name of the head's Service: reported by KubeRay, else set by the user, else KubeRay's default."""
    status = cluster.get("status") or {}
    reported = (status.get("head") or {}).get("serviceName")
    if reported:
        return str(reported)
    head = (cluster.get("spec") or {}).get("headGroupSpec") or {}
    named = ((head.get("headService") or {}).get("metadata") or {}).get("name")
    return str(named) if named else service_name(_kuberay_name(f"{name_of(cluster)}-head-svc"))


def _kuberay_name(name: str) -> str:
    """Truncate ``name`` like KubeRay's ``CheckName``: keep its end, and make the result begin with a letter."""
    if len(name) <= _KUBERAY_LIMIT:
        return name
    end = name[-_KUBERAY_LIMIT:]
    return end if end[0].isalpha() else f"r{end[1:]}"


def dashboard_host(cluster: Mapping[str, Any], domain: str, suffix: str = "") -> str:
    """Return the host of the dashboard below ``domain``; ``suffix`` distinguishes clusters with the same host."""
    return _host("ray-dashboard", cluster, domain, suffix)


def client_host(cluster: Mapping[str, Any], domain: str, suffix: str = "") -> str:
    """Return the host of the Ray client below ``domain``; ``suffix`` distinguishes clusters with the same host."""
    return _host("rayclient", cluster, domain, suffix)


def _host(prefix: str, cluster: Mapping[str, Any], domain: str, suffix: str) -> str:
    first = f"{prefix}-{name_of(cluster)}-{namespace_of(cluster)}" + (f"-{suffix}" if suffix else "")
    return f"{fit(first, _SUBDOMAIN_LIMIT - len(domain) - 1)}.{domain}"
