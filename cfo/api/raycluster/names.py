"""The kinds that the RayCluster controllers read and write, and the names of the objects that belong to a RayCluster.

Clients find these objects by name (CodeFlare SDK looks for ``ray-dashboard-<cluster>`` and ``<cluster>-ca-secret-``),
pod templates refer to them, and a cluster that the Go operator created keeps its objects. Therefore every name equals
the Go operator's name. There are two generations: a cluster with the annotation :data:`VERSION_ANNOTATION` (any value,
even an empty one) has names that end in a hash of the preceding characters; a cluster without it has the older, plain
names.

Only names that the API server would reject are changed: see :func:`fit` and :func:`service_name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import msgspec

from cfo.api.reading import path
from cfo.runtime import GVK, Rule, annotations_of, name_of, namespace_of
from cfo.runtime.objects import is_dns_label, is_host_name

RAY_CLUSTER = GVK("ray.io", "v1", "RayCluster")
ROUTE = GVK("route.openshift.io", "v1", "Route")
INGRESS_CLASS = GVK("networking.k8s.io", "v1", "IngressClass")
DEFAULT_CLASS_ANNOTATION: Final = "ingressclass.kubernetes.io/is-default-class"
"""The annotation of the IngressClass of Ingresses that name none."""
INGRESS_CONFIG = GVK("config.openshift.io", "v1", "Ingress")
"""OpenShift's cluster-wide ingress settings, a single object named ``cluster``."""
AUTHENTICATION_CONFIG = GVK("config.openshift.io", "v1", "Authentication")
"""How OpenShift logs users in, a single object named ``cluster``."""
DSC_INITIALIZATION = GVK("dscinitialization.opendatahub.io", "v1", "DSCInitialization")
"""Open Data Hub's installation settings; the operator reads the one named ``default-dsci``."""

FIELD_MANAGER = "codeflare-raycluster-controller"
FINALIZER = "ray.openshift.ai/oauth-finalizer"
"""Keeps a RayCluster until its ClusterRoleBindings are deleted."""
FINALIZER_MANAGER = "codeflare-operator"
"""The field manager of the finalizer; it and the finalizer are the same as the Go operator's."""
VERSION_ANNOTATION = "ray.openshift.ai/version"
CLUSTER_LABEL = "ray.openshift.ai/cluster-name"
NAMESPACE_LABEL = "ray.openshift.ai/cluster-namespace"

CREATED_BY_LABEL: Final = "app.kubernetes.io/created-by"
KUBERAY: Final = "kuberay-operator"
"""The value of :data:`CREATED_BY_LABEL` of the objects that KubeRay creates."""

COOKIE_KEY: Final = "cookie_secret"
"""The key in the cookie Secret that the injected proxy reads."""
SETTINGS_KEY: Final = "rbac-proxy.json"
"""The key of kube-rbac-proxy's settings in the same Secret."""

DEFAULT_DENY_NAME: Final = "ray-default-deny"
DEFAULT_DENY_LABEL: Final = "ray.openshift.ai/default-deny"
"""The label of the NetworkPolicies for whole namespaces that the operator creates."""

REQUESTER_ROLE: Final = "codeflare-operator-certificate-requester-role"
"""The ClusterRole of pods that request certificates; the manifests contain it."""

REQUESTER_RULES: Final = (
    Rule("certificates.k8s.io", "certificatesigningrequests", ("create", "get")),
)
"""The rules of the role. Names of requests are random, and requests contain no secrets; listing is not allowed."""

REQUESTERS_LABEL: Final = "ray.openshift.ai/certificate-requesters"
"""The label of the bindings of this role; its value is the namespace."""

HEAD_SERVICE_NAME: Final = ("spec", "headGroupSpec", "headService", "metadata", "name")
"""The path of the name that a user can set for the head's Service."""
HEAD_SERVICE_NAME_RULE: Final = (
    "must be at most 63 lower-case letters, digits and '-', with a letter or digit at both ends, because it is the "
    "name of a Service"
)

_REPORTED_NAME: Final = ("status", "head", "serviceName")

_DNS_1035_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KUBERAY_NAME_LIMIT: Final = 53
"""KubeRay's ``MaxRayClusterNameLength``. Its ``ValidateRayClusterMetadata`` also requires a DNS-1035 label."""

