"""CertificateSigningRequests: validation, approval, signature, and the permissions of approvers and signers."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from envtest.api_client import APIClient
from envtest.formats.certificate_authority import CertificateAuthority

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def request(name: str, **spec: Any) -> dict[str, Any]:
    """Return a CertificateSigningRequest; ``spec`` replaces fields of its spec."""
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    pem = csr.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )
    content = {
        "request": b64encode(pem).decode(),
        "signerName": "example.com/s",
        "usages": ["client auth"],
        **spec,
    }
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": content,
    }


def condition(type_: str, status: str = "True") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": "Test"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"request": b64encode(b"foo").decode()}, "PEM block type must be CERTIFICATE REQUEST"),
        (
            {"usages": ["client auth", "client auth"]},
            'spec.usages[1]: Duplicate value: "client auth"',
        ),
        ({"usages": ["foo"]}, 'spec.usages[0]: Unsupported value: "foo"'),
        (
            {"expirationSeconds": 599},
            "may not specify a duration less than 600 seconds (10 minutes)",
        ),
        ({"signerName": "a/b/c"}, "must be a fully qualified domain and path of the form"),
    ],
)
async def test_invalid_requests_are_rejected(
    api: APIClient, spec: dict[str, Any], message: str
) -> None:
    response = await api.post(REQUESTS, request("invalid", **spec))
    assert (response.code, message in response.body["message"]) == (422, True), response.body


async def test_approval_and_signature_are_separate_and_final(api: APIClient) -> None:
    name = f"{REQUESTS}/approval-test"
    stored = (await api.post(REQUESTS, request("approval-test"))).body
    assert stored["spec"]["username"]
    certificate = b64encode(CertificateAuthority().pem).decode()
    approved = {"conditions": [condition("Approved")], "certificate": certificate}
    response = await api.put(f"{name}/approval", {**stored, "status": approved})
    assert response.code == 200
    assert "certificate" not in response.body["status"]
    assert response.body["status"]["conditions"][0]["lastTransitionTime"]
    for status, message in (
        ({"conditions": []}, 'updates may not remove a condition of type "Approved"'),
        ({"conditions": [condition("Approved"), condition("Denied")]}, "mutually exclusive"),
        ({"conditions": [condition("Approved", "False")]}, 'Unsupported value: "False"'),
    ):
        refused = await api.put(f"{name}/approval", {**response.body, "status": status})
        assert (refused.code, message in refused.body["message"]) == (422, True), refused.body
    conditions = response.body["status"]["conditions"]
    for bad in (b"foo", b"-----BEGIN CERTIFICATE REQUEST-----\n"):
        status = {"conditions": conditions, "certificate": b64encode(bad).decode()}
        assert (await api.put(f"{name}/status", {**response.body, "status": status})).code == 422
    signed = await api.put(
        f"{name}/status",
        {**response.body, "status": {"conditions": conditions, "certificate": certificate}},
    )
    assert signed.body["status"]["certificate"] == certificate
    changed = await api.put(f"{name}/status", {**signed.body, "status": {"conditions": conditions}})
    assert "updates may not modify existing certificate content" in changed.body["message"]


async def test_approver_and_signer_need_permission_for_the_signer(api: APIClient) -> None:
    stored = (await api.post(REQUESTS, request("signer-test"))).body
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "signer-test"}}
    subresources = ["certificatesigningrequests/approval", "certificatesigningrequests/status"]
    rules = [{"apiGroups": ["certificates.k8s.io"], "resources": subresources, "verbs": ["update"]}]
    assert (
        await api.post(f"{RBAC}/clusterroles", {**role, "kind": "ClusterRole", "rules": rules})
    ).code == 201
    binding = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "signer-test",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}],
    }
    assert (await api.post(f"{RBAC}/clusterrolebindings", binding)).code == 201
    carol = {"Impersonate-User": "carol"}
    status = {"conditions": [condition("Approved")]}
    path = f"{REQUESTS}/signer-test"
    refused = await api.put(f"{path}/approval", {**stored, "status": status}, headers=carol)
    message = 'user not permitted to approve requests with signerName "example.com/s"'
    assert (refused.code, message in refused.body["message"]) == (403, True), refused.body
    failed = {"conditions": [condition("Failed")]}
    refused = await api.put(f"{path}/status", {**stored, "status": failed}, headers=carol)
    message = 'user not permitted to sign requests with signerName "example.com/s"'
    assert (refused.code, message in refused.body["message"]) == (403, True), refused.body
    signers = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": ["example.com/*"],
    }
    permitted = [*rules, {**signers, "verbs": ["approve", "sign"]}]
    patched = await api.put(
        f"{RBAC}/clusterroles/signer-test", {**role, "kind": "ClusterRole", "rules": permitted}
    )
    assert patched.code == 200
    assert (
        await api.put(f"{path}/approval", {**stored, "status": status}, headers=carol)
    ).code == 200
