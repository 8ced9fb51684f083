"""The operator's own webhooks for RayClusters: how soon they answer, and how much they can bear."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any

import orjson

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from cfo.runtime.objects import GVK, Object
from test.bench.fleet import namespaces, raycluster
from test.bench.harness import Case, Sample, benchmark
from test.bench.stage import Plane, plane
from test.bench.subjects import operator

SECONDS = 4.0


@benchmark(
    title="admission of new RayClusters by the operator's webhooks, by connections that ask one by one",
    unit="connections",
    subjects=("cfo", "go"),
    sizes=(1, 8, 32),
    quick=(8,),
)
async def admission(case: Case) -> Sample:
    async with plane() as stage, operator(stage, case.subject) as (process, _):
        await stage.create(namespaces())
        asked = raycluster(1)
        mutated = await stage.client.create(asked)
        await process.idle()
        values: dict[str, float] = {}
        for gvk, name, obj in (
            (MUTATING_WEBHOOK_CONFIGURATION, "mutate", asked),
            (VALIDATING_WEBHOOK_CONFIGURATION, "validate", mutated),
        ):
            port, path = await address(stage, gvk)
            message = request(path, obj)
            await ask(port, message, time.perf_counter() + SECONDS / 4)
            cpu, began = process.cpu(), time.perf_counter()
            until = began + SECONDS
            answers = await asyncio.gather(*(ask(port, message, until) for _ in range(case.size)))
            seconds, cpu = time.perf_counter() - began, process.cpu() - cpu
            waits = sorted(wait for each in answers for wait in each)
            values |= {
                f"{name} /s": len(waits) / seconds,
                f"{name} p50 ms": waits[len(waits) // 2] * 1000,
                f"{name} p99 ms": waits[len(waits) * 99 // 100] * 1000,
                f"{name} cpu us": cpu / len(waits) * 1e6,
            }
        return Sample(values | process.memory())


async def address(stage: Plane, gvk: GVK) -> tuple[int, str]:
    """Port and path of the webhook for RayClusters."""
    for configuration in await stage.client.list(gvk):
        for webhook in configuration["webhooks"]:
            if any("rayclusters" in rule["resources"] for rule in webhook["rules"]):
                service = webhook["clientConfig"]["service"]
                return service["port"], service["path"]
    raise LookupError(f"no {gvk.kind} is for RayClusters")


def request(path: str, obj: Object) -> bytes:
    """An HTTP request as the API server sends it when somebody creates a RayCluster."""
    resource = {"group": RAY_CLUSTER.group, "version": RAY_CLUSTER.version, "resource": "rayclusters"}
    kind = {"group": RAY_CLUSTER.group, "version": RAY_CLUSTER.version, "kind": RAY_CLUSTER.kind}
    asked: dict[str, Any] = {
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
    body = orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})
    head = (
        f"POST {path}?timeout=10s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def ask(port: int, message: bytes, until: float) -> list[float]:
    """Sends it again and again over one connection; gives the seconds that each answer took."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 20)
    waits = []
    while (began := time.perf_counter()) < until:
        writer.write(message)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head.decode(errors="replace"))
        if b"content-length:" in head:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            answer = await reader.readexactly(length)
        else:  # chunked, as Go answers what is long
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
        if b'"allowed":true' not in answer:
            raise RuntimeError(answer.decode(errors="replace")[:300])
        waits.append(time.perf_counter() - began)
    writer.close()
    return waits
