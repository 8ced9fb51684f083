"""Finds the settings for a RayCluster: the configuration, and the profile that applies to its namespace.

Namespaces are watched (only their metadata) only if the configuration has profiles.
"""

from __future__ import annotations

import structlog

from cfo.config import KubeRayConfiguration, NamespaceSettings, ProfileTable
from cfo.runtime import (
    NAMESPACE,
    READ,
    Client,
    Controller,
    EnqueueRequestsFromMapFunc,
    Forbidden,
    Manager,
    NamespacedName,
    Reader,
    Rule,
    labels_of,
)
from cfo.runtime.controller import Kind, from_functions

__all__ = ["Profiles"]

_log = structlog.get_logger("cfo.controllers.raycluster")

_LABELS_CHANGED = from_functions(
    create=lambda _: False, update=lambda old, new: old.meta.labels != new.meta.labels, delete=lambda _: False
)
"""A new namespace has no RayClusters yet, and those of a deleted one are deleted, too."""


class Profiles:
    """The settings for each namespace; controllers and webhooks share one instance.

    While the operator is not allowed to read Namespaces, everything that any profile enforces is enforced in all
    namespaces.
    """

    rules = (Rule("", "namespaces", READ),)

    def __init__(self, manager: Manager, config: KubeRayConfiguration) -> None:
        self._table = ProfileTable(config)
        self._default = self._table.of_labels({})
        self._mapper = manager.mapper
        self._namespaces = manager.cache.informer(NAMESPACE, metadata_only=True) if config.profiles else None
        self._is_reported = False

    async def settings(self, client: Client, namespace: str) -> NamespaceSettings:
        """Return the settings for a namespace; read it with ``client`` if it is not in the cache yet.

        Raises the errors of the read, except :class:`~cfo.runtime.client.errors.Forbidden`.
        """
        if self._namespaces is None:
            return self._default
        key = NamespacedName("", namespace)
        meta = self._namespaces.reader.meta(key)
        if meta is not None:
            return self._table.of_labels(meta.labels)
        try:
            found = await client.get(NAMESPACE, key, live=True)
        except Forbidden as error:
            if not self._is_reported:
                _log.warning("Permission denied, cannot read namespaces; all profiles apply", cause=error.message)
                self._is_reported = True
            return self._table.strictest()
        return self._table.of_labels(labels_of(found or {}))

    def subscribe(self, controller: Controller, clusters: Reader) -> None:
        """Enqueue the RayClusters of a namespace whose labels changed."""
        if self._namespaces is None:
            return
        clusters_in = EnqueueRequestsFromMapFunc(
            lambda namespace: [entry.key for entry in clusters.entries(namespace=namespace.key.name)]
        )
        controller.watch(Kind(self._namespaces, clusters_in, _LABELS_CHANGED, mapper=self._mapper, optional=True))
