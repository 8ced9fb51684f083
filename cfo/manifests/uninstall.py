"""Removes an installation in an order that avoids deadlocks.

1. The webhook configurations: with ``failurePolicy: Fail``, and without their server, they would block all writes of
   the kinds that they are registered for.
2. With ``delete_crds``: the AppWrappers, while the operator can still clean up their objects.
3. The operator's Deployment.
4. The operator's finalizers, which no one else would remove.
5. Everything else.

RayClusters and their workloads are kept, and so is the namespace, because it may contain other objects.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.controllers.appwrapper.names import FINALIZER as WRAPPER_FINALIZER
from cfo.controllers.raycluster.oauth import FINALIZER as CLUSTER_FINALIZER
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.names import LABELS
from cfo.manifests.overlays import render
from cfo.operator import CONFIG_MAP_NAME, WEBHOOK_SECRET_NAME
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    LEASE,
    POD,
    SECRET,
    Client,
    Conflict,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    gvk_of,
    key_of,
    name_of,
)

__all__ = ["uninstall"]

_POLL_INTERVAL = 0.5  # seconds


async def uninstall(
    client: Client, namespace: str, report: Callable[[str], None], *, delete_crds: bool = False, timeout: float = 120.0
) -> None:
    """Remove the operator from ``namespace`` and call ``report`` once per step.

    With ``delete_crds``, the AppWrapper CRD is deleted as well, and with it all AppWrappers and their objects.
    ``timeout`` is how long, in seconds, to wait for AppWrappers, and again for the operator's pods, to be deleted. If
    it expires, this is reported, and the removal continues. Objects that do not exist are skipped, so the function can
    be called again. Raises :class:`cfo.runtime.client.errors.APIError`.
    """
    objects = render(namespace=namespace)
    webhooks = [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration")]
    kept = ("Namespace", "CustomResourceDefinition")
    rest = [obj for obj in reversed(objects) if obj not in webhooks and obj["kind"] not in (*kept, "Deployment")]
    for obj in webhooks:
        await _delete(client, gvk_of(obj), key_of(obj), report)
    if delete_crds:
        for wrapper in await _list(client, APPWRAPPER):
            await _delete(client, APPWRAPPER, key_of(wrapper), report)
        await _wait_for_deletion(client, APPWRAPPER, timeout, report)
    await _delete(client, DEPLOYMENT, NamespacedName(namespace, DEPLOYMENT_NAME), report)
    labels = ",".join(f"{key}={value}" for key, value in LABELS.items())
    await _wait_for_deletion(client, POD, timeout, report, namespace=namespace, label_selector=labels)
    for gvk, finalizer in ((RAY_CLUSTER, CLUSTER_FINALIZER), (APPWRAPPER, WRAPPER_FINALIZER)):
        for obj in await _list(client, gvk):
            await _remove_finalizer(client, gvk, key_of(obj), finalizer, report)
    for obj in rest:
        await _delete(client, gvk_of(obj), key_of(obj), report)
    for gvk, name in (
        (SECRET, WEBHOOK_SECRET_NAME),
        (LEASE, "codeflare-operator-lock"),
        (CONFIG_MAP, CONFIG_MAP_NAME),
    ):
        await _delete(client, gvk, NamespacedName(namespace, name), report)
    if delete_crds:
        for obj in objects:
            if obj["kind"] == "CustomResourceDefinition":
                await _delete(client, gvk_of(obj), NamespacedName("", name_of(obj)), report)


async def _list(client: Client, gvk: GVK, **options: str) -> list[Object]:
    try:
        return await client.list(gvk, live=True, **options)
    except (UnknownKind, NotFound):
        return []


async def _delete(client: Client, gvk: GVK, key: NamespacedName, report: Callable[[str], None]) -> None:
    try:
        if await client.delete(gvk, key):
            report(f"deleted {gvk.kind} {key}")
    except (UnknownKind, NotFound):
        return


async def _wait_for_deletion(
    client: Client, gvk: GVK, timeout: float, report: Callable[[str], None], **options: str
) -> None:
    left: list[Object] = []
    with anyio.move_on_after(timeout):
        while left := await _list(client, gvk, **options):  # noqa: ASYNC110 (no informer is used here)
            await anyio.sleep(_POLL_INTERVAL)
        return
    report(f"still not deleted after {timeout:g} s: {', '.join(f'{gvk.kind} {key_of(obj)}' for obj in left[:5])}")


async def _remove_finalizer(
    client: Client, gvk: GVK, key: NamespacedName, finalizer: str, report: Callable[[str], None]
) -> None:
    """Remove our finalizer from an object; retry if another client has changed the object concurrently."""
    while (obj := await client.get(gvk, key, live=True)) is not None:
        metadata = obj["metadata"]
        if finalizer not in (metadata.get("finalizers") or ()):
            return
        left = [item for item in metadata["finalizers"] if item != finalizer]
        change = {"metadata": {"finalizers": left or None, "resourceVersion": metadata["resourceVersion"]}}
        try:
            await client.patch(gvk, key, change)
        except Conflict:
            continue
        except NotFound:
            return
        report(f"removed finalizer {finalizer} from {gvk.kind} {key}")
        return