_T = TypeVar("_T")

_LABEL_LIMIT = 63
_SUBDOMAIN_LIMIT = 253
_KUBERAY_LIMIT = 50


DASHBOARD_LIMIT: Final = _LABEL_LIMIT - len("ray-dashboard--")
"""How many characters the names of RayCluster and namespace can have together in the host of a dashboard."""
CLIENT_LIMIT: Final = _LABEL_LIMIT - len("rayclient--")
"""The same for the host of a Ray client."""

HASH_DIGITS: Final = 8
"""The length of a hash that makes a name unique."""

SECRET_DIGITS: Final = 16
"""The length of a hash that no one can guess: more values than hosts fit into any cluster."""


def ignored_name(name: str) -> str:
    """Return what is wrong with a name whose RayCluster KubeRay 1.3 and later ignore; empty if they accept it."""
    if len(name) > _KUBERAY_NAME_LIMIT:
        return f"longer than {_KUBERAY_NAME_LIMIT} characters"
    if name and not _DNS_1035_LABEL.fullmatch(name):
        return "is not a DNS-1035 label (a letter, then letters, digits and -)"
    return ""


def name_warnings(name: str, namespace: str, host_limit: int = 0) -> Iterator[str]:
    """Yield the warnings about the name of a new RayCluster, which cannot be changed later.

    ``host_limit`` is :data:`DASHBOARD_LIMIT` or :data:`CLIENT_LIMIT`; 0 if the RayCluster gets no hosts.
    """
    ignored = ignored_name(name)
    length = len(name) + len(namespace)
    if ignored:
        yield f"metadata.name: {ignored}; KubeRay 1.3 and later ignore RayClusters with such names"
    elif host_limit and length > host_limit:
        yield (
            f"metadata.name: {name}: the names of RayCluster and namespace have {length} characters "
            f"together; with more than {host_limit}, DNS cannot resolve a host of the RayCluster (HostTooLong)"
        )


def digest(text: str, digits: int = HASH_DIGITS) -> str:
    """Return the first hexadecimal digits of a hash of ``text``, for use in names."""
    return sha256(f"{FIELD_MANAGER}{text}".encode()).hexdigest()[:digits]


def fit(name: str, limit: int = _SUBDOMAIN_LIMIT) -> str:
    """Return ``name`` or, if it is longer than ``limit`` characters, truncate it and append its hash."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{digest(name)}"


def label_value(name: str) -> str:
    """Return ``name`` as a label value, which has at most 63 characters."""
    return fit(name, _LABEL_LIMIT)


def may_be_truncated(label: str) -> bool:
    """Return whether :func:`label_value` may have returned ``label`` for a longer name."""
    return len(label) > _LABEL_LIMIT - 9 and label[-9] == "-"


def service_name(name: str) -> str:
    """Return ``name`` as the name of a Service, which is a DNS label: at most 63 characters and no dots."""
    if "." not in name and len(name) <= _LABEL_LIMIT:
        return name
    return f"{name.replace('.', '-')[: _LABEL_LIMIT - 9].rstrip('-')}-{digest(name)}"


class Derived(Generic[_T]):
    """An attribute that is derived when it is first read.

    Unlike :class:`functools.cached_property` of Python 3.11, without a lock that all instances share: the event loop
    must not wait until a thread has derived something from a large object.
    """

    def __init__(self, derive: Callable[[Any], _T]) -> None:
        self._derive = derive

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> _T:
        value = self._derive(instance)
        instance.__dict__[self._name] = value
        return value


def _derived(suffix: str, fitted: Callable[[str], str] = fit, old_prefix: str = "") -> Derived[str]:
    """Return an attribute: a name that ends in ``suffix``, or an old name that begins with ``old_prefix``, if given."""

    def name(names: ClusterNames) -> str:
        base = f"{names.cluster}{suffix.format(namespace=names.namespace)}"
        if names.is_versioned:
            return fitted(f"{base}-{digest(base)}")
        if old_prefix:
            return fitted(f"{old_prefix}{names.cluster}")
        return fitted(base)

    return Derived(name)


def _hashed_cluster_role_binding(names: ClusterNames) -> str:
    suffix = digest(f"{names.namespace}/{names.cluster}")
    return fit(f"{names.cluster_role_binding}-{suffix}")


class ClusterNames(msgspec.Struct, frozen=True, dict=True):
    """The names of all objects that belong to one RayCluster, each derived when it is first read.

    ``is_versioned`` is whether they are of the generation that ends in hashes.
    """

    cluster: str
    namespace: str
    is_versioned: bool

    ca_secret = _derived("-ca-secret", old_prefix="ca-secret-")
    cookie_secret = _derived("-oauth-config")
    proxy_service = _derived("-oauth", service_name)
    proxy_service_account = _derived("-oauth-proxy")
    proxy_tls_secret = _derived("-proxy-tls-secret")
    cluster_role_binding = _derived("-{namespace}-auth")
    hashed_cluster_role_binding = Derived(_hashed_cluster_role_binding)
    """The name of the ClusterRoleBinding if another RayCluster has the usual one."""
    head_policy = _derived("-head")
    workers_policy = _derived("-workers")
    dashboard = Derived(lambda names: fit(f"ray-dashboard-{names.cluster}"))
    """The name of the dashboard's Route, Ingress, HTTPRoute or BackendTLSPolicy."""
    client = Derived(lambda names: fit(f"rayclient-{names.cluster}"))
    """The name of the Ray client's Route, Ingress or TLSRoute."""


