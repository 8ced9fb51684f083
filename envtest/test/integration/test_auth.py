"""Authentication and authorization over the wire."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import Answer, APIClient

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATIENCE = 30.0
DEFAULT = "/api/v1/namespaces/default"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def account(api: APIClient, name: str) -> str:
    """Makes a service account and returns a token for it."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    assert (await api.post(f"{DEFAULT}/serviceaccounts", body)).code == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await api.post(f"{DEFAULT}/serviceaccounts/{name}/token", request)
    assert answer.code == 201
    token: str = answer.body["status"]["token"]
    return token


async def grant(api: APIClient, name: str, rules: list[dict[str, Any]]) -> None:
    """Lets the account ``name`` do what ``rules`` say, in its namespace."""
    version = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    role = {"kind": "Role", "metadata": {"name": name}, "rules": rules}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]
    binding = {"kind": "RoleBinding", "metadata": {"name": name}, "roleRef": ref, "subjects": subjects}
    assert (await api.post(f"{RBAC}/namespaces/default/roles", version | role)).code == 201
    assert (await api.post(f"{RBAC}/namespaces/default/rolebindings", version | binding)).code == 201


async def until(ask: Callable[[], Awaitable[Answer]], code: int) -> Answer:
    """Asks until the answer has ``code``: a real server learns of rights, and of their end, with a delay."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await ask()
            if answer.code == code:
                return answer
            await asyncio.sleep(0.02)


async def who(api: APIClient, headers: dict[str, str]) -> Answer:
    return await api.post(WHO, REVIEW, headers=headers)


async def test_a_service_account_does_what_it_is_allowed_to(api: APIClient) -> None:
    headers = bearer(await account(api, "bot"))
    info = (await who(api, headers)).body["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:bot"
    assert "system:serviceaccounts:default" in info["groups"]
    refused = await api.get(f"{DEFAULT}/configmaps", headers=headers)
    assert refused.code == 403
    assert refused.body["message"] == (
        'configmaps is forbidden: User "system:serviceaccount:default:bot" cannot list resource "configmaps" '
        'in API group "" in the namespace "default"'
    )
    await grant(api, "bot", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])
    await until(lambda: api.get(f"{DEFAULT}/configmaps", headers=headers), 200)
    assert (await api.get("/api/v1/configmaps", headers=headers)).code == 403


async def test_a_token_ends_with_its_account(api: APIClient) -> None:
    headers = bearer(await account(api, "short"))
    assert (await who(api, headers)).code == 201
    assert (await api.delete(f"{DEFAULT}/serviceaccounts/short")).code == 200
    await until(lambda: who(api, headers), 401)


async def test_nobody_hands_out_rights_that_they_do_not_have(api: APIClient) -> None:
    headers = bearer(await account(api, "writer"))
    rules = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]
    await grant(api, "writer", rules)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "mine"}, "rules": rules}
    path = f"{RBAC}/namespaces/default/roles"
    await until(lambda: api.post(path, role, headers=headers), 201)
    role |= {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    answer = await api.post(path, role, headers=headers)
    assert answer.code == 403
    assert "is attempting to grant RBAC permissions not currently held" in answer.body["message"]


async def test_who_acts_for_whom(api: APIClient) -> None:
    answer = await who(api, {"Impersonate-User": "bob", "Impersonate-Group": "devs"})
    assert answer.body["status"]["userInfo"] == {"username": "bob", "groups": ["devs", "system:authenticated"]}
    refused = await who(api, {**bearer(await account(api, "nosy")), "Impersonate-User": "bob"})
    assert refused.code == 403


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[EmbeddedControlPlane]:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('alice-token,alice,1,"team-a"\n', encoding="utf-8")
    async with ControlPlane.embedded(controllers=(), token_auth_file=tokens) as plane:
        yield plane


async def test_static_tokens_and_strangers(embedded: EmbeddedControlPlane) -> None:
    async with APIClient(embedded) as api:
        alice = await who(api, bearer("alice-token"))
        assert alice.body["status"]["userInfo"] == {
            "username": "alice",
            "uid": "1",
            "groups": ["team-a", "system:authenticated"],
        }
        assert (await api.get("/version", headers=bearer("wrong"))).code == 401
        assert (await api.get("/version", headers={"Authorization": ""})).code == 200
        assert (await api.get("/api", headers={"Authorization": ""})).code == 403


async def test_client_certificates(embedded: EmbeddedControlPlane, tmp_path: Path) -> None:
    certificate, key = embedded.client_certificate("carol", ("system:masters",))
    (tmp_path / "crt").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    context = ssl.create_default_context(cadata=embedded.ca_pem.decode())
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    async with (
        aiohttp.ClientSession(embedded.url, connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(WHO, json=REVIEW) as response,
    ):
        info = (await response.json())["status"]["userInfo"]
    assert (info["username"], info["groups"]) == ("carol", ["system:masters", "system:authenticated"])
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


async def test_the_audit_log_tells_who_acted_for_whom_and_why(embedded: EmbeddedControlPlane) -> None:
    async with APIClient(embedded) as api:
        embedded.audit.clear()
        await api.get("/version", headers={"Impersonate-User": "bob"})
        await api.get("/metrics", headers={"Impersonate-User": "bob"})
    allowed, refused = embedded.audit.events
    assert (allowed["user"]["username"], allowed["impersonatedUser"]["username"]) == ("admin", "bob")
    assert allowed["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert "ClusterRoleBinding" in allowed["annotations"]["authorization.k8s.io/reason"]
    assert refused["annotations"]["authorization.k8s.io/decision"] == "forbid"


async def test_the_issuer_documents_its_key(embedded: EmbeddedControlPlane) -> None:
    async with APIClient(embedded) as api:
        configuration = (await api.get("/.well-known/openid-configuration")).body
        assert configuration["issuer"] == "https://kubernetes.default.svc"
        assert configuration["jwks_uri"] == f"{embedded.url}/openid/v1/jwks"
        paths = (await api.get("/")).body["paths"]
        assert {"/api/v1", "/apis/apps/v1", "/openid/v1/jwks"} <= set(paths)
