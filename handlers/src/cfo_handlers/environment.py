"""What all handlers of one operator share, and their indexes: what functions return for each object, by key.

An index is updated when the watch reports an event, before any handler is called for it.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from typing import Any, Final, Generic, TypeVar

from cfo.runtime.client import Client
from cfo.runtime.manager import EventRecorder
from cfo.runtime.process import Clock, LoggedStacks, SystemClock
from cfo_handlers.bodies import Memo
from cfo_handlers.declarations import (
    IndexHandler,
    OperatorRegistry,
    get_default_registry,
    require_plain_function,
)
from cfo_handlers.settings import OperatorSettings
from cfo_handlers.threads import HandlerThreads, SyncClient

K = TypeVar("K")
V = TypeVar("V")


class Store(Collection[V], Generic[V]):
    """The values of one key, in no particular order; one for each object."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._values.values()))

    def __contains__(self, value: object) -> bool:
        return any(value == known for known in self._values.values())

    def __repr__(self) -> str:
        return repr(list(self))


class Index(Mapping[K, Store[V]], Generic[K, V]):
    """The values of an index by key. Handlers in threads may read it while it changes."""

    def __init__(self) -> None:
        self._stores: dict[K, Store[V]] = {}
        self._keys: dict[str, tuple[K, ...]] = {}

    def __getitem__(self, key: K) -> Store[V]:
        return self._stores[key]

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._stores))

    def __len__(self) -> int:
        return len(self._stores)

    def __repr__(self) -> str:
        return repr(dict(self))

    def put(self, identity: str, result: Any) -> None:
        """Replace the values of an object: a mapping of keys to values, or one value under the key ``None``.

        ``None`` removes them.
        """
        values: Mapping[Any, Any]
        if result is None:
            values = {}
        elif isinstance(result, Mapping):
            values = result
        else:
            values = {None: result}
        for key in self._keys.pop(identity, ()):
            if key not in values:
                store = self._stores[key]
                del store._values[identity]
                if not store:
                    del self._stores[key]
        for key, value in values.items():
            self._stores.setdefault(key, Store())._values[identity] = value
        if values:
            self._keys[identity] = tuple(values)


_MAX_PATCHES: Final = 16
"""The number of patches that are sent at the same time; more would only open more connections."""


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs with the namespace and name of an object in front of the message."""

    def __init__(self, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(logging.getLogger("kopf.objects"), {})
        metadata = (body or {}).get("metadata") or {}
        names = [name for name in (metadata.get("namespace"), metadata.get("name")) if name]
        self._prefix = f"[{'/'.join(names)}] " if names else ""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the prefix."""
        return f"{self._prefix}{msg}", kwargs


LocalObjectLogger = ObjectLogger


class Environment:
    """The settings, the handlers, the client, and the threads of an operator.

    Create it in the event loop. There is a client only after :meth:`connect`.

    Raises :class:`TypeError` if ``lifecycle`` is an async function.
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
        if lifecycle is not None:
            require_plain_function("lifecycle", lifecycle)
        self.lifecycle = lifecycle
        self.clock: Clock = clock or SystemClock()
        self.loop = asyncio.get_running_loop()
        self.indexes: dict[str, Index[Any, Any]] = {
            handler.id: Index() for handler in self.registry.of_type(IndexHandler)
        }
        self.patches = asyncio.Semaphore(_MAX_PATCHES)
        self.stacks = LoggedStacks()
        self._threads: dict[str, HandlerThreads] = {}

    def connect(self, client: Client, recorder: EventRecorder) -> None:
        """Set the client of handlers and the recorder of Events."""
        self.client = client
        self.sync_client = SyncClient(client)
        self.recorder = recorder

    def threads(self, name: str) -> HandlerThreads:
        """Return the threads for sync ``handlers``, ``daemons`` or ``admission`` handlers: none delays another type."""
        limit = self.settings.execution.max_workers
        if name == "daemons":
            limit = self.settings.background.max_daemon_threads
        threads = self._threads.get(name)
        if threads is None or threads.limit != limit:  # startup handlers may change the setting
            threads = HandlerThreads(name, limit)
            self._threads[name] = threads
        return threads

    def client_for(self, *, is_async: bool) -> dict[str, Any]:
        """Return the keyword ``client`` of a handler; empty before :meth:`connect`."""
        if not hasattr(self, "client"):
            return {}
        return {"client": self.client if is_async else self.sync_client}

    def now(self) -> datetime.datetime:
        """Return the current time in UTC."""
        return self.clock.now()
