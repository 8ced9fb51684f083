"""Tests that tenants cannot use the operator to take, change or delete objects of other owners.

Each tenant is a user with exactly the permissions that the test names.
"""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE, names_of
from cfo.runtime.client.client import Client
from cfo.runtime.objects.kinds import INGRESS, POD, SERVICE, SERVICE_ACCOUNT
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    gvk_of,
    key_of,
    name_of,
    owner_reference,
)
from test.integration.hostile.attacks import ingress
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)
from test.support.tenant_clients import start_tenant_client

EDIT_CLUSTERS = Rule("ray.io", "rayclusters", ("get", "create", "patch", "delete"))
EDIT_INGRESSES = Rule("networking.k8s.io", "ingresses", ("get", "create", "patch", "delete"))
DASHBOARD_HOST = "ray-dashboard-prod-victim.apps.test"


async def test_old_ingress_of_another_namespace_that_names_the_host_later_does_not_get_it() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "victim"):
            await env.create_namespace(namespace)
        async with start_tenant_client(env, EDIT_INGRESSES, namespace="attacker") as attacker:
            await attacker.create(ingress("mine", "attacker", "harmless.apps.test"))
            async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
                await env.create(ray_cluster("prod", "victim"))
                await env.wait_until_idle()
                before = await env.get(INGRESS, "ray-dashboard-prod", "victim")
                await attacker.apply(ingress("mine", "attacker", DASHBOARD_HOST))
                note = await env.wait_for_event(
                    "HostShared", "attacker/mine", DASHBOARD_HOST, namespace="victim"
                )
                assert "ray-dashboard-prod" in note
                await env.wait_until_idle()
                assert await env.get(INGRESS, "ray-dashboard-prod", "victim") == before
            async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
                assert await env.get(INGRESS, "ray-dashboard-prod", "victim") == before


async def test_raycluster_does_not_take_an_ingress_that_has_its_name() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        shop = await env.create(ingress("ray-dashboard-shop", "ns", "shop.example.com"))
        async with (
            start_tenant_client(env, EDIT_CLUSTERS, namespace="ns") as tenant,
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)),
        ):
            await _create_and_delete_cluster(env, tenant, [shop])
            assert (
                await env.find(INGRESS, "rayclient-shop") is None
                or not await env.collects_garbage()
            )


