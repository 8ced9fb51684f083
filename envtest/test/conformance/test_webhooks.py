"""Admission and conversion webhooks, called through Services whose pods :mod:`test.conformance.servers` plays."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.formats.certificate_authority import CertificateAuthority
from test.conformance import servers
from test.conformance.client import SpecClient
from test.conformance.specs import plays
from test.conformance.test_custom_resources import ANYTHING, CRDS, KUBECTL, crd, establish, kubectl

GROUP = "admissionregistration.k8s.io"
VALIDATING = f"/apis/{GROUP}/v1/validatingwebhookconfigurations"
MUTATING = f"/apis/{GROUP}/v1/mutatingwebhookconfigurations"
DISALLOWED = {"webhook-e2e-test": "webhook-disallow"}
START = {"mutation-start": "yes"}
KINDS = {VALIDATING: "ValidatingWebhookConfiguration", MUTATING: "MutatingWebhookConfiguration"}


class Webhooks:
    """Webhook servers in a namespace, deployed as specs deploy them, and configurations that name their Service."""

    def __init__(self, client: SpecClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.authority = CertificateAuthority()
        self.config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    async def deploy(self, service: str, label: str, port: int, target: int) -> None:
        """Create the certificate, the Deployment and the Service of a server, and wait until it is ready."""
        client, core = self.client, f"/api/v1/namespaces/{self.namespace}"
        pair = self.authority.server([f"{service}.{self.namespace}.svc"])
        data = {
            "tls.crt": b64encode(pair.certificate).decode(),
            "tls.key": b64encode(pair.key).decode(),
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "certificate"},
            "type": "Opaque",
        }
        await client.create(f"{core}/secrets", {**secret, "data": data})
        labels = {"app": "sample-webhook", label: "true"}
        probe = {
            "httpGet": {"scheme": "HTTPS", "port": target, "path": "/readyz"},
            "periodSeconds": 1,
        }
        container = {
            "name": "server",
            "image": "agnhost",
            "readinessProbe": probe,
            "ports": [{"containerPort": target}],
        }
        volume = {"name": "certificates", "secret": {"secretName": "certificate"}}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "volumes": [volume]},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": "sample-webhook"}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        deployments = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        await client.create(deployments, body)
        await client.eventually(
            f"{deployments}/sample-webhook",
            lambda body: (body.get("status") or {}).get("availableReplicas") == 1,
        )
        ports = {
            "ports": [{"protocol": "TCP", "port": port, "targetPort": target}],
            "selector": {label: "true"},
        }
        metadata = {"name": service}
        await client.create(
            f"{core}/services",
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports},
        )
        await client.eventually(
            f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices",
            lambda body: sum(len(each.get("endpoints") or ()) for each in body["items"]) == 1,
        )

    def client_config(
        self, path: str, service: str = "e2e-test-webhook", port: int = 8443
    ) -> dict[str, Any]:
        """Return a clientConfig with the Service and the CA of its certificate."""
        reference = {"namespace": self.namespace, "name": service, "path": path, "port": port}
        return {"service": reference, "caBundle": b64encode(self.authority.pem).decode()}

    def hook(
        self,
        name: str,
        path: str,
        resource: str,
        *operations: str,
        group: str = "",
        versions: tuple[str, ...] = ("v1",),
        **fields: Any,
    ) -> dict[str, Any]:
        """Return a webhook for one resource in the namespace."""
        operations = operations or ("CREATE",)
        rule = {
            "apiGroups": [group],
            "apiVersions": versions,
            "operations": operations,
            "resources": [resource],
        }
        selector = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        }
        more = {
            "sideEffects": "None",
            "admissionReviewVersions": ["v1", "v1beta1"],
            **selector,
            **fields,
        }
        return {
            "name": f"{name}.k8s.io",
            "rules": [rule],
            "clientConfig": self.client_config(path),
            **more,
        }

    async def configure(
        self, path: str, name: str, *hooks: dict[str, Any], labels: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Create a configuration."""
        metadata: dict[str, Any] = {"name": name, **({"labels": labels} if labels else {})}
        body = {
            "apiVersion": f"{GROUP}/v1",
            "kind": KINDS[path],
            "metadata": metadata,
            "webhooks": hooks,
        }
        return await self.client.create(path, body)

    async def data_of(self, name: str, data: dict[str, str]) -> dict[str, str]:
        """Create a ConfigMap and return the data that it has afterwards."""
        result: dict[str, str] = (
            await self.client.create(self.config_maps, config_map(name, data))
        )["data"]
        return result

    async def refused(self, path: str, body: dict[str, Any], text: str, code: int = 400) -> None:
        """Create an object, which is refused with a message that contains ``text``."""
        response = await self.client.post(path, body)
        assert (response.code, text in response.body["message"]) == (code, True), response.body