def names_of(cluster: Mapping[str, Any]) -> ClusterNames:
    """Return the names for ``cluster``, of the generation that its version annotation indicates."""
    return ClusterNames(
        name_of(cluster), namespace_of(cluster), VERSION_ANNOTATION in annotations_of(cluster)
    )


def head_service_name(cluster: Mapping[str, Any]) -> str:
    """Return the name of the head's Service: reported by KubeRay, else set by the user, else KubeRay's default.

    A name that no Service can have is left out: KubeRay accepts any, and then fails to create the Service.
    """
    for name in (path(cluster, *_REPORTED_NAME), path(cluster, *HEAD_SERVICE_NAME)):
        if name and _is_service_name(name):
            return str(name)
    return service_name(_kuberay_name(f"{name_of(cluster)}-head-svc"))


def invalid_head_service_name(cluster: Mapping[str, Any]) -> Any:
    """Return the name that the user set for the head's Service if no Service can have it; otherwise ``None``."""
    name = path(cluster, *HEAD_SERVICE_NAME)
    if not name or _is_service_name(name):
        return None
    return name


def _is_service_name(name: object) -> bool:
    """Return whether a Service can have this name: in API servers with RelaxedServiceNameValidation any DNS label."""
    return isinstance(name, str) and is_dns_label(name)


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
    first = f"{prefix}-{name_of(cluster)}-{namespace_of(cluster)}"
    if suffix:
        first += f"-{suffix}"
    return f"{fit(first, _SUBDOMAIN_LIMIT - len(domain) - 1)}.{domain}"


def head_service_host(cluster: Mapping[str, Any]) -> str:
    """Return the name of the head's Service with namespace, by which clients in the Kubernetes cluster verify it."""
    return f"{head_service_name(cluster)}.{namespace_of(cluster)}.svc"


def head_host_names(cluster: Mapping[str, Any], domain: str) -> list[str]:
    """Return the host names of the head of ``cluster``: the client's host in ``domain``, unless empty, and its Service.

    Strings that are not host names are left out, because the names become part of a shell command, and because clients
    could not reach the head through them.
    """
    names = []
    if domain:
        names.append(client_host(cluster, domain))
    names.append(head_service_host(cluster))
    return [name for name in names if is_host_name(name)]


def all_head_host_names(cluster: Mapping[str, Any], domain: str) -> list[str]:
    """Return :func:`head_host_names`, and the shorter and longer names of the head's Service.

    Workers get the longest one from KubeRay (``FQ_RAY_IP``); its suffix is Kubernetes' default cluster domain.
    """
    service = head_service_name(cluster)
    others = (
        service,
        f"{service}.{namespace_of(cluster)}",
        f"{head_service_host(cluster)}.cluster.local",
    )
    names = head_host_names(cluster, domain)
    names += (name for name in others if is_host_name(name))
    return names
