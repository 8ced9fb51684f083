"""End-to-end tests of the injected proxies: stand-ins with their flags in front of a dashboard, over HTTPS."""

from __future__ import annotations

import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiohttp import ClientResponse, ClientSession, TCPConnector

from cfo.api.raycluster.names import names_of
from cfo.config.authentication import AuthenticationConfiguration
from cfo.runtime.objects.kinds import SECRET, SERVICE_ACCOUNT
from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.auth_proxies import Issuer, Ray, run_head_pod
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    VANILLA_CRDS,
    Environment,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

NAMES = names_of(ray_cluster())
HOST = f"{NAMES.proxy_service}.ns.svc"
OIDC = {"issuerURL": "https://dex.test", "secretName": "ray-oidc"}
RBAC = "rbac.authorization.k8s.io"


class Browser:
    """A client of the public port that verifies the Service's certificate."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def request(
        self, method: str, path: str, token: str = "", cookie: str = ""
    ) -> ClientResponse:
        headers = {"Host": "ray-dashboard-rc-ns.apps.test"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if cookie:
            headers["Cookie"] = cookie
        url = f"{self._url}{path}"
        async with self._session.request(
            method, url, headers=headers, allow_redirects=False, server_hostname=HOST
        ) as answer:
            await answer.read()
            return answer

    async def status(self, method: str, path: str, token: str = "", cookie: str = "") -> int:
        return (await self.request(method, path, token, cookie)).status

    async def log_in(self, issuer: Issuer, user: str) -> str:
        """Log in like a browser; return the session's cookie."""
        issuer.user = user
        redirect = await self.request("GET", "/")
        assert redirect.status == 302
        location = urlsplit(redirect.headers["Location"])
        assert f"{location.scheme}://{location.netloc}" == issuer.url
        query = dict(parse_qsl(location.query))
        assert query["redirect_uri"] == "https://ray-dashboard-rc-ns.apps.test/oauth2/callback"
        callback = await self.request(
            "GET", f"/oauth2/callback?{urlencode(issuer.authorize(query))}"
        )
        assert (callback.status, callback.headers["Location"]) == (302, "/")
        return callback.headers["Set-Cookie"].partition(";")[0]


@asynccontextmanager
async def run_proxies(
    directory: Path, authentication: dict[str, Any], issuer: Issuer | None = None
) -> AsyncIterator[tuple[Environment, Browser, Ray]]:
    """Run the operator's controllers and the proxies of an admitted RayCluster ``rc``."""
    settings = InjectionSettings(
        version="test",
        oauth=False,
        mtls=False,
        authentication=AuthenticationConfiguration.from_document(authentication),
    )
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await env.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "ray-oidc", "namespace": "ns"},
                "stringData": {"client-id": "ray", "client-secret": "hidden"},
            }
        )
        config = kuberay_config(**OAUTH_SETTINGS, authentication=authentication, mTLSEnabled=False)
        async with run_controllers(env, config):
            cluster = await env.create(default(ray_cluster(), None, settings).cluster)
            await env.wait_until_idle()
        ca = b64decode((await env.get(SECRET, NAMES.proxy_tls_secret))["data"]["ca.crt"]).decode()
        context = ssl.create_default_context(cadata=ca)
        async with (
            run_head_pod(env, cluster, directory, issuer) as (url, ray),
            ClientSession(connector=TCPConnector(ssl=context)) as session,
        ):
            yield env, Browser(session, url), ray


async def token_of(env: Environment, name: str) -> str:
    """Create a ServiceAccount and return a token of it."""
    metadata = {"name": name, "namespace": "ns"}
    await env.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {},
    }
    response = await env.client.create_subresource(
        SERVICE_ACCOUNT, NamespacedName("ns", name), "token", request
    )
    return str(response["status"]["token"])


async def allow(env: Environment, name: str, subject: Object, *verbs: str) -> None:
    """Allow ``verbs`` on RayClusters of the namespace."""
    rule = {
        "apiGroups": ["ray.io"],
        "resources": ["rayclusters"],
        "resourceNames": ["rc"],
        "verbs": list(verbs),
    }
    metadata = {"name": name, "namespace": "ns"}
    await env.create(
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    )
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    await env.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        }
    )


