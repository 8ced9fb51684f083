"""What all handlers of one operator share."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from cfo.runtime.client.client import Client
from cfo.runtime.controller.threads import SyncClient, ThreadPool
from cfo.runtime.handlers.bodies import Memo
from cfo.runtime.handlers.declarations import IndexHandler, OperatorRegistry, get_default_registry
from cfo.runtime.handlers.indexes import Index
from cfo.runtime.handlers.settings import OperatorSettings
from cfo.runtime.manager.events import EventRecorder
from cfo.runtime.process.clock import Clock, SystemClock

_MAX_PATCHES: Final = 16
"""The number of patches that are sent at the same time; more would only open more connections."""


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs with the namespace and name of an object in front of the message."""

    def __init__(self, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(logging.getLogger("kopf.objects"), {})
        metadata = (body or {}).get("metadata") or {}
        names = [name for name in (metadata.get("namespace"), metadata.get("name")) if name]
        self._prefix = f"[{'/'.join(names)}] " if names else ""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the prefix."""
        return f"{self._prefix}{msg}", kwargs


class Environment:
    """The settings, the handlers, the client, and the threads of an operator.

    Create it in the event loop. There is a client only after :meth:`connect`.
    """

    client: Client
    sync_client: SyncClient
    recorder: EventRecorder

    def __init__(
        self,
        registry: OperatorRegistry | None = None,
        settings: OperatorSettings | None = None,
        memo: Any = None,
        *,
        lifecycle: Callable[..., Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.registry = registry if registry is not None else get_default_registry()
        self.settings = settings or OperatorSettings()
        self.memo = memo if memo is not None else Memo()
        self.lifecycle = lifecycle
        self.clock: Clock = clock or SystemClock()
        self.loop = asyncio.get_running_loop()
        self.indexes: dict[str, Index[Any, Any]] = {
            handler.id: Index() for handler in self.registry.of_type(IndexHandler)
        }
        self.patches = asyncio.Semaphore(_MAX_PATCHES)
        self._pools: dict[str, ThreadPool] = {}

    def connect(self, client: Client, recorder: EventRecorder) -> None:
        """Set the client of handlers and the recorder of Events."""
        self.client = client
        self.sync_client = SyncClient(client)
        self.recorder = recorder

    @property
    def threads(self) -> ThreadPool:
        """The threads of sync handlers."""
        return self._pool("handlers", self.settings.execution.max_workers)

    @property
    def admission_threads(self) -> ThreadPool:
        """The threads of sync admission handlers, for which clients of the API server wait."""
        return self._pool("admission", self.settings.execution.max_workers)

    @property
    def daemon_threads(self) -> ThreadPool:
        """The threads of sync daemons."""
        return self._pool("daemons", self.settings.background.max_daemon_threads)

    def _pool(self, name: str, limit: int) -> ThreadPool:
        pool = self._pools.get(name)
        if pool is None or pool.limit != limit:  # startup handlers may change the setting
            pool = self._pools[name] = ThreadPool(name, limit)
        return pool

    def client_for(self, *, is_async: bool) -> dict[str, Any]:
        """Return the keyword ``client`` of a handler; empty before :meth:`connect`."""
        if not hasattr(self, "client"):
            return {}
        return {"client": self.client if is_async else self.sync_client}

    def now(self) -> datetime.datetime:
        """Return the current time in UTC."""
        return self.clock.now()
