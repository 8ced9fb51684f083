"""The heartbeat of an operator without leader election.

Other operators recognize by it that this one is alive (:mod:`cfo.runtime.webhook.ownership`). It is the Lease of the
leader election, so that replicas of the same installation that use leader election wait for this operator.

An operator that must be the only one holds the Lease before it reconciles. It does not wait for a living
holder, but ends: nothing replaces it when that one stops, as a Deployment replaces its pods.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskStatus

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.lifecycle import StartPhase
from cfo.runtime.manager.leaderelection import (
    LeaderElectionOptions,
    LeaderElector,
    LeadershipLost,
    LeaseLock,
    default_identity,
)
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.clock import Clock
from cfo.runtime.process.printable import printable
from cfo.runtime.webhook.options import WebhookURL
from cfo.runtime.webhook.ownership import AnotherOperator, holder_suffix

_RENEW_INTERVAL = 5.0

_ATTEMPT = "Attempting to acquire lease, by which other operators see that this one is alive"
_ATTEMPT_OF_ONLY = f"{_ATTEMPT}; controllers start afterwards"
_MAX_NAME = 300


class AnotherHolder(AnotherOperator):
    """Raised when another process renews the Lease that only this one may renew."""


def _phase(*, is_only: bool, has_url: bool) -> StartPhase:
    """Return the phase of a heartbeat; what starts later waits for the Lease, if it has to be the only one."""
    if not is_only:
        return StartPhase.ALL_REPLICAS
    if has_url:
        return StartPhase.ELECTION  # the URL is its own: webhooks are served meanwhile
    return StartPhase.CACHES  # the webhook configurations may have the holder's CA bundle


class Heartbeat:
    """Holds ``lease`` while the process runs, as soon as no other process holds it.

    One write every five seconds. ``url`` is where the operator serves its webhooks, if that is outside the cluster.
    With ``is_only``, controllers start once it holds the Lease, at most 26 s after a dead holder has renewed it for the
    last time, and :meth:`run` ends if another process renews it, after at most 11 s. Without, nothing depends on it.
    """

    name = "heartbeat"
    needs_leader = False

    def __init__(
        self,
        config: ClientConfig,
        lease: NamespacedName,
        url: WebhookURL | None,
        clock: Clock,
        *,
        is_only: bool = False,
    ) -> None:
        self._is_only = is_only
        self.phase = _phase(is_only=is_only, has_url=url is not None)
        """The phase of the manager in which it runs."""
        self._transport = Transport(config, clock=clock)
        options = LeaderElectionOptions(
            name=lease.name,
            namespace=lease.namespace,
            identity=default_identity() + holder_suffix(url),
            retry_period=_RENEW_INTERVAL,
        )
        lock = LeaseLock(self._transport, lease)
        self._elector = LeaderElector(
            lock,
            options,
            clock=clock,
            attempt=_ATTEMPT_OF_ONLY if is_only else _ATTEMPT,
            on_rival=self._on_rival,
        )
        self._is_stopping = False

    def stop(self) -> None:
        """Release the Lease; :meth:`run` returns afterwards."""
        self._is_stopping = True
        self._elector.stop()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Hold the Lease until :meth:`stop`; acquire it again after it was lost.

        Reports the start immediately, or, if this must be the only process that renews the Lease, once it holds the
        Lease. Raises :class:`AnotherHolder` then if another process renews it.
        """
        if not self._is_only:
            task_status.started()
        async with self._transport:
            while not self._is_stopping:
                try:
                    await self._elector.run(task_status=task_status)
                except LeadershipLost:
                    continue

    def _on_rival(self, holder: str) -> None:
        if self._is_only:
            options = self._elector.options
            lease = f"{options.namespace}/{options.name}"
            raise AnotherHolder(f"{printable(holder, _MAX_NAME)} renews Lease {lease}")
