"""Whose a pod is: the chain of controller references from it up to an AppWrapper, by uid.

A label is anybody's to write, so it does not say what may be removed by force. The chain does; but the objects in
its middle (a Deployment's ReplicaSet, a JobSet's Jobs) go before their pods do, so it is looked up when a deletion
begins and remembered until its end. Components themselves are remembered in the AppWrapper's status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from cfo.runtime.cache.entry import Entry
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.objects import GVK, NamespacedName, controller_of, uid_of

__all__ = ["Lineage"]

_LONGEST: Final = 8
"""How many owners there may be between a pod and its AppWrapper."""


class Lineage:
    """Looks up chains of owners, with ``client``, and remembers them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._descendants: dict[str, set[str]] = {}

    async def descendants(self, root: str, relatives: Collection[str], pods: Iterable[Entry]) -> set[str]:
        """The uids of those of ``pods`` that descend from the object of uid ``root``, or from ``relatives`` of it."""
        known = self._descendants.setdefault(root, set())
        ours = {root, *relatives}
        return {pod.meta.uid for pod in pods if await self._descends(pod, ours, known)}

    def forget(self, root: str) -> None:
        """Forgets what descends from ``root``."""
        self._descendants.pop(root, None)

    async def _descends(self, pod: Entry, ours: Collection[str], known: set[str]) -> bool:
        controller = pod.meta.controller
        if controller is None:
            return False
        passed: list[str] = []
        gvk = GVK.parse(controller.api_version, controller.kind)
        name, uid = controller.name, controller.uid
        for _ in range(_LONGEST):
            if uid in ours or uid in known:
                known.update(passed)
                return True
            passed.append(uid)
            above = await self._controller_of(gvk, NamespacedName(pod.key.namespace, name), uid)
            if above is None:
                return False
            gvk = GVK.parse(above.get("apiVersion") or "", above.get("kind") or "")
            name, uid = above.get("name") or "", above.get("uid") or ""
        return False

    async def _controller_of(self, gvk: GVK, key: NamespacedName, uid: str) -> dict[str, Any] | None:
        try:
            obj = await self._client.get(gvk, key)
        except (APIError, TransportError, UnknownKind, DiscoveryIncomplete, ValueError):
            return None  # what cannot be told is not ours
        return controller_of(obj) if obj is not None and uid_of(obj) == uid else None
