"""One life of the operator, in which the gate measures everything that it compares between two commits."""

from __future__ import annotations

import time

from cfo.runtime.objects.kinds import MUTATING_WEBHOOK_CONFIGURATION
from test.bench.api_server import api_server
from test.bench.harness import Case, Sample, benchmark
from test.bench.operators import run_operator
from test.bench.raycluster_objects import namespaces, raycluster
from test.bench.scenarios.admission import admission_request, send_requests, webhook_address
from test.bench.scenarios.operator_lifecycle import update_statuses

SETTLED_SECONDS = 2.5
"""Seconds without requests after which everything is written: conditions are written after a second of quiet."""
REVIEW_SECONDS = 1.5
"""How long reviews are sent, after a third of this time to warm up."""
STATUS_UPDATES = 6
"""How often KubeRay updates the status of each RayCluster, after the first time, of which the operator reads more."""


@benchmark(
    title=(
        "one life of the operator: start, new RayClusters (mTLS, Ingress), reviews, status updates, "
        "restart with all of them"
    ),
    unit="clusters",
    sizes=(150,),
    quick=(20,),
)
async def gate(case: Case) -> Sample:
    values: dict[str, float] = {}
    async with api_server() as server:
        await server.create_all(namespaces())
        async with run_operator(server) as (process, _):
            await process.wait_until_idle()
            started = process.cpu()
            values |= {"start cpu s": started, "idle MB": process.rss()}
            values["start requests"] = server.requests_since().total
            position = server.audit_position()
            await server.create_all(raycluster(number) for number in range(case.size))
            await server.wait_until_idle(SETTLED_SECONDS)
            values["converge cpu s"] = process.cpu() - started
            values["converge requests"] = server.requests_since(position).total
            port, path = await webhook_address(server, MUTATING_WEBHOOK_CONFIGURATION)
            message = admission_request(path, raycluster(case.size))
            await send_requests(port, message, time.perf_counter() + REVIEW_SECONDS / 3)
            used = process.cpu()
            reviews = await send_requests(port, message, time.perf_counter() + REVIEW_SECONDS)
            values["review cpu ms"] = (process.cpu() - used) / len(reviews) * 1000
            await update_statuses(server, case.size, 0, case.size)
            await server.wait_until_idle(SETTLED_SECONDS)
            used = process.cpu()
            await update_statuses(server, case.size, case.size, case.size * STATUS_UPDATES)
            await process.wait_until_idle()
            values["status updates cpu s"] = process.cpu() - used
        position = server.audit_position()
        async with run_operator(server) as (process, _):
            await process.wait_until_idle(SETTLED_SECONDS)
            requests = server.requests_since(position)
            values |= {"restart cpu s": process.cpu(), "restart MB": process.rss()}
            values |= {"restart requests": requests.total, "restart writes": requests.writes}
    return Sample(values)
