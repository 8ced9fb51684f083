"""Tests that no Ingress hides its hosts from the operator, however large it is and however many there are."""

from __future__ import annotations

import pytest

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.cache import store
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.unstructured import NamespacedName, Object, uid_of
from test.integration.hostile.attacks import ingress
from test.support.inference_environment import (
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
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
from test.support.stack_gateways import GATEWAY, gateway, hosts_of, wait_for_problem

HOST = "ray-dashboard-rc-ns.apps.test"
DASHBOARD = NamespacedName("ns", "ray-dashboard-rc")


def large_ingress(name: str, *hosts: str) -> Object:
    """Return an Ingress of the attacker that is too large for the cache."""
    obj = ingress(name, "attacker", *hosts)
    obj["metadata"]["annotations"] = {"x": "x" * 70_000}
    return obj


def many_hosts(name: str, *hosts: str) -> Object:
    """Return an Ingress of the attacker with thousands of hosts, ``hosts`` last."""
    obj = ingress(name, "attacker")
    decoys = [f"{number}.a" for number in range(3000)]
    obj["spec"]["rules"] = [{"host": host} for host in (*decoys, *hosts)]
    return obj


@pytest.mark.parametrize("create", [large_ingress, many_hosts])
async def test_cluster_gets_no_host_of_an_ingress_that_is_large(create: object) -> None:
    assert callable(create)
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "ns"):
            await env.create_namespace(namespace)
        hidden = await env.create(create("hidden", HOST))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_for_event("HostTaken", HOST, "is used by Ingress attacker/hidden")
            assert await env.client.get(INGRESS, DASHBOARD) is None
            await env.delete(hidden)

            async def has_host() -> bool:
                return await dashboard_hosts(env) == [HOST]

            await eventually(has_host, "the host is free")


@pytest.mark.parametrize("change", ["deleted", "changed"])
async def test_cluster_gets_its_host_when_a_large_object_no_longer_has_it(
    change: str,
) -> None:
    """The cache knows of the object only that it had the host."""
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "ns"):
            await env.create_namespace(namespace)
        taken = await env.create(large_ingress("hidden", HOST))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_for_event("HostTaken", HOST, "is used by Ingress attacker/hidden")
            assert await env.client.get(INGRESS, DASHBOARD) is None
            await env.wait_until_idle()
            if change == "deleted":
                await env.delete(taken)
            else:
                other = {"spec": {"rules": [{"host": "other.test"}]}}
                await env.client.patch(INGRESS, NamespacedName("attacker", "hidden"), other)

            async def has_host() -> bool:
                return await dashboard_hosts(env) == [HOST]

            await eventually(has_host, "the host is free")


async def dashboard_hosts(env: Environment) -> list[str]:
    found = await env.client.get(INGRESS, DASHBOARD)
    rules = found["spec"]["rules"] if found is not None else ()
    return [rule["host"] for rule in rules]


async def test_very_many_large_ingresses_neither_hide_a_host_nor_take_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster gets a host that no one can have claimed before; one that has a host keeps it."""
    monkeypatch.setattr(store, "MAX_LEFT_OUT", 2)
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "ns"):
            await env.create_namespace(namespace)
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster("first"))
            await env.wait_until_idle()
            for number in range(3):
                await env.create(large_ingress(f"large-{number}", f"host-{number}.test"))
            await env.wait_until_idle()
            await env.create(large_ingress("hidden", HOST))
            cluster = await env.create(ray_cluster())
            note = await env.wait_for_event(
                "HostTaken", f"host {HOST} may be used by", "namespace attacker", "is used instead"
            )
            await env.wait_until_idle()
            (host,) = await dashboard_hosts(env)
            assert host in note
            assert host.startswith("ray-dashboard-rc-ns-")
            assert uid_of(cluster) not in host
            label = {"metadata": {"labels": {"touched": "yes"}}}
            for name in ("first", "rc"):
                await env.client.patch(RAY_CLUSTER, NamespacedName("ns", name), label)
            await env.wait_until_idle()
            assert await dashboard_hosts(env) == [host]
            first = await env.get(INGRESS, "ray-dashboard-first")
            assert first["spec"]["rules"][0]["host"] == "ray-dashboard-first-ns.apps.test"


async def test_stack_gets_no_host_of_an_ingress_that_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with start_inference_environment() as env:
        await env.create_namespace("attacker")
        await env.create(large_ingress("hidden", "models.test"))
        await env.create(many_hosts("many", "others.test"))
        async with run_inference_controllers(env):
            await env.create(new_stack(gateway=gateway(hosts=("models.test",))))
            await wait_for_problem(env, "host models.test is used by Ingress attacker/hidden")
            await env.change(gateway=gateway(hosts=("others.test",)))
            await wait_for_problem(env, "host others.test is used by Ingress attacker/many")
            assert await env.find(INGRESS, GATEWAY) is None
            await env.change(gateway=gateway(hosts=("free.test",)))
            await hosts_of(env, INGRESS, ["free.test"])
            monkeypatch.setattr(store, "MAX_LEFT_OUT", 1)
            await env.create(large_ingress("one-more", "x.test"))
            await env.wait_until_idle()
            await env.change(gateway=gateway(hosts=("free.test", "new.test")))
            await wait_for_problem(
                env,
                "host new.test may be used by one of the Ingress objects in namespace attacker",
            )
            await hosts_of(env, INGRESS, ["free.test"])
