from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest

from cfo.api.raycluster.cluster import (
    has_cluster_labels,
    is_suspended,
    uses_kuberay_auth,
    uses_kuberay_network_policy,
    uses_kuberay_tls,
)
from cfo.api.raycluster.naming import CLUSTER_LABEL, NAMESPACE_LABEL
from cfo.controllers.raycluster.children import belongs_to
from cfo.controllers.raycluster.oauth import is_oauth_proxy_binding
from cfo.controllers.raycluster.operator_namespaces import grants_status_update, service_account_of
from cfo.runtime.objects import NamespacedName

CLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "rc", "namespace": "ns", "uid": "1"},
}


def owned(uid: str, *, controller: bool = True) -> dict[str, Any]:
    return {"kind": "RayCluster", "name": "rc", "uid": uid, "controller": controller}


def child(
    *, namespace: str | None = "ns", labels: dict[str, str] | None = None, owner: dict[str, Any] | None = None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"labels": labels or {}, "ownerReferences": [owner] if owner else []}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


@pytest.mark.parametrize(
    ("obj", "ours"),
    [
        (child(owner=owned("1")), True),
        (child(owner=owned("1", controller=False)), True),
        (child(labels={CLUSTER_LABEL: "rc"}), True),
        (child(labels={CLUSTER_LABEL: "rc"}, owner=owned("2")), False),
        (child(labels={CLUSTER_LABEL: "rc"}, owner=owned("2", controller=False)), True),
        (child(labels={CLUSTER_LABEL: "other"}), False),
        (child(namespace="elsewhere", labels={CLUSTER_LABEL: "rc"}), False),
        (child(), False),
        (child(namespace=None, labels={CLUSTER_LABEL: "rc"}), False),
        (child(namespace=None, labels={CLUSTER_LABEL: "rc", NAMESPACE_LABEL: "ns"}), True),
        (child(namespace=None, labels={CLUSTER_LABEL: "rc", NAMESPACE_LABEL: "elsewhere"}), False),
    ],
)
def test_what_belongs_to_a_cluster(obj: dict[str, Any], ours: bool) -> None:
    assert belongs_to(obj, CLUSTER) is ours


def test_a_name_too_long_for_a_label_is_found_by_what_stands_for_it() -> None:
    long = {"metadata": {"name": "n" * 100, "namespace": "ns"}}
    assert not has_cluster_labels(child(labels={CLUSTER_LABEL: "n" * 63}), long)


@pytest.mark.parametrize("spec", [None, {}, {"suspend": False}, {"suspend": None}])
def test_a_cluster_is_awake_unless_it_says_so(spec: Any) -> None:
    assert not is_suspended({"spec": spec})
    assert is_suspended({"spec": {"suspend": True}})


@pytest.mark.parametrize(
    ("spec", "used"),
    [
        ({}, set()),
        (None, set()),
        ({"tlsOptions": {"enabled": True}}, {"tls"}),
        ({"tlsOptions": {"enabled": False}}, set()),
        ({"tlsOptions": {}}, set()),
        ({"networkPolicy": {}}, {"policy"}),
        ({"networkPolicy": {"mode": "DenyAllIngress"}}, {"policy"}),
        ({"networkPolicy": None}, set()),
        ({"authOptions": {"mode": "token"}}, {"auth"}),
        ({"authOptions": {"mode": "disabled"}}, set()),
        ({"authOptions": {}}, set()),
    ],
)
def test_what_kuberay_does_itself(spec: Any, used: set[str]) -> None:
    cluster = {"spec": spec}
    found = {
        "tls": uses_kuberay_tls(cluster),
        "policy": uses_kuberay_network_policy(cluster),
        "auth": uses_kuberay_auth(cluster),
    }
    assert {concern for concern, answer in found.items() if answer} == used


@pytest.mark.parametrize(
    ("rule", "granted"),
    [
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters/status"], "verbs": ["update"]}, True),
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters", "rayclusters/status"], "verbs": ["*"]}, True),
        ({"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["update"]}, True),
        ({"apiGroups": ["ray.io"], "resources": ["*/status"], "verbs": ["update"]}, True),
        ({"apiGroups": ["*"], "resources": ["rayclusters/status"], "verbs": ["update"]}, True),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, False),
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["update"]}, False),
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters/status"], "verbs": ["get", "patch"]}, False),
        ({"apiGroups": ["other"], "resources": ["rayclusters/status"], "verbs": ["update"]}, False),
        (
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters/status"],
                "verbs": ["update"],
                "resourceNames": ["one"],
            },
            False,
        ),
        ({"nonResourceURLs": ["*"], "verbs": ["*"]}, False),
    ],
)
def test_whose_role_is_that_of_a_kuberay_operator(rule: dict[str, Any], granted: bool) -> None:
    assert grants_status_update({"rules": [{"verbs": ["get"]}, rule]}) is granted


def test_a_role_without_rules_grants_nothing() -> None:
    assert not grants_status_update({"rules": None})


def test_a_proxys_binding_reaches_into_one_namespace() -> None:
    role = {"name": "system:auth-delegator"}
    here = {"kind": "ServiceAccount", "name": "a", "namespace": "ns"}
    assert is_oauth_proxy_binding({"roleRef": role, "subjects": [here]}, "ns")
    assert not is_oauth_proxy_binding({"roleRef": {"name": "view"}, "subjects": [here]}, "ns")
    assert not is_oauth_proxy_binding({"roleRef": role, "subjects": [here, {**here, "namespace": "other"}]}, "ns")
    assert not is_oauth_proxy_binding({"roleRef": role, "subjects": [{"kind": "User", "name": "a"}]}, "ns")


def token(payload: bytes) -> str:
    return f"Bearer e30.{urlsafe_b64encode(payload).decode().rstrip('=')}.c2ln"


def test_whose_token_it_is() -> None:
    account = service_account_of(token(b'{"sub":"system:serviceaccount:ns:me","aud":["x"]}'))
    assert account == NamespacedName("ns", "me")
    for authorization in (
        "",
        "Bearer opaque",
        "Bearer a.b.c",
        "Basic dTpw",
        token(b'{"sub":"alice"}'),
        token(b'{"sub":"not-system:serviceaccount:ns:me"}'),
        token(b'{"sub":"system:serviceaccount:ns"}'),
        token(b'{"sub":7}'),
        token(b"[]"),
        token(b"\xff"),
    ):
        assert service_account_of(authorization) is None
