"""The base class of controllers, and the runner that starts and stops them.

A controller is notified of every change that is stored, and enqueues the keys that the change concerns; its workers
then read the current state and act on it. It is level-triggered: redundant notifications are harmless, and all existing
objects are enqueued when it starts.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.failure_log import log_failure
from envtest.controllers.events import EventRecorder
from envtest.controllers.key_queue import KeyQueue
from envtest.controllers.loopback_client import LoopbackClient
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.storage import Change
from envtest.writes.server_core import Core

__all__ = ["Controller", "Runner"]

K = TypeVar("K", bound=Hashable)
WORKERS: Final = 4
_LOGGER: Final = "envtest.controllers"
_log: Final = logging.getLogger(_LOGGER)


class Controller(abc.ABC, Generic[K]):
    """A controller. It reads and writes with ``client``; ``queue`` holds the keys that need to be reconciled.

    ``events`` records Events.
    """

    account = ""
    """The service account of ``kube-system`` that the controller acts as."""

    component = ""
    """The component in the controller's Events; the service account by default."""

    manager = "kube-controller-manager"
    """The field manager of the controller's writes."""

    ca = b""
    """The API server's CA certificate (PEM), for controllers that publish it."""

    authority: CertificateAuthority | None = None
    """The CA, for controllers that issue certificates."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.client = LoopbackClient(core, self.account, self.manager)
        self.events = EventRecorder(self.client, self.component or self.account)
        self.queue: KeyQueue[K] = KeyQueue(core.clock)

    @abc.abstractmethod
    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue the keys that a change concerns. Called before the change can be read, and must return quickly."""

    @abc.abstractmethod
    def enqueue_all(self) -> None:
        """Enqueue all keys. Called once, when the controller starts."""

    @abc.abstractmethod
    async def reconcile(self, key: K) -> float | None:
        """Reconcile one key; return the seconds until it must be reconciled again, or ``None``."""

    async def run_worker(self) -> None:
        """Reconcile keys until cancelled. Failures are logged and retried with back-off."""
        while True:
            key = await self.queue.get()
            failed = False
            try:
                requeue_after = await self.reconcile(key)
            except StatusError as error:
                failed = True
                _log.debug(
                    "Request rejected, will retry controller=%r key=%r error=%r",
                    type(self).__name__,
                    str(key),
                    error.message[:300],
                )
            except Exception:  # noqa: BLE001 - one object that fails must not stop the controller
                failed = True
                log_failure(
                    "Reconcile failed, will retry",
                    logger=_LOGGER,
                    controller=type(self).__name__,
                    key=str(key),
                )
            else:
                if requeue_after is not None:
                    self.queue.add_after(key, requeue_after)
            finally:
                self.queue.done(key, failed=failed)
            await asyncio.sleep(0)  # requests must not wait until the queue is empty


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
        """Start the controllers; must be called from a running event loop."""
        if not self._controllers or self._task is not None:
            return
        for controller in self._controllers:
            controller.enqueue_all()
        self._core.store.journal.append(self._observe)
        self._task = asyncio.create_task(self._run(), name="controllers")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                for _ in range(WORKERS):
                    group.create_task(controller.run_worker())

    async def settle(self) -> None:
        """Wait until no controller has a key to reconcile at the current time."""
        if self._task is None:
            return
        while not all(controller.queue.idle for controller in self._controllers):
            for controller in self._controllers:
                await controller.queue.wait_idle()

    async def stop(self) -> None:
        """Cancel all workers, including running reconciles."""
        task = self._task
        self._task = None
        if task is None:
            return
        self._core.store.journal.remove(self._observe)
        for controller in self._controllers:
            controller.queue.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
