"""Writes of the status of an object that reach no other object with its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.runtime.client.client import Client
from cfo.runtime.objects.unstructured import Object, gvk_of, name_of, namespace_of, uid_of


async def apply_status(
    client: Client, obj: Object, status: Mapping[str, Any], *, force: bool = True
) -> Object:
    """Apply ``status`` to ``obj``, unless it was deleted or recreated; return it as stored."""
    desired = {**identity_of(obj), "status": status}
    return await client.apply(desired, subresource="status", force=force)


def identity_of(obj: Mapping[str, Any]) -> Object:
    """Return kind, namespace, name and uid of ``obj``: a server-side apply of them reaches no other object."""
    metadata = {"name": name_of(obj), "uid": uid_of(obj)}
    if namespace_of(obj):
        metadata["namespace"] = namespace_of(obj)
    gvk = gvk_of(obj)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
