"""Admission webhooks and policies over HTTPS: the control plane calls a real webhook server."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient
from envtest.formats.certificate_authority import CertificateAuthority, server_context

TIMEOUT_SECONDS = 120.0
GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
WebhookHandler = Callable[[dict[str, Any]], dict[str, Any]]


class WebhookServer:
    """A webhook server that serves each path with a function of the admission request."""

    def __init__(self, names: list[str]) -> None:
        self._ca = CertificateAuthority(name="hooks-ca")
        self._pair = self._ca.server(names)
        self.redirects: dict[str, tuple[int, str]] = {}
        self.busy: dict[str, list[web.Response]] = {}
        """For paths, the responses before the handler is called."""
        self.methods: list[tuple[str, str]] = []
        self.timeouts: list[str] = []
        """How long each caller waits for the response."""
        self.handlers: dict[str, WebhookHandler] = {}
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    @property
    def ca_bundle(self) -> str:
        return b64encode(self._ca.pem).decode()

    @property
    def certificate(self) -> str:
        """The serving certificate itself, as a CA bundle."""
        return b64encode(self._pair.certificate).decode()

    async def _handle(self, request: web.Request) -> web.Response:
        self.methods.append((request.method, request.path))
        self.timeouts.append(request.query.get("timeout", ""))
        if request.path in self.redirects:
            code, location = self.redirects[request.path]
            return web.Response(status=code, headers={"Location": location})
        if self.busy.get(request.path):
            return self.busy[request.path].pop(0)
        if request.path not in self.handlers or request.method != "POST":
            raise web.HTTPNotFound
        review = await request.json()
        self.requests.append(review["request"])
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            **self.handlers[request.path](review["request"]),
        }
        return web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[WebhookServer]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app)
        await runner.setup()
        context = server_context(self._pair, self._ca.pem)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def configuration(
        self, kind: str, client_config: dict[str, Any], **more: Any
    ) -> dict[str, Any]:
        rules = [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["configmaps"],
            }
        ]
        webhook = {
            "name": "h.acme.io",
            "clientConfig": {"caBundle": self.ca_bundle, **client_config},
            "rules": rules,
        }
        webhook |= {"sideEffects": "None", "admissionReviewVersions": ["v1"], **more}
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "hooks"},
            "webhooks": [webhook],
        }


@pytest.fixture
async def hooks() -> AsyncIterator[WebhookServer]:
    async with WebhookServer(["127.0.0.1", "hooks.acme.svc"]).serve() as server:
        yield server


async def config_map(api: APIClient, name: str, **more: Any) -> Any:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {}},
        **more,
    }
    return await api.post(MAPS, body)


async def wait_for(api: APIClient, probe: Callable[[Any], bool], **body: Any) -> Any:
    """Create a ConfigMap (dry run) until the response satisfies ``probe``.

    A real server picks up new configurations with a delay.
    """
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            response = await api.post(
                f"{MAPS}?dryRun=All",
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}, **body},
            )
            if probe(response):
                return response
            await asyncio.sleep(0.05)


async def test_mutating_webhook_changes_the_stored_object(
    api: APIClient, hooks: WebhookServer
) -> None:
    patch = b64encode(
        json.dumps([{"op": "add", "path": "/data", "value": {"by": "hook"}}]).encode()
    ).decode()
    hooks.handlers["/mutate"] = lambda _: {
        "patch": patch,
        "patchType": "JSONPatch",
        "warnings": ["changed"],
    }
    configuration = hooks.configuration("Mutating", {"url": f"{hooks.url}/mutate"})
    assert (await api.post(f"{GROUP}/mutatingwebhookconfigurations", configuration)).code == 201
    await wait_for(api, lambda response: "data" in response.body)
    response = await config_map(api, "a")
    assert response.body["data"] == {"by": "hook"}
    assert '299 - "changed"' in response.headers.getall("Warning")
    assert hooks.requests[-1]["userInfo"]["groups"][0] == "system:masters"
    assert (await api.get(f"{MAPS}/a")).body["data"] == {"by": "hook"}


async def test_validating_webhook_rejects_an_object(api: APIClient, hooks: WebhookServer) -> None:
    hooks.handlers["/validate"] = lambda request: {
        "allowed": request["object"].get("data") is None,
        "status": {"message": "no data here", "code": 403},
    }
    configuration = hooks.configuration("Validating", {"url": f"{hooks.url}/validate"})
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    response = await wait_for(api, lambda response: response.code == 403, data={"a": "b"})
    assert (
        response.body["message"] == 'admission webhook "h.acme.io" denied the request: no data here'
    )
    assert (await config_map(api, "fine")).code == 201
    assert (await config_map(api, "wrong", data={"a": "b"})).code == 403
    assert (await api.get(f"{MAPS}/wrong")).code == 404


async def test_ca_bundle_may_contain_the_serving_certificate_itself(
    api: APIClient, hooks: WebhookServer
) -> None:
    hooks.handlers["/validate"] = lambda _: {
        "allowed": False,
        "status": {"message": "no", "code": 403},
    }
    client_config = {"url": f"{hooks.url}/validate", "caBundle": hooks.certificate}
    configuration = hooks.configuration("Validating", client_config)
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    await wait_for(api, lambda response: response.code == 403)


@pytest.mark.parametrize(
    ("path", "requested"),
    [
        ("//hook", "/hook"),
        ("/a//b/", "/a/b"),
        ("/a/../b", "/b"),
        ("/./a", "/a"),
        ("", "/"),
        ("/", "/"),
    ],
)
async def test_path_of_webhook_url_is_cleaned(
    api: APIClient, hooks: WebhookServer, path: str, requested: str
) -> None:
    hooks.handlers[requested] = lambda _: {
        "allowed": False,
        "status": {"message": "no", "code": 403},
    }
    configuration = hooks.configuration("Validating", {"url": f"{hooks.url}{path}"})
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    await wait_for(api, lambda response: response.code == 403)
    assert set(hooks.methods) == {("POST", requested)}


async def test_redirects_of_webhooks_are_followed(api: APIClient, hooks: WebhookServer) -> None:
    hooks.handlers["/end"] = lambda _: {"allowed": False, "status": {"message": "no", "code": 403}}
    hooks.redirects = {
        "/again": (307, "/end"),
        "/moved": (308, "/again"),
        "/found": (302, "/end"),
        "/loop": (307, "/loop"),
    }
    names = ("again", "moved", "found", "loop")
    for name in names:
        configuration = hooks.configuration("Validating", {"url": f"{hooks.url}/{name}"})
        configuration["metadata"]["name"] = name
        configuration["webhooks"][0]["matchConditions"] = [
            {"name": "m", "expression": f"object.metadata.name == '{name}'"}
        ]
        assert (
            await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)
        ).code == 201
    messages = {}
    for name in names:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (response := await config_map(api, name)).code == 201:
                await api.delete(f"{MAPS}/{name}")
        messages[name] = response.body["message"]
    assert (
        messages["again"]
        == messages["moved"]
        == 'admission webhook "h.acme.io" denied the request: no'
    )
    assert messages["found"].endswith(
        "failed to call webhook: the server could not find the requested resource"
    )
    assert ("GET", "/end") in hooks.methods
    assert messages["loop"].endswith("stopped after 10 redirects")


def busy(code: int, retry_after: str) -> web.Response:
    return web.Response(status=code, headers={"Retry-After": retry_after} if retry_after else {})


@pytest.mark.parametrize(
    ("responses", "calls", "message"),
    [
        ([(429, "0"), (503, "0"), (500, "-1")], 4, 'webhook "h.acme.io" denied the request: no'),
        ([(429, "0")] * 11, 11, "too many requests and has asked us to try again later"),
        ([(429, "60")], 1, "context deadline exceeded"),
        ([(429, "")], 1, "too many requests and has asked us to try again later"),
        ([(503, "soon")], 1, "the server is currently unable to handle the request"),
        ([(404, "0")], 1, "the server could not find the requested resource"),
    ],
)
async def test_busy_webhook_is_called_again_when_it_wants(
    api: APIClient,
    hooks: WebhookServer,
    responses: list[tuple[int, str]],
    calls: int,
    message: str,
) -> None:
    refusal = {"allowed": False, "status": {"message": "no", "code": 403}}
    hooks.handlers["/check"] = lambda _: refusal
    configuration = hooks.configuration(
        "Validating", {"url": f"{hooks.url}/check"}, timeoutSeconds=5
    )
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    await wait_for(api, lambda response: response.code == 403)
    hooks.busy["/check"] = [busy(code, retry_after) for code, retry_after in responses]
    hooks.methods.clear()
    response = await config_map(api, "busy")
    assert message in response.body["message"]
    assert hooks.methods == [("POST", "/check")] * calls


async def test_reviews_of_what_controllers_delete_have_options(hooks: WebhookServer) -> None:
    hooks.handlers["/check"] = lambda _: {}
    configuration = hooks.configuration("Validating", {"url": f"{hooks.url}/check"})
    configuration["webhooks"][0]["rules"][0]["operations"] = ["DELETE"]
    async with (
        ControlPlane.embedded(controllers=("gc",)) as plane,
        APIClient(plane) as api,
    ):
        await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)
        owner = (await config_map(api, "owner")).body
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
        reference["uid"] = owner["metadata"]["uid"]
        metadata = {"name": "child", "ownerReferences": [reference]}
        child = (await config_map(api, "child", metadata=metadata)).body
        await api.delete(f"{MAPS}/owner")
        await api.until(f"{MAPS}/child", 404)
    assert hooks.requests[-1]["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "preconditions": {"uid": child["metadata"]["uid"]},
        "propagationPolicy": "Background",
    }


@pytest.mark.parametrize(("timeout", "seen"), [("300ms", "1s"), ("-1s", "10s"), ("90s", "10s")])
async def test_request_ends_when_its_client_no_longer_waits(
    api: APIClient, hooks: WebhookServer, timeout: str, seen: str
) -> None:
    hooks.handlers["/check"] = lambda _: {"allowed": False, "status": {"code": 403}}
    configuration = hooks.configuration(
        "Validating", {"url": f"{hooks.url}/check"}, failurePolicy="Ignore"
    )
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    await wait_for(api, lambda response: response.code == 403)
    is_late = timeout == "300ms"
    hooks.busy["/check"] = [busy(429, "60")] if is_late else []
    hooks.timeouts.clear()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    response = await api.post(f"{MAPS}?timeout={timeout}", body)
    assert response.code == (504 if is_late else 403)
    assert hooks.timeouts == [seen]
    assert (await api.get(f"{MAPS}/late")).code == 404


async def test_webhook_with_untrusted_certificate_is_not_called(
    api: APIClient, hooks: WebhookServer
) -> None:
    hooks.handlers["/validate"] = lambda _: {}
    other = b64encode(CertificateAuthority(name="other-ca").pem).decode()
    configuration = hooks.configuration(
        "Validating", {"url": f"{hooks.url}/validate", "caBundle": other}
    )
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    response = await wait_for(api, lambda response: response.code == 500)
    assert (
        'failed calling webhook "h.acme.io": failed to call webhook: Post "https://'
        in response.body["message"]
    )
    assert response.body["message"].endswith(
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    )
    assert not hooks.requests


async def test_service_webhook_requires_a_registered_endpoint(hooks: WebhookServer) -> None:
    hooks.handlers["/check"] = lambda _: {"allowed": False}
    service = {"namespace": "acme", "name": "hooks", "path": "/check"}
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        assert isinstance(plane, EmbeddedControlPlane)
        configuration = hooks.configuration("Validating", {"service": service})
        assert (
            await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)
        ).code == 201
        response = await config_map(api, "a")
        assert response.body["message"].endswith(
            'Post "https://hooks.acme.svc:443/check?timeout=10s": service "hooks" not found'
        )
        with pytest.raises(ValueError, match="url: 'http://a:1': must be https://HOST:PORT"):
            plane.register_service("acme", "hooks", "http://a:1")
        plane.register_service("acme", "hooks", hooks.url)
        assert (await config_map(api, "a")).code == 400
        assert len(hooks.requests) == 1


async def test_unreachable_webhook_is_handled_by_its_failure_policy(
    api: APIClient, hooks: WebhookServer
) -> None:
    unreachable = {"url": "https://127.0.0.1:1/gone"}
    configuration = hooks.configuration("Validating", unreachable, failurePolicy="Fail")
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    response = await wait_for(api, lambda response: response.code == 500)
    assert "dial tcp 127.0.0.1:1: connect: connection refused" in response.body["message"]
    assert (await api.delete(f"{GROUP}/validatingwebhookconfigurations/hooks")).code == 200
    configuration = hooks.configuration("Validating", unreachable, failurePolicy="Ignore")
    assert (await api.post(f"{GROUP}/validatingwebhookconfigurations", configuration)).code == 201
    await wait_for(api, lambda response: response.code == 201)


async def test_validating_admission_policy_denies_a_request(api: APIClient) -> None:
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
    ]
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {"expression": "!has(object.data) || size(object.data) < 2", "message": "too much"}
        ],
    }
    policy = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "few"}, "spec": spec}
    binding = {"policyName": "few", "validationActions": ["Deny"]}
    policy_binding = {
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "few"},
        "spec": binding,
    }
    version = {"apiVersion": "admissionregistration.k8s.io/v1"}
    assert (await api.post(f"{GROUP}/validatingadmissionpolicies", version | policy)).code == 201
    assert (
        await api.post(f"{GROUP}/validatingadmissionpolicybindings", version | policy_binding)
    ).code == 201
    response = await wait_for(api, lambda response: response.code == 422, data={"a": "1", "b": "2"})
    denial = "ValidatingAdmissionPolicy 'few' with binding 'few' denied request: too much"
    assert response.body["message"] == f'configmaps "probe" is forbidden: {denial}'
    assert (await config_map(api, "a", data={"a": "1"})).code == 201
