"""Stand-ins for oauth2-proxy and kube-rbac-proxy, which run with the injected containers of a head pod.

They accept only flags that the programs document, and do what the programs do with them, as far as the operator uses
it: oauth2-proxy 7.15 and kube-rbac-proxy 0.21. Environment variables and files come from the Secrets that the container
refers to, and the identity from the pod's service account. Ports are replaced by free ones.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.kinds import SECRET, SERVICE_ACCOUNT
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.raycluster_environment import Environment

OAUTH2_PROXY_FLAGS = {
    "string": {
        *(
            "provider",
            "oidc-issuer-url",
            "scope",
            "code-challenge-method",
            "https-address",
            "http-address",
        ),
        *(
            "tls-cert-file",
            "tls-key-file",
            "cookie-name",
            "cookie-samesite",
            "cookie-refresh",
            "cookie-expire",
        ),
        "oidc-email-claim",
    },
    "list": {"email-domain", "upstream", "skip-auth-route", "provider-ca-file"},
    "bool": {
        *(
            "insecure-oidc-skip-nonce",
            "skip-provider-button",
            "pass-authorization-header",
            "pass-user-headers",
        ),
        *("pass-basic-auth", "skip-auth-strip-headers", "cookie-secure", "silence-ping-logging"),
        "use-system-trust-store",
    },
}
"""Documented flags, by type; a list flag is split at commas, and may be repeated."""

KUBE_RBAC_PROXY_FLAGS = {
    "string": {
        *(
            "secure-listen-address",
            "upstream",
            "config-file",
            "tls-cert-file",
            "tls-private-key-file",
        ),
        *(
            "oidc-issuer",
            "oidc-clientID",
            "oidc-username-claim",
            "oidc-username-prefix",
            "oidc-groups-claim",
        ),
        *("oidc-groups-prefix", "oidc-ca-file"),
    },
    "list": {"auth-token-audiences"},
    "bool": {"http2-disable"},
}

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_HOP_HEADERS = {"connection", "content-length", "transfer-encoding", "content-encoding"}


def parse_flags(arguments: list[str], documented: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return the values of the flags; fail if a flag is not documented or its value has the wrong type."""
    found: dict[str, Any] = {}
    for argument in arguments:
        assert argument.startswith("--"), argument
        name, _, value = argument[2:].partition("=")
        (kind,) = [kind for kind, names in documented.items() if name in names]
        if kind == "bool":
            assert value in ("", "true", "false"), argument
            found[name] = value != "false"
        elif kind == "list":
            found.setdefault(name, []).extend(value.split(","))
        else:
            assert name not in found, argument
            assert value, argument
            found[name] = value
    return found


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Issuer:
    """An OpenID Connect issuer with one client; :attr:`user` is who logs in next."""

    def __init__(self, url: str, client_id: str, client_secret: str) -> None:
        self.url = url
        self.client = (client_id, client_secret)
        self.user = ""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._codes: dict[str, dict[str, str]] = {}

    def authorize(self, query: Mapping[str, str]) -> dict[str, str]:
        """Log :attr:`user` in; return the parameters of the redirect to the client."""
        assert query["client_id"] == self.client[0]
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = secrets.token_hex(8)
        self._codes[code] = {**query, "user": self.user}
        return {"code": code, "state": query["state"]}

    def redeem(self, code: str, verifier: str, client: tuple[str, str]) -> str:
        """Return the ID token for a code."""
        assert client == self.client
        request = self._codes.pop(code)
        assert request["code_challenge"] == _encode(hashlib.sha256(verifier.encode()).digest())
        claims = {
            "iss": self.url,
            "aud": client[0],
            "email": request["user"],
            "nonce": request["nonce"],
        }
        return self.sign(claims)

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token."""
        parts = [_encode(json.dumps(part).encode()) for part in ({"alg": "RS256"}, claims)]
        signed = ".".join(parts).encode()
        return f"{signed.decode()}.{_encode(self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256()))}"

    def verify(self, token: str) -> dict[str, Any]:
        """Return the claims of a token; raise an exception if this issuer did not sign it."""
        signed, _, signature = token.rpartition(".")
        self._key.public_key().verify(
            _decode(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        claims: dict[str, Any] = json.loads(_decode(signed.partition(".")[2]))
        return claims


class _Proxy:
    """A container of the pod: its flags, environment and files."""

    def __init__(
        self,
        container: Object,
        env: dict[str, str],
        files: dict[str, Path],
        flags: Mapping[str, set[str]],
    ):
        arguments = [
            re.sub(r"\$\((\w+)\)", lambda found: env[found[1]], one) for one in container["args"]
        ]
        self.flags = parse_flags(arguments, flags)
        self.env = env
        self.files = files

    def path(self, mounted: str) -> Path:
        directory, _, name = mounted.rpartition("/")
        return self.files[directory] / name

    def server_context(self, key_flag: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            self.path(self.flags["tls-cert-file"]), self.path(self.flags[key_flag])
        )
        return context


async def _forward(
    request: web.Request, url: str, headers: Any, context: ssl.SSLContext | None
) -> web.Response:
    connector = TCPConnector(ssl=context if context is not None else True)
    async with ClientSession(
        connector=connector, timeout=ClientTimeout(5), auto_decompress=False
    ) as session:
        sent = {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS}
        async with session.request(
            request.method, url, headers=sent, data=await request.read(), allow_redirects=False
        ) as answer:
            kept = {
                name: value
                for name, value in answer.headers.items()
                if name.lower() not in _HOP_HEADERS
            }
            return web.Response(status=answer.status, headers=kept, body=await answer.read())


class KubeRBACProxy(_Proxy):
    """kube-rbac-proxy: authenticates by TokenReview or OIDC, authorizes by SubjectAccessReview, drops the token."""

    def __init__(
        self,
        container: Object,
        env: dict[str, str],
        files: dict[str, Path],
        client: Client,
        issuer: Issuer | None,
    ) -> None:
        super().__init__(container, env, files, KUBE_RBAC_PROXY_FLAGS)
        self.upstream = ""
        self._client = client
        self._issuer = issuer
        config = json.loads(self.path(self.flags["config-file"]).read_text())
        self._attributes = config["authorization"]["resourceAttributes"]

    async def handle(self, request: web.Request) -> web.Response:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        user = await self._authenticate(token) if kind == "Bearer" else None
        if user is None:
            return web.Response(status=401, text="Unauthorized")
        attributes = {**self._attributes, "group": self._attributes.get("apiGroup", "")}
        attributes = {key: value for key, value in attributes.items() if key != "apiGroup"}
        spec = {
            "resourceAttributes": {**attributes, "verb": _VERBS.get(request.method, "*")},
            **user,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        if not (await self._client.create(review))["status"]["allowed"]:
            return web.Response(status=403, text="Forbidden")
        headers = {
            name: value for name, value in request.headers.items() if name != "Authorization"
        }
        return await _forward(request, f"{self.upstream}{request.rel_url}", headers, None)

    async def _authenticate(self, token: str) -> dict[str, Any] | None:
        if "oidc-issuer" not in self.flags:
            review = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            }
            status = (await self._client.create(review))["status"]
            found = status.get("user") or {}
            return {"user": found["username"], "groups": found.get("groups", [])} if found else None
        assert self._issuer is not None
        try:
            claims = self._issuer.verify(token)
        except Exception:
            return None
        if (claims["iss"], claims["aud"]) != (
            self.flags["oidc-issuer"],
            self.flags["oidc-clientID"],
        ):
            return None
        name = f"{self.flags['oidc-username-prefix']}{claims[self.flags['oidc-username-claim']]}"
        groups = [
            f"{self.flags['oidc-groups-prefix']}{group}" for group in claims.get("groups", ())
        ]
        return {"user": name, "groups": groups}


class OAuth2Proxy(_Proxy):
    """oauth2-proxy: logs browsers in, and turns their sessions into bearer tokens."""

    def __init__(
        self, container: Object, env: dict[str, str], files: dict[str, Path], issuer: Issuer
    ) -> None:
        super().__init__(container, env, files, OAUTH2_PROXY_FLAGS)
        flags = self.flags
        assert flags["oidc-issuer-url"] == issuer.url
        assert flags["provider"] == "oidc"
        assert flags["http-address"] == "-"
        assert flags["cookie-name"].startswith("__Host-")
        assert flags["cookie-secure"]
        cookie = env["OAUTH2_PROXY_COOKIE_SECRET"]
        assert 32 in (len(cookie), len(_decode(cookie.rstrip("="))))
        self.upstream = ""
        self._issuer = issuer
        self._client = (env["OAUTH2_PROXY_CLIENT_ID"], env["OAUTH2_PROXY_CLIENT_SECRET"])
        self._logins: dict[str, tuple[str, str]] = {}
        self._sessions: dict[str, str] = {}
        self._trusted = ssl.create_default_context(
            cafile=str(files[env["SSL_CERT_DIR"]] / "ca.crt")
        )

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/oauth2/callback":
            verifier, nonce = self._logins.pop(request.query["state"])
            token = self._issuer.redeem(request.query["code"], verifier, self._client)
            assert (
                self.flags["insecure-oidc-skip-nonce"]
                or self._issuer.verify(token)["nonce"] == nonce
            )
            session = secrets.token_hex(16)
            self._sessions[session] = token
            cookie = f"{self.flags['cookie-name']}={session}; Path=/; HttpOnly; Secure"
            return web.Response(status=302, headers={"Location": "/", "Set-Cookie": cookie})
        session_token = self._sessions.get(request.cookies.get(self.flags["cookie-name"], ""))
        if session_token is None and not self._skips(request):
            return self._login(request)
        headers = request.headers.copy()
        if self.flags["skip-auth-strip-headers"]:
            headers.popall("Authorization", None)
        if session_token is not None and self.flags["pass-authorization-header"]:
            values = [*headers.popall("Authorization", []), f"Bearer {session_token}"]
            headers["Authorization"] = ",".join(values)
        return await _forward(request, f"{self.upstream}{request.rel_url}", headers, self._trusted)

    def _skips(self, request: web.Request) -> bool:
        for route in self.flags["skip-auth-route"]:
            method, path = re.split("!?=", route, maxsplit=1) if "=" in route else ("", route)
            matches = re.search(path, request.path) is not None
            if method in ("", request.method) and matches is not ("!=" in route):
                return True
        return False

    def _login(self, request: web.Request) -> web.Response:
        state, verifier, nonce = (secrets.token_hex(24) for _ in range(3))
        self._logins[state] = (verifier, nonce)
        query = {
            "client_id": self._client[0],
            "response_type": "code",
            "scope": self.flags["scope"],
            "redirect_uri": f"https://{request.host}/oauth2/callback",
            "state": state,
            "nonce": nonce,
            "code_challenge": _encode(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": self.flags["code-challenge-method"],
        }
        return web.Response(
            status=302, headers={"Location": f"{self._issuer.url}/auth?{urlencode(query)}"}
        )


class Ray:
    """The dashboard in the Ray container; :attr:`requests` are those that reached it."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return web.Response(text="ray")


