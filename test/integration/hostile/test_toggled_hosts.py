"""Tests that a tenant whose objects switch between hosts of others hardly makes the operator work.

Each switch affects the owners of a hundred hosts. They are reconciled once in some seconds, however often it happens.
"""

from __future__ import annotations

from collections import Counter

from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.controllers.host_claims import FOREIGN_DELAY
from cfo.runtime import Client, Manager
from cfo.runtime.controller import LOW_PRIORITY
from cfo.runtime.objects.kinds import EVENT, INGRESS, NETWORK_POLICY
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, find_condition
from test.integration.hostile.attacks import ingress
from test.support.clocks import FakeClock
from test.support.inference_environment import (
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)
from test.support.stack_gateways import gateway, hosts_of, wait_for_problem
from test.support.tenant_clients import start_tenant_client

EDIT_INGRESSES = Rule("networking.k8s.io", "ingresses", ("get", "create", "patch", "delete"))
CLUSTERS = 5
DASHBOARDS = [f"ray-dashboard-rc-{number}-victim.apps.test" for number in range(CLUSTERS)]
CLIENTS = [f"rayclient-rc-{number}-victim.apps.test" for number in range(CLUSTERS)]


def reconciles(manager: Manager, controller: str) -> float:
    """Return how many reconciles of a controller have ended."""
    return sum(
        sample.value
        for metric in manager.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "controller_runtime_reconcile_total"
        and sample.labels["controller"] == controller
    )


async def shared_hosts(env: Environment) -> Counter[str]:
    """Return how many Events the operator has written about shared hosts, by RayCluster."""
    return Counter(
        event["regarding"]["name"]
        for event in await env.client.list(EVENT, namespace="victim")
        if event["reason"] == "HostShared"
    )


async def toggle(tenant: Client, last: list[str]) -> None:
    """Switch the hosts of two Ingresses many times; both have ``last`` in the end."""
    for hosts in (DASHBOARDS, CLIENTS, DASHBOARDS, CLIENTS, last):
        for name in ("one", "two"):
            await tenant.apply(ingress(name, "attacker", *hosts))


async def exposure_reasons(env: Environment) -> set[str]:
    """Return the reasons of the conditions of all RayClusters about their exposure."""
    found = set()
    for number in range(CLUSTERS):
        cluster = await env.get(RAY_CLUSTER, f"rc-{number}", "victim")
        condition = find_condition(cluster["status"]["conditions"], EXPOSED)
        found.add(condition["reason"] if condition is not None else "")
    return found


async def test_toggled_hosts_cause_one_reconcile_of_each_raycluster_in_some_seconds() -> None:
    clock = FakeClock()
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "victim"):
            await env.create_namespace(namespace)
        for number in range(CLUSTERS):
            await env.create(ray_cluster(f"rc-{number}", "victim"))
        async with (
            start_tenant_client(env, EDIT_INGRESSES, namespace="attacker") as attacker,
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS), clock=clock) as manager,
        ):

            async def pass_delay() -> float:
                """Let the delayed RayClusters be reconciled, and return how many reconciles that took.

                If the reason of a condition changes, its own write enqueues the RayCluster once more.
                """
                before = reconciles(manager, FIELD_MANAGER)
                await env.wait_until_idle()
                assert reconciles(manager, FIELD_MANAGER) == before
                clock.advance(2 * FOREIGN_DELAY)  # they are enqueued one after the other
                await env.wait_until_idle()
                return reconciles(manager, FIELD_MANAGER) - before

            free = await exposure_reasons(env)
            await toggle(attacker, DASHBOARDS)
            await env.wait_until_idle()
            (queue,) = [each.queue for each in manager.controllers if each.name == FIELD_MANAGER]
            priorities = {item.item.name: item.priority for item in queue.items()}
            assert priorities == {f"rc-{number}": LOW_PRIORITY for number in range(CLUSTERS)}
            assert await pass_delay() == 2 * CLUSTERS
            await env.wait_for_event("HostShared", DASHBOARDS[-1], namespace="victim")
            assert await exposure_reasons(env) == {"HostShared"}
            await toggle(attacker, CLIENTS)
            assert await pass_delay() == CLUSTERS
            await env.wait_for_event("HostShared", CLIENTS[-1], namespace="victim")

            await toggle(attacker, DASHBOARDS)
            before = reconciles(manager, FIELD_MANAGER)
            await env.create(ray_cluster("new", "victim"))
            await (
                env.wait_until_idle()
            )  # the clock does not move: nothing delays the cluster of the victim
            policies = await env.child_names(NETWORK_POLICY, "victim")
            assert [name for name in policies if name.startswith("new")]
            assert reconciles(manager, FIELD_MANAGER) - before < CLUSTERS
            assert await pass_delay() == CLUSTERS

            for name in ("one", "two"):
                await attacker.delete(INGRESS, NamespacedName("attacker", name))
            assert await pass_delay() == 2 * CLUSTERS
            assert await exposure_reasons(env) == free
            # one for each of the two hosts of a RayCluster, however many objects had it in turn
            assert await shared_hosts(env) == {f"rc-{number}": 2 for number in range(CLUSTERS)}


async def test_toggled_host_causes_one_reconcile_of_a_stack_in_some_seconds() -> None:
    clock = FakeClock()
    controller = "inferencestack-doublewordai"
    async with start_inference_environment() as env:
        await env.create_namespace("attacker")
        await env.create(ingress("one", "attacker", "shop.test"))
        await env.create(ingress("two", "attacker", "shop.test"))
        async with (
            start_tenant_client(env, EDIT_INGRESSES, namespace="attacker") as attacker,
            run_inference_controllers(env, clock=clock) as manager,
        ):
            await env.create(new_stack(gateway=gateway(hosts=("shop.test",))))
            await wait_for_problem(env, "host shop.test is used by Ingress attacker/")
            await env.wait_until_idle()
            before = reconciles(manager, controller)
            for hosts in (["other.test"], ["shop.test"], ["other.test"]):
                for name in ("one", "two"):
                    await attacker.apply(ingress(name, "attacker", *hosts))
            await env.wait_until_idle()
            assert reconciles(manager, controller) == before
            clock.advance(FOREIGN_DELAY)
            await hosts_of(env, INGRESS, ["shop.test"])
