"""How many modules a reader has to follow for one event and for one write.

A module whose functions only pass a call on makes these trails longer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import orjson
from aiohttp import web

from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.handler import EnqueueRequestForOwner
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.predicate import ResourceVersionChanged
from cfo.runtime.controller.reconcile import Request
from cfo.runtime.controller.source import Kind
from cfo.runtime.controller.workqueue import WorkQueue
from cfo.runtime.objects.unstructured import GVK, NamespacedName, set_controller_owner
from test.support.module_trace import ModuleTrace
from test.support.scripted_transport import (
    TIMEOUT_SECONDS,
    ScriptedServer,
    ScriptedWatch,
    list_response,
    raw_response,
    ray_cluster,
    scripted_server,
    wait_until,
)

MAX_MODULES_OF_AN_EVENT = 15
MAX_MODULES_OF_AN_APPLY = 11

RAY = GVK("ray.io", "v1", "RayCluster")
JOB = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "name": "job",
    "uid": "uid-job",
    "controller": True,
}
DISCOVERY = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {"name": RAY.group},
            "versions": [
                {
                    "version": RAY.version,
                    "resources": [
                        {
                            "resource": "rayclusters",
                            "scope": "Namespaced",
                            "responseKind": {"kind": RAY.kind},
                        }
                    ],
                }
            ],
        }
    ],
}


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[ScriptedServer, ScriptedWatch, Cache, Client]]:
    """Run a cache that has listed one RayCluster, as in a manager with metrics."""
    async with scripted_server() as (server, transport):
        observed = Transport(transport.config, observe=Metrics().observe_exchange)
        mapper = RESTMapper(observed)
        cache = Cache(observed, mapper, field_managers={"me"})
        server.respond_with(raw_response(orjson.dumps(DISCOVERY)))
        server.respond_with(
            list_response(5, ray_cluster("a", 5, metadata={"ownerReferences": [JOB]}))
        )
        watch = server.respond_with_watch()
        async with observed, anyio.create_task_group() as tasks:
            informer = cache.informer(RAY)
            await tasks.start(lambda *, task_status: cache.run(task_status=task_status))
            with anyio.fail_after(TIMEOUT_SECONDS):
                await informer.wait_for_sync()
                await watch.opened.wait()
                await wait_until(lambda: not informer.problem)
                await anyio.wait_all_tasks_blocked()
            yield server, watch, cache, Client(observed, mapper, field_manager="me", cache=cache)
            tasks.cancel_scope.cancel()


async def test_event_enters_few_modules_between_the_watch_and_the_queue() -> None:
    async with watching() as (_, watch, cache, client):
        queue: WorkQueue[Request] = WorkQueue(metrics=Metrics().queue("trail"))
        handler = EnqueueRequestForOwner(RAY._replace(kind="RayJob"))
        source = Kind(cache.informer(RAY), handler, ResourceVersionChanged(), mapper=client.mapper)
        await source.start("trail", queue)
        for priority in (0, 1):  # the first item of a priority creates its gauge
            queue.add(NamespacedName("ns", "job"), priority=priority)
            await queue.get()
            queue.done(NamespacedName("ns", "job"))
        with ModuleTrace() as trace:
            await watch.send("MODIFIED", ray_cluster("a", 6, metadata={"ownerReferences": [JOB]}))
            await wait_until(lambda: len(queue) == 1)
    assert len(trace.modules) <= MAX_MODULES_OF_AN_EVENT, " ".join(trace.modules)


async def test_apply_enters_few_modules_until_it_waits_for_the_response() -> None:
    trace = ModuleTrace()
    sent: list[str] = []

    async def respond(_: web.Request) -> web.Response:
        sent.extend(trace.modules)
        return web.json_response(ray_cluster("a", 6))

    async with watching() as (server, _, _, client):
        server.respond_with(respond)
        owner = ray_cluster("owner", 1)
        desired = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"namespace": "ns", "name": "a"},
        }
        with trace:
            await client.apply(set_controller_owner({**desired, "spec": {"a": 1}}, owner))
    assert sent
    assert len(sent) <= MAX_MODULES_OF_AN_APPLY, " ".join(sent)
