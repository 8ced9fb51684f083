"""Authentication and authorization over HTTPS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient, Response

RBAC = "/apis/rbac.authorization.k8s.io/v1"
TIMEOUT_SECONDS = 120.0
DEFAULT = "/api/v1/namespaces/default"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def create_account(api: APIClient, name: str) -> str:
    """Create a service account and return a token for it."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    assert (await api.post(f"{DEFAULT}/serviceaccounts", body)).code == 201
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    response = await api.post(f"{DEFAULT}/serviceaccounts/{name}/token", request)
    assert response.code == 201
    token: str = response.body["status"]["token"]
    return token


async def grant(api: APIClient, name: str, rules: list[dict[str, Any]]) -> None:
    """Grant the service account ``name`` the permissions of ``rules`` in its namespace."""
    version = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    role = {"kind": "Role", "metadata": {"name": name}, "rules": rules}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": ref,
        "subjects": subjects,
    }
    assert (await api.post(f"{RBAC}/namespaces/default/roles", version | role)).code == 201
    assert (
        await api.post(f"{RBAC}/namespaces/default/rolebindings", version | binding)
    ).code == 201


async def wait_for_code(send: Callable[[], Awaitable[Response]], code: int) -> Response:
    """Repeat a request until the response has ``code``: a real server applies RBAC changes with a delay."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            response = await send()
            if response.code == code:
                return response
            await asyncio.sleep(0.02)


async def whoami(api: APIClient, headers: dict[str, str]) -> Response:
    return await api.post(SELF_REVIEWS, SELF_REVIEW, headers=headers)


async def test_service_account_can_do_only_what_rbac_allows(api: APIClient) -> None:
    headers = bearer(await create_account(api, "bot"))
    info = (await whoami(api, headers)).body["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:bot"
    assert "system:serviceaccounts:default" in info["groups"]
    refused = await api.get(f"{DEFAULT}/configmaps", headers=headers)
    assert refused.code == 403
    assert refused.body["message"] == (
        'configmaps is forbidden: User "system:serviceaccount:default:bot" cannot list resource "configmaps" '
        'in API group "" in the namespace "default"'
    )
    await grant(api, "bot", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])
    await wait_for_code(lambda: api.get(f"{DEFAULT}/configmaps", headers=headers), 200)
    assert (await api.get("/api/v1/configmaps", headers=headers)).code == 403


async def test_token_is_invalid_after_its_service_account_is_deleted(api: APIClient) -> None:
    headers = bearer(await create_account(api, "short"))
    assert (await whoami(api, headers)).code == 201
    assert (await api.delete(f"{DEFAULT}/serviceaccounts/short")).code == 200
    await wait_for_code(lambda: whoami(api, headers), 401)


async def test_user_cannot_grant_permissions_it_does_not_hold(api: APIClient) -> None:
    headers = bearer(await create_account(api, "writer"))
    rules = [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}
    ]
    await grant(api, "writer", rules)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "mine"},
        "rules": rules,
    }
    path = f"{RBAC}/namespaces/default/roles"
    await wait_for_code(lambda: api.post(path, role, headers=headers), 201)
    role |= {
        "metadata": {"name": "more"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }
    response = await api.post(path, role, headers=headers)
    assert response.code == 403
    assert "is attempting to grant RBAC permissions not currently held" in response.body["message"]


async def test_impersonation_requires_permission(api: APIClient) -> None:
    response = await whoami(api, {"Impersonate-User": "bob", "Impersonate-Group": "devs"})
    assert response.body["status"]["userInfo"] == {
        "username": "bob",
        "groups": ["devs", "system:authenticated"],
    }
    refused = await whoami(
        api, {**bearer(await create_account(api, "nosy")), "Impersonate-User": "bob"}
    )
    assert refused.code == 403


@pytest.fixture
async def embedded_plane(tmp_path: Path) -> AsyncIterator[EmbeddedControlPlane]:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('alice-token,alice,1,"team-a"\n', encoding="utf-8")
    async with ControlPlane.embedded(controllers=(), token_auth_file=tokens) as plane:
        yield plane


async def test_static_tokens_and_anonymous_requests(embedded_plane: EmbeddedControlPlane) -> None:
    async with APIClient(embedded_plane) as api:
        alice = await whoami(api, bearer("alice-token"))
        assert alice.body["status"]["userInfo"] == {
            "username": "alice",
            "uid": "1",
            "groups": ["team-a", "system:authenticated"],
        }
        assert (await api.get("/version", headers=bearer("wrong"))).code == 401
        assert (await api.get("/version", headers={"Authorization": ""})).code == 200
        assert (await api.get("/api", headers={"Authorization": ""})).code == 403


async def test_client_certificate_authenticates_its_subject(
    embedded_plane: EmbeddedControlPlane, tmp_path: Path
) -> None:
    certificate, key = embedded_plane.client_certificate("carol", ("system:masters",))
    (tmp_path / "crt").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    context = ssl.create_default_context(cadata=embedded_plane.ca_pem.decode())
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    async with (
        aiohttp.ClientSession(
            embedded_plane.url, connector=aiohttp.TCPConnector(ssl=context)
        ) as session,
        session.post(SELF_REVIEWS, json=SELF_REVIEW) as response,
    ):
        info = (await response.json())["status"]["userInfo"]
    assert (info["username"], info["groups"]) == (
        "carol",
        ["system:masters", "system:authenticated"],
    )
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


async def test_audit_log_records_impersonation_and_reason(
    embedded_plane: EmbeddedControlPlane,
) -> None:
    async with APIClient(embedded_plane) as api:
        embedded_plane.audit.clear()
        await api.get("/version", headers={"Impersonate-User": "bob"})
        await api.get("/metrics", headers={"Impersonate-User": "bob"})
    allowed, refused = embedded_plane.audit.events
    assert (allowed["user"]["username"], allowed["impersonatedUser"]["username"]) == (
        "admin",
        "bob",
    )
    assert allowed["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert "ClusterRoleBinding" in allowed["annotations"]["authorization.k8s.io/reason"]
    assert refused["annotations"]["authorization.k8s.io/decision"] == "forbid"


async def test_issuer_publishes_its_discovery_document_and_keys(
    embedded_plane: EmbeddedControlPlane,
) -> None:
    async with APIClient(embedded_plane) as api:
        configuration = (await api.get("/.well-known/openid-configuration")).body
        assert configuration["issuer"] == "https://kubernetes.default.svc"
        assert configuration["jwks_uri"] == f"{embedded_plane.url}/openid/v1/jwks"
        paths = (await api.get("/")).body["paths"]
        assert {"/api/v1", "/apis/apps/v1", "/openid/v1/jwks"} <= set(paths)


async def test_update_or_patch_that_creates_needs_the_permission_to_create(api: APIClient) -> None:
    as_editor = bearer(await create_account(api, "editor"))
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "update", "patch"]}
    await grant(api, "editor", [everything])
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "spec": {},
    }
    apply = "application/apply-patch+yaml"
    denied = [
        await wait_for_code(lambda: api.put(lease, body, headers=as_editor), 403),
        await wait_for_code(
            lambda: api.request(
                "PATCH",
                lease,
                body,
                query={"fieldManager": "test"},
                headers=as_editor,
                content_type=apply,
            ),
            403,
        ),
    ]
    for response in denied:
        assert response.body["message"] == (
            'leases.coordination.k8s.io "a" is forbidden: User "system:serviceaccount:default:editor" cannot create '
            'resource "leases" in API group "coordination.k8s.io" in the namespace "default"'
        )
    stored = await api.put(lease, body)
    assert stored.code == 201
    assert (await api.put(lease, stored.body, headers=as_editor)).code == 200
