"""The whole operator on OpenShift, with the OAuth proxy and mTLS: nine children of each RayCluster.

One of them is a Service. The sizes are small because an API server with default settings has only 253 addresses for
Services.
"""

from __future__ import annotations

import time
from typing import Any

from test.bench.api_server import api_server
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.operators import run_operator
from test.bench.raycluster_objects import namespaces, raycluster
from test.bench.scenarios.operator_lifecycle import measure_restart
from test.support.raycluster_environment import ROUTE_CRD

OPERATORS = ("cfo", "go")
OAUTH: dict[str, Any] = {"rayDashboardOAuthEnabled": True}
CHILDREN = 9
"""Children of each RayCluster; each of them needs one write."""


@benchmark(
    title=(
        "new RayClusters on OpenShift (OAuth, mTLS), until all children exist "
        "(overhead: requests that do not write a child)"
    ),
    unit="clusters",
    subjects=OPERATORS,
    sizes=(50, 100, 200),
    quick=(50,),
    limits={"go": 100},
    goals=[Goal("overhead per object", 2, 100)],
)
async def openshift_create(case: Case) -> Sample:
    async with api_server(ROUTE_CRD) as server:
        await server.create_all(namespaces())
        async with run_operator(server, case.subject, **OAUTH) as (process, _):
            await process.wait_until_idle()
            position, cpu, started_at = server.audit_position(), process.cpu(), time.time()
            await server.create_all(raycluster(number) for number in range(case.size))
            await server.wait_until_idle()
            requests = server.requests_since(position)
            values = {
                "wall s": requests.last - started_at,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests per object": requests.total / case.size,
                "overhead per object": requests.total / case.size - CHILDREN,
            }
            return Sample(values, requests.by_resource)


@benchmark(
    title="a restart on OpenShift with unchanged RayClusters",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(101, 202),
    quick=(50,),
    repeat=2,
    limits={"go": 101},
    goals=[Goal("writes", 0, 101), Goal("requests", 50, 101)],
)
async def openshift_restart(case: Case) -> Sample:
    return await measure_restart(case, ROUTE_CRD, **OAUTH)
