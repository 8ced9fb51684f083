"""InferenceStacks with three applications each; no pods run, so that only the operator is measured."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.inferencestack.names import FIELD_MANAGER
from cfo.config.model import InferenceStackConfiguration
from cfo.controllers import inferencestack
from cfo.runtime import Manager, ManagerOptions, Transport, load_config
from cfo.runtime.objects.unstructured import Object
from test.bench.api_server import APIServer, api_server
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.operators import measure_start, run_operator

CRD: Final = inference_stack_crds()[0]
SECTIONS: Final[dict[str, Any]] = {
    "inferenceStack": {"enabled": True},
    "appwrapper": {"enabled": False},
}
NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
CHILDREN: Final = 10
"""The objects of a stack with three applications."""


def inference_stack(number: int) -> Object:
    """Return a stack with a gateway and three applications."""
    reader = {"modelName": "unsloth/Llama-3.2-1B-Instruct", "device": "cuda"}
    template: dict[str, Any] = {
        "readerConfig": reader,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    return {
        "apiVersion": "models.takeoff.co/v1alpha1",
        "kind": "InferenceStack",
        "metadata": {"name": f"s-{number}", "namespace": "ns", "labels": {"operatorVersion": "v1"}},
        "spec": {
            "applicationTemplate": template,
            "applications": {
                name: {"readerConfig": {"consumerGroup": name}}
                for name in ("chat", "embed", "rerank")
            },
        },
    }


async def create_stacks(server: APIServer, count: int) -> None:
    """Create the namespace and ``count`` stacks."""
    await server.create_all([NAMESPACE])
    await server.create_all(inference_stack(number) for number in range(count))


@benchmark(
    title="new InferenceStacks with three applications, from the first create until all objects exist",
    unit="stacks",
    subjects=("cfo",),
    sizes=(100, 300),
    quick=(20,),
    goals=[Goal("child writes per stack", CHILDREN, 300)],
)
async def inferencestacks(case: Case) -> Sample:
    async with api_server(CRD) as server, run_operator(server, "cfo", SECTIONS) as (process, _):
        await process.wait_until_idle()
        position, cpu, started_at = server.audit_position(), process.cpu(), time.time()
        await create_stacks(server, case.size)
        await server.wait_until_idle()
        requests = server.requests_since(position)
        of_stacks = sum(
            count for name, count in requests.by_resource.items() if "inferencestacks" in name
        )
        values = {
            "wall s": requests.last - started_at,
            "cpu s": process.cpu() - cpu,
            **process.memory(),
            "requests per stack": requests.total / case.size,
            "child writes per stack": (requests.writes - of_stacks) / case.size,
        }
        return Sample(values, requests.by_resource)


@benchmark(
    title="a restart with unchanged InferenceStacks of three applications",
    unit="stacks",
    subjects=("cfo",),
    sizes=(300,),
    quick=(20,),
    repeat=2,
    goals=[Goal("writes", 0, 300), Goal("requests", 40, 300)],
)
async def inferencestacks_restart(case: Case) -> Sample:
    async with api_server(CRD) as server:
        async with run_operator(server, "cfo", SECTIONS) as (process, _):
            await create_stacks(server, case.size)
            await server.wait_until_idle()
            await process.wait_until_idle()
        return await measure_start(server, "cfo", SECTIONS)


@asynccontextmanager
async def running_controllers(server: APIServer) -> AsyncIterator[Manager]:
    """Run the controllers of stacks in this process until they have reconciled all of them."""
    async with Transport(await load_config(str(server.kubeconfig))) as transport:
        manager = Manager(transport, ManagerOptions(field_manager=FIELD_MANAGER))
        inferencestack.setup(
            manager, InferenceStackConfiguration(enabled=True, operator_version="v1")
        )
        async with manager:
            await manager.started()
            await server.wait_until_idle()
            used = 0.0
            while (
                time.process_time() - used > 0.05
            ):  # reconciles that send no request may still hold objects
                used = time.process_time()
                await asyncio.sleep(1)
            gc.collect()
            yield manager


@benchmark(
    title="memory per cached object of InferenceStacks, with indexes and managedFields, relative to its JSON",
    unit="stacks",
    subjects=("cfo",),
    sizes=(100,),
    quick=(10,),
    repeat=1,
    goals=[Goal("ratio", 1.3, 100)],
)
async def inferencestacks_memory(case: Case) -> Sample:
    async with api_server(CRD) as server:
        async with run_operator(server, "cfo", SECTIONS) as (process, _):
            await create_stacks(server, case.size)
            await server.wait_until_idle()
            await process.wait_until_idle()
        tracemalloc.start(2)
        async with running_controllers(server) as manager:
            snapshot = tracemalloc.take_snapshot()
            sizes = [
                len(entry.raw)
                for informer in manager.cache.informers
                for entry in informer.reader.entries()
            ]
        tracemalloc.stop()
    # Only what the cache allocated: the buffers of TLS connections are larger, and their number varies.
    cache = tracemalloc.Filter(True, "*/cfo/runtime/cache/*", all_frames=True)
    used = sum(trace.size for trace in snapshot.filter_traces([cache]).traces)
    per_object, json = used / len(sizes), sum(sizes) / len(sizes)
    values = {
        "objects": len(sizes),
        "bytes": per_object,
        "json bytes": json,
        "ratio": per_object / json,
    }
    return Sample(values)
