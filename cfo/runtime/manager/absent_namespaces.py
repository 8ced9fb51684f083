"""Waits for namespaces that do not exist, so that nothing is requested in them meanwhile.

In a namespace that was deleted, an operator lacks the permissions that RoleBindings grant there. Its informers would
try again forever. If the operator may watch this Namespace, they wait until it is created.
"""

from __future__ import annotations

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.access_reviews import is_allowed
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.objects.kinds import NAMESPACE
from cfo.runtime.objects.unstructured import NamespacedName

_log = structlog.get_logger(__name__)


class AbsentNamespaces:
    """Watches each namespace that ``cache`` leaves out until it is available again; a runnable of the manager."""

    name = "absent-namespaces"
    needs_leader = False

    def __init__(self, cache: Cache, client: Client) -> None:
        self._cache = cache
        self._client = client
        self._changed = anyio.Event()
        self._watched: dict[str, Informer | None] = {}
        """The informer of each namespace that is left out; ``None`` if it must not be watched."""
        cache.unavailable.add_handler(self._on_availability)

    def _on_availability(self, _: str) -> None:
        self._changed.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        unavailable = self._cache.unavailable
        while True:
            self._changed = anyio.Event()
            for namespace in unavailable:
                if namespace not in self._watched:
                    self._watched[namespace] = await self._watch(namespace)
            available = [name for name in self._watched if name not in unavailable]
            for namespace in available:
                informer = self._watched.pop(namespace)
                if informer is not None:
                    self._cache.remove(informer)
            await self._changed.wait()

    async def _watch(self, namespace: str) -> Informer | None:
        """Return the informer of a Namespace, whose events decide whether it exists; ``None`` without permission."""
        if not await self._may_watch(namespace):
            return None
        informer = self._cache.informer(
            NAMESPACE, field_selector=f"metadata.name={namespace}", metadata_only=True
        )

        def on_state() -> None:
            self._update(namespace, informer)

        def on_event(_: Event) -> None:
            self._update(namespace, informer)

        informer.add_state_handler(on_state)
        informer.add_handler(on_event)
        on_state()
        return informer

    async def _may_watch(self, namespace: str) -> bool:
        for verb in ("list", "watch"):
            attributes = {"resource": "namespaces", "verb": verb, "name": namespace}
            try:
                if not await is_allowed(self._client, resourceAttributes=attributes):
                    return False
            except (APIError, TransportError) as error:
                _log.debug("Namespace is not watched", namespace=namespace, error=str(error))
                return False
        return True

    def _update(self, namespace: str, informer: Informer) -> None:
        """Record whether a namespace exists, as soon as it is known."""
        if namespace not in self._cache.unavailable or not informer.has_synced:
            return
        exists = informer.reader.contains(NamespacedName("", namespace))
        self._cache.unavailable.set_exists(namespace, exists=exists)
