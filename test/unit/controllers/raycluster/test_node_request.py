"""Which CertificateSigningRequests of pods are signed, and what the certificates contain."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from cfo.api.raycluster.cluster import pod_labels
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.node_request import (
    Refusal,
    Requester,
    check_names,
    check_pod,
    cluster_of_pod,
    node_names,
    parse_request,
    requester_of,
)
from cfo.runtime.objects.unstructured import NamespacedName, owner_reference
from cfo.runtime.pki import MAX_REQUEST_BYTES
from test.support.certificate_requests import address, certificate_request, request_pem
from test.support.raycluster_environment import ray_cluster

POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
ACCOUNT = "system:serviceaccount:ns:ray"
EXTRA = {POD_NAME: ["rc-head"], POD_UID: ["pod-uid"]}
REQUESTER = Requester(NamespacedName("ns", "rc-head"), "pod-uid", "ray")
CLUSTER = ray_cluster()
CLUSTER["metadata"]["uid"] = "cluster-uid"


def pod(node_type: str = "head", **metadata: Any) -> dict[str, Any]:
    """Return a pod of the RayCluster; ``metadata`` replaces fields."""
    return {
        "metadata": {
            "name": "rc-head",
            "namespace": "ns",
            "uid": "pod-uid",
            "labels": pod_labels(CLUSTER, node_type),
            "ownerReferences": [owner_reference(CLUSTER)],
            **metadata,
        },
        "spec": {"serviceAccountName": "ray"},
        "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    }


def reason_of(check: Any, *arguments: Any) -> str:
    """Return the reason of the refusal."""
    with pytest.raises(Refusal) as refused:
        check(*arguments)
    assert len(str(refused.value)) < 400
    return refused.value.reason


def test_requester_is_the_pod_of_the_token() -> None:
    assert requester_of({"username": ACCOUNT, "extra": EXTRA}) == REQUESTER


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"username": ACCOUNT},
        {"username": "alice", "extra": EXTRA},
        {"username": "system:serviceaccount:ns", "extra": EXTRA},
        {"username": "system:serviceaccount::ray", "extra": EXTRA},
        {"username": "system:serviceaccount:ns:", "extra": EXTRA},
        {"username": "system:node:system:serviceaccount:ns:ray", "extra": EXTRA},
        {"username": ACCOUNT, "extra": {POD_NAME: ["rc-head"]}},
        {"username": ACCOUNT, "extra": {**EXTRA, POD_UID: ["a", "b"]}},
        {"username": ACCOUNT, "extra": {**EXTRA, POD_UID: [""]}},
        {
            "username": ACCOUNT,
            "extra": {"example.com/pod-name": ["rc-head"], "example.com/pod-uid": ["pod-uid"]},
        },
    ],
)
def test_other_requesters_are_refused(spec: dict[str, Any]) -> None:
    assert reason_of(requester_of, spec) == "RequesterIsNotAPod"


@pytest.mark.parametrize(
    "usages", [[], ["client auth"], ["digital signature", "server auth", "client auth", "any"]]
)
def test_usages_are_those_of_a_node(usages: list[str]) -> None:
    assert (
        reason_of(parse_request, certificate_request("r", usages=usages)["spec"])
        == "UsagesNotAllowed"
    )


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        ("", "InvalidRequest"),
        ("%%%", "InvalidRequest"),
        ("A" * (2 * MAX_REQUEST_BYTES), "RequestTooLarge"),
        (b64encode(request_pem()).decode(), "NoNames"),
    ],
    ids=["empty", "encoding", "large", "no-names"],
)
def test_malformed_requests_are_refused(encoded: str, reason: str) -> None:
    spec = certificate_request("r", request=encoded)["spec"]
    assert reason_of(parse_request, spec) == reason


def test_pod_of_the_token_is_required() -> None:
    assert check_pod(pod(), REQUESTER) == pod()
    assert reason_of(check_pod, None, REQUESTER) == "PodNotFound"
    assert reason_of(check_pod, pod(uid="recreated"), REQUESTER) == "PodNotFound"
    assert (
        reason_of(check_pod, pod(deletionTimestamp="2026-01-01T00:00:00Z"), REQUESTER)
        == "PodNotFound"
    )
    other = Requester(REQUESTER.pod, REQUESTER.pod_uid, "other")
    assert reason_of(check_pod, pod(), other) == "ServiceAccountMismatch"


def test_cluster_is_the_controller_of_the_pod() -> None:
    assert cluster_of_pod(pod()) == (NamespacedName("ns", "rc"), "cluster-uid")
    reference = owner_reference(CLUSTER)
    for changes in (
        {"controller": False},
        {"kind": "RayService"},
        {"apiVersion": "example.com/v1"},
    ):
        assert (
            reason_of(cluster_of_pod, pod(ownerReferences=[{**reference, **changes}]))
            == "PodOfNoRayCluster"
        )
    assert reason_of(cluster_of_pod, pod(ownerReferences=[])) == "PodOfNoRayCluster"


def test_owner_and_labels_have_to_be_those_of_the_cluster() -> None:
    assert reason_of(node_names, pod(labels={}), CLUSTER, "") == "PodOfNoRayCluster"
    other = {**CLUSTER, "metadata": {**CLUSTER["metadata"], "uid": "recreated"}}
    assert reason_of(node_names, pod(), other, "") == "PodOfNoRayCluster"
    deleted = {
        **CLUSTER,
        "metadata": {**CLUSTER["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    assert reason_of(node_names, pod(), deleted, "") == "RayClusterDeleted"
    assert (
        reason_of(node_names, {**pod(), "status": {"podIP": ""}}, CLUSTER, "") == "PodHasNoAddress"
    )


def test_only_a_head_gets_the_names_of_the_service() -> None:
    head, worker = (
        node_names(pod(), CLUSTER, "apps.test"),
        node_names(pod("worker"), CLUSTER, "apps.test"),
    )
    assert [str(item) for item in head.addresses] == ["127.0.0.1", "::1", "10.0.0.1", "fd00::1"]
    assert head.hosts == (
        *("localhost", "rayclient-rc-ns.apps.test", "rc-head-svc.ns.svc"),
        *("rc-head-svc", "rc-head-svc.ns", "rc-head-svc.ns.svc.cluster.local"),
    )
    assert worker.hosts == ("localhost",)
    assert worker.addresses == head.addresses


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([address("10.0.0.1")], ""),
        ([address("fd00::1"), address("127.0.0.1"), x509.DNSName("localhost")], ""),
        ([address("127.0.0.1")], "AddressNotAllowed"),
        ([address("10.0.0.1"), address("10.0.0.2")], "AddressNotAllowed"),
        ([address("10.0.0.1"), x509.DNSName("rc-head-svc.ns.svc")], "NameNotAllowed"),
        ([address("10.0.0.1"), x509.DNSName("*")], "NameNotAllowed"),
        ([address("10.0.0.1"), x509.DNSName("10.0.0.2")], "NameNotAllowed"),
        ([address("10.0.0.1"), x509.DNSName("localhost\x00.example")], "NameNotAllowed"),
    ],
)
def test_worker_can_request_its_own_names_only(names: list[x509.GeneralName], reason: str) -> None:
    request = parse_request(certificate_request("r", *names)["spec"])
    own = node_names(pod("worker"), CLUSTER, "apps.test")
    if reason:
        assert reason_of(check_names, request, own) == reason
    else:
        check_names(request, own)


def test_issued_certificate_is_a_leaf_and_ends_with_the_ca() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    authority = ca.create("ecdsa", now=now)
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    names = node_names(pod(), CLUSTER, "")
    for lifetime, expected in (
        (timedelta(days=1), timedelta(days=1)),
        (timedelta(days=9999), None),
    ):
        certificate = x509.load_pem_x509_certificate(
            ca.issue_pem(
                authority,
                key,
                addresses=names.addresses,
                hosts=names.hosts,
                lifetime=lifetime,
                now=now,
            )
        )
        certificate.verify_directly_issued_by(authority.certificate)
        end = certificate.not_valid_after_utc
        assert end == (now + expected if expected else authority.certificate.not_valid_after_utc)
        assert certificate.public_key() == key
        assert (
            certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
        )
        assert (
            certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
            is False
        )
