"""Which CertificateSigningRequests of pods are signed, and what the certificates contain."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from cfo.api.raycluster.cluster import pod_labels
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.node_request import (
    MAX_REQUEST_BYTES,
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
from test.support.certificate_requests import address, certificate_request, request_pem
from test.support.composite_keys import composite_rsa_key
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
    ("key", "is_allowed"),
    [
        (ec.generate_private_key(ec.SECP256R1()), True),
        (ec.generate_private_key(ec.SECP384R1()), True),
        (rsa.generate_private_key(65537, 2048), True),
        (ec.generate_private_key(ec.SECP521R1()), False),
        (ec.generate_private_key(ec.SECP256K1()), False),
        (rsa.generate_private_key(65537, 1024), False),
        (dsa.generate_private_key(1024), False),
    ],
    ids=["P-256", "P-384", "RSA-2048", "P-521", "secp256k1", "RSA-1024", "DSA"],
)
def test_keys_are_limited_in_kind_and_size(key: Any, is_allowed: bool) -> None:
    spec = certificate_request(
        "r", request=b64encode(request_pem(address("10.0.0.1"), key=key)).decode()
    )["spec"]
    if is_allowed:
        assert parse_request(spec).public_key == key.public_key()
    else:
        assert reason_of(parse_request, spec) == "KeyNotAllowed"


def altered(pem: bytes) -> bytes:
    """Return the request with another key, which has not signed it."""
    old = x509.load_pem_x509_csr(pem)
    new = ec.generate_private_key(ec.SECP256R1()).public_key()
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    der = old.public_bytes(serialization.Encoding.DER).replace(
        old.public_key().public_bytes(*form), new.public_bytes(*form)
    )
    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + b64encode(der)
        + b"\n-----END CERTIFICATE REQUEST-----\n"
    )


def with_version_9(pem: bytes) -> bytes:
    """Return the request with a version that does not exist."""
    der = x509.load_pem_x509_csr(pem).public_bytes(serialization.Encoding.DER)
    changed = der.replace(b"\x02\x01\x00", b"\x02\x01\x09", 1)
    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + b64encode(changed)
        + b"\n-----END CERTIFICATE REQUEST-----\n"
    )


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        (b"", "InvalidRequest"),
        (b"\x00\xff", "InvalidRequest"),
        (ca.create("ecdsa").data()["ca.crt"], "InvalidRequest"),
        (request_pem(), "NoNames"),
        (altered(request_pem(address("10.0.0.1"))), "InvalidRequest"),
        (with_version_9(request_pem(address("10.0.0.1"))), "InvalidRequest"),
        (request_pem(*[address(f"10.0.0.{number}") for number in range(65)]), "TooManyNames"),
        (
            request_pem(address("10.0.0.1"), x509.UniformResourceIdentifier("spiffe://a/b")),
            "NameNotAllowed",
        ),
        (
            request_pem(*[x509.DNSName(f"{'x' * 60}-{number}.example") for number in range(60)]),
            "RequestTooLarge",
        ),
        (b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A" * MAX_REQUEST_BYTES, "RequestTooLarge"),
    ],
    ids=[
        "empty",
        "bytes",
        "certificate",
        "no-names",
        "signature",
        "version",
        "many",
        "uri",
        "large-names",
        "large",
    ],
)
def test_malformed_requests_are_refused(pem: bytes, reason: str) -> None:
    assert (
        reason_of(
            parse_request, {**certificate_request("r")["spec"], "request": b64encode(pem).decode()}
        )
        == reason
    )


def test_request_with_a_large_key_is_refused_before_its_signature_is_verified() -> None:
    key = serialization.load_pem_private_key(
        composite_rsa_key(6144), None, unsafe_skip_rsa_key_validation=True
    )
    pem = request_pem(address("10.0.0.1"), key=key)
    assert len(pem) < MAX_REQUEST_BYTES
    spec = certificate_request("r", request=b64encode(pem).decode())["spec"]
    assert reason_of(parse_request, spec) == "KeyNotAllowed"


@pytest.mark.parametrize(
    "usages", [[], ["client auth"], ["digital signature", "server auth", "client auth", "any"]]
)
def test_usages_are_those_of_a_node(usages: list[str]) -> None:
    assert (
        reason_of(parse_request, certificate_request("r", usages=usages)["spec"])
        == "UsagesNotAllowed"
    )


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
            ca.issue(
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


def test_ed25519_is_refused() -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.sign(ed25519.Ed25519PrivateKey.generate(), None).public_bytes(
        serialization.Encoding.PEM
    )
    spec = certificate_request("r", request=b64encode(request).decode())["spec"]
    assert reason_of(parse_request, spec) == "KeyNotAllowed"
