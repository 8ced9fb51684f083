"""The same operator with kopf's decorators, on kopf and on cfo_handlers."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.objects.unstructured import key_of
from cfo_handlers.bodies import Patch
from cfo_handlers.storage import AnnotationsDiffBaseStorage
from test.bench.api_server import APIServer, api_server, run_concurrently
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.processes import MeasuredProcess, free_port, start_process
from test.bench.raycluster_objects import namespaces, raycluster

LIBRARIES = ("cfo", "kopf")


@asynccontextmanager
async def handlers_operator(server: APIServer, library: str) -> AsyncIterator[MeasuredProcess]:
    port = free_port()
    command = [sys.executable, "-m", "test.bench.peers.handlers_operator", library, str(port)]
    log = server.folder / f"handlers-{library}.log"
    async with start_process(command, log, KUBECONFIG=str(server.kubeconfig)) as process:
        await process.wait_until_ready(port, "/healthz")
        yield process


@benchmark(
    title="an operator with kopf's decorators and an index: new RayClusters, until all are handled",
    unit="clusters",
    subjects=LIBRARIES,
    sizes=(1000,),
    quick=(50,),
    repeat=1,
)
async def handlers_converge(case: Case) -> Sample:
    async with api_server() as server:
        await server.create_all(namespaces())
        async with handlers_operator(server, case.subject) as process:
            await process.wait_until_idle()
            position, cpu = server.audit_position(), process.cpu()
            await server.create_all(raycluster(number) for number in range(case.size))
            await server.wait_until_idle()
            await process.wait_until_idle()
            requests = server.requests_since(position)
            values = {
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "writes per object": requests.writes / case.size,
            }
            return Sample(values, requests.by_resource)


@benchmark(
    title="an operator with kopf's decorators and an index: a restart with RayClusters that were handled before",
    unit="clusters",
    subjects=LIBRARIES,
    sizes=(1000, 5000),
    quick=(50,),
    repeat=1,
    goals=[Goal("writes", 0, 1000)],
)
async def handlers_restart(case: Case) -> Sample:
    storage = AnnotationsDiffBaseStorage()
    async with api_server() as server:
        await server.create_all(namespaces())

        async def create_handled(number: int) -> None:
            created = await server.client.create(raycluster(number))
            patch = Patch()
            storage.store(body=created, patch=patch, essence=storage.build(body=created))
            await server.client.patch(RAY_CLUSTER, key_of(created), patch)

        await run_concurrently(partial(create_handled, number) for number in range(case.size))
        position = server.audit_position()
        async with handlers_operator(server, case.subject) as process:
            idle = await process.wait_until_idle()
            requests = server.requests_since(position)
            values = {
                "until idle s": idle,
                "cpu s": process.cpu(),
                **process.memory(),
                "requests": requests.total,
                "writes": requests.writes,
            }
            return Sample(values, requests.by_resource)
