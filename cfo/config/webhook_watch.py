"""Notices that the operator's webhook configurations were created since it started without webhooks.

Then it should serve them, or another operator does: at its next start it does one of both, or says which other one is
alive. Only administrators create webhook configurations.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from anyio.abc import TaskStatus

from cfo.runtime import GVK, Cache, Event, Manager
from cfo.runtime.webhook import AnotherOperator


class WebhookConfigurationWatch:
    """Ends the process when one of ``configurations``, kinds with names, is created."""

    name = "webhook configuration watch"
    needs_leader = False

    def __init__(self, manager: Manager, configurations: Sequence[tuple[GVK, str]]) -> None:
        self._manager = manager
        self._configurations = configurations
        self._found = ""
        self._is_found = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Wait for a webhook configuration; raise :class:`~cfo.runtime.webhook.AnotherOperator` then."""
        manager = self._manager
        cache = Cache(manager.transport, manager.mapper, clock=manager.clock)
        for kind, name in self._configurations:
            informer = cache.informer(
                kind, field_selector=f"metadata.name={name}", metadata_only=True
            )
            informer.add_handler(self._handle)
        async with anyio.create_task_group() as tasks:
            await tasks.start(cache.run)
            task_status.started()
            await self._is_found.wait()
            tasks.cancel_scope.cancel()
        raise AnotherOperator(self._found)

    def _handle(self, event: Event) -> None:
        if event.new is not None:
            kind = event.new.metadata_object()["kind"]
            self._found = (
                f"{kind} {event.key.name} was created, and this operator serves no webhooks"
            )
            self._is_found.set()
