"""A kopf operator: handlers of creation, update, fields and deletion, a timer, a daemon, retries and adoption."""

from __future__ import annotations

import kopf
from kubernetes_asyncio import client, config

GROUP = ("kopf.example.com", "v1", "cups")


@kopf.on.startup()
async def configure(settings, **_):
    settings.persistence.finalizer = "kopf.example.com/finalizer"
    settings.posting.enabled = True
    await config.load_kube_config()


@kopf.on.create(*GROUP, backoff=0.1)
async def create(body, retry, patch, namespace, **_):
    if retry == 0:
        raise kopf.TemporaryError("once more", delay=0.1)
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{body['metadata']['name']}-child"},
    }
    kopf.adopt(child, owner=body)
    async with client.ApiClient() as api:
        await client.CoreV1Api(api).create_namespaced_config_map(namespace, child)
    patch.status["retries"] = retry
    return {"made": True}


@kopf.on.update(*GROUP)
def update(diff, patch, **_):
    patch.status["updated"] = len(diff)


@kopf.on.field(*GROUP, field="spec.size")
def resize(old, new, patch, **_):
    patch.status["size"] = f"{old}-{new}"


@kopf.timer(*GROUP, interval=0.2)
def tick(patch, status, **_):
    if not status.get("ticked"):
        patch.status["ticked"] = True


@kopf.daemon(*GROUP)
async def watch_over(stopped, name, **_):
    await stopped.wait()
    print("daemon stopped", name, flush=True)


@kopf.on.delete(*GROUP)
def delete(name, **_):
    print("deleted", name, flush=True)
