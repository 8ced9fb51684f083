"""The objects of stacks in informers: found by their stack, and watched.

All objects of a stack have the label ``app.kubernetes.io/managed-by``, by which the informers select them. Kinds that a
cluster might not serve (KEDA, Gateway API, Prometheus operator) are watched from the moment they are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from cfo.api.inferencestack.kinds import (
    HORIZONTAL_POD_AUTOSCALER,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
)
from cfo.api.inferencestack.names import MANAGED_BY, MANAGED_BY_LABEL
from cfo.controllers.inferencestack.rendering import OPTIONAL_KINDS
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SERVICE,
    SERVICE_ACCOUNT,
    Builder,
    Channel,
    DiscoveryIncomplete,
    EnqueueRequestForOwner,
    Entry,
    Informer,
    Manager,
    NamespacedName,
    Object,
    UnknownKind,
    gvk_of,
    key_of,
    uid_of,
)

__all__ = ["CHILD_KINDS", "Children"]

CHILD_KINDS: Final = (
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    DEPLOYMENT,
    SERVICE,
    INGRESS,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    HORIZONTAL_POD_AUTOSCALER,
)
"""The kinds of objects that every cluster serves."""

MAX_CACHED_BYTES: Final = 1 << 20
"""The maximum size of a cached object: ConfigMaps of other clients can have the label as well."""

_SELECTOR: Final = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
_OWNER_INDEX: Final = "inferencestack-owner"


def _controller_uid(entry: Entry) -> Iterable[str]:
    controller = entry.meta.controller
    return (controller.uid,) if controller is not None else ()


class Children:
    """The informers of the objects of all stacks, which the controllers of both API groups share."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._informers = {gvk: self._create(gvk) for gvk in (*CHILD_KINDS, *sorted(OPTIONAL_KINDS))}
        self._served: set[GVK] = set()
        self._watchers: list[tuple[Channel, Informer]] = []

    async def discover(self) -> None:
        """Find out which optional kinds are served, and wait for the others; call it once, before controllers start.

        Raises the errors of API requests.
        """
        for gvk in sorted(OPTIONAL_KINDS):
            try:
                await self._manager.mapper.resource(gvk)
            except (UnknownKind, DiscoveryIncomplete):
                self._manager.when_available(gvk, partial(self._set_served, gvk))
            else:
                self._served.add(gvk)

    @property
    def served(self) -> frozenset[GVK]:
        """The kinds of :data:`OPTIONAL_KINDS` that the cluster serves."""
        return frozenset(self._served)

    def watch(self, builder: Builder, stack: GVK, stacks: Informer) -> None:
        """Enqueue the stacks of kind ``stack`` for events of their objects, and all when a kind becomes available.

        ``stacks`` is the informer of these stacks.
        """
        for gvk in self._informers:
            builder.watches(
                gvk,
                EnqueueRequestForOwner(stack),
                optional=gvk in OPTIONAL_KINDS,
                label_selector=_SELECTOR,
                max_bytes=MAX_CACHED_BYTES,
            )
        channel = Channel()
        self._watchers.append((channel, stacks))
        builder.watches_source(channel)

    def entry(self, gvk: GVK, key: NamespacedName) -> Entry | None:
        """Return an object from its informer, or ``None``."""
        return self._informers[gvk].reader.entry(key)

    def get(self, obj: Object) -> Entry | None:
        """Return the stored object with the kind and name of ``obj``, or ``None``."""
        return self.entry(gvk_of(obj), key_of(obj))

    def of(self, stack: Object) -> Iterator[tuple[GVK, Entry]]:
        """Yield all objects that ``stack`` controls, of all kinds that are served."""
        for gvk, informer in self._informers.items():
            if gvk in OPTIONAL_KINDS and gvk not in self._served:
                continue
            for key in sorted(informer.reader.keys(_OWNER_INDEX, uid_of(stack))):
                entry = informer.reader.entry(key)
                if entry is not None:
                    yield gvk, entry

    def set_unserved(self, gvk: GVK) -> None:
        """Record that a kind is no longer served; its return is awaited."""
        if gvk in self._served:
            self._served.discard(gvk)
            self._manager.when_available(gvk, partial(self._set_served, gvk))

    def _set_served(self, gvk: GVK, _: Manager) -> None:
        self._served.add(gvk)
        for channel, stacks in self._watchers:
            channel.enqueue([entry.key for entry in stacks.reader.entries()])

    def _create(self, gvk: GVK) -> Informer:
        informer = self._manager.cache.informer(gvk, label_selector=_SELECTOR, max_bytes=MAX_CACHED_BYTES)
        return informer.add_index(_OWNER_INDEX, _controller_uid)