async def check_kubernetes_tokens(env: Environment, browser: Browser, ray: Ray) -> None:
    """Check who reaches Ray with a Kubernetes token."""
    tokens = {name: await token_of(env, name) for name in ("member", "viewer", "stranger")}
    account = {"kind": "ServiceAccount", "namespace": "ns"}
    await allow(env, "member", {**account, "name": "member"}, "get", "create")
    await allow(env, "viewer", {**account, "name": "viewer"}, "get")
    assert await browser.status("GET", "/api/version") == 401
    assert await browser.status("GET", "/api/version", token="made-up") == 401
    for name, method, expected in (
        ("member", "GET", 200),
        ("member", "POST", 200),
        ("viewer", "GET", 200),
        ("viewer", "POST", 403),
        ("stranger", "GET", 403),
    ):
        before = len(ray.requests)
        assert await browser.status(method, "/api/jobs/", token=tokens[name]) == expected, (
            name,
            method,
        )
        assert len(ray.requests) == before + (expected == 200)
    assert all("Authorization" not in request.headers for request in ray.requests)


async def test_kubernetes_tokens_are_authenticated_and_authorized(tmp_path: Path) -> None:
    async with run_proxies(tmp_path, {"enabled": True}) as (env, browser, ray):
        assert await browser.status("GET", "/") == 401
        await check_kubernetes_tokens(env, browser, ray)


async def test_kubernetes_tokens_pass_the_login_proxy(tmp_path: Path) -> None:
    issuer = Issuer("https://dex.test", "ray", "hidden")
    async with run_proxies(tmp_path, {"enabled": True, "oidc": OIDC}, issuer) as (
        env,
        browser,
        ray,
    ):
        await check_kubernetes_tokens(env, browser, ray)
        # The API server does not trust this issuer, so a login alone gives no access.
        cookie = await browser.log_in(issuer, "alice@example.com")
        assert await browser.status("GET", "/", cookie=cookie) == 401
        assert all(request.path == "/api/jobs/" for request in ray.requests)


async def test_only_authorized_users_have_access_after_login(tmp_path: Path) -> None:
    issuer = Issuer("https://dex.test", "ray", "hidden")
    authentication = {"enabled": True, "verifier": "OIDC", "oidc": OIDC}
    async with run_proxies(tmp_path, authentication, issuer) as (env, browser, ray):
        await allow(
            env,
            "alice",
            {"kind": "User", "apiGroup": RBAC, "name": "oidc:alice@example.com"},
            "get",
        )
        alice = await browser.log_in(issuer, "alice@example.com")
        assert await browser.status("GET", "/", cookie=alice) == 200
        assert await browser.status("GET", "/api/jobs/", cookie=alice) == 200
        assert await browser.status("POST", "/api/jobs/", cookie=alice) == 403
        assert all("Authorization" not in request.headers for request in ray.requests)
        reached = len(ray.requests)
        bob = await browser.log_in(issuer, "bob@example.com")
        assert await browser.status("GET", "/", cookie=bob) == 403
        # A user name of the issuer is never that of another authenticator.
        member = await token_of(env, "member")
        await allow(
            env, "member", {"kind": "ServiceAccount", "namespace": "ns", "name": "member"}, "get"
        )
        impostor = await browser.log_in(issuer, "system:serviceaccount:ns:member")
        assert await browser.status("GET", "/", cookie=impostor) == 403
        # Tokens of the issuer's other clients, and of Kubernetes, are not accepted.
        claims = {"iss": issuer.url, "aud": "other", "email": "alice@example.com"}
        assert await browser.status("GET", "/api/jobs/", token=issuer.sign(claims)) == 401
        assert await browser.status("GET", "/api/jobs/", token=member) == 401
        assert len(ray.requests) == reached
        token = issuer.sign({**claims, "aud": "ray"})
        assert await browser.status("GET", "/api/jobs/", token=token) == 200