@pytest.fixture
async def webhooks(client: SpecClient, namespace: str) -> Webhooks:
    deployed = Webhooks(client, namespace)
    await deployed.deploy("e2e-test-webhook", "webhook", 8443, servers.PORTS["webhook"])
    return deployed


def config_map(name: str, data: dict[str, str] | None = None) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {}}


def pod(name: str, container: str = "example", **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": container, "image": "registry.k8s.io/pause:3.10"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


@plays("AdmissionWebhook should include webhook resources in discovery documents")
async def test_webhook_configurations_are_discovered(client: SpecClient) -> None:
    groups = {each["name"]: each for each in (await client.read("/apis"))["groups"]}
    assert "v1" in [each["version"] for each in groups[GROUP]["versions"]]
    group = await client.read(f"/apis/{GROUP}")
    assert (group["name"], "v1" in [each["version"] for each in group["versions"]]) == (GROUP, True)
    resources = await client.read(f"/apis/{GROUP}/v1")
    assert resources["groupVersion"] == f"{GROUP}/v1"
    names = {each["name"] for each in resources["resources"]}
    assert {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} <= names


@plays("AdmissionWebhook should be able to deny pod and configmap creation")
async def test_webhook_denies_pods_and_config_maps(webhooks: Webhooks) -> None:
    client = webhooks.client
    selector = {
        "matchLabels": {"team": "a"},
        "matchExpressions": [
            {"key": "skip-webhook-admission", "operator": "NotIn", "values": ["yes"]}
        ],
    }
    await client.strategic(
        f"/api/v1/namespaces/{webhooks.namespace}", {"metadata": {"labels": {"team": "a"}}}
    )
    unreachable = webhooks.hook("fail-open", "/configmaps", "configmaps", failurePolicy="Ignore")
    del unreachable["clientConfig"]["caBundle"]
    await webhooks.configure(
        VALIDATING,
        "deny",
        webhooks.hook("deny-pods", "/pods", "pods", timeoutSeconds=1),
        webhooks.hook(
            "deny-data",
            "/configmaps",
            "configmaps",
            "CREATE",
            "UPDATE",
            "DELETE",
            namespaceSelector=selector,
        ),
        unreachable,
    )
    disallowed = pod("disallowed-pod", "webhook-disallow", **DISALLOWED)
    await webhooks.refused(webhooks.pods, disallowed, "the pod contains unwanted container name")
    await webhooks.refused(webhooks.pods, disallowed, "the pod contains unwanted label")
    hanging = pod("hanging-pod", **{"webhook-e2e-test": "wait-forever"})
    await webhooks.refused(webhooks.pods, hanging, "context deadline exceeded", 500)
    assert (await client.get(f"{webhooks.pods}/hanging-pod")).code == 404
    text = "the configmap contains unwanted key and value"
    await webhooks.refused(
        webhooks.config_maps, config_map("disallowed-configmap", DISALLOWED), text
    )
    allowed = await client.create(
        webhooks.config_maps, config_map("allowed-configmap", {"admit": "this"})
    )
    one = f"{webhooks.config_maps}/allowed-configmap"
    for response in (
        await client.put(one, {**allowed, "data": {**allowed["data"], **DISALLOWED}}),
        await client.strategic(one, {"data": DISALLOWED}),
    ):
        assert (response.code, text in response.body["message"]) == (400, True)
    metadata = {"name": "exempted", "labels": {"skip-webhook-admission": "yes", "team": "a"}}
    await client.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )
    await client.create(
        "/api/v1/namespaces/exempted/configmaps", config_map("disallowed-configmap", DISALLOWED)
    )


