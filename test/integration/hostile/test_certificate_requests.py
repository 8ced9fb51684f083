"""Tests that pods of a tenant who create many CertificateSigningRequests take neither memory nor time of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cfo.controllers.raycluster.node_signer import CERTIFICATE_SIGNING_REQUEST, MAX_DECISIONS
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import CLUSTER_ROLE_BINDING
from cfo.runtime.objects.unstructured import Object
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.certificate_requests import address, certificate_request
from test.support.clocks import SteppedClock
from test.support.planes import local_config
from test.support.ray_nodes import create_ray_pod, injected_ray_cluster, pod_token
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    run_controllers,
    start_environment,
)

SETTINGS = InjectionSettings(
    version="v1", oauth=False, mtls=True, ingress_domain="apps.test", requests_certificates=True
)
CONFIG = kuberay_config(**PLAIN_SETTINGS, ca={"issuer": "certificateSigningRequest"})
ADDRESS = "10.0.0.1"
BUDGET = 1 << 20


async def create_cluster(env: Environment, namespace: str) -> Object:
    """Create a namespace with a RayCluster whose pods request certificates."""
    await env.create_namespace(namespace)
    cluster = injected_ray_cluster(SETTINGS)
    cluster["metadata"]["namespace"] = namespace
    return await env.create(cluster)


@asynccontextmanager
async def pod_client(env: Environment, cluster: Object, name: str) -> AsyncIterator[Client]:
    """Create a head pod of ``cluster``, and return a client with its token."""
    pod = await create_ray_pod(env, cluster, name, ADDRESS, node_type="head")
    config = local_config(env.plane, token=await pod_token(env, pod))
    async with Transport(config) as transport:
        yield Client(transport, RESTMapper(transport), field_manager="pod")


async def create_requests(client: Client, prefix: str, number: int, *, size: int = 0) -> None:
    """Create so many requests for an address that the pod does not have; each has ``size`` more bytes."""
    for at in range(number):
        request = certificate_request(f"{prefix}-{at}", address("10.9.9.9"), usages=["client auth"])
        request["metadata"]["annotations"] = {"filler": "x" * size}
        await client.create(request)


async def wait_for_certificate(env: Environment, name: str) -> Object:
    """Wait until a request is signed, and return it."""

    async def is_signed() -> Object | None:
        found = await env.get(CERTIFICATE_SIGNING_REQUEST, name, "")
        return found if (found.get("status") or {}).get("certificate") else None

    signed: Object = await eventually(is_signed, f"a certificate for {name}")
    return signed


def bytes_of_requests(manager: Manager) -> int:
    """Return how many bytes of requests the operator has in memory."""
    return sum(
        informer.reader.size
        for informer in manager.cache.informers
        if informer.gvk == CERTIFICATE_SIGNING_REQUEST
    )


async def test_requests_take_the_budget_of_the_namespace_of_their_pods() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        attacker = await create_cluster(env, "attacker")
        victim = await create_cluster(env, "victim")
        async with run_controllers(env, CONFIG) as manager:
            manager.cache.budget.max_bytes = BUDGET
            async with pod_client(env, attacker, "rc-head") as client:
                await create_requests(client, "flood", 150, size=12_000)
            async with pod_client(env, victim, "rc-head") as client:
                await client.create(certificate_request("honest", address(ADDRESS)))
            await wait_for_certificate(env, "honest")
            await env.wait_until_idle()
            assert bytes_of_requests(manager) <= BUDGET + 10_000
            assert manager.cache.budget.held("attacker") <= BUDGET
        async with run_controllers(env, CONFIG, wait=False) as manager:
            manager.cache.budget.max_bytes = BUDGET
            await env.wait_until_idle()
            assert bytes_of_requests(manager) <= BUDGET + 10_000


async def test_requests_of_namespaces_take_turns() -> None:
    """Many pods have many requests that must be decided; a pod of another namespace does not wait for all of them."""
    async with start_environment(*VANILLA_CRDS) as env:
        attacker = await create_cluster(env, "attacker")
        victim = await create_cluster(env, "victim")
        async with run_controllers(env, CONFIG):
            await env.wait_until_idle()
        for number in range(8):
            async with pod_client(env, attacker, f"rc-{number}") as client:
                await create_requests(client, f"flood-{number}", 8)
        async with pod_client(env, victim, "rc-head") as client:
            await client.create(certificate_request("honest", address(ADDRESS)))
        async with run_controllers(env, CONFIG):
            honest = await wait_for_certificate(env, "honest")
        signed_at = int(honest["metadata"]["resourceVersion"])
        earlier = [
            request
            for request in await env.client.list(CERTIFICATE_SIGNING_REQUEST)
            if (request.get("status") or {}).get("conditions")
            and int(request["metadata"]["resourceVersion"]) < signed_at
        ]
        assert len(earlier) < 16


def reads_of_requests(env: Environment) -> int:
    """Return how many single requests were read by clients that are not pods."""
    prefix = f"/apis/{CERTIFICATE_SIGNING_REQUEST.api_version}/certificatesigningrequests/"
    return sum(
        event["verb"] == "get"
        and event["requestURI"].startswith(prefix)
        and event["user"]["username"] != "test"
        for event in env.plane.audit.events
    )


async def test_request_without_room_in_the_cache_is_answered() -> None:
    """Tenants of other namespaces can take all room."""
    clock = SteppedClock()
    async with start_environment(*VANILLA_CRDS) as env:
        victim = await create_cluster(env, "victim")
        async with run_controllers(env, CONFIG, clock=clock) as manager:
            await env.wait_until_idle()
            manager.cache.budget.total_bytes = 1
            async with pod_client(env, victim, "rc-head") as client:
                await client.create(certificate_request("honest", address(ADDRESS)))
                await client.create(certificate_request("wrong", address("10.9.9.9")))
            await wait_for_certificate(env, "honest")
            clock.step(120)  # until then, the pod may still get the address
            await env.wait_for_event("CertificateRequestDenied", namespace="victim")
            await env.wait_for_event("NamespaceTooLarge", namespace="victim")
            assert bytes_of_requests(manager) == 0


async def test_pods_of_a_ray_cluster_without_room_in_the_cache_get_certificates() -> None:
    """Neither the RayCluster nor the Secret of its CA is in the cache, nor any request of its pods."""
    async with start_environment(*VANILLA_CRDS) as env, run_controllers(env, CONFIG) as manager:
        manager.cache.budget.total_bytes = 1
        victim = await create_cluster(env, "victim")
        await env.wait_until_idle()
        binding = "codeflare-certificate-requesters-victim"
        assert await env.find(CLUSTER_ROLE_BINDING, binding, "") is not None
        async with pod_client(env, victim, "rc-head") as client:
            await client.create(certificate_request("honest", address(ADDRESS)))
        await wait_for_certificate(env, "honest")


async def test_flood_of_requests_without_room_is_not_read_one_by_one() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        attacker = await create_cluster(env, "attacker")
        victim = await create_cluster(env, "victim")
        async with run_controllers(env, CONFIG) as manager:
            await env.wait_until_idle()
            manager.cache.budget.total_bytes = 1
            async with pod_client(env, attacker, "rc-head") as client:
                await create_requests(client, "flood", 300)
            async with pod_client(env, victim, "rc-head") as client:
                await client.create(certificate_request("honest", address(ADDRESS)))
            await wait_for_certificate(env, "honest")
            assert reads_of_requests(env) < 150
        decided = [
            request
            for request in await env.client.list(CERTIFICATE_SIGNING_REQUEST)
            if (request.get("status") or {}).get("conditions")
        ]
        assert len(decided) <= MAX_DECISIONS + 1
