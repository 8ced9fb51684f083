"""The objects of stacks in informers: found by their stack, and watched.

All objects of a stack have the label ``app.kubernetes.io/managed-by``, by which the informers select them. Kinds that a
cluster might not serve (KEDA, Gateway API, Prometheus operator) are watched from the moment they are served.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from cfo.api.inferencestack.kinds import (
    HORIZONTAL_POD_AUTOSCALER,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
)
from cfo.api.inferencestack.names import MANAGED_BY, MANAGED_BY_LABEL
from cfo.controllers.inferencestack.hosts import StackHosts
from cfo.controllers.inferencestack.rendering.facts import OPTIONAL_KINDS
from cfo.controllers.left_out import enqueue_all
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
    Controller,
    EnqueueRequestForOwner,
    Entry,
    Informer,
    Manager,
    NamespacedName,
    Object,
    gvk_of,
    key_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.cache import by_controller, controller_key
from cfo.runtime.controller import Kind
from cfo.runtime.manager import SelectionKeywords

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

_MAX_BYTES: Final = 64 << 10
_MAX_DEPLOYMENT_BYTES: Final = 256 << 10
"""The maximum sizes of cached objects: those of other clients can have the label as well. A larger object of a stack is
read from the API server in each reconcile; only its changes are not noticed."""

_SELECTOR: Final = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
_OWNER_INDEX: Final = "inferencestack-owner"


class _Watcher(msgspec.Struct, frozen=True):
    """A controller of stacks, and how all of them are enqueued."""

    controller: Controller
    stacks: Informer
    channel: Channel


class StackInformers:
    """The informers for the objects of all stacks, which both API groups' controllers share.

    Create it when discovery has just been read, as it has when a kind of stacks becomes available.
    """

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._informers = {gvk: self._create(gvk) for gvk in CHILD_KINDS}
        self._served: set[GVK] = set()
        self.hosts = StackHosts(manager, lambda: self.served)
        self._watchers: list[_Watcher] = []
        for gvk in sorted(OPTIONAL_KINDS):
            if manager.mapper.cached(gvk) is not None:
                self._set_served(gvk, manager)
            else:
                manager.when_available(gvk, partial(self._set_served, gvk))

    @property
    def served(self) -> frozenset[GVK]:
        """The kinds of :data:`OPTIONAL_KINDS` that the cluster serves."""
        return frozenset(self._served)

    def watch(self, builder: Builder, stack: GVK) -> None:
        """Make the controller that ``builder`` builds wait for the objects of the kinds that every cluster serves."""
        for gvk in CHILD_KINDS:
            builder.watches(gvk, EnqueueRequestForOwner(stack), **_selection(gvk))

    def attach(self, controller: Controller, stacks: Informer, channel: Channel) -> None:
        """Feed ``controller`` with the events of optional kinds, those that are served and those that will be.

        When a kind becomes available, all ``stacks`` are enqueued through ``channel``.
        """
        watcher = _Watcher(controller, stacks, channel)
        self._watchers.append(watcher)
        self.hosts.attach(stacks.gvk, channel)
        for gvk in sorted(self._served):
            self._watch_optional(gvk, watcher)

    def entry(self, gvk: GVK, key: NamespacedName) -> Entry | None:
        """Return an object from its informer, or ``None``."""
        informer = self._informers.get(gvk)
        return informer.reader.entry(key) if informer is not None else None

    def get(self, obj: Object) -> Entry | None:
        """Return the stored object with the kind and name of ``obj``, or ``None``."""
        return self.entry(gvk_of(obj), key_of(obj))

    def of(self, stack: Object) -> Iterator[tuple[GVK, Entry]]:
        """Yield all objects that ``stack`` controls, of all kinds that are served."""
        owner = controller_key(namespace_of(stack), uid_of(stack))
        for gvk, informer in self._informers.items():
            if gvk in OPTIONAL_KINDS and gvk not in self._served:
                continue
            for key in sorted(informer.reader.keys(_OWNER_INDEX, owner)):
                entry = informer.reader.entry(key)
                if entry is not None:
                    yield gvk, entry

    def set_unserved(self, gvk: GVK) -> None:
        """Record that a kind is no longer served; its return is awaited."""
        if gvk in self._served:
            self._served.discard(gvk)
            self._manager.when_available(gvk, partial(self._set_served, gvk))
            self._enqueue_all()

    def _set_served(self, gvk: GVK, _: Manager) -> None:
        self._served.add(gvk)
        if gvk not in self._informers:
            self._informers[gvk] = self._create(gvk)
            for watcher in self._watchers:
                self._watch_optional(gvk, watcher)
        self._manager.cache.wake(gvk)
        self._enqueue_all()

    def _watch_optional(self, gvk: GVK, watcher: _Watcher) -> None:
        handler = EnqueueRequestForOwner(watcher.stacks.gvk)
        source = Kind(self._informers[gvk], handler, mapper=self._manager.mapper, optional=True)
        watcher.controller.watch(source)

    def _enqueue_all(self) -> None:
        for watcher in self._watchers:
            enqueue_all(watcher.stacks, watcher.channel)

    def _create(self, gvk: GVK) -> Informer:
        return self._manager.cache.informer(gvk, **_selection(gvk)).add_index(
            _OWNER_INDEX, by_controller
        )


def _selection(gvk: GVK) -> SelectionKeywords:
    return {
        "label_selector": _SELECTOR,
        "max_bytes": _MAX_DEPLOYMENT_BYTES if gvk == DEPLOYMENT else _MAX_BYTES,
    }
