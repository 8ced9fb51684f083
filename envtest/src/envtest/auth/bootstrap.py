"""The roles and bindings that kube-apiserver creates at startup.

The source is ``plugin/pkg/auth/authorizer/rbac/bootstrappolicy`` of Kubernetes 1.36. ``admin``, ``edit`` and ``view``
get their rules from the ``system:aggregate-to-*`` roles and from users' roles with the same labels; this is done by the
role aggregation controller.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from envtest.apimachinery.created_fields import API_SERVER, creation_entry
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from envtest.auth.controller_roles import controller_roles
from envtest.auth.rbac import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RBAC_GROUP, ROLE_BINDINGS, ROLES
from envtest.storage.store import Store

__all__ = ["bootstrap_policy", "install_policy"]

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_ALL: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_EVENT_GROUPS: Final = ("", "events.k8s.io")
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"
_META: Final = {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}

Rule = dict[str, Any]


def _rule(
    verbs: Sequence[str] | str,
    group: str | Sequence[str],
    *resources: str,
    names: Sequence[str] = (),
) -> Rule:
    groups = [group] if isinstance(group, str) else list(group)
    rule: Rule = {"verbs": _verb_list(verbs), "apiGroups": groups, "resources": list(resources)}
    if names:
        rule["resourceNames"] = list(names)
    return rule


def _urls(verbs: Sequence[str] | str, *urls: str) -> Rule:
    return {"verbs": _verb_list(verbs), "nonResourceURLs": list(urls)}


def _verb_list(verbs: Sequence[str] | str) -> list[str]:
    return verbs.split() if isinstance(verbs, str) else list(verbs)


def _events() -> list[Rule]:
    return [_rule("create patch update", _EVENT_GROUPS, "events")]


def _view() -> list[Rule]:
    return [
        _rule(
            _READ,
            "",
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ),
        _rule(
            _READ,
            "",
            "bindings",
            "limitranges",
            "namespaces/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
        ),
        _rule(_READ, "", "namespaces"),
        _rule(_READ, _EVENT_GROUPS, "events"),
        _rule(_READ, "discovery.k8s.io", "endpointslices"),
        _rule(
            _READ,
            "apps",
            "controllerrevisions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ),
        _rule(_READ, "autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
        _rule(_READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
        _rule(
            _READ,
            "extensions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "ingresses",
            "ingresses/status",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "replicationcontrollers/scale",
        ),
        _rule(_READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
        _rule(_READ, "networking.k8s.io", "ingresses", "ingresses/status", "networkpolicies"),
        _rule(
            _READ,
            "resource.k8s.io",
            "resourceclaims",
            "resourceclaims/status",
            "resourceclaimtemplates",
        ),
    ]


def _edit() -> list[Rule]:
    into_pods = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")
    return [
        _rule(_READ, "", *into_pods, "secrets", "services/proxy"),
        _rule("impersonate", "", "serviceaccounts"),
        _rule(_WRITE, "", "pods", *into_pods),
        _rule("create", "", "pods/eviction"),
        _rule(
            _WRITE,
            "",
            "configmaps",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "secrets",
            "serviceaccounts",
            "services",
            "services/proxy",
        ),
        _rule("create", "", "serviceaccounts/token"),
        _rule(_WRITE, _EVENT_GROUPS, "events"),
        _rule(
            _WRITE,
            "apps",
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "replicasets",
            "replicasets/scale",
            "statefulsets",
            "statefulsets/scale",
        ),
        _rule(_WRITE, "autoscaling", "horizontalpodautoscalers"),
        _rule(_WRITE, "batch", "cronjobs", "jobs"),
        _rule(
            _WRITE,
            "extensions",
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "ingresses",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicationcontrollers/scale",
        ),
        _rule(_WRITE, "policy", "poddisruptionbudgets"),
        _rule(_WRITE, "networking.k8s.io", "ingresses", "networkpolicies"),
        _rule(_ALL, "coordination.k8s.io", "leases"),
        _rule(_WRITE, "resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
    ]


def _admin() -> list[Rule]:
    return [
        _rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        _rule(_ALL, RBAC_GROUP, "rolebindings", "roles"),
    ]


def _node() -> list[Rule]:
    return [
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule(
            "create", "authorization.k8s.io", "localsubjectaccessreviews", "subjectaccessreviews"
        ),
        _rule(_READ, "", "services"),
        _rule("create get list watch", "", "nodes"),
        _rule("patch update", "", "nodes/status"),
        _rule("patch update", "", "nodes"),
        *_events(),
        _rule(_READ, "", "pods"),
        _rule("create delete", "", "pods"),
        _rule("patch update", "", "pods/status"),
        _rule("create", "", "pods/eviction"),
        _rule(_READ, "", "configmaps", "secrets"),
        _rule("get", "", "persistentvolumeclaims", "persistentvolumes"),
        _rule("get", "", "endpoints"),
        _rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
        _rule("create delete get patch update", "coordination.k8s.io", "leases"),
        _rule("get", "storage.k8s.io", "volumeattachments"),
        _rule("create", "", "serviceaccounts/token"),
        _rule("get patch update", "", "persistentvolumeclaims/status"),
        _rule(_READ, "storage.k8s.io", "csidrivers"),
        _rule("create delete get patch update", "storage.k8s.io", "csinodes"),
        _rule(_READ, "node.k8s.io", "runtimeclasses"),
        _rule("get", "resource.k8s.io", "resourceclaims"),
        _rule("deletecollection", "resource.k8s.io", "resourceslices"),
        _rule("get", "", "serviceaccounts"),
    ]


def _leader_election(component: str, verbs: str) -> list[Rule]:
    return [
        _rule("create", "coordination.k8s.io", "leases"),
        _rule(verbs, "coordination.k8s.io", "leases", names=(component,)),
    ]


def _controller_manager() -> list[Rule]:
    return [
        *_events(),
        *_leader_election("kube-controller-manager", "get update"),
        _rule("create", "", "secrets", "serviceaccounts"),
        _rule("delete", "", "secrets"),
        _rule("get", "", "configmaps", "namespaces", "secrets", "serviceaccounts"),
        _rule("update", "", "secrets", "serviceaccounts"),
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        _rule("list watch", "*", "*"),
        _rule("create", "", "serviceaccounts/token"),
    ]


def _scheduler() -> list[Rule]:
    return [
        *_events(),
        *_leader_election("kube-scheduler", "get list update watch"),
        _rule(_ALL, "coordination.k8s.io", "leasecandidates"),
        _rule(_READ, "", "nodes"),
        _rule("delete get list watch", "", "pods"),
        _rule("create", "", "bindings", "pods/binding"),
        _rule("patch update", "", "pods/status"),
        _rule(_READ, "", "replicationcontrollers", "services"),
        _rule(_READ, ("apps", "extensions"), "replicasets"),
        _rule(_READ, "apps", "statefulsets"),
        _rule(_READ, "policy", "poddisruptionbudgets"),
        _rule(_READ, "", "persistentvolumeclaims", "persistentvolumes"),
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        _rule(_READ, "storage.k8s.io", "csinodes"),
        _rule(_READ, "storage.k8s.io", "volumeattachments"),
        _rule(_READ, "", "namespaces"),
        _rule(_READ, "storage.k8s.io", "csidrivers"),
        _rule(_READ, "storage.k8s.io", "csistoragecapacities"),
        _rule(_READ, "resource.k8s.io", "deviceclasses"),
        _rule("get list patch update watch", "resource.k8s.io", "resourceclaims"),
        _rule("get list patch update watch", "resource.k8s.io", "resourceclaims/status"),
        _rule("update", "", "pods/finalizers"),
        _rule(_READ, "resource.k8s.io", "resourceslices"),
        _rule("create delete", "resource.k8s.io", "resourceclaims"),
        _rule("patch update", "resource.k8s.io", "resourceclaims/binding"),
    ]


def _approval(signer: str) -> list[Rule]:
    return [_rule("approve", "certificates.k8s.io", "signers", names=(signer,))]


def _client_request(name: str) -> list[Rule]:
    return [_rule("create", "certificates.k8s.io", f"certificatesigningrequests/{name}")]


def _provisioner() -> list[Rule]:
    return [
        _rule("create delete get list watch", "", "persistentvolumes"),
        _rule("get list update watch", "", "persistentvolumeclaims"),
        _rule(_READ, "storage.k8s.io", "storageclasses"),
        _rule("watch", "", "events"),
        *_events(),
    ]


_CLUSTER_ROLES: Final[dict[str, Callable[[], list[Rule]]]] = {
    "cluster-admin": lambda: [_rule("*", "*", "*"), _urls("*", "*")],
    "system:discovery": lambda: [
        _urls(
            "get",
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/livez",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/version",
            "/version/",
        )
    ],
    "system:monitoring": lambda: [
        _urls(
            "get",
            "/flagz",
            "/healthz",
            "/healthz/*",
            "/livez",
            "/livez/*",
            "/metrics",
            "/metrics/slis",
            "/readyz",
            "/readyz/*",
            "/statusz",
        ),
        _rule("get", "", "nodes/metrics"),
    ],
    "system:basic-user": lambda: [
        _rule(
            "create", "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"
        ),
        _rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ],
    "system:public-info-viewer": lambda: [
        _urls("get", "/healthz", "/livez", "/readyz", "/version", "/version/")
    ],
    "system:aggregate-to-admin": _admin,
    "system:aggregate-to-edit": _edit,
    "system:aggregate-to-view": _view,
    "system:heapster": lambda: [
        _rule(_READ, "", "events", "namespaces", "nodes", "pods"),
        _rule(_READ, "extensions", "deployments"),
    ],
    "system:node": _node,
    "system:node-problem-detector": lambda: [
        _rule("get", "", "nodes"),
        _rule("patch", "", "nodes/status"),
        *_events(),
    ],
    "system:node-proxier": lambda: [
        _rule("list watch", "", "endpoints", "services"),
        _rule(_READ, "", "nodes"),
        *_events(),
        _rule("list watch", "networking.k8s.io", "servicecidrs"),
        _rule("list watch", "discovery.k8s.io", "endpointslices"),
    ],
    "system:kubelet-api-admin": lambda: [
        _rule(_READ, "", "nodes"),
        _rule("proxy", "", "nodes"),
        _rule("*", "", "nodes/log", "nodes/metrics", "nodes/proxy", "nodes/stats"),
        _rule("*", "", "nodes/configz", "nodes/healthz", "nodes/pods"),
    ],
    "system:node-bootstrapper": lambda: [
        _rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests")
    ],
    "system:auth-delegator": lambda: [
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ],
    "system:kube-aggregator": lambda: [_rule(_READ, "", "endpoints", "services")],
    "system:kube-controller-manager": _controller_manager,
    "system:kube-dns": lambda: [_rule("list watch", "", "endpoints", "services")],
    "system:kube-scheduler": _scheduler,
    "system:persistent-volume-provisioner": _provisioner,
    "system:volume-scheduler": lambda: [
        _rule("get list patch update watch", "", "persistentvolumes"),
        _rule(_READ, "storage.k8s.io", "storageclasses"),
        _rule("get list patch update watch", "", "persistentvolumeclaims"),
    ],
    **{
        f"system:certificates.k8s.io:{name}-approver": partial(_approval, f"kubernetes.io/{name}")
        for name in (
            "legacy-unknown",
            "kubelet-serving",
            "kube-apiserver-client",
            "kube-apiserver-client-kubelet",
        )
    },
    **{
        f"system:certificates.k8s.io:certificatesigningrequests:{name}": partial(
            _client_request, name
        )
        for name in ("nodeclient", "selfnodeclient")
    },
    "system:service-account-issuer-discovery": lambda: [
        _urls(
            "get",
            "/.well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks",
            "/openid/v1/jwks/",
        )
    ],
}
_AGGREGATED: Final = ("admin", "edit", "view")
_ROLE_LABELS: Final = {
    "edit": {f"{_AGGREGATE}admin": "true"},
    "view": {f"{_AGGREGATE}edit": "true"},
    "system:aggregate-to-admin": {f"{_AGGREGATE}admin": "true"},
    "system:aggregate-to-edit": {f"{_AGGREGATE}edit": "true"},
    "system:aggregate-to-view": {f"{_AGGREGATE}view": "true"},
}
_CLUSTER_BINDINGS: Final[dict[str, tuple[str, list[tuple[str, str]]]]] = {
    "cluster-admin": ("cluster-admin", [("Group", MASTERS)]),
    "system:monitoring": ("system:monitoring", [("Group", "system:monitoring")]),
    "system:discovery": ("system:discovery", [("Group", AUTHENTICATED)]),
    "system:basic-user": ("system:basic-user", [("Group", AUTHENTICATED)]),
    "system:public-info-viewer": (
        "system:public-info-viewer",
        [("Group", AUTHENTICATED), ("Group", UNAUTHENTICATED)],
    ),
    "system:node-proxier": ("system:node-proxier", [("User", "system:kube-proxy")]),
    "system:kube-controller-manager": (
        "system:kube-controller-manager",
        [("User", "system:kube-controller-manager")],
    ),
    "system:kube-dns": ("system:kube-dns", [("ServiceAccount", "kube-dns")]),
    "system:kube-scheduler": ("system:kube-scheduler", [("User", "system:kube-scheduler")]),
    "system:volume-scheduler": ("system:volume-scheduler", [("User", "system:kube-scheduler")]),
    "system:node": ("system:node", []),
    "system:service-account-issuer-discovery": (
        "system:service-account-issuer-discovery",
        [("Group", "system:serviceaccounts")],
    ),
}
_KUBE_SYSTEM_ROLES: Final[dict[str, Callable[[], list[Rule]]]] = {
    "extension-apiserver-authentication-reader": lambda: [
        _rule(_READ, "", "configmaps", names=("extension-apiserver-authentication",))
    ],
    **{
        f"system::leader-locking-{component}": lambda: [
            _rule("create get list update watch", "coordination.k8s.io", resource)
            for resource in ("leases", "leasecandidates")
        ]
        for component in ("kube-controller-manager", "kube-scheduler")
    },
    "system:controller:bootstrap-signer": lambda: [_rule(_READ, "", "secrets")],
    "system:controller:cloud-provider": lambda: [_rule("create get list watch", "", "configmaps")],
    "system:controller:token-cleaner": lambda: [
        _rule("delete get list watch", "", "secrets"),
        *_events(),
    ],
}
_KUBE_SYSTEM_BINDINGS: Final[dict[str, tuple[str, list[tuple[str, str]]]]] = {
    "system::extension-apiserver-authentication-reader": (
        "extension-apiserver-authentication-reader",
        [("User", "system:kube-controller-manager"), ("User", "system:kube-scheduler")],
    ),
    "system::leader-locking-kube-controller-manager": (
        "system::leader-locking-kube-controller-manager",
        [
            ("User", "system:kube-controller-manager"),
            ("ServiceAccount", "kube-controller-manager"),
            ("ServiceAccount", "leader-election-controller"),
        ],
    ),
    "system::leader-locking-kube-scheduler": (
        "system::leader-locking-kube-scheduler",
        [("User", "system:kube-scheduler"), ("ServiceAccount", "kube-scheduler")],
    ),
    **{
        f"system:controller:{name}": (f"system:controller:{name}", [("ServiceAccount", name)])
        for name in ("bootstrap-signer", "cloud-provider", "token-cleaner")
    },
}


def bootstrap_policy() -> Iterator[Object]:
    """Yield the objects, without uid and creation time; ClusterRoles come before the bindings that refer to them."""
    for name, rules in _CLUSTER_ROLES.items():
        yield _object("ClusterRole", name, rules=rules())
    for controller, controller_rules in controller_roles():
        name = f"system:controller:{controller}"
        yield _object("ClusterRole", name, rules=controller_rules)
        yield _binding(
            "ClusterRoleBinding", name, "ClusterRole", name, [("ServiceAccount", controller)]
        )
    for name in _AGGREGATED:
        rule = {"clusterRoleSelectors": [{"matchLabels": {f"{_AGGREGATE}{name}": "true"}}]}
        yield _object("ClusterRole", name, aggregationRule=rule, rules=None)
    for name, (role, subjects) in _CLUSTER_BINDINGS.items():
        yield _binding("ClusterRoleBinding", name, "ClusterRole", role, subjects)
    for name, rules in _KUBE_SYSTEM_ROLES.items():
        yield _object("Role", name, "kube-system", rules=rules())
    for name, (role, subjects) in _KUBE_SYSTEM_BINDINGS.items():
        yield _binding("RoleBinding", name, "Role", role, subjects, "kube-system")
    signer = "system:controller:bootstrap-signer"
    signer_rules = [
        _rule(_READ, "", "configmaps"),
        _rule("update", "", "configmaps", names=("cluster-info",)),
        *_events(),
    ]
    yield _object("Role", signer, "kube-public", rules=signer_rules)
    yield _binding(
        "RoleBinding",
        signer,
        "Role",
        signer,
        [("ServiceAccount", "bootstrap-signer")],
        "kube-public",
    )


def install_policy(store: Store, now: str) -> None:
    """Store the missing objects of the policy; ``now`` is RFC 3339. Existing objects are not changed."""
    tables = {
        "ClusterRole": CLUSTER_ROLES,
        "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
        "Role": ROLES,
        "RoleBinding": ROLE_BINDINGS,
    }
    for obj in bootstrap_policy():
        metadata = obj["metadata"]
        table = tables[obj["kind"]]
        if store.get(table, metadata.get("namespace", ""), metadata["name"]) is None:
            metadata["uid"] = str(uuid.uuid4())
            metadata["creationTimestamp"] = now
            metadata["managedFields"] = [creation_entry(obj, API_SERVER, now)]
            store.create(table, obj)


def _object(kind: str, name: str, namespace: str = "", **fields: Any) -> Object:
    metadata = {"name": name, "labels": {**_LABELS, **_ROLE_LABELS.get(name, {})}, **_META}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": metadata, **fields}


def _binding(
    kind: str,
    name: str,
    role_kind: str,
    role: str,
    subjects: list[tuple[str, str]],
    namespace: str = "",
) -> Object:
    ref = {"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role}
    subject_refs: list[dict[str, str]] = []
    for subject_kind, subject in subjects:
        if subject_kind == "ServiceAccount":
            subject_refs.append({"kind": subject_kind, "name": subject, "namespace": "kube-system"})
        else:
            subject_refs.append({"kind": subject_kind, "apiGroup": RBAC_GROUP, "name": subject})
    fields = {"roleRef": ref, "subjects": subject_refs} if subject_refs else {"roleRef": ref}
    return _object(kind, name, namespace, **fields)
