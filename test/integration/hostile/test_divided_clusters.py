"""Tests that an operator for some namespaces knows the hosts of objects in all others, and reconciles none of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cfo.api.gateway import HTTP_ROUTE
from cfo.controllers import inferencestack, raycluster
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of, uid_of
from test.integration.hostile.attacks import ingress
from test.support.gateways import HTTP_ROUTE_CRD
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
from test.support.stack_gateways import GATEWAY, PARENT, gateway, hosts_of, wait_for_problem
from test.support.tenant_clients import service_account_token

CONFIG = kuberay_config(**PLAIN_SETTINGS, operatorNamespaces=["kuberay"])
HOST = "ray-dashboard-rc-ns.apps.test"
DASHBOARD = NamespacedName("ns", "ray-dashboard-rc")


def large_ingress(host: str) -> Object:
    """Return an Ingress of another namespace that is too large for the cache."""
    obj = ingress("claim", "attacker", *(f"{number}.{'x' * 60}.test" for number in range(1500)))
    obj["spec"]["rules"].append({"host": host})
    return obj


def http_route(host: str) -> Object:
    """Return an HTTPRoute of another namespace."""
    return {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {"name": "claim", "namespace": "attacker"},
        "spec": {"parentRefs": [PARENT], "hostnames": [host], "rules": []},
    }


CLAIMS = [ingress("claim", "attacker", HOST), large_ingress(HOST), http_route(HOST)]


async def dashboard_hosts(env: Environment) -> list[str]:
    found = await env.client.get(INGRESS, DASHBOARD)
    rules = found["spec"]["rules"] if found is not None else ()
    return [rule["host"] for rule in rules]


@pytest.mark.parametrize("claim", CLAIMS, ids=["ingress", "large", "route"])
async def test_cluster_gets_no_host_of_a_namespace_of_another_operator(claim: Object) -> None:
    async with start_environment(*VANILLA_CRDS, HTTP_ROUTE_CRD) as env:
        for namespace in ("attacker", "ns"):
            await env.create_namespace(namespace)
        claimant = await env.create(claim)
        async with run_controllers(env, CONFIG, namespaces=["ns"]):
            await env.create(ray_cluster())
            await env.wait_for_event(
                "HostTaken", HOST, f"is used by {claim['kind']} attacker/claim"
            )
            assert await dashboard_hosts(env) == []
            await env.delete(claimant)

            async def has_host() -> bool:
                return await dashboard_hosts(env) == [HOST]

            await eventually(has_host, "the host is free")


async def test_objects_of_other_namespaces_cause_no_request() -> None:
    async with start_environment(*VANILLA_CRDS, HTTP_ROUTE_CRD) as env:
        for namespace in ("attacker", "ns"):
            await env.create_namespace(namespace)
        owner = await env.create(ray_cluster("other", "attacker"))
        async with run_controllers(env, CONFIG, namespaces=["ns"]):
            env.clear_requests()
            for claim in (ingress("claim", "attacker", HOST), http_route(HOST)):
                reference = {
                    "apiVersion": "ray.io/v1",
                    "kind": "RayCluster",
                    "name": name_of(owner),
                    "uid": uid_of(owner),
                    "controller": True,
                }
                claim["metadata"]["ownerReferences"] = [reference]
                created = await env.create(claim)
                await env.patch(created, {"metadata": {"annotations": {"touched": "yes"}}})
                await env.delete(created)
            await env.wait_until_idle()
            # A discovery can follow the start, because CRDs are watched.
            assert [request for request in env.requests() if request[0] != "discover"] == []


async def test_roles_in_namespaces_are_enough_for_hosts_that_no_one_can_have_claimed() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "ns"):
            await env.create_namespace(namespace)
        token = await account_in_namespace(env, raycluster.RULES)
        await env.create(ingress("claim", "attacker", HOST))
        async with run_controllers(env, CONFIG, namespaces=["ns"], token=token):
            cluster = await env.create(ray_cluster())
            note = await env.wait_for_event(
                "HostTaken", "Ingress objects in other namespaces, which cannot be read"
            )
            await env.wait_until_idle()
            (host,) = await dashboard_hosts(env)
            assert host in note
            assert host.startswith("ray-dashboard-rc-ns-")
            assert uid_of(cluster) not in host


async def account_in_namespace(env: Environment, rules: Iterable[Rule]) -> str:
    """Return a token of an account with ``rules`` in the namespace ``ns`` only."""
    events = Rule("events.k8s.io", "events", ("create", "patch"))
    return await service_account_token(env, *rules, events, namespace="ns", name="cfo")


async def test_stack_gets_no_host_of_a_namespace_of_another_operator() -> None:
    async with start_inference_environment(HTTP_ROUTE_CRD) as env:
        await env.create_namespace("attacker")
        await env.create(ingress("web", "attacker", "shop.test"))
        await env.create(http_route("models.test"))
        async with run_inference_controllers(env, namespaces=["ns"]):
            await env.create(new_stack(gateway=gateway(hosts=("shop.test",))))
            await wait_for_problem(env, "host shop.test is used by Ingress attacker/web")
            await env.change(gateway=gateway(hosts=("models.test",)))
            await wait_for_problem(env, "host models.test is used by HTTPRoute attacker/claim")
            assert await env.find(INGRESS, GATEWAY) is None
            await env.change(gateway=gateway(hosts=("free.test",)))
            await hosts_of(env, INGRESS, ["free.test"])


async def test_roles_in_namespaces_are_enough_for_hosts_of_stacks() -> None:
    async with start_inference_environment() as env:
        token = await account_in_namespace(env, inferencestack.RULES)
        async with run_inference_controllers(env, namespaces=["ns"], token=token):
            await env.create(new_stack(gateway=gateway(hosts=("shop.test",))))
            await hosts_of(env, INGRESS, ["shop.test"])