@plays("AdmissionWebhook should be able to deny attaching pod")
async def test_webhook_denies_attaching_to_a_pod(
    cluster: ControlPlane, webhooks: Webhooks, tmp_path: Path
) -> None:
    client = webhooks.client
    await webhooks.configure(
        VALIDATING,
        "attach",
        webhooks.hook("deny-attaching-pod", "/pods/attach", "pods/attach", "CONNECT"),
    )
    await client.create(webhooks.pods, pod("to-be-attached-pod", "container1"))
    await client.eventually(
        f"{webhooks.pods}/to-be-attached-pod", lambda body: body["status"].get("phase") == "Running"
    )
    query = {"container": "container1", "stdin": "true", "stdout": "true", "stderr": "true"}
    for method in ("GET", "POST"):
        attached = await client.request(
            method, f"{webhooks.pods}/to-be-attached-pod/attach", query=query
        )
        assert attached.code == 400, attached.body
        assert "attaching to pod 'to-be-attached-pod' is not allowed" in attached.body["message"]
    if KUBECTL:
        flags = ("-n", webhooks.namespace, "-i", "-c=container1")
        code, output = await kubectl(cluster, tmp_path, "attach", *flags, "to-be-attached-pod")
        assert (code, "attaching to pod 'to-be-attached-pod' is not allowed" in output) == (
            1,
            True,
        ), output
    # Without stdin, the webhook allows it: the request fails because it upgrades to no protocol.
    query["stdin"] = "false"
    assert (
        await client.request("GET", f"{webhooks.pods}/to-be-attached-pod/attach", query=query)
    ).code == 400


@plays("AdmissionWebhook should be able to deny custom resource creation, update and deletion")
async def test_webhook_denies_custom_resources(webhooks: Webhooks) -> None:
    client = webhooks.client
    await establish(client, crd("webhook.example.com", "v1"))
    path = f"/apis/webhook.example.com/v1/namespaces/{webhooks.namespace}/noxus"
    operations = ("CREATE", "UPDATE", "DELETE")
    await webhooks.configure(
        VALIDATING,
        "custom",
        webhooks.hook(
            "deny-data", "/custom-resource", "noxus", *operations, group="webhook.example.com"
        ),
    )
    unwanted = "the custom resource contains unwanted data"
    await webhooks.refused(path, custom("one", DISALLOWED), unwanted)
    created = await client.create(path, custom("two", {"webhook-e2e-test": "webhook-nondeletable"}))
    changed = await client.put(f"{path}/two", {**created, "data": DISALLOWED})
    assert (changed.code, unwanted in changed.body["message"]) == (400, True)
    deleted = await client.delete(f"{path}/two")
    text = "the custom resource cannot be deleted because it contains unwanted key and value"
    assert (deleted.code, text in deleted.body["message"]) == (400, True)
    await client.update(
        f"{path}/two", lambda obj: obj.update(data={"webhook-e2e-test": "webhook-allow"})
    )
    assert (await client.delete(f"{path}/two")).code == 200


def custom(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "webhook.example.com/v1",
        "kind": "Noxu",
        "metadata": {"name": name},
        "data": data,
    }


@plays("AdmissionWebhook should unconditionally reject operations on fail closed webhook")
async def test_webhook_that_cannot_be_called_rejects_requests(webhooks: Webhooks) -> None:
    hook = webhooks.hook("fail-closed", "/configmaps", "configmaps", failurePolicy="Fail")
    del hook["clientConfig"]["caBundle"]
    await webhooks.configure(VALIDATING, "closed", hook)
    response = await webhooks.client.post(webhooks.config_maps, config_map("foo"))
    assert (response.code, response.body["reason"]) == (500, "InternalError")


@plays("AdmissionWebhook should mutate configmap")
async def test_webhooks_mutate_in_their_order(webhooks: Webhooks) -> None:
    hooks = [
        webhooks.hook(f"stage-{stage}", "/mutating-configmaps", "configmaps") for stage in (1, 2)
    ]
    await webhooks.configure(MUTATING, "stages", *hooks)
    expected = {**START, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}
    assert await webhooks.data_of("to-be-mutated", START) == expected


@plays("AdmissionWebhook should mutate pod and apply defaults after mutation")
async def test_mutated_pod_has_defaults(webhooks: Webhooks) -> None:
    await webhooks.configure(
        MUTATING, "pods", webhooks.hook("adding-init-container", "/mutating-pods", "pods")
    )
    created = await webhooks.client.create(webhooks.pods, pod("webhook-to-be-mutated"))
    (container,) = created["spec"]["initContainers"]
    assert container["name"] == "webhook-added-init-container"
    assert container["terminationMessagePolicy"] == "File"


