"""What a controller is, and what runs them.

A controller is told of every change as it is stored, and notes which of its keys that concerns; its workers then look
at how things stand and act. It is level-triggered: it may be told too often, and starts with all that is there.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from envtest.controllers.actor import Actor
from envtest.controllers.queue import KeyQueue
from envtest.errors import GroupResource, StatusError
from envtest.server_core import Core
from envtest.storage import Change

__all__ = ["Controller", "Runner"]

K = TypeVar("K", bound=Hashable)
WORKERS: Final = 4


def _log() -> Any:
    """The logger; importing it takes longer than starting all controllers, so it is left to the first failure."""
    import structlog

    return structlog.get_logger("envtest.controllers")


class Controller(abc.ABC, Generic[K]):
    """One controller. ``actor`` reads and writes for it, ``queue`` holds the keys that it is to look at."""

    account = ""
    """The service account of ``kube-system`` that it acts as."""

    manager = "kube-controller-manager"
    """The field manager of its writes."""

    authority = b""
    """The API server's certificate authority (PEM), for those who hand it out."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.actor = Actor(core, self.account, self.manager)
        self.queue: KeyQueue[K] = KeyQueue()

    @abc.abstractmethod
    def observe(self, resource: GroupResource, change: Change) -> None:
        """Notes the keys that a change concerns. Called before the change can be read; must be quick."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Notes all keys, once, when the controller starts."""

    @abc.abstractmethod
    async def work(self, key: K) -> float | None:
        """Brings about what is to be for one key; returns the seconds after which to look again, if at all."""

    async def run_worker(self) -> None:
        """Works on keys until it is cancelled. What fails is tried again later, and logged."""
        while True:
            key = await self.queue.take()
            failed = False
            try:
                again = await self.work(key)
            except StatusError as error:
                failed = True
                _log().debug("refused", controller=type(self).__name__, key=str(key), error=error.message[:300])
            except Exception:  # noqa: BLE001 - one bad object must not stop the others
                failed = True
                _log().exception("failed", controller=type(self).__name__, key=str(key))
            else:
                if again is not None:
                    self.queue.add_after(key, again)
            finally:
                self.queue.done(key, failed=failed)


class Runner:
    """Runs controllers between :meth:`start` and :meth:`stop`."""

    def __init__(self, core: Core, controllers: Sequence[Controller[Any]]) -> None:
        self._core = core
        self._controllers = controllers
        self._task: asyncio.Task[None] | None = None

    def _observe(self, resource: GroupResource, change: Change) -> None:
        for controller in self._controllers:
            controller.observe(resource, change)

    def start(self) -> None:
        """Begins; must be called from a running event loop."""
        if not self._controllers or self._task is not None:
            return
        for controller in self._controllers:
            controller.begin()
        self._core.store.journal.append(self._observe)
        self._task = asyncio.create_task(self._run(), name="controllers")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                for _ in range(WORKERS):
                    group.create_task(controller.run_worker())

    async def stop(self) -> None:
        """Ends all work, in the middle if need be."""
        task, self._task = self._task, None
        if task is None:
            return
        self._core.store.journal.remove(self._observe)
        for controller in self._controllers:
            controller.queue.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
