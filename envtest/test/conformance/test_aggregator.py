"""The sample API server behind an APIService; :mod:`test.conformance.servers` plays its pods."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from envtest import ControlPlane
from test.conformance import servers
from test.conformance.client import SpecClient
from test.conformance.specs import plays
from test.conformance.test_custom_resources import AGGREGATED, KUBECTL, kubectl
from test.conformance.test_webhooks import Webhooks

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = "v1alpha1.wardle.example.com"
GROUP = "/apis/wardle.example.com"


def api_service(namespace: str, **spec: Any) -> dict[str, Any]:
    service = {"namespace": namespace, "name": "sample-api", "port": 7443}
    names = {
        "group": "wardle.example.com",
        "version": "v1alpha1",
        "groupPriorityMinimum": 2000,
        "versionPriority": 200,
    }
    head = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": NAME},
    }
    return {**head, "spec": {"service": service, **names, **spec}}


def flunder(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"sample-label": "true"}}
    return {"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": metadata}


def available(body: dict[str, Any]) -> dict[str, str]:
    conditions = (body.get("status") or {}).get("conditions") or ()
    found: dict[str, str] = next((each for each in conditions if each["type"] == "Available"), {})
    return found


async def register(client: SpecClient, namespace: str) -> None:
    """Deploy the sample API server and register it, and wait until it is available."""
    deployed = Webhooks(client, namespace)
    await deployed.deploy("sample-api", "apiserver", 7443, servers.PORTS["apiserver"])
    bundle = b64encode(deployed.authority.pem).decode()
    await client.create(SERVICES, api_service(namespace, caBundle=bundle))
    await client.eventually(
        f"{SERVICES}/{NAME}", lambda body: available(body).get("status") == "True"
    )


async def change_status(client: SpecClient, condition: dict[str, str]) -> None:
    one = f"{SERVICES}/{NAME}"
    await client.update(one, lambda obj: obj["status"]["conditions"].append(condition), "/status")
    conditions = (await client.read(f"{one}/status"))["status"]["conditions"]
    assert (
        condition.items()
        <= next(each for each in conditions if each["type"] == condition["type"]).items()
    )


@plays(
    "Aggregator Should be able to support the 1.17 Sample API Server using the current Aggregator"
)
async def test_requests_are_relayed_to_another_api_server(
    client: SpecClient, namespace: str
) -> None:
    await register(client, namespace)
    one, path = f"{SERVICES}/{NAME}", f"{GROUP}/v1alpha1/namespaces/{namespace}/flunders"
    assert (await client.read(path))["items"] == []
    created = await client.create(path, flunder("rest-flunder"))
    assert created["metadata"]["annotations"] == {
        "user": "admin",
        "groups": "system:masters,system:authenticated",
    }
    assert await client.names(path) == ["rest-flunder"]
    async with client.watch(path) as watch:
        assert await watch.summary(1) == [("ADDED", "rest-flunder")]
    assert (await client.delete(f"{path}/rest-flunder")).code == 200
    assert await client.names(path) == []

    groups = {each["name"]: each for each in (await client.read("/apis"))["groups"]}
    assert groups["wardle.example.com"]["preferredVersion"]["version"] == "v1alpha1"
    assert (await client.read(GROUP))["versions"] == groups["wardle.example.com"]["versions"]
    (resource,) = (await client.read(f"{GROUP}/v1alpha1"))["resources"]
    assert (resource["name"], resource["namespaced"]) == ("flunders", True)
    discovered = (await client.get("/apis", headers={"Accept": AGGREGATED})).body["items"]
    (version,) = next(
        each for each in discovered if each["metadata"]["name"] == "wardle.example.com"
    )["versions"]
    assert (version["freshness"], [each["resource"] for each in version["resources"]]) == (
        "Current",
        ["flunders"],
    )
    assert f"{GROUP}/v1alpha1" in (await client.read("/"))["paths"]

    condition = available(await client.read(f"{one}/status"))
    assert (condition["reason"], condition["message"]) == ("Passed", "all checks passed")
    assert (await client.merge(one, {"spec": {"versionPriority": 400}})).body["spec"][
        "versionPriority"
    ] == 400
    assert NAME in await client.names(SERVICES)
    labels = {"e2e-apiservice": "patched"}
    assert (await client.strategic(one, {"metadata": {"labels": labels}})).body["metadata"][
        "labels"
    ] == labels
    text = {"status": "True", "reason": "E2E", "message": "Set from a test"}
    await change_status(client, {"type": "StatusUpdated", **text})
    await change_status(client, {"type": "StatusPatched", **text})
    assert await client.names(SERVICES, labelSelector="e2e-apiservice=patched") == [NAME]
    assert (
        await client.delete(SERVICES, query={"labelSelector": "e2e-apiservice=patched"})
    ).code == 200
    assert await client.names(SERVICES, labelSelector="e2e-apiservice=patched") == []
    assert (await client.get(path)).code == 404
    assert (await client.get(GROUP)).code == 404


async def test_reason_why_an_api_service_is_not_available(
    client: SpecClient, namespace: str
) -> None:
    one, path = f"{SERVICES}/{NAME}", f"{GROUP}/v1alpha1/namespaces/{namespace}/flunders"
    await client.create(SERVICES, api_service(namespace))
    missing = await client.eventually(
        one, lambda body: available(body).get("reason") == "ServiceNotFound"
    )
    assert available(missing)["message"] == f'service/sample-api in "{namespace}" is not present'
    refused = await client.get(path)
    assert (refused.code, refused.headers["Content-Type"]) == (503, "text/plain; charset=utf-8")
    discovered = (await client.get("/apis", headers={"Accept": AGGREGATED})).body["items"]
    (version,) = next(
        each for each in discovered if each["metadata"]["name"] == "wardle.example.com"
    )["versions"]
    assert (version["freshness"], version["resources"]) == ("Stale", [])

    deployed = Webhooks(client, namespace)
    await deployed.deploy("sample-api", "apiserver", 7443, servers.PORTS["apiserver"])
    await client.eventually(
        one, lambda body: available(body).get("reason") == "FailedDiscoveryCheck"
    )
    bundle = {"caBundle": b64encode(deployed.authority.pem).decode()}
    assert (await client.merge(one, {"spec": bundle})).code == 200
    await client.eventually(one, lambda body: available(body).get("reason") == "Passed")
    scale = f"/apis/apps/v1/namespaces/{namespace}/deployments/sample-webhook/scale"
    assert (await client.merge(scale, {"spec": {"replicas": 0}})).code == 200
    stopped = await client.eventually(
        one, lambda body: available(body).get("reason") == "MissingEndpoints"
    )
    text = f'endpoints for service/sample-api in "{namespace}" have no addresses with port name ""'
    assert available(stopped)["message"] == text


async def test_relayed_watch_ends_with_its_client(client: SpecClient, namespace: str) -> None:
    await register(client, namespace)
    path = f"{GROUP}/v1alpha1/namespaces/{namespace}/flunders"
    await client.create(path, flunder("one"))
    async with client.watch(path) as watch:
        assert await watch.summary(1) == [("ADDED", "one")]
        assert len(servers.WATCHES) == 1
    await client.eventually(path, lambda _: not servers.WATCHES)


@pytest.mark.skipif(not KUBECTL, reason="kubectl is not on the PATH")
async def test_kubectl_finds_the_resources_of_another_api_server(
    cluster: ControlPlane, client: SpecClient, namespace: str, tmp_path: Path
) -> None:
    await register(client, namespace)
    flags = ("-n", namespace)
    code, output = await kubectl(
        cluster,
        tmp_path,
        "create",
        *flags,
        "--validate=false",
        "-f-",
        stdin=json.dumps(flunder("one")),
    )
    assert (code, output) == (0, "flunder.wardle.example.com/one created\n")
    assert (await kubectl(cluster, tmp_path, "get", *flags, "flunder", "-o=name"))[1] == (
        "flunder.wardle.example.com/one\n"
    )


async def test_users_need_permissions_for_relayed_requests(
    client: SpecClient, namespace: str
) -> None:
    await register(client, namespace)
    path = f"{GROUP}/v1alpha1/namespaces/{namespace}/flunders"
    refused = await client.get(path, headers={"Impersonate-User": "alice"})
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")


async def test_local_api_service_is_available_at_once(client: SpecClient) -> None:
    body = api_service("unused")
    del body["spec"]["service"]
    created = await client.create(SERVICES, body)
    assert available(created)["reason"] == "Local"


async def test_api_services_survive_restarts_and_copies(tmp_path: Path) -> None:
    path = f"{GROUP}/v1alpha1/namespaces/default/flunders"
    async with ControlPlane.embedded(data_dir=tmp_path) as plane, SpecClient(plane) as client:
        await client.create(SERVICES, api_service("default"))
        async with plane.fork() as copied, SpecClient(copied) as other:
            assert (await other.get(path)).code == 503
    async with ControlPlane.embedded(data_dir=tmp_path) as plane, SpecClient(plane) as client:
        assert (await client.get(path)).code == 503
        assert (await client.delete(f"{SERVICES}/{NAME}")).code == 200
        assert (await client.get(path)).code == 404
