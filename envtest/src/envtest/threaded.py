"""A control plane on its own thread and event loop, for synchronous programs and tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from envtest.formats.manifests import Manifests
from envtest.planes.base import BaseControlPlane

if TYPE_CHECKING:
    from envtest.planes.embedded import EmbeddedServer
    from envtest.planes.local_webhooks import LocalWebhooks
    from envtest.planes.trace import Trace
    from envtest.scenarios.scenario import Scenario

__all__ = ["ThreadedControlPlane"]

T = TypeVar("T")


class ThreadedControlPlane:
    """Runs ``plane`` between :meth:`start` and :meth:`stop` (or in a ``with`` block).

    Its ``url``, ``ca_pem``, ``token`` and kubeconfig can be used from any thread; :meth:`call` runs coroutines on its
    loop.
    """

    def __init__(self, plane: BaseControlPlane) -> None:
        self.plane = plane

    def start(self) -> None:
        """Start the thread and the control plane; return when it is ready.

        Raises the same exceptions as the control plane's ``start``.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="envtest", daemon=True)
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

    @property
    def url(self) -> str:
        """See :class:`BaseControlPlane`, also for the next members."""
        return self.plane.url

    @property
    def ca_pem(self) -> bytes:
        """The certificate of the CA."""
        return self.plane.ca_pem

    @property
    def token(self) -> str:
        """The token of user ``admin``."""
        return self.plane.token

    def kubeconfig(
        self, path: Path | str | None = None, *, token: str | None = None, user: str = "admin"
    ) -> str:
        """See :meth:`BaseControlPlane.kubeconfig`."""
        return self.plane.kubeconfig(path, token=token, user=user)

    @property
    def embedded(self) -> EmbeddedServer:
        """The embedded control plane. Raises TypeError for the real one."""
        from envtest.planes.embedded import EmbeddedServer

        if not isinstance(self.plane, EmbeddedServer):
            raise TypeError("only the embedded control plane can do this")
        return self.plane

    def fork(self) -> ThreadedControlPlane:
        """Return a copy of an embedded control plane as it is now, which has yet to be started on its own thread.

        Raises TypeError for the real control plane; so do the next methods.
        """
        plane = self.embedded

        async def copy() -> BaseControlPlane:
            return plane.fork()

        return ThreadedControlPlane(self.call(copy()))

    def snapshot(self, path: Path | str) -> None:
        """See :meth:`EmbeddedServer.snapshot`."""
        self.call(self.embedded.snapshot(path))

    def advance(self, seconds: float) -> datetime:
        """See :meth:`EmbeddedServer.advance`."""
        return self.call(self.embedded.advance(seconds))

    @property
    def scenario(self) -> Scenario:
        """See :meth:`EmbeddedServer.scenario`; its callbacks run on the loop of the control plane."""
        return self.embedded.scenario

    def trace(self) -> Trace:
        """See :meth:`EmbeddedServer.trace`."""
        return self.embedded.trace()

    def install_crds(self, *sources: Manifests) -> list[str]:
        """See :meth:`BaseControlPlane.install_crds`."""
        return self.call(self.plane.install_crds(*sources))

    def install_webhooks(
        self, *sources: Manifests, server: LocalWebhooks | Path | str
    ) -> LocalWebhooks:
        """See :meth:`BaseControlPlane.install_webhooks`."""
        return self.call(self.plane.install_webhooks(*sources, server=server))

    def remove_webhooks(self, *sources: Manifests) -> None:
        """See :meth:`BaseControlPlane.remove_webhooks`."""
        self.call(self.plane.remove_webhooks(*sources))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
