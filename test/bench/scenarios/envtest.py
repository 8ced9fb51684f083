"""The embedded control plane itself: how soon it is there, what it bears, what objects take in its memory."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from cfo.demo import crds
from cfo.runtime import load_config
from envtest import ControlPlane
from envtest.context import RequestContext, User
from envtest.crd.custom_resource_strategy import CustomResourceStrategy
from envtest.registry import ResourceInfo
from test.bench.fleet import raycluster
from test.bench.harness import Case, Sample, benchmark
from test.bench.stage import Plane, plane

GROUP = "bench.example.com"
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
CONNECTIONS = 16
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANYTHING}}],
    },
}


def widget(number: int) -> bytes:
    """A custom resource of some 5 kB without a schema: what it costs is the server's own."""
    body = raycluster(number)
    metadata = {**body["metadata"], "name": f"widget-{number:05}", "namespace": "default"}
    return orjson.dumps({**body, "apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": metadata})


@asynccontextmanager
async def session(stage: Plane) -> AsyncIterator[aiohttp.ClientSession]:
    """Bare HTTP, so that the client costs as little as it can."""
    config = await load_config(str(stage.folder / "admin.kubeconfig"))
    credentials = await config.authenticate()
    context: ssl.SSLContext = config.ssl_context(credentials)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    headers = {"Authorization": credentials.authorization, "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        config.server, connector=connector, headers=headers, read_bufsize=1 << 22
    ) as opened:
        yield opened


async def create(http: aiohttp.ClientSession, count: int) -> float:
    """Creates so many widgets over a few connections; gives the seconds it took."""
    bodies = iter([widget(number) for number in range(count)])

    async def work() -> None:
        for body in bodies:
            async with http.post(WIDGETS, data=body) as answer:
                answer.raise_for_status()
                await answer.read()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as hands:
        for _ in range(CONNECTIONS):
            hands.create_task(work())
    return time.perf_counter() - began


@benchmark(title="the test plane, in this process, until it is ready: the first and the second", repeat=5)
async def envtest_start(case: Case) -> Sample:
    values = {}
    for name in ("first", "second"):
        began = time.perf_counter()
        async with ControlPlane.embedded(controllers=()):
            values[f"{name} s"] = time.perf_counter() - began
    return Sample(values)


@benchmark(
    title=f"the test plane as a process: creates of 5 kB over {CONNECTIONS} connections, a list of all, memory",
    unit="objects",
    sizes=(1000, 10_000),
)
async def envtest_creates(case: Case) -> Sample:
    async with plane(DEFINITION) as stage, session(stage) as http:
        empty, cpu = stage.process.rss(), stage.process.cpu()
        seconds = await create(http, case.size)
        cpu = stage.process.cpu() - cpu
        began = time.perf_counter()
        async with http.get(WIDGETS) as answer:
            await answer.read()
        return Sample(
            {
                "creates /s": case.size / seconds,
                "each cpu us": cpu / case.size * 1e6,
                "list s": time.perf_counter() - began,
                "empty MB": empty,
                "rss MB": stage.process.rss(),
            }
        )


@benchmark(title="the test plane: 1,000 creates, and as many events to each watch", unit="watches", sizes=(20,))
async def envtest_watches(case: Case) -> Sample:
    events = 1000
    async with plane(DEFINITION) as stage, session(stage) as http:

        async def watch(ready: asyncio.Event) -> None:
            async with http.get(WIDGETS, params={"watch": "true", "resourceVersion": ""}) as answer:
                ready.set()
                for _ in range(events):
                    line = await answer.content.readline()
                    if b'"ADDED"' not in line[:30]:
                        raise RuntimeError(line[:80].decode())

        readies = [asyncio.Event() for _ in range(case.size)]
        async with asyncio.TaskGroup() as watching:
            for ready in readies:
                watching.create_task(watch(ready))
            for ready in readies:
                await ready.wait()
            cpu, began = stage.process.cpu(), time.perf_counter()
            created = await create(http, events)
        told = time.perf_counter() - began
        return Sample({"created s": created, "all told s": told, "server cpu s": stage.process.cpu() - cpu})


@benchmark(title="the RayCluster definition: established; one object of it pruned, defaulted and validated", repeat=5)
async def envtest_schema(case: Case) -> Sample:
    (definition,) = crds.load()
    async with ControlPlane.embedded(controllers=()) as here:
        began = time.perf_counter()
        await here.install_crds(definition)
        established = time.perf_counter() - began
    version = next(each for each in definition["spec"]["versions"] if each["name"] == "v1")
    strategy = CustomResourceStrategy("RayCluster", "ray.io/v1", version["schema"]["openAPIV3Schema"], has_status=True)
    info = ResourceInfo("ray.io", "v1", "rayclusters", "raycluster", "RayCluster", True, strategy, is_crd=True)
    context = RequestContext(User("bench"), "create", info, "default", "x", operation="CREATE")

    def once(obj: dict[str, Any]) -> None:
        problems: list[object] = [*strategy.decode(obj, context)]
        strategy.default(obj)
        problems += strategy.validate(obj, None, context)
        assert not problems, problems

    once(raycluster(0))
    objects = [raycluster(number) for number in range(300)]
    cpu = time.process_time()
    for obj in objects:
        once(obj)
    return Sample({"established s": established, "object cpu us": (time.process_time() - cpu) / len(objects) * 1e6})
