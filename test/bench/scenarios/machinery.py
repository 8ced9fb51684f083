"""The library's parts alone: requests, an apply that changes nothing, the queue, reconciles that do nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import structlog

from cfo.runtime import ApplyIntent, is_applied, load_config
from cfo.runtime.controller import Controller
from cfo.runtime.kinds import NAMESPACE
from cfo.runtime.metrics import Metrics
from cfo.runtime.objects import NamespacedName
from cfo.runtime.reconcile import Request, Result
from cfo.runtime.source import Channel
from cfo.runtime.workqueue import WorkQueue
from test.bench.harness import Case, Sample, benchmark
from test.bench.stage import plane


@benchmark(
    title="an apply that changes nothing: a cached Ingress is decoded and compared", unit="applies", sizes=(20_000,)
)
async def no_op_apply(case: Case) -> Sample:
    labels = {f"label-{number}": "x" for number in range(5)}
    backend = {"service": {"name": "s", "port": {"number": 8265}}}
    paths = [{"path": f"/{number}", "pathType": "Prefix", "backend": backend} for number in range(3)]
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
    managers = [{"manager": "m", "operation": "Apply", "apiVersion": "networking.k8s.io/v1", "fieldsV1": owned}]
    stored = orjson.dumps(desired)
    began = time.process_time()
    for _ in range(case.size):
        assert is_applied(ApplyIntent(desired, "m"), orjson.loads(stored), managers)
    return Sample({"cpu us": (time.process_time() - began) / case.size * 1e6})


@benchmark(
    title="a get, one after the other; the API server is another process",
    unit="requests",
    subjects=("cfo", "aiohttp"),
    sizes=(2000,),
)
async def get(case: Case) -> Sample:
    async with plane() as stage:
        key = NamespacedName("", "default")
        if case.subject == "cfo":
            return await _timed(lambda: stage.client.get(NAMESPACE, key), case.size)
        config = await load_config(str(stage.folder / "admin.kubeconfig"))
        credentials = await config.authenticate()
        headers = {"Authorization": credentials.authorization}
        async with aiohttp.ClientSession(config.server, headers=headers) as session:
            context = config.ssl_context(credentials)

            async def once() -> Any:
                async with session.get("/api/v1/namespaces/default", ssl=context) as response:
                    response.raise_for_status()
                    return orjson.loads(await response.read())

            return await _timed(once, case.size)


async def _timed(once: Callable[[], Awaitable[Any]], count: int) -> Sample:
    await once()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await once()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Sample({"wall us": wall / count * 1e6, "cpu us": cpu / count * 1e6})


@benchmark(title="the workqueue: add, get, done", unit="requests", sizes=(100_000,))
async def queue(case: Case) -> Sample:
    values = {}
    for name, metrics in (("bare", None), ("with metrics", Metrics().queue("bench"))):
        items: WorkQueue[Request] = WorkQueue(metrics=metrics)
        requests = [Request("team", f"cluster-{number}") for number in range(case.size)]
        began = time.process_time()
        for request in requests:
            items.add(request)
        for _ in requests:
            item, _priority = await items.get()
            items.done(item)
        values[f"{name} cpu us"] = (time.process_time() - began) / case.size * 1e6
    return Sample(values)


class Nothing:
    """A reconciler that counts."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.finished = asyncio.Event()

    async def reconcile(self, _: Request) -> Result:
        self._left -= 1
        if not self._left:
            self.finished.set()
        return Result()


@benchmark(title="reconciles that do nothing, through the whole of a controller", unit="requests", sizes=(20_000,))
async def reconciles(case: Case) -> Sample:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    nothing, channel = Nothing(case.size), Channel()
    controller = Controller("bench", nothing)
    controller.watch(channel)
    run = asyncio.create_task(controller.run())
    began, cpu = time.perf_counter(), time.process_time()
    channel.enqueue(Request("team", f"cluster-{number}") for number in range(case.size))
    await nothing.finished.wait()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    controller.stop()
    await run
    return Sample({"/s": case.size / wall, "cpu us": cpu / case.size * 1e6})
