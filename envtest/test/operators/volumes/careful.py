"""The same operator as ``operator.py``, with one handler that can run any number of times."""

import kopf
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException


@kopf.on.startup()
async def configure(settings, **_):
    await config.load_kube_config()
    settings.persistence.finalizer = "example.com/volumes"
    settings.posting.enabled = False
    settings.networking.error_backoffs = [0.1, 0.5, 1, 2]


@kopf.on.resume("example.com", "v1", "volumes", backoff=1)
@kopf.on.create("example.com", "v1", "volumes", backoff=1)
@kopf.on.update("example.com", "v1", "volumes", backoff=1)
async def ensure(spec, meta, name, namespace, uid, **_):
    labels = dict(meta.labels)
    resources = {"requests": {"storage": spec["size"]}}
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": resources,
            "storageClassName": "standard",
        },
    }
    kopf.adopt(body)
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        try:
            found = await core.create_namespaced_persistent_volume_claim(namespace, body)
        except ApiException as error:
            if error.status != 409:
                raise
            found = await core.read_namespaced_persistent_volume_claim(name, namespace)
        if uid not in {owner.uid for owner in found.metadata.owner_references or ()}:
            raise kopf.TemporaryError("a claim of this name has another owner", delay=1)
        if (
            found.metadata.labels != labels
            or found.spec.resources.requests["storage"] != spec["size"]
        ):
            patch = {"metadata": {"labels": labels}, "spec": {"resources": resources}}
            await core.patch_namespaced_persistent_volume_claim(name, namespace, patch)
