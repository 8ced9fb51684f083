"""envtest, the API server in pure Python: its start, throughput and memory."""

from __future__ import annotations

import asyncio
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from cfo.console.demo import crds
from cfo.runtime import load_config
from envtest import ControlPlane, User
from envtest.apimachinery.errors import GroupResource
from envtest.crd.custom_resource_strategy import CustomResourceStrategy
from envtest.programs.folder import write_programs
from envtest.registry.resource import RequestContext, ResourceInfo
from test.bench.api_server import APIServer, api_server
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.processes import free_port, start_process, wait_until
from test.bench.raycluster_objects import raycluster

GROUP = "bench.example.com"
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
CONNECTIONS = 16
ANY_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
WIDGET_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": ANY_OBJECT},
            }
        ],
    },
}


def widget(number: int) -> bytes:
    """Return a custom resource of about 5 kB. Its CRD has no schema, so no time is spent on validation."""
    body = raycluster(number)
    metadata = {**body["metadata"], "name": f"widget-{number:05}", "namespace": "default"}
    return orjson.dumps(
        {**body, "apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": metadata}
    )


@asynccontextmanager
async def http_session(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a plain HTTP session as the admin, which costs less CPU than a Kubernetes client."""
    config = await load_config(str(server.admin_kubeconfig))
    credentials = await config.authenticate()
    context: ssl.SSLContext = config.ssl_context(credentials)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    headers = {"Authorization": credentials.authorization, "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        config.server, connector=connector, headers=headers, read_bufsize=1 << 22
    ) as http:
        yield http


async def create_widgets(http: aiohttp.ClientSession, count: int) -> float:
    """Create ``count`` widgets over several connections; return the seconds that it took."""
    bodies = iter([widget(number) for number in range(count)])

    async def work() -> None:
        for body in bodies:
            async with http.post(WIDGETS, data=body) as response:
                response.raise_for_status()
                await response.read()

    started_at = time.perf_counter()
    async with asyncio.TaskGroup() as workers:
        for _ in range(CONNECTIONS):
            workers.create_task(work())
    return time.perf_counter() - started_at


@benchmark(
    title="start of envtest in a running process: the first and the second instance",
    repeat=5,
    goals=(Goal("first cpu ms", 20),),
)
async def envtest_start(case: Case) -> Sample:
    values = {}
    for name in ("first", "second"):
        started_at, cpu = time.perf_counter(), time.process_time()
        async with ControlPlane.embedded(controllers=()):
            values[f"{name} s"] = time.perf_counter() - started_at
            values[f"{name} cpu ms"] = (time.process_time() - cpu) * 1e3
    return Sample(values)


@benchmark(
    title="the command envtest: from exec until it serves, and its memory then",
    repeat=5,
    goals=(Goal("ready s", 0.25), Goal("cpu s", 0.25), Goal("rss MB", 60)),
)
async def envtest_process(case: Case) -> Sample:
    with tempfile.TemporaryDirectory(prefix="cfo-bench-") as name:
        log = Path(name) / "envtest.log"
        async with start_process([sys.executable, "-m", "envtest"], log) as process:
            await wait_until(
                lambda: b"Serving" in log.read_bytes(), "start of envtest", 60, interval=0.002
            )
            ready = time.perf_counter() - process.started_at
            return Sample({"ready s": ready, "cpu s": process.cpu(), "rss MB": process.rss()})


@benchmark(
    title="the programs etcd and kube-apiserver of envtest: from exec until /readyz of the API server, and memory then",
    repeat=5,
    goals=(Goal("ready s", 0.3),),
)
async def envtest_programs(case: Case) -> Sample:
    with tempfile.TemporaryDirectory(prefix="cfo-bench-") as name:
        folder, etcd_port, port = Path(name), free_port(), free_port()
        programs = write_programs(folder / "assets")
        etcd_url = f"http://127.0.0.1:{etcd_port}"
        etcd = [
            str(programs / "etcd"),
            f"--listen-client-urls={etcd_url}",
            f"--data-dir={folder / 'etcd'}",
        ]
        api = [
            str(programs / "kube-apiserver"),
            f"--etcd-servers={etcd_url}",
            f"--secure-port={port}",
        ]
        log = folder / "log"
        async with (
            start_process(etcd, log) as first,
            start_process([*api, f"--cert-dir={folder}"], log) as second,
        ):
            await wait_until(
                lambda: b"Serving" in log.read_bytes(),
                "start of kube-apiserver",
                60,
                interval=0.002,
            )
            ready = time.perf_counter() - first.started_at
            return Sample(
                {
                    "ready s": ready,
                    "cpu s": first.cpu() + second.cpu(),
                    "rss MB": first.rss() + second.rss(),
                }
            )


@benchmark(
    title="a copy of a running envtest, until it listens",
    unit="objects",
    sizes=(1000, 10_000),
    repeat=5,
    goals=(Goal("ready ms", 5, 1000),),
)
async def envtest_fork(case: Case) -> Sample:
    async with ControlPlane.embedded() as plane:
        objects = GroupResource(GROUP, "widgets")
        for number in range(case.size):
            plane.store.create(objects, orjson.loads(widget(number)))
        async with plane.fork():  # creates what all copies share
            pass
        started_at, cpu = time.perf_counter(), time.process_time()
        copy = plane.fork()
        copied_at = time.perf_counter()
        async with copy:
            ready_at, cpu = time.perf_counter(), time.process_time() - cpu
        return Sample(
            {
                "copy ms": (copied_at - started_at) * 1e3,
                "ready ms": (ready_at - started_at) * 1e3,
                "ready cpu ms": cpu * 1e3,
            }
        )


@benchmark(
    title=f"an envtest process: creates of 5 kB over {CONNECTIONS} connections, a list of all objects, memory",
    unit="objects",
    sizes=(1000, 10_000),
)
async def envtest_creates(case: Case) -> Sample:
    async with api_server(WIDGET_CRD) as server, http_session(server) as http:
        empty, cpu = server.process.rss(), server.process.cpu()
        seconds = await create_widgets(http, case.size)
        cpu = server.process.cpu() - cpu
        started_at = time.perf_counter()
        async with http.get(WIDGETS) as response:
            await response.read()
        return Sample(
            {
                "creates /s": case.size / seconds,
                "cpu per create us": cpu / case.size * 1e6,
                "list s": time.perf_counter() - started_at,
                "empty MB": empty,
                "rss MB": server.process.rss(),
            }
        )


@benchmark(
    title="an envtest process: 1,000 creates, and their events to each watch",
    unit="watches",
    sizes=(20, 100),
    goals=(Goal("server cpu ms per create", 1.5, 100),),
)
async def envtest_watches(case: Case) -> Sample:
    events = 1000
    async with api_server(WIDGET_CRD) as server, http_session(server) as http:

        async def watch(opened: asyncio.Event) -> None:
            async with http.get(
                WIDGETS, params={"watch": "true", "resourceVersion": ""}
            ) as response:
                opened.set()
                for _ in range(events):
                    line = await response.content.readline()
                    if b'"ADDED"' not in line[:30]:
                        raise RuntimeError(line[:80].decode())

        opened_watches = [asyncio.Event() for _ in range(case.size)]
        async with asyncio.TaskGroup() as watches:
            for opened in opened_watches:
                watches.create_task(watch(opened))
            for opened in opened_watches:
                await opened.wait()
            cpu, started_at = server.process.cpu(), time.perf_counter()
            created = await create_widgets(http, events)
        delivered = time.perf_counter() - started_at
        cpu = (server.process.cpu() - cpu) / events * 1e3
        return Sample(
            {"create s": created, "all delivered s": delivered, "server cpu ms per create": cpu}
        )


@benchmark(
    title="an envtest process with 10,000 objects: one event at a time, from the request until every watch has it",
    unit="watches",
    sizes=(1, 100),
    goals=(Goal("server cpu ms per event", 1.5, 100),),
)
async def envtest_events(case: Case) -> Sample:
    events, objects = 200, 10_000
    async with api_server(WIDGET_CRD) as server, http_session(server) as http:
        await create_widgets(http, objects)
        async with http.get(WIDGETS, params={"limit": "1"}) as response:
            revision = (await response.json())["metadata"]["resourceVersion"]
        received = asyncio.Semaphore(0)

        async def watch(opened: asyncio.Event) -> None:
            async with http.get(
                WIDGETS, params={"watch": "true", "resourceVersion": revision}
            ) as response:
                opened.set()
                for _ in range(events):
                    await response.content.readline()
                    received.release()

        opened_watches = [asyncio.Event() for _ in range(case.size)]
        milliseconds: list[float] = []
        async with asyncio.TaskGroup() as watches:
            for opened in opened_watches:
                watches.create_task(watch(opened))
            for opened in opened_watches:
                await opened.wait()
            cpu = server.process.cpu()
            for number in range(objects, objects + events):
                started_at = time.perf_counter()
                async with http.post(WIDGETS, data=widget(number)) as response:
                    response.raise_for_status()
                for _ in range(case.size):
                    await received.acquire()
                milliseconds.append((time.perf_counter() - started_at) * 1e3)
            cpu = server.process.cpu() - cpu
        quantiles = statistics.quantiles(milliseconds, n=100)
        return Sample(
            {
                "p50 ms": quantiles[49],
                "p99 ms": quantiles[98],
                "server cpu ms per event": cpu / events * 1e3,
            }
        )


@benchmark(
    title="the RayCluster CRD in envtest until it is established; one RayCluster pruned, defaulted and validated",
    repeat=5,
)
async def envtest_schema(case: Case) -> Sample:
    (crd,) = crds.load()
    async with ControlPlane.embedded(controllers=()) as control_plane:
        started_at = time.perf_counter()
        await control_plane.install_crds(crd)
        established = time.perf_counter() - started_at
    version = next(each for each in crd["spec"]["versions"] if each["name"] == "v1")
    strategy = CustomResourceStrategy(
        "RayCluster", "ray.io/v1", version["schema"]["openAPIV3Schema"], has_status=True
    )
    info = ResourceInfo(
        "ray.io", "v1", "rayclusters", "raycluster", "RayCluster", True, strategy, is_crd=True
    )
    context = RequestContext(User("bench"), "create", info, "default", "x", operation="CREATE")

    def process(obj: dict[str, Any]) -> None:
        problems: list[object] = [*strategy.decode(obj, context)]
        strategy.default(obj)
        problems += strategy.validate(obj, None, context)
        assert not problems, problems

    process(raycluster(0))
    objects = [raycluster(number) for number in range(300)]
    cpu = time.process_time()
    for obj in objects:
        process(obj)
    return Sample(
        {
            "established s": established,
            "object cpu us": (time.process_time() - cpu) / len(objects) * 1e6,
        }
    )
