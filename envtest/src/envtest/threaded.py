"""A control plane on its own thread and event loop, for synchronous programs and tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from envtest.base import BaseControlPlane
from envtest.manifests import Manifests

if TYPE_CHECKING:
    from envtest.local_webhooks import LocalWebhooks

__all__ = ["ThreadedControlPlane"]

T = TypeVar("T")


class ThreadedControlPlane:
    """Runs ``plane`` between :meth:`start` and :meth:`stop` (or in a ``with`` block).

    Its ``url``, ``ca_pem``, ``token`` and kubeconfig can be used from any thread; :meth:`call` runs coroutines on its
    loop.
    """

    def __init__(self, plane: BaseControlPlane) -> None:
        self.plane = plane
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="envtest", daemon=True)

    def start(self) -> None:
        """Start the thread and the control plane; return when it is ready.

        Raises the same exceptions as the control plane's ``start``.
        """
        self._thread.start()
        try:
            self.call(self.plane.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop the control plane and its thread."""
        try:
            self.call(self.plane.stop())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if not self._loop.is_running():
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the control plane's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def install_crds(self, *sources: Manifests) -> list[str]:
        """See :meth:`BaseControlPlane.install_crds`."""
        return self.call(self.plane.install_crds(*sources))

    def install_webhooks(self, *sources: Manifests, server: LocalWebhooks | Path | str) -> LocalWebhooks:
        """See :meth:`BaseControlPlane.install_webhooks`."""
        return self.call(self.plane.install_webhooks(*sources, server=server))

    def remove_webhooks(self, *sources: Manifests) -> None:
        """See :meth:`BaseControlPlane.remove_webhooks`."""
        self.call(self.plane.remove_webhooks(*sources))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
