"""Watches FluxJobs and pods during a test, and records what each watch event showed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from cfo.api.flux.names import FLUX_JOB, MINICLUSTER_LABEL, STATES
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.flux_environment import FluxEnvironment
from test.support.planes import local_config

__all__ = ["FluxObserver", "observe"]


class FluxObserver:
    """What the watches reported: each job's states, the order of admissions, and the number of pods."""

    def __init__(self) -> None:
        self.states: dict[NamespacedName, list[tuple[str, ...]]] = {}
        self.reserved: dict[NamespacedName, list[bool]] = {}
        self.admissions: list[NamespacedName] = []
        self.pods: set[NamespacedName] = set()
        self.most_pods = 0

    def on_pod(self, event: Event) -> None:
        """Count the pods of MiniClusters that exist."""
        if event.new is not None and MINICLUSTER_LABEL in event.new.meta.labels:
            self.pods.add(event.key)
        else:
            self.pods.discard(event.key)
        self.most_pods = max(self.most_pods, len(self.pods))

    def on_job(self, event: Event) -> None:
        """Record which of the five states are true, and when quota is reserved."""
        if event.new is None:
            return
        status: Object = event.new.object().get("status") or {}
        true = [item["type"] for item in status.get("conditions") or () if item["status"] == "True"]
        seen = self.states.setdefault(event.key, [])
        state = tuple(kind for kind in true if kind in list(STATES))
        if not seen or seen[-1] != state:
            seen.append(state)
        reserved = self.reserved.setdefault(event.key, [False])
        if reserved[-1] != ("QuotaReserved" in true):
            reserved.append("QuotaReserved" in true)
            if reserved[-1]:
                self.admissions.append(event.key)


@asynccontextmanager
async def observe(env: FluxEnvironment) -> AsyncIterator[FluxObserver]:
    """Watch all FluxJobs and pods until the end of the block."""
    observer = FluxObserver()
    async with (
        Transport(local_config(env.plane)) as transport,
        anyio.create_task_group() as tasks,
    ):
        mapper = RESTMapper(transport)
        for gvk, handler in ((POD, observer.on_pod), (FLUX_JOB, observer.on_job)):
            informer = Informer(transport, mapper, gvk)
            informer.add_handler(handler)
            tasks.start_soon(informer.run)
            await informer.wait_for_sync()
        yield observer
        tasks.cancel_scope.cancel()
