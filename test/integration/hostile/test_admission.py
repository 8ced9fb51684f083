"""A tenant's largest AppWrappers and RayClusters do not stop the operator, nor other tenants."""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import orjson
import yaml

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.operator import webhook_configurations
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError
from cfo.runtime.objects import Object
from cfo.runtime.reconcile import Rule
from test.support.config_map_webhooks import free_url
from test.support.operator_process import PLAIN_CONFIG, create_config_map, run_operator
from test.support.raycluster_environment import VANILLA_CRDS, ray_cluster, start_environment
from test.support.tenant_clients import start_tenant_client

RULES = (Rule("ray.io", "rayclusters", ("create",)), Rule("workload.codeflare.dev", "appwrappers", ("create",)))
ATTACK_SECONDS = 4.0
MAX_LATENCY = 1.0
"""The maximum latency of ``/healthz`` in seconds."""
MAX_REVIEW_LATENCY = 2.0
"""The maximum latency of a small review in seconds."""


def many_pod_sets(count: int, variables: int) -> Object:
    """An AppWrapper with ``count`` pod sets, all with the path of the same Pod, which has many variables."""
    env = [{"name": f"E{at}", "value": "v"} for at in range(variables)]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": env}]},
    }
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "many-pod-sets", "namespace": "ns"},
        "spec": {"components": [{"template": pod, "podSets": [{"path": "template"}] * count}]},
    }


def many_groups(count: int, variables: int = 0) -> Object:
    """A RayCluster with ``count`` worker groups."""
    env = [{"name": f"E{at}", "value": "v"} for at in range(variables)]
    template = {"spec": {"containers": [{"name": "ray", "env": env}]}}
    cluster = ray_cluster("many-groups", "ns")
    cluster["spec"]["workerGroupSpecs"] = [{"groupName": f"g{at}", "template": template} for at in range(count)]
    return cluster


ATTACKS: dict[str, tuple[Object, str]] = {
    "pod sets": (
        many_pod_sets(3000, 3000),
        "components contains 3000 podspecs; at most 8 are allowed",
    ),
    "worker groups": (
        many_groups(9000),
        "spec.workerGroupSpecs: Too many: 9000: must have at most 500 items",
    ),
    "largest AppWrapper": (many_pod_sets(8, 3000), "multiple DeclaredPodSets with path 'template'"),
    "largest RayCluster": (many_groups(500, 20), ""),
}


async def attack(client: Client, obj: Object, message: str, until: float) -> int:
    """Create ``obj`` as dry-run repeatedly; return how often."""
    count = 0
    while time.monotonic() < until:
        answer = ""
        try:
            await client.create(obj, dry_run=True)
        except APIError as error:
            answer = error.message
        assert message in answer
        assert bool(message) == bool(answer)
        count += 1
    return count


def review(obj: Object, old: Object | None = None) -> bytes:
    group, version = obj["apiVersion"].split("/")
    request = {
        "uid": "u",
        "operation": "UPDATE" if old else "CREATE",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "namespace": "ns",
        "name": "x",
        "userInfo": {"username": "unknown"},
        "object": obj,
        "oldObject": old,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def attack_directly(url: str, body: bytes, until: float) -> int:
    """Send ``body`` to the webhook repeatedly, as any pod can, without credentials; return how often."""
    count = 0
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        while time.monotonic() < until:
            async with session.post(f"{url}?timeout=1s", data=body, headers=headers) as response:
                assert response.status in (200, 429)
                await response.read()
            count += 1
    return count


def healthz_latency(address: str) -> float:
    started = time.monotonic()
    with urllib.request.urlopen(f"{address}/healthz", timeout=30) as response:
        assert response.status == 200
    return time.monotonic() - started


def review_latency(url: str, body: bytes) -> float:
    """Return the latency of one review, without that of the API server, which runs in the process of the test."""
    started = time.monotonic()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30, context=ssl._create_unverified_context()) as response:
        assert orjson.loads(response.read())["response"]["allowed"]
    return time.monotonic() - started


def reviews() -> list[tuple[str, bytes]]:
    """Return the path and body of each direct attack."""
    largest = many_groups(500, 20)
    wrapped = "/validate-workload-codeflare-dev-v1beta2-appwrapper"
    return [
        ("/mutate-ray-io-v1-raycluster", review(many_groups(9000))),
        ("/mutate-ray-io-v1-raycluster", review(largest)),
        ("/validate-ray-io-v1-raycluster", review(largest, largest)),
        (wrapped, review(many_pod_sets(3000, 3000))),
        (wrapped, review(many_pod_sets(8, 3000))),
    ]


async def measured(request: Callable[[], Awaitable[float]], until: float) -> list[float]:
    """Return the latencies in seconds that ``request`` returns, which is repeated."""
    latencies = []
    while time.monotonic() < until:
        latencies.append(await request())
        await asyncio.sleep(0.02)
    return latencies


async def test_operator_stays_healthy_under_large_requests(tmp_path: Path) -> None:
    url = str(free_url())
    config = {**PLAIN_CONFIG, "appwrapper": {"enabled": True}, "webhook": {"bindAddress": "127.0.0.1:0"}}
    async with start_environment(*VANILLA_CRDS, appwrapper_crd()) as environment:
        await environment.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        await create_config_map(environment, {"config.yaml": yaml.safe_dump(config)})
        for configuration in webhook_configurations("default"):
            await environment.create(configuration)
        async with (
            start_tenant_client(environment, *RULES) as tenant,
            run_operator(environment, tmp_path, "--webhook-url", url) as operator,
        ):
            await operator.ready()
            address = await operator.address("health")
            until = time.monotonic() + ATTACK_SECONDS
            healthz = asyncio.create_task(measured(lambda: asyncio.to_thread(healthz_latency, address), until))
            small = f"{url}/mutate-ray-io-v1-raycluster", review(ray_cluster("honest", "ns"))
            honest = asyncio.create_task(measured(lambda: asyncio.to_thread(review_latency, *small), until))
            counts = await asyncio.gather(
                *(attack(tenant, *one, until) for one in ATTACKS.values()),
                *(attack_directly(f"{url}{path}", body, until) for path, body in reviews() for _ in range(4)),
            )
            print(f"attack: {sum(counts)} requests")
            for name, latencies in (("/healthz", await healthz), ("review", await honest)):
                slowest = max(latencies)
                print(f"{name}: {len(latencies)} requests, slowest {slowest * 1000:.0f} ms")
            assert max(await healthz) < MAX_LATENCY
            assert max(await honest) < MAX_REVIEW_LATENCY
            assert operator.process.returncode is None, operator.output
            assert "leadership lost" not in operator.output
