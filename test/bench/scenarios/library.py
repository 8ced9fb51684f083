"""Parts of cfo.runtime in isolation: requests, an apply without changes, the workqueue, reconciles that do nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import structlog

from cfo.runtime import load_config
from cfo.runtime.client.apply import ApplyIntent, is_applied
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.controller.source import Channel
from cfo.runtime.controller.workqueue import WorkQueue
from cfo.runtime.objects.kinds import NAMESPACE
from cfo.runtime.objects.unstructured import NamespacedName
from test.bench.api_server import api_server
from test.bench.harness import Case, Sample, benchmark


@benchmark(
    title="an apply that changes nothing: a cached Ingress is decoded and compared",
    unit="applies",
    sizes=(20_000,),
)
async def no_op_apply(case: Case) -> Sample:
    labels = {f"label-{number}": "x" for number in range(5)}
    backend = {"service": {"name": "s", "port": {"number": 8265}}}
    paths = [
        {"path": f"/{number}", "pathType": "Prefix", "backend": backend} for number in range(3)
    ]
    desired: dict[str, Any] = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "a", "namespace": "b", "labels": labels},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": "h", "http": {"paths": paths}}]},
    }
    owned = {
        "f:metadata": {"f:labels": {f"f:{name}": {} for name in labels}},
        "f:spec": {"f:ingressClassName": {}, "f:rules": {}},
    }
    managers = [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "networking.k8s.io/v1",
            "fieldsV1": owned,
        }
    ]
    stored = orjson.dumps(desired)
    started_at = time.process_time()
    for _ in range(case.size):
        assert is_applied(ApplyIntent(desired, "m"), orjson.loads(stored), managers)
    return Sample({"cpu us": (time.process_time() - started_at) / case.size * 1e6})


@benchmark(
    title="sequential get requests to an API server in another process",
    unit="requests",
    subjects=("cfo", "aiohttp"),
    sizes=(2000,),
)
async def get(case: Case) -> Sample:
    async with api_server() as server:
        key = NamespacedName("", "default")
        if case.subject == "cfo":
            return await _measure(lambda: server.client.get(NAMESPACE, key), case.size)
        config = await load_config(str(server.admin_kubeconfig))
        credentials = await config.authenticate()
        headers = {"Authorization": credentials.authorization}
        async with aiohttp.ClientSession(config.server, headers=headers) as session:
            context = config.ssl_context(credentials)

            async def get_namespace() -> Any:
                async with session.get("/api/v1/namespaces/default", ssl=context) as response:
                    response.raise_for_status()
                    return orjson.loads(await response.read())

            return await _measure(get_namespace, case.size)


async def _measure(call: Callable[[], Awaitable[Any]], count: int) -> Sample:
    await call()  # opens the connection
    started_at, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await call()
    wall, cpu = time.perf_counter() - started_at, time.process_time() - cpu
    return Sample({"wall us": wall / count * 1e6, "cpu us": cpu / count * 1e6})


@benchmark(title="workqueue: add, get and done of a request", unit="requests", sizes=(100_000,))
async def queue(case: Case) -> Sample:
    values = {}
    for name, metrics in (("without metrics", None), ("with metrics", Metrics().queue("bench"))):
        workqueue: WorkQueue[Request] = WorkQueue(metrics=metrics)
        requests = [Request("team", f"cluster-{number}") for number in range(case.size)]
        started_at = time.process_time()
        for request in requests:
            workqueue.add(request)
        for _ in requests:
            item, _priority = await workqueue.get()
            workqueue.done(item)
        values[f"{name} cpu us"] = (time.process_time() - started_at) / case.size * 1e6
    return Sample(values)


class CountingReconciler:
    """A reconciler that does nothing but count its calls; :attr:`finished` is set after ``count`` of them."""

    def __init__(self, count: int) -> None:
        self._remaining = count
        self.finished = asyncio.Event()

    async def reconcile(self, _: Request) -> Result:
        self._remaining -= 1
        if not self._remaining:
            self.finished.set()
        return Result()


@benchmark(
    title="reconciles that do nothing, through a complete controller",
    unit="requests",
    sizes=(20_000,),
)
async def reconciles(case: Case) -> Sample:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    reconciler, channel = CountingReconciler(case.size), Channel()
    controller = Controller("bench", reconciler)
    controller.watch(channel)
    running = asyncio.create_task(controller.run())
    started_at, cpu = time.perf_counter(), time.process_time()
    channel.enqueue(Request("team", f"cluster-{number}") for number in range(case.size))
    await reconciler.finished.wait()
    wall, cpu = time.perf_counter() - started_at, time.process_time() - cpu
    controller.stop()
    await running
    return Sample({"/s": case.size / wall, "cpu us": cpu / case.size * 1e6})
