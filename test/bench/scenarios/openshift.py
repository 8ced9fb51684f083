"""The whole operator on OpenShift, with the OAuth proxy and mTLS: nine children for each RayCluster.

One of them is a Service: an API server has 253 addresses for them unless it is told otherwise.
"""

from __future__ import annotations

import time

from test.bench.fleet import namespaces, raycluster
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.scenarios.operator_life import restarted
from test.bench.stage import plane
from test.bench.subjects import operator
from test.support.raycluster_environment import ROUTE_CRD

OPERATORS = ("cfo", "go")
OAUTH = {"rayDashboardOAuthEnabled": True}
CHILDREN = 9


@benchmark(
    title="new RayClusters on OpenShift (OAuth, mTLS), until every child is there; besides: requests beyond those",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(50, 100, 200),
    quick=(50,),
    limits={"go": 100},
    goals=[Goal("besides each", 2, 100)],
)
async def openshift_create(case: Case) -> Sample:
    async with plane(ROUTE_CRD) as stage:
        await stage.create(namespaces())
        async with operator(stage, case.subject, **OAUTH) as (process, _):
            await process.idle()
            mark, cpu, began = stage.mark(), process.cpu(), time.time()
            await stage.create(raycluster(number) for number in range(case.size))
            await stage.quiet()
            asked = stage.asked(mark)
            values = {
                "wall s": asked.last - began,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests each": asked.total / case.size,
                "besides each": asked.total / case.size - CHILDREN,
            }
            return Sample(values, asked.requests)


@benchmark(
    title="a restart on OpenShift with RayClusters that nobody has changed",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(101, 202),
    quick=(50,),
    repeat=2,
    limits={"go": 101},
    goals=[Goal("writes", 0, 101), Goal("requests", 50, 101)],
)
async def openshift_restart(case: Case) -> Sample:
    return await restarted(case, ROUTE_CRD, **OAUTH)
