"""Takes an installation away in the order in which nothing hangs.

Webhooks with ``failurePolicy: Fail`` go first: without their server they would stop all writes of what they guard.
Then the AppWrappers, if they are to go, as long as the operator can still clean up after them; then the operator; then
its finalizers, which nobody would ever remove; the rest in the end. RayClusters and their workloads stay. So does the
namespace, which others may live in.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from cfo.api.appwrapper.names import APPWRAPPER as APP_WRAPPER
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.controllers.appwrapper.names import FINALIZER as WRAPPER_FINALIZER
from cfo.controllers.raycluster.oauth import FINALIZER as CLUSTER_FINALIZER
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.names import LABELS
from cfo.manifests.overlays import render
from cfo.operator import CONFIG_MAP_NAME, WEBHOOK_SECRET_NAME
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import Conflict, NotFound, UnknownKind
from cfo.runtime.kinds import CONFIG_MAP, DEPLOYMENT, LEASE, POD, SECRET
from cfo.runtime.objects import GVK, NamespacedName, Object, gvk_of, key_of, name_of

__all__ = ["uninstall"]

_INTERVAL = 0.5  # seconds between looks at what goes away


async def uninstall(
    client: Client, namespace: str, say: Callable[[str], None], *, definitions: bool = False, patience: float = 120.0
) -> None:
    """Removes the operator from ``namespace``, and tells ``say`` of each step.

    ``definitions``: the AppWrapper definition goes, too, and with it every AppWrapper and all that these made.
    ``patience``: seconds that AppWrappers and the operator's pods have to go. What is gone already is passed over, so
    that it can be repeated. Raises :class:`cfo.runtime.client.errors.APIError`.
    """
    objects = render(namespace=namespace)
    webhooks = [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration")]
    kept = ("Namespace", "CustomResourceDefinition")
    rest = [obj for obj in reversed(objects) if obj not in webhooks and obj["kind"] not in (*kept, "Deployment")]
    for obj in webhooks:
        await _delete(client, gvk_of(obj), key_of(obj), say)
    if definitions:
        for wrapper in await _list(client, APP_WRAPPER):
            await _delete(client, APP_WRAPPER, key_of(wrapper), say)
        await _until_gone(client, APP_WRAPPER, patience, say)
    await _delete(client, DEPLOYMENT, NamespacedName(namespace, DEPLOYMENT_NAME), say)
    labels = ",".join(f"{key}={value}" for key, value in LABELS.items())
    await _until_gone(client, POD, patience, say, namespace=namespace, label_selector=labels)
    for gvk, finalizer in ((RAY_CLUSTER, CLUSTER_FINALIZER), (APP_WRAPPER, WRAPPER_FINALIZER)):
        for obj in await _list(client, gvk):
            await _release(client, gvk, key_of(obj), finalizer, say)
    for obj in rest:
        await _delete(client, gvk_of(obj), key_of(obj), say)
    for gvk, name in (
        (SECRET, WEBHOOK_SECRET_NAME),
        (LEASE, "codeflare-operator-lock"),
        (CONFIG_MAP, CONFIG_MAP_NAME),
    ):
        await _delete(client, gvk, NamespacedName(namespace, name), say)
    if definitions:
        for obj in objects:
            if obj["kind"] == "CustomResourceDefinition":
                await _delete(client, gvk_of(obj), NamespacedName("", name_of(obj)), say)


async def _list(client: Client, gvk: GVK, **which: str) -> list[Object]:
    try:
        return await client.list(gvk, live=True, **which)
    except (UnknownKind, NotFound):
        return []


async def _delete(client: Client, gvk: GVK, key: NamespacedName, say: Callable[[str], None]) -> None:
    try:
        if await client.delete(gvk, key):
            say(f"deleted {gvk.kind} {key}")
    except (UnknownKind, NotFound):
        return


async def _until_gone(client: Client, gvk: GVK, patience: float, say: Callable[[str], None], **which: str) -> None:
    left: list[Object] = []
    with anyio.move_on_after(patience):
        while left := await _list(client, gvk, **which):  # noqa: ASYNC110 (on a cluster, from outside of any informer)
            await anyio.sleep(_INTERVAL)
        return
    say(f"still there after {patience:g} s: {', '.join(f'{gvk.kind} {key_of(obj)}' for obj in left[:5])}")


async def _release(client: Client, gvk: GVK, key: NamespacedName, finalizer: str, say: Callable[[str], None]) -> None:
    """Removes our finalizer from an object, whatever others do to it meanwhile."""
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
        say(f"removed {finalizer} from {gvk.kind} {key}")
        return
