"""The operator's webhooks for RayClusters: latency and throughput."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any

import orjson

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.objects.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.unstructured import GVK, Object
from test.bench.api_server import APIServer, api_server
from test.bench.harness import Case, Sample, benchmark
from test.bench.operators import run_operator
from test.bench.raycluster_objects import namespaces, raycluster

SECONDS = 4.0
"""How long each webhook is measured, after a quarter of this time to warm up."""


@benchmark(
    title="admission of new RayClusters by the operator's webhooks, with one request at a time on each connection",
    unit="connections",
    subjects=("cfo", "go"),
    sizes=(1, 8, 32),
    quick=(8,),
)
async def admission(case: Case) -> Sample:
    async with api_server() as server, run_operator(server, case.subject) as (process, _):
        await server.create_all(namespaces())
        cluster = raycluster(1)
        mutated = await server.client.create(cluster)
        await process.wait_until_idle()
        values: dict[str, float] = {}
        for gvk, name, obj in (
            (MUTATING_WEBHOOK_CONFIGURATION, "mutate", cluster),
            (VALIDATING_WEBHOOK_CONFIGURATION, "validate", mutated),
        ):
            port, path = await webhook_address(server, gvk)
            message = admission_request(path, obj)
            await send_requests(port, message, time.perf_counter() + SECONDS / 4)
            cpu, started_at = process.cpu(), time.perf_counter()
            end = started_at + SECONDS
            connections = await asyncio.gather(
                *(send_requests(port, message, end) for _ in range(case.size))
            )
            seconds, cpu = time.perf_counter() - started_at, process.cpu() - cpu
            latencies = sorted(latency for each in connections for latency in each)
            values |= {
                f"{name} /s": len(latencies) / seconds,
                f"{name} p50 ms": latencies[len(latencies) // 2] * 1000,
                f"{name} p99 ms": latencies[len(latencies) * 99 // 100] * 1000,
                f"{name} cpu us": cpu / len(latencies) * 1e6,
            }
        return Sample(values | process.memory())


async def webhook_address(server: APIServer, gvk: GVK) -> tuple[int, str]:
    """Return port and path of the webhook for RayClusters in the configurations of kind ``gvk``."""
    for configuration in await server.client.list(gvk):
        for webhook in configuration["webhooks"]:
            if any("rayclusters" in rule["resources"] for rule in webhook["rules"]):
                service = webhook["clientConfig"]["service"]
                return service["port"], service["path"]
    raise LookupError(f"no {gvk.kind} has a webhook for RayClusters")


def admission_request(path: str, obj: Object) -> bytes:
    """Return the HTTP request that the API server sends for the creation of a RayCluster."""
    resource = {
        "group": RAY_CLUSTER.group,
        "version": RAY_CLUSTER.version,
        "resource": "rayclusters",
    }
    kind = {"group": RAY_CLUSTER.group, "version": RAY_CLUSTER.version, "kind": RAY_CLUSTER.kind}
    request: dict[str, Any] = {
        "uid": "6f8ae0f2-9f0d-4a3d-9d3b-3f5a3c0a7b11",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    body = orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )
    head = (
        f"POST {path}?timeout=10s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def send_requests(port: int, message: bytes, end: float) -> list[float]:
    """Send ``message`` repeatedly over one connection until the time ``end``; return the latencies in seconds.

    Raises :class:`RuntimeError` if a response does not allow the request.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 20)
    latencies = []
    while (started_at := time.perf_counter()) < end:
        writer.write(message)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head.decode(errors="replace"))
        if b"content-length:" in head:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            body = await reader.readexactly(length)
        else:  # Go sends long responses with chunked encoding.
            body = await reader.readuntil(b"\r\n0\r\n\r\n")
        if b'"allowed":true' not in body:
            raise RuntimeError(body.decode(errors="replace")[:300])
        latencies.append(time.perf_counter() - started_at)
    writer.close()
    return latencies