async def test_raycluster_does_not_take_objects_that_have_the_names_of_the_oauth_proxy() -> None:
    names = names_of(ray_cluster("shop"))

    def metadata(name: str) -> dict[str, Any]:
        return {"name": name, "namespace": "ns"}

    route = {"host": "shop.example.com", "to": {"kind": "Service", "name": "shop"}}
    ports = [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    foreign = [
        {
            "apiVersion": ROUTE.api_version,
            "kind": "Route",
            "metadata": metadata(names.dashboard),
            "spec": route,
        },
        {
            "apiVersion": ROUTE.api_version,
            "kind": "Route",
            "metadata": metadata(names.client),
            "spec": route,
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(names.proxy_service),
            "spec": {"ports": ports},
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(names.proxy_service_account),
        },
    ]
    assert {gvk_of(obj) for obj in foreign} == {ROUTE, SERVICE, SERVICE_ACCOUNT}
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        created = [await env.create(obj) for obj in foreign]
        async with (
            start_tenant_client(env, EDIT_CLUSTERS, namespace="ns") as tenant,
            run_controllers(env, kuberay_config(**OAUTH_SETTINGS)),
        ):
            await _create_and_delete_cluster(env, tenant, created)


async def _create_and_delete_cluster(
    env: Environment, tenant: Client, foreign: list[Object]
) -> None:
    """Create and delete the RayCluster ``shop`` as ``tenant``; assert Events about ``foreign`` and no change of it."""

    async def assert_unchanged() -> None:
        for obj in foreign:
            assert await env.client.get(gvk_of(obj), key_of(obj)) == obj

    await tenant.create(ray_cluster("shop"))
    for obj in foreign:
        await env.wait_for_event("NameTaken", f"{obj['kind']} {name_of(obj)} already exists")
    await env.wait_until_idle()
    await assert_unchanged()
    await tenant.delete(RAY_CLUSTER, NamespacedName("ns", "shop"))
    await wait_until_deleted(env, [(RAY_CLUSTER, "shop")])
    await env.wait_until_idle()
    await assert_unchanged()


async def test_object_created_after_the_cache_was_read_is_not_taken() -> None:
    """An informer that lags behind does not know the object: the operator's write still changes nothing."""
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            shop = await env.create(ingress("ray-dashboard-shop", "ns", "shop.example.com"))
            await env.wait_until_idle()
            (informer,) = [
                informer for informer in manager.cache.informers if informer.gvk == INGRESS
            ]
            informer.record_deletion(key_of(shop), shop["metadata"]["uid"])
            await env.create(ray_cluster("shop"))
            await env.wait_for_event("NameTaken", "Ingress ray-dashboard-shop")
            assert await env.get(INGRESS, "ray-dashboard-shop") == shop


@pytest.mark.parametrize("owner", [None, "another cluster", "not the controller"])
async def test_only_pods_of_the_cluster_are_deleted(owner: str | None) -> None:
    """The labels of a head pod do not suffice, nor does the name of the cluster in an owner reference."""
    names = names_of(ray_cluster("shop"))
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        cluster = ray_cluster("shop")
        cluster["spec"]["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = (
            names.proxy_service_account
        )
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(cluster)
            other = await env.create(ray_cluster("other"))
            own, foreign = _head_pod("own"), _head_pod("foreign")
            own["metadata"]["ownerReferences"] = [owner_reference(cluster)]
            if owner == "another cluster":
                foreign["metadata"]["ownerReferences"] = [{**owner_reference(other)}]
            elif owner is not None:
                foreign["metadata"]["ownerReferences"] = [
                    {**owner_reference(cluster), "controller": False}
                ]
            await env.create(own)
            await env.create(foreign)
            await env.wait_until_idle()
            account = await env.get(SERVICE_ACCOUNT, names.proxy_service_account)
            await env.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
            await wait_until_deleted(env, [(POD, "own")])
            await env.wait_until_idle()
            assert "deletionTimestamp" not in (await env.get(POD, "foreign"))["metadata"]


def _head_pod(name: str) -> Object:
    labels = {"ray.io/cluster": "shop", "ray.io/node-type": "head"}
    metadata = {"name": name, "namespace": "ns", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


async def test_large_ingress_of_another_client_is_not_cached_and_its_hosts_are_not_computed() -> (
    None
):
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "victim"):
            await env.create_namespace(namespace)
        async with (
            start_tenant_client(env, EDIT_INGRESSES, namespace="attacker") as attacker,
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager,
        ):
            hosts = [f"ray-dashboard-{'-a' * 100}{number}.apps.test" for number in range(2000)]
            await attacker.create(ingress("large", "attacker", *hosts))
            await env.create(ray_cluster("prod", "victim"))
            await env.wait_until_idle()
            (informer,) = [
                informer for informer in manager.cache.informers if informer.gvk == INGRESS
            ]
            assert sorted(entry.name for entry in informer.reader.entries()) == [
                "ray-dashboard-prod",
                "rayclient-prod",
            ]
            own = await env.get(INGRESS, "ray-dashboard-prod", "victim")
            # An own Ingress that was enlarged is no longer cached; it is still maintained.
            labels = {f"label-{number}.example.com/{'x' * 60}": "y" * 60 for number in range(600)}
            await env.patch(own, {"metadata": {"labels": labels}})

            async def is_restored() -> bool:
                found = await env.get(INGRESS, "ray-dashboard-prod", "victim")
                return found["spec"] == own["spec"]

            await env.patch(own, {"spec": {"rules": [{"host": "other.test"}]}})
            await env.patch(ray_cluster("prod", "victim"), {"metadata": {"labels": {"touch": "1"}}})
            await eventually(is_restored, "the Ingress is restored")
            assert not [event for event in await env.events("victim") if event[1] == "NameTaken"]
