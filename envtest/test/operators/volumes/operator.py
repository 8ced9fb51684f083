"""A kopf operator in the shape of kopf's tutorial: a Volume asks for a PersistentVolumeClaim of the same name.

It is as careless as a first operator usually is: ``create`` assumes that it runs once.
"""

import kopf
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException


@kopf.on.startup()
async def configure(settings, **_):
    await config.load_kube_config()
    settings.persistence.finalizer = "example.com/volumes"
    settings.posting.enabled = False
    settings.networking.error_backoffs = [0.1, 0.5, 1, 2]


def claim(name, size):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": "standard",
        },
    }


@kopf.on.create("example.com", "v1", "volumes", backoff=1)
async def create(spec, name, namespace, **_):
    if not spec.get("size"):
        raise kopf.PermanentError("spec.size is required")
    body = claim(name, spec["size"])
    kopf.adopt(body)
    async with client.ApiClient() as api:
        made = await client.CoreV1Api(api).create_namespaced_persistent_volume_claim(
            namespace, body
        )
    return {"claim": made.metadata.name}


@kopf.on.update("example.com", "v1", "volumes", backoff=1)
async def update(spec, status, namespace, **_):
    name = status.get("create", {}).get("claim")
    if name is None:
        raise kopf.TemporaryError("no claim yet", delay=1)
    patch = {"spec": {"resources": {"requests": {"storage": spec["size"]}}}}
    async with client.ApiClient() as api:
        try:
            await client.CoreV1Api(api).patch_namespaced_persistent_volume_claim(
                name, namespace, patch
            )
        except ApiException as error:
            if error.status == 403:
                raise kopf.PermanentError("the storage class does not allow this size") from error
            raise


@kopf.on.field("example.com", "v1", "volumes", field="metadata.labels", backoff=1)
async def relabel(status, new, namespace, **_):
    name = status.get("create", {}).get("claim")
    if name is None or not new:
        return
    async with client.ApiClient() as api:
        body = {"metadata": {"labels": dict(new)}}
        await client.CoreV1Api(api).patch_namespaced_persistent_volume_claim(name, namespace, body)