@plays(
    "AdmissionWebhook should not be able to mutate or prevent deletion of webhook configuration objects"
)
async def test_webhooks_do_not_see_webhook_configurations(webhooks: Webhooks) -> None:
    resources = [path.rpartition("/")[2] for path in KINDS]
    for path, endpoint, operation in (
        (VALIDATING, "/always-deny", "DELETE"),
        (MUTATING, "/add-label", "CREATE"),
    ):
        hook = webhooks.hook(
            "configurations", endpoint, "*", operation, group=GROUP, namespaceSelector={}
        )
        hook["rules"][0] |= {"apiVersions": ["*"], "resources": resources}
        await webhooks.configure(path, "blocking", hook)
    for path in KINDS:
        dummy = webhooks.hook("dummy", "", "invalid", failurePolicy="Ignore")
        created = await webhooks.configure(path, "dummy", dummy)
        assert "labels" not in created["metadata"]
        assert (await webhooks.client.delete(f"{path}/dummy")).code == 200


@plays(
    "AdmissionWebhook should mutate custom resource",
    "AdmissionWebhook should mutate custom resource with pruning",
)
@pytest.mark.parametrize("prunes", [False, True])
async def test_webhooks_mutate_custom_resources(webhooks: Webhooks, prunes: bool) -> None:
    kept = {name: {"type": "string"} for name in ("mutation-start", "mutation-stage-1")}
    schema = (
        {"type": "object", "properties": {"data": {"type": "object", "properties": kept}}}
        if prunes
        else ANYTHING
    )
    await establish(webhooks.client, crd("webhook.example.com", "v1", "v2", schema=schema))
    await webhooks.configure(MUTATING, "stages", *custom_stages(webhooks))
    path = f"/apis/webhook.example.com/v1/namespaces/{webhooks.namespace}/noxus"
    created = await webhooks.client.create(path, custom("one", START))
    stages = {"mutation-stage-1": "yes", **({} if prunes else {"mutation-stage-2": "yes"})}
    assert created["data"] == START | stages


def custom_stages(webhooks: Webhooks) -> list[dict[str, Any]]:
    names: dict[str, Any] = {"group": "webhook.example.com", "versions": ("v1", "v2")}
    return [
        webhooks.hook("stage-1", "/mutating-custom-resource", "noxus", "CREATE", "UPDATE", **names),
        webhooks.hook("stage-2", "/mutating-custom-resource", "noxus", "CREATE", **names),
    ]


@plays("AdmissionWebhook should mutate custom resource with different stored version")
async def test_webhooks_mutate_after_the_stored_version_changed(webhooks: Webhooks) -> None:
    client = webhooks.client
    await establish(client, crd("webhook.example.com", "v1", "v2"))
    await webhooks.configure(MUTATING, "stages", *custom_stages(webhooks))
    path = "/apis/webhook.example.com/{}/namespaces/" + f"{webhooks.namespace}/noxus"
    await client.create(path.format("v1"), custom("one", START))
    versions = [
        {
            "name": name,
            "storage": name == "v2",
            "served": True,
            "schema": {"openAPIV3Schema": ANYTHING},
        }
        for name in ("v1", "v2")
    ]
    patched = await client.strategic(
        f"{CRDS}/noxus.webhook.example.com", {"spec": {"versions": versions}}
    )
    assert patched.code == 200, patched.body
    changed = await client.json_patch(f"{path.format('v2')}/one", ("add", "/dummy", "test"))
    assert changed.code == 200, changed.body
    assert changed.body["data"] == {**START, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}
    assert changed.body["dummy"] == "test"


@plays("AdmissionWebhook should deny crd creation")
async def test_webhook_denies_definitions(webhooks: Webhooks) -> None:
    selector = {"matchLabels": {"team": "true"}}
    hook = webhooks.hook(
        "deny-crd", "/crd", "customresourcedefinitions", group="apiextensions.k8s.io"
    )
    await webhooks.configure(
        VALIDATING, "crd", {**hook, "namespaceSelector": {}, "objectSelector": selector}
    )
    definition = crd("webhook.example.com", "v1")
    definition["metadata"]["labels"] = DISALLOWED | {"team": "true"}
    await webhooks.refused(CRDS, definition, "the crd contains unwanted label")
    definition["metadata"]["labels"] = DISALLOWED
    await webhooks.client.create(CRDS, definition)