async def _serve(stack: AsyncExitStack, handler: Any, context: ssl.SSLContext | None = None) -> int:
    server = web.ServerRunner(web.Server(handler))
    await server.setup()
    stack.push_async_callback(server.cleanup)
    site = web.TCPSite(server, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    assert site._server is not None
    port: int = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    return port


async def _secret(env: Environment, name: str, namespace: str) -> dict[str, bytes]:
    found = await env.get(SECRET, name, namespace)
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


@asynccontextmanager
async def run_head_pod(
    env: Environment, cluster: Object, directory: Path, issuer: Issuer | None = None
) -> AsyncIterator[tuple[str, Ray]]:
    """Run the proxies of the head pod of ``cluster``; yield the URL of the public port, and the Ray container."""
    namespace = cluster["metadata"]["namespace"]
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    volumes: dict[str, Path] = {}
    for volume in pod["volumes"]:
        if volume["name"] in ("proxy-tls-secret", "rbac-proxy-config"):
            data = await _secret(env, volume["secret"]["secretName"], namespace)
            volumes[volume["name"]] = directory / volume["name"]
            volumes[volume["name"]].mkdir()
            for item in volume["secret"].get("items") or [
                {"key": key, "path": key} for key in data
            ]:
                (volumes[volume["name"]] / item["path"]).write_bytes(data[item["key"]])
    account = NamespacedName(namespace, pod["serviceAccountName"])
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {},
    }
    response = await env.client.create_subresource(SERVICE_ACCOUNT, account, "token", request)
    config = ClientConfig.for_control_plane(env.plane, token=response["status"]["token"])
    containers = {container["name"]: container for container in pod["containers"]}
    async with Transport(config) as transport, AsyncExitStack() as stack:
        client = Client(transport, RESTMapper(transport), field_manager="rbac-proxy")
        ray = Ray()
        port = await _serve(stack, ray.handle)
        rbac = KubeRBACProxy(
            *await _inputs(env, containers["rbac-proxy"], volumes, namespace), client, issuer
        )
        assert urlsplit(rbac.flags["upstream"]).port == 8265
        rbac.upstream = f"http://127.0.0.1:{port}"
        port = await _serve(stack, rbac.handle, rbac.server_context("tls-private-key-file"))
        public = rbac.flags["secure-listen-address"]
        if "oauth-proxy" in containers:
            assert issuer is not None
            front = OAuth2Proxy(
                *await _inputs(env, containers["oauth-proxy"], volumes, namespace), issuer
            )
            assert front.flags["upstream"] == [f"https://{public}/"]
            assert public.startswith("127.0.0.1:"), (
                "nothing else may reach kube-rbac-proxy's inner port"
            )
            front.upstream = f"https://127.0.0.1:{port}"
            port = await _serve(stack, front.handle, front.server_context("tls-key-file"))
            public = front.flags["https-address"]
        assert public == ":8443"
        yield f"https://127.0.0.1:{port}", ray


async def _inputs(
    env: Environment, container: Object, volumes: Mapping[str, Path], namespace: str
) -> tuple[Object, dict[str, str], dict[str, Path]]:
    variables: dict[str, str] = {}
    for variable in container.get("env") or ():
        if "value" in variable:
            variables[variable["name"]] = variable["value"]
        else:
            reference = variable["valueFrom"]["secretKeyRef"]
            variables[variable["name"]] = (await _secret(env, reference["name"], namespace))[
                reference["key"]
            ].decode()
    files = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    return container, variables, files
