"""Tests that a namespace with very many objects does not delay those of others."""

from __future__ import annotations

from cfo.runtime.objects.kinds import NETWORK_POLICY
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

ATTACKERS = 60


async def test_cluster_of_another_tenant_does_not_wait_for_a_flood() -> None:
    """After a start, the operator serves both namespaces in turn, although one has many RayClusters."""
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "victim"):
            await env.create_namespace(namespace)
        for number in range(ATTACKERS):
            await env.create(ray_cluster(f"flood-{number}", "attacker"))
        await env.create(ray_cluster("shop", "victim"))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            policies = await env.client.list(NETWORK_POLICY)
            written = sorted(
                policies, key=lambda policy: int(policy["metadata"]["resourceVersion"])
            )
            order = [policy["metadata"]["namespace"] for policy in written]
            assert len(order) >= 2 * ATTACKERS
            assert order.index("victim") < 2 * 8, (
                "a worker's first RayCluster may be one of the attacker's"
            )