@plays("AdmissionWebhook should honor timeout")
async def test_timeouts_and_failure_policies(
    webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SLOW_SECONDS", 1.5)
    client, one = webhooks.client, f"{webhooks.config_maps}/slow"
    for policy, timeout in (("Fail", 1), ("Ignore", 1), ("Fail", 10), ("Fail", None)):
        more: dict[str, Any] = {
            "failurePolicy": policy,
            **({"timeoutSeconds": timeout} if timeout else {}),
        }
        hook = webhooks.hook("allow-with-delay", "/always-allow-delay-5s", "configmaps", **more)
        created = await webhooks.configure(VALIDATING, "slow", hook)
        assert created["webhooks"][0]["timeoutSeconds"] == (timeout or 10)
        response = await client.post(webhooks.config_maps, config_map("slow"))
        if (policy, timeout) == ("Fail", 1):
            assert response.code == 500
            assert "context deadline exceeded" in response.body["message"]
            assert "/always-allow-delay-5s?timeout=1s" in response.body["message"]
        else:
            assert response.code == 201
            assert (await client.delete(one)).code == 200
        assert (await client.delete(f"{VALIDATING}/slow")).code == 200


async def denied(webhooks: Webhooks) -> bool:
    response = await webhooks.client.post(webhooks.config_maps, config_map("probe", DISALLOWED))
    await webhooks.client.delete(f"{webhooks.config_maps}/probe")
    return response.code == 400 and "denied" in response.body["message"]


async def mutated(webhooks: Webhooks) -> bool:
    data = await webhooks.data_of("probe", START)
    await webhooks.client.delete(f"{webhooks.config_maps}/probe")
    return "mutation-stage-1" in data


Probe = Callable[[Webhooks], Awaitable[bool]]
KIND_PROBES = [(VALIDATING, "/configmaps", denied), (MUTATING, "/mutating-configmaps", mutated)]


@plays(
    "AdmissionWebhook patching/updating a validating webhook should work",
    "AdmissionWebhook patching/updating a mutating webhook should work",
)
@pytest.mark.parametrize(
    ("path", "endpoint", "applies"), KIND_PROBES, ids=["validating", "mutating"]
)
async def test_changed_configurations_apply(
    webhooks: Webhooks, path: str, endpoint: str, applies: Probe
) -> None:
    await webhooks.configure(path, "changing", webhooks.hook("config-maps", endpoint, "configmaps"))
    assert await applies(webhooks)
    one = f"{path}/changing"
    await webhooks.client.update(
        one, lambda obj: obj["webhooks"][0]["rules"][0].update(operations=["UPDATE"])
    )
    assert not await applies(webhooks)
    patched = await webhooks.client.json_patch(
        one, ("replace", "/webhooks/0/rules/0/operations", ["CREATE"])
    )
    assert patched.code == 200
    assert await applies(webhooks)


@plays(
    "AdmissionWebhook listing validating webhooks should work",
    "AdmissionWebhook listing mutating webhooks should work",
)
@pytest.mark.parametrize(
    ("path", "endpoint", "applies"), KIND_PROBES, ids=["validating", "mutating"]
)
async def test_deleted_collections_do_not_apply(
    webhooks: Webhooks, path: str, endpoint: str, applies: Probe
) -> None:
    hook = webhooks.hook("config-maps", endpoint, "configmaps")
    for number in range(10):
        await webhooks.configure(
            path, f"listed-{number}", hook, labels={"e2e-list-test-uuid": "one"}
        )
    selector = {"labelSelector": "e2e-list-test-uuid=one"}
    assert len(await webhooks.client.names(path, **selector)) == 10
    assert await applies(webhooks)
    assert (await webhooks.client.delete(path, query=selector)).code == 200
    assert await webhooks.client.names(path, **selector) == []
    assert not await applies(webhooks)


@plays(
    "AdmissionWebhook should be able to create and update validating webhook configurations with match conditions",
    "AdmissionWebhook should be able to create and update mutating webhook configurations with match conditions",
    "AdmissionWebhook should reject validating webhook configurations with invalid match conditions",
    "AdmissionWebhook should reject mutating webhook configurations with invalid match conditions",
)
@pytest.mark.parametrize("path", [VALIDATING, MUTATING], ids=["validating", "mutating"])
async def test_match_conditions_are_stored_and_compiled(client: SpecClient, path: str) -> None:
    webhooks = Webhooks(client, "default")
    first = {"name": "expression-1", "expression": "object.metadata.namespace == 'production'"}
    second = {"name": "expression-2", "expression": "object.metadata.namespace == 'staging'"}
    await webhooks.configure(
        path, "one", webhooks.hook("one", "/always-deny", "configmaps", matchConditions=[first])
    )
    assert (await client.read(f"{path}/one"))["webhooks"][0]["matchConditions"] == [first]
    await client.update(
        f"{path}/one", lambda obj: obj["webhooks"][0].update(matchConditions=[first, second])
    )
    assert (await client.read(f"{path}/one"))["webhooks"][0]["matchConditions"] == [first, second]
    invalid = {"name": "invalid-expression-1", "expression": "... [] bad expression"}
    hook = webhooks.hook("two", "/always-deny", "configmaps", matchConditions=[invalid])
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": KINDS[path],
        "metadata": {"name": "two"},
        "webhooks": [hook],
    }
    await webhooks.refused(path, body, "compilation failed", 422)


