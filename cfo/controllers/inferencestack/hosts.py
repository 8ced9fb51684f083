"""The hosts of stacks: an Ingress or HTTPRoute never gets a host that an object in another namespace already has.

The rule is that of RayClusters (:mod:`cfo.controllers.host_claims`), but users choose the hosts of stacks, so there is
no other host to use instead. Objects in the namespace of the stack can share its hosts, and a host that the stack
already has is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.validation.settings import MAX_HOSTS
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.host_claims import (
    OTHER_NAMESPACES,
    Holder,
    HostClaims,
    Waiting,
    add_host_index,
    claims_in,
    claims_of,
    enqueue_foreign,
)
from cfo.runtime import (
    GVK,
    INGRESS,
    Channel,
    Event,
    Informer,
    Manager,
    NamespacedName,
    Object,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
    on_update,
)

CLAIMANTS: Final = (INGRESS, HTTP_ROUTE)
"""The kinds of a stack's objects that have hosts."""

_MAX_SHARED: Final = 100
"""How many objects of a namespace can share a host; more are not examined."""

_SYNC_SECONDS: Final = 10.0

HOSTS_CHANGED: Final = on_update(lambda old, new: claims_of(old) != claims_of(new))
"""The hosts or paths that an object claims changed, or it was created or deleted."""


class StackHosts:
    """Finds who has the hosts of stacks. ``served`` returns which of the optional kinds the cluster serves.

    The Ingresses and HTTPRoutes of all clients are read from the moment the first stack has one.
    """

    def __init__(self, manager: Manager, served: Callable[[], frozenset[GVK]]) -> None:
        self._cache = manager.cache
        self._served = served
        self._claims = HostClaims(self._informers, self._others)
        self._watched: set[Informer] = set()
        self._channels: dict[GVK, Channel] = {}

    def attach(self, stack: GVK, channel: Channel) -> None:
        """Enqueue stacks of this kind through ``channel`` when an object that has their hosts changes."""
        self._channels[stack] = channel

    def forget(self, stack: GVK, key: NamespacedName) -> None:
        """Forget that objects of a stack wait for hosts; :meth:`conflict` records those that still do."""
        self._claims.waiting.forget(stack, key)

    def _kinds(self) -> list[GVK]:
        return [gvk for gvk in CLAIMANTS if gvk == INGRESS or gvk in self._served()]

    def _informers(self) -> list[Informer]:
        return [self._cache.informer(gvk, max_bytes=MAX_CACHED_BYTES) for gvk in self._kinds()]

    def _others(self) -> list[Informer]:
        """Return the informers of other namespaces than those to which the operator is limited."""
        if not self._cache.is_restricted:
            return []
        return [self._cache.informer(gvk, **OTHER_NAMESPACES) for gvk in self._kinds()]

    async def conflict(self, desired: Object, stack: Object) -> str:
        """Return why ``desired`` must not be written; empty if all hosts that the stored object does not have are free.

        If the objects of other clients cannot be read, no host is free. Only those in other namespaces than the
        operator's are ignored without the permission to read them, because Roles in its namespaces are enough.
        """
        wanted = dict.fromkeys(claims_in(desired))
        if not wanted:
            return ""
        refused = f"{gvk_of(desired).kind} {name_of(desired)} is not written"
        for informer in self._others():
            await self._list(informer, unless_forbidden=True)
            if not informer.has_synced and not informer.is_forbidden:
                return f"{refused}: {_unreadable(informer)}"
        for informer in self._informers():
            await self._list(informer)
            if not informer.has_synced:
                return f"{refused}: {_unreadable(informer)}"
            if informer.gvk != gvk_of(desired):
                continue
            stored = informer.reader.entry(key_of(desired))
            if stored is not None:
                for claim in claims_of(stored):
                    wanted.pop(claim, None)
        if len(wanted) > MAX_HOSTS:
            return f"{refused}: it has {len(wanted)} hosts and paths, and at most {MAX_HOSTS} can be checked"
        namespace = namespace_of(desired)
        for claim in wanted:
            await (
                checkpoint()
            )  # in a namespace with thousands of large objects, each search takes milliseconds
            noun = "path" if claim.startswith("/") else "host"
            for number, holder in enumerate(self._claims.of(claim)):
                if holder.entry.namespace != namespace or number >= _MAX_SHARED:
                    self._await(desired, stack, holder)
                    return f"{refused}: {noun} {claim} is used by {holder}"
            unknown = self._claims.unknown(claim, trusted=namespace)
            if unknown:
                return f"{refused}: {noun} {claim} may be used by {unknown}"
        return ""

    async def _list(self, informer: Informer, *, unless_forbidden: bool = False) -> None:
        """Add the index of hosts, follow changes, and wait some seconds until all objects are listed."""
        add_host_index(informer)
        if informer not in self._watched:
            self._watched.add(informer)
            informer.add_handler(partial(self._on_change, informer.gvk.kind))
        with anyio.move_on_after(_SYNC_SECONDS):
            await informer.wait_for_sync(unless_forbidden=unless_forbidden)

    def _await(self, desired: Object, stack: Object, holder: Holder) -> None:
        """Record that ``desired`` waits for the host of an object, until that changes."""
        waiting = Waiting(gvk_of(stack), key_of(stack), gvk_of(desired).kind, name_of(desired))
        self._claims.waiting.set(waiting, holder)

    def _on_change(self, kind: str, event: Event) -> None:
        if not HOSTS_CHANGED(event):  # controllers write the status of each Ingress and route
            return
        for waiting in self._claims.waiting.take(kind, event.key):
            channel = self._channels.get(waiting.owner)
            if channel is None:
                continue
            if waiting.key.namespace == event.key.namespace:
                channel.enqueue([waiting.key], reason="a host may be free")
            else:
                enqueue_foreign(channel, [waiting.key])


def _unreadable(informer: Informer) -> str:
    return f"the hosts of {informer.gvk.kind} objects cannot be read: {informer.problem}"
