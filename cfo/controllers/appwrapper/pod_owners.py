"""Resolves which pods an AppWrapper owns by following controller references (by uid).

Any user can set a label, so pods are force-deleted only if their chain of owners leads to the AppWrapper, not because
of a label. But the objects in the middle of the chain (a Deployment's ReplicaSet, a JobSet's Jobs) are deleted before
their pods, so the chain is resolved when a deletion begins and remembered until it ends. The components themselves are
recorded in the status of the AppWrapper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from cfo.runtime import (
    GVK,
    APIError,
    Client,
    DiscoveryIncomplete,
    Entry,
    NamespacedName,
    TransportError,
    UnknownKind,
    controller_of,
    uid_of,
)

_MAX_DEPTH: Final = 8
"""The maximum number of owners between a pod and its AppWrapper."""


class PodOwners:
    """Resolves chains of owners with ``client``, and remembers the result."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._descendants: dict[str, set[str]] = {}

    async def descendants(self, root: str, components: Collection[str], pods: Iterable[Entry]) -> set[str]:
        """Return the uids of the ``pods`` that descend from ``root`` or one of its ``components`` (uids)."""
        known = self._descendants.setdefault(root, set())
        ancestors = {root, *components}
        return {pod.meta.uid for pod in pods if await self._descends(pod, ancestors, known)}

    def forget(self, root: str) -> None:
        """Forget the descendants of the object with the uid ``root``."""
        self._descendants.pop(root, None)

    async def _descends(self, pod: Entry, ancestors: Collection[str], known: set[str]) -> bool:
        controller = pod.meta.controller
        if controller is None:
            return False
        visited: list[str] = []
        gvk = GVK.parse(controller.api_version, controller.kind)
        name, uid = controller.name, controller.uid
        for _ in range(_MAX_DEPTH):
            if uid in ancestors or uid in known:
                known.update(visited)
                return True
            visited.append(uid)
            owner = await self._controller_of(gvk, NamespacedName(pod.key.namespace, name), uid)
            if owner is None:
                return False
            gvk = GVK.parse(owner.get("apiVersion") or "", owner.get("kind") or "")
            name, uid = owner.get("name") or "", owner.get("uid") or ""
        return False

    async def _controller_of(self, gvk: GVK, key: NamespacedName, uid: str) -> dict[str, Any] | None:
        try:
            obj = await self._client.get(gvk, key)
        except (APIError, TransportError, UnknownKind, DiscoveryIncomplete, ValueError):
            return None  # an unresolvable owner is treated as foreign
        return controller_of(obj) if obj is not None and uid_of(obj) == uid else None