@plays("AdmissionWebhook should mutate everything except 'skip-me' configmaps")
async def test_match_conditions_exclude_objects(webhooks: Webhooks) -> None:
    condition = {"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}
    hook = webhooks.hook(
        "stage-1", "/mutating-configmaps", "configmaps", matchConditions=[condition]
    )
    await webhooks.configure(MUTATING, "conditions", hook)
    assert await webhooks.data_of("other", START) == {**START, "mutation-stage-1": "yes"}
    assert await webhooks.data_of("skip-me", START) == START


async def test_webhook_that_a_url_names_is_called(webhooks: Webhooks) -> None:
    pair = webhooks.authority.server(["127.0.0.1"])
    context = servers.server_context(pair.certificate, pair.key)
    hook = webhooks.hook("deny", "/configmaps", "configmaps")
    async with servers.listen(context) as port:
        hook["clientConfig"]["url"] = f"https://127.0.0.1:{port}/configmaps"
        del hook["clientConfig"]["service"]
        await webhooks.configure(VALIDATING, "by-url", hook)
        assert await denied(webhooks)


async def test_service_without_ready_pods_has_no_endpoints(webhooks: Webhooks) -> None:
    client, hook = webhooks.client, webhooks.hook("deny", "/always-deny", "configmaps")
    await webhooks.configure(VALIDATING, "deny", hook)
    await webhooks.refused(webhooks.config_maps, config_map("a"), "denies all requests")
    scale = f"/apis/apps/v1/namespaces/{webhooks.namespace}/deployments/sample-webhook/scale"
    assert (await client.merge(scale, {"spec": {"replicas": 0}})).code == 200
    await client.eventually(webhooks.pods, lambda body: body["items"] == [])
    await client.eventually(
        f"/apis/discovery.k8s.io/v1/namespaces/{webhooks.namespace}/endpointslices",
        lambda body: not any(each.get("endpoints") for each in body["items"]),
    )
    text = 'no endpoints available for service "e2e-test-webhook"'
    await webhooks.refused(webhooks.config_maps, config_map("a"), text, 500)


async def converted_kind(client: SpecClient, namespace: str) -> str:
    """Create a kind with a conversion webhook, whose v1 is stored; return the path of its objects with ``{}``."""
    webhooks = Webhooks(client, namespace)
    await webhooks.deploy(
        "e2e-test-crd-conversion-webhook", "crd-webhook", 9443, servers.PORTS["crd-webhook"]
    )
    definition = crd("stable.example.com", "v1", "v2")
    for version, names in zip(
        definition["spec"]["versions"], (["hostPort"], ["host", "port"]), strict=True
    ):
        properties = {name: {"type": "string"} for name in names}
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
        version["selectableFields"] = [{"jsonPath": f".{name}"} for name in names]
    config = webhooks.client_config("/crdconvert", "e2e-test-crd-conversion-webhook", 9443)
    webhook = {"clientConfig": config, "conversionReviewVersions": ["v1", "v1beta1"]}
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    await establish(client, definition)
    path = "/apis/stable.example.com/{}/namespaces/" + f"{namespace}/noxus"
    await client.create(path.format("v2"), host_object("stub", "v2"))
    assert (await client.delete(f"{path.format('v2')}/stub")).code == 200
    return path


def host_object(name: str, version: str = "v1", **fields: str) -> dict[str, Any]:
    return {
        "apiVersion": f"stable.example.com/{version}",
        "kind": "Noxu",
        "metadata": {"name": name},
        **fields,
    }


def hosts(obj: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("kind", "metadata")}


V1 = {"apiVersion": "stable.example.com/v1", "hostPort": "localhost:8080"}
V2 = {"apiVersion": "stable.example.com/v2", "host": "localhost", "port": "8080"}


@plays("CustomResourceConversionWebhook should be able to convert from CR v1 to CR v2")
async def test_webhook_converts_an_object(client: SpecClient, namespace: str) -> None:
    path = await converted_kind(client, namespace)
    await client.create(path.format("v1"), host_object("one", hostPort="localhost:8080"))
    assert hosts(await client.read(f"{path.format('v2')}/one")) == V2


@plays("CustomResourceConversionWebhook should be able to convert a non homogeneous list of CRs")
async def test_webhook_converts_a_list_of_both_versions(client: SpecClient, namespace: str) -> None:
    path = await converted_kind(client, namespace)
    await client.create(path.format("v1"), host_object("one", hostPort="localhost:8080"))

    def store_v2(definition: dict[str, Any]) -> None:
        for version in definition["spec"]["versions"]:
            version["storage"] = version["name"] == "v2"

    await client.update(f"{CRDS}/noxus.stable.example.com", store_v2)
    await client.create(path.format("v1"), host_object("two", hostPort="localhost:8080"))
    for version, expected in (("v1", V1), ("v2", V2)):
        items = (await client.read(path.format(version)))["items"]
        assert [item["metadata"]["name"] for item in items] == ["one", "two"]
        assert [hosts(item) for item in items] == [expected, expected]


async def test_watch_of_another_version_is_converted(client: SpecClient, namespace: str) -> None:
    path = await converted_kind(client, namespace)
    async with client.watching(path.format("v2")) as watch:
        await client.create(path.format("v1"), host_object("one", hostPort="localhost:8080"))
        assert hosts((await asyncio.wait_for(watch.event(), 30))["object"]) == V2


@plays(
    "CustomResourceFieldSelectors CustomResourceFieldSelectors MUST list and watch custom resources matching the field"
    " selector"
)
async def test_selectors_see_the_fields_of_the_requested_version(
    client: SpecClient, namespace: str
) -> None:
    path = await converted_kind(client, namespace)
    v1, v2 = path.format("v1"), path.format("v2")
    async with (
        client.watching(v2, fieldSelector="host=host1") as host,
        client.watching(v2, fieldSelector="host=host1,port=80") as host_port,
        client.watching(v1, fieldSelector="hostPort=host1:80") as joined,
    ):
        for name, fields in (
            ("a", {"host": "host1", "port": "80"}),
            ("b", {"host": "host1", "port": "8080"}),
            ("c", {"host": "host2"}),
        ):
            await client.create(v2, host_object(name, "v2", **fields))
        assert await client.names(v2, fieldSelector="host=host1") == ["a", "b"]
        assert await client.names(v2, fieldSelector="host=host1,port=80") == ["a"]
        assert await client.names(v1, fieldSelector="hostPort=host1:80") == ["a"]
        assert await client.names(v1, fieldSelector="hostPort=host1:8080") == ["b"]
        selector = {"fieldSelector": "host=host1,port=80"}
        assert (await client.delete(v2, {"gracePeriodSeconds": 0}, selector)).code == 200
        await client.update(f"{v2}/b", lambda obj: obj.update(host="host2"))
        assert await client.names(v2, fieldSelector="host=host1") == []
        expected = [("ADDED", "a"), ("DELETED", "a")]
        assert await host.summary(4) == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("DELETED", "a"),
            ("DELETED", "b"),
        ]
        assert [await each.summary(2) for each in (host_port, joined)] == [expected, expected]
