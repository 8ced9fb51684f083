"""A control plane on its own thread and event loop, for synchronous programs and tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from envtest.formats.manifests import Manifests
from envtest.planes.base import NOT_RUNNING, BaseControlPlane

if TYPE_CHECKING:
    from envtest.apimachinery.user import User
    from envtest.endpoints.audit import AuditLog
    from envtest.faults import Fault, Faults
    from envtest.planes.embedded import EmbeddedServer
    from envtest.planes.local_webhooks import LocalWebhooks
    from envtest.planes.trace import Trace
    from envtest.scenarios.scenario import Scenario

__all__ = ["ThreadedControlPlane", "ThreadedFaults"]

T = TypeVar("T")
P = ParamSpec("P")


class ThreadedFaults:
    """The methods of :class:`envtest.faults.Faults`, for other threads than that of the control plane.

    What wakes requests and watches must run on the loop that they wait on.
    """

    def __init__(self, thread: ThreadedControlPlane, faults: Faults) -> None:
        self._thread = thread
        self._faults = faults

    @property
    def rules(self) -> Sequence[Fault]:
        """The active rules."""
        return tuple(self._faults.rules)

    @property
    def stale_revision(self) -> int | None:
        """The revision whose state reads from the cache return."""
        return self._faults.stale_revision

    @stale_revision.setter
    def stale_revision(self, revision: int | None) -> None:
        self._faults.stale_revision = revision

    def add(self, fault: Fault) -> Fault:
        """See :meth:`Faults.add`, also for the next methods."""
        return self._thread.run(self._faults.add, fault)

    def clear(self) -> None:
        """Remove all rules, end a pause, release watches."""
        self._thread.run(self._faults.clear)

    def pause(self) -> None:
        """Hold all requests and watches."""
        self._thread.run(self._faults.pause)

    def resume(self) -> None:
        """End a pause."""
        self._thread.run(self._faults.resume)

    def hold_watches(self, *resources: str) -> None:
        """Hold back the events of watches."""
        self._thread.run(self._faults.hold_watches, *resources)

    def release_watches(self) -> None:
        """Deliver all events that were held back."""
        self._thread.run(self._faults.release_watches)


class ThreadedControlPlane:
    """Runs ``plane`` between :meth:`start` and :meth:`stop` (or in a ``with`` block).

    Its ``url``, ``ca_pem``, ``token`` and kubeconfig can be used from any thread; :meth:`call` runs coroutines on its
    loop.
    """

    def __init__(self, plane: BaseControlPlane) -> None:
        if not isinstance(plane, BaseControlPlane):
            raise TypeError(
                f"plane: {plane!r}: must be a control plane, as of ControlPlane.embedded()"
            )
        self.plane = plane
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread and the control plane; return when it is ready.

        Raises the same exceptions as the control plane's ``start``.
        """
        if self._loop is not None:
            raise RuntimeError("the control plane is already running: stop() it first")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="envtest", daemon=True)
        self._thread.start()
        try:
            self.call(self.plane.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop the control plane and its thread; does nothing if it is not running."""
        if self._loop is None:
            return
        try:
            self.call(self.plane.stop())
        finally:
            self._end()

    def _end(self) -> None:
        loop = self._loop
        thread = self._thread
        self._loop = None
        self._thread = None
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        if not loop.is_running():
            loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the control plane's loop and return its result.

        Raises RuntimeError if the control plane is not running.
        """
        if self._loop is None:
            work.close()  # without the warning that it was never awaited
            raise RuntimeError(NOT_RUNNING)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the control plane's loop and return its result."""

        async def work() -> T:
            return function(*args, **kwargs)

        return self.call(work())

    @property
    def controllers(self) -> tuple[str, ...]:
        """The names of the controllers that run with it."""
        return self.plane.controllers

    @property
    def running_controllers(self) -> Collection[str]:
        """See :attr:`BaseControlPlane.running_controllers`."""
        return self.plane.running_controllers

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
        return ThreadedControlPlane(self.run(self.embedded.fork))

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

    @property
    def faults(self) -> ThreadedFaults:
        """See :meth:`EmbeddedServer.faults`."""
        return ThreadedFaults(self, self.embedded.faults)

    @property
    def audit(self) -> AuditLog:
        """See :meth:`EmbeddedServer.audit`."""
        return self.embedded.audit

    def add_user(self, token: str, user: User) -> None:
        """See :meth:`EmbeddedServer.add_user`."""
        self.run(self.embedded.add_user, token, user)

    def client_certificate(
        self, user: str, groups: Sequence[str] = (), *, seconds: float | None = None
    ) -> tuple[bytes, bytes]:
        """See :meth:`EmbeddedServer.client_certificate`."""
        return self.run(self.embedded.client_certificate, user, groups, seconds=seconds)

    def register_service(self, namespace: str, name: str, url: str, *, port: int = 443) -> None:
        """See :meth:`EmbeddedServer.register_service`."""
        self.run(self.embedded.register_service, namespace, name, url, port=port)

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

    def kill_program(self, name: str) -> None:
        """See :meth:`BaseControlPlane.kill_program`, also for the next two methods."""
        self.call(self.plane.kill_program(name))

    def stop_program(self, name: str) -> None:
        """End a program of the real control plane."""
        self.call(self.plane.stop_program(name))

    def start_program(self, name: str) -> None:
        """Start a program of the real control plane again."""
        self.call(self.plane.start_program(name))

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
