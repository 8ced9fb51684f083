"""kubernetes_asyncio: typed and dynamic objects, watches during writes, patches, apply and errors.

Runs in the interpreter in which the client is installed, with ``KUBECONFIG`` in the environment.
"""

from __future__ import annotations

import asyncio

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.dynamic import DynamicClient

NAMESPACE = "asyncio"


async def typed(api):
    core = client.CoreV1Api(api)
    await core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    version = (await core.list_namespaced_config_map(NAMESPACE)).metadata.resource_version

    async def write(name):
        await core.create_namespaced_config_map(
            NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"k": "v"})
        )

    writes = asyncio.gather(*(write(f"c{number}") for number in range(20)))
    seen = set()
    async with watch.Watch() as events:
        async for event in events.stream(
            core.list_namespaced_config_map,
            NAMESPACE,
            resource_version=version,
            timeout_seconds=100,
        ):
            if event["object"].metadata.name.startswith("c"):
                seen.add(event["object"].metadata.name)
            if len(seen) == 20:
                break
    await writes
    await core.patch_namespaced_config_map(
        "c1", NAMESPACE, [{"op": "replace", "path": "/data/k", "value": "w"}]
    )
    assert (await core.read_namespaced_config_map("c1", NAMESPACE)).data == {"k": "w"}
    missing = None
    try:
        await core.read_namespaced_config_map("none", NAMESPACE)
    except ApiException as error:
        missing = error.status, error.reason
    assert missing == (404, "Not Found")


async def apply(api):
    core = client.CoreV1Api(api)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "applied"},
        "data": {"k": "v"},
    }
    applied = await core.patch_namespaced_config_map(
        "applied", NAMESPACE, body, field_manager="me", _content_type="application/apply-patch+yaml"
    )
    assert [(entry.manager, entry.operation) for entry in applied.metadata.managed_fields] == [
        ("me", "Apply")
    ]


async def dynamic_client(api):
    resources = await DynamicClient(api)
    services = await resources.resources.get(api_version="v1", kind="Service")
    body = {
        "metadata": {"name": "web"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
    }
    created = await services.create(body=body, namespace=NAMESPACE)
    assert created.spec.clusterIP
    found = await services.get(namespace=NAMESPACE, label_selector="")
    assert [item.metadata.name for item in found.items] == ["web"]
    await services.delete(name="web", namespace=NAMESPACE)


async def main():
    await config.load_kube_config()
    async with client.ApiClient() as api:
        for check in (typed, apply, dynamic_client):
            await check(api)
            print(check.__name__, flush=True)


asyncio.run(main())
