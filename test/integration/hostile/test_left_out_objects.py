"""Tests that objects which the cache leaves out are reconciled, also by a replica that becomes the leader."""

from __future__ import annotations

from cfo.api.raycluster.names import RAY_CLUSTER, names_of
from cfo.config.model import LeaderElection
from cfo.runtime import LeaderElectionOptions, Manager
from cfo.runtime.objects import LEASE
from cfo.runtime.objects.kinds import NETWORK_POLICY
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

LOCK = NamespacedName("default", LeaderElection().resource_name)


def held_lease() -> Object:
    """Return the Lease of a leader that has ended without releasing it."""
    spec = {
        "holderIdentity": "first",
        "leaseDurationSeconds": 3600,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    metadata = {"name": LOCK.name, "namespace": LOCK.namespace}
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": metadata,
        "spec": spec,
    }


async def wait_until_listed(manager: Manager) -> None:
    """Wait until the standby has listed RayClusters, and left out some."""
    informer = manager.cache.informer(RAY_CLUSTER)

    async def is_listed() -> bool:
        return informer.has_synced and not informer.reader.is_complete("ns")

    await eventually(is_listed, "the list of RayClusters")


def lists_of_clusters(env: Environment) -> int:
    requests = [(exchange.verb, exchange.resource) for exchange in env.exchanges]
    return requests.count(("list", "rayclusters.ray.io"))


async def test_standby_that_becomes_the_leader_protects_ray_clusters_that_it_has_left_out() -> None:
    election = LeaderElectionOptions(
        name=LOCK.name,
        namespace=LOCK.namespace,
        identity="second",
        lease_duration=2,
        renew_deadline=1,
        retry_period=0.1,
    )
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await env.create(held_lease())
        cluster = await env.create(ray_cluster())
        settings = kuberay_config(**PLAIN_SETTINGS)
        async with run_controllers(env, settings, wait=False, election=election) as manager:
            manager.cache.budget.total_bytes = 1
            await wait_until_listed(manager)
            before = lists_of_clusters(env)
            await env.client.patch(LEASE, LOCK, {"spec": {"holderIdentity": ""}})
            policy = NamespacedName("ns", names_of(cluster).head_policy)

            async def is_protected() -> bool:
                return await env.client.get(NETWORK_POLICY, policy) is not None

            await eventually(is_protected, "the NetworkPolicy")
            await env.wait_until_idle()
            assert lists_of_clusters(env) - before == 1, "all controllers share one list"


async def test_left_out_ray_clusters_are_enqueued_with_all_others() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            manager.cache.budget.total_bytes = 1
            cluster = await env.create(ray_cluster())
            policy = NamespacedName("ns", names_of(cluster).head_policy)

            async def is_protected() -> bool:
                return await env.client.get(NETWORK_POLICY, policy) is not None

            await eventually(is_protected, "the NetworkPolicy")
            await env.wait_until_idle()
            before = lists_of_clusters(env)
            reads = reads_of_cluster(env)
            await env.create(
                {
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "IngressClass",
                    "metadata": {"name": "new"},
                    "spec": {"controller": "example.com/new"},
                }
            )

            async def is_reconciled() -> bool:
                return reads_of_cluster(env) > reads

            await eventually(is_reconciled, "the reconcile because of the IngressClass")
            await env.wait_until_idle()
            assert lists_of_clusters(env) == before


def reads_of_cluster(env: Environment) -> int:
    requests = [(exchange.verb, exchange.resource) for exchange in env.exchanges]
    return requests.count(("get", "rayclusters.ray.io"))
