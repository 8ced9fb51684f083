"""The finalizer that keeps a RayCluster until its ClusterRoleBindings are deleted.

Both are the same as the Go operator's: the name, and the field manager of the finalizer.
"""

from __future__ import annotations

from typing import Any, Final

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime import Client, NotFound, Object, key_of, resource_version_of, uid_of

__all__ = ["FINALIZER", "FINALIZER_MANAGER", "set_finalizer"]

FINALIZER: Final = "ray.openshift.ai/oauth-finalizer"
FINALIZER_MANAGER: Final = "codeflare-operator"


async def set_finalizer(client: Client, cluster: Object, *, present: bool) -> Object | None:
    """Add or remove the finalizer; return the cluster as stored, or ``None`` when it no longer exists."""
    finalizers: list[Any] = [item for item in cluster["metadata"].get("finalizers") or () if item != FINALIZER]
    if present:
        finalizers.append(FINALIZER)
    # The patch replaces the whole list, so the resourceVersion ensures that no other client has changed it.
    metadata = {
        "finalizers": finalizers or None,
        "uid": uid_of(cluster),
        "resourceVersion": resource_version_of(cluster),
    }
    client = client.with_field_manager(FINALIZER_MANAGER)
    try:
        return await client.patch(RAY_CLUSTER, key_of(cluster), {"metadata": metadata})
    except NotFound:
        return None
