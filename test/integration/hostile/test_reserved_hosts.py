"""Tests that no tenant gets a host of dashboards or Ray clients of others, neither itself nor through the operator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cfo.api.inferencestack.validation.stack import validate
from cfo.api.raycluster.names import RAY_CLUSTER, client_host, dashboard_host
from cfo.controllers.raycluster.host_collisions import CandidateHosts
from cfo.manifests.host_policy import MAX_HOSTS, policy
from cfo.runtime.client.errors import APIError
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from cfo.webhooks.access import Access
from cfo.webhooks.appwrapper.validation import create_errors
from test.integration.hostile.attacks import ingress
from test.support.appwrapper_environment import pod, wrapper
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    crd,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)
from test.support.tenant_clients import start_tenant_client

IMITATED_HOSTS = (
    ("own", "ray-dashboard-own-attacker.apps.test"),
    ("victim-in", "ray-dashboard-victim-in-attacker.apps.test"),  # victim in in-attacker
    ("victim", "ray-dashboard-victim-attacker-12345678.apps.test"),  # in attacker-12345678
    (
        "victim-ns.apps.my",
        "ray-dashboard-victim-ns.apps.my-attacker.test",
    ),  # domain apps.my-attacker.test
)
"""The names of RayClusters in the namespace ``attacker`` that have hosts of others in other namespaces."""

VICTIMS_HOST = "ray-dashboard-prod-victim.apps.test"
ROUTE_CRD = crd("route.openshift.io", "v1", "Route", "routes")
EDIT_INGRESSES = Rule("networking.k8s.io", "ingresses", ("get", "create", "patch"))


def template(api_version: str, kind: str, spec: dict[str, Any], name: str = "x") -> Object:
    """Return the template of a component."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("component", "field"),
    [
        (ingress("x", "attacker", VICTIMS_HOST), "spec.rules[0].host"),
        (
            template(
                "gateway.networking.k8s.io/v1", "HTTPRoute", {"hostnames": ["a", VICTIMS_HOST]}
            ),
            "spec.hostnames[1]",
        ),
        (template("route.openshift.io/v1", "Route", {"host": VICTIMS_HOST}), "spec.host"),
        (
            template("route.openshift.io/v1", "Route", {"to": {}}, "ray-dashboard-a"),
            "metadata.name",
        ),
        (
            template("route.openshift.io/v1", "Route", {"subdomain": "ray-dashboard-prod-victim"}),
            "spec.subdomain",
        ),
        (
            template(
                "networking.istio.io/v1", "VirtualService", {"hosts": ["RAYCLIENT-prod-victim.x"]}
            ),
            "spec.hosts[0]",
        ),
    ],
)
def test_appwrapper_with_a_reserved_host_is_refused(component: Object, field: str) -> None:
    appwrapper = wrapper(pod(), component, namespace="attacker")
    errors = create_errors(appwrapper, "attacker", AnyAccess())
    fields = [str(error.field) for error in errors if "reserved" in error.detail]
    assert fields == [f"spec.components[1].template.{field}"]


class AnyAccess(dict[GVK, Access]):
    """The user is allowed to create objects of all kinds."""

    def __missing__(self, gvk: GVK) -> Access:
        return Access()


@pytest.mark.parametrize(
    ("gateway", "field"),
    [
        (
            {"ingress": {"enabled": True, "hosts": [{"host": VICTIMS_HOST, "paths": []}]}},
            "spec.gateway.ingress.hosts[0].host",
        ),
        (
            {"httpRoute": {"parentRefs": [{"name": "g"}], "hostnames": [VICTIMS_HOST]}},
            "spec.gateway.httpRoute.hostnames[0]",
        ),
    ],
)
def test_stack_with_a_reserved_host_is_refused(gateway: dict[str, Any], field: str) -> None:
    metadata = {"name": "s", "namespace": "attacker", "labels": {"operatorVersion": "v2"}}
    errors = validate({"metadata": metadata, "spec": {"gateway": gateway}}, None).errors
    assert [str(error.field) for error in errors if "reserved" in error.detail] == [field]


async def test_policy_allows_reserved_hosts_only_for_rayclusters_of_the_namespace() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("attacker", "victim"):
            await env.create_namespace(namespace)
        for obj in policy():
            await env.create(obj)
        async with (
            start_tenant_client(env, EDIT_INGRESSES, namespace="attacker") as attacker,
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)),
        ):
            owners: list[list[Object]] = [
                [],
                [owner("prod")],
                [owner("prod-victim"), owner("evil")],
                [owner("prod-victim.apps.test|x")],
            ]

            async def is_refused() -> bool:
                plain = ingress("plain", "attacker", VICTIMS_HOST)
                try:
                    await attacker.create(plain, dry_run=True)
                except APIError as error:
                    return "reserved for RayClusters" in error.message
                return False

            await eventually(is_refused, "the policy is effective")
            for number, references in enumerate(owners):
                forged = ingress(f"forged-{number}", "attacker", VICTIMS_HOST)
                forged["metadata"]["ownerReferences"] = references
                with pytest.raises(APIError, match="reserved for RayClusters"):
                    await attacker.create(forged)
                with pytest.raises(APIError, match="reserved for RayClusters"):
                    await env.client.create(forged)
            # Also with the right name: it can be that of another RayCluster in another namespace.
            for name, host in IMITATED_HOSTS:
                imitated = ingress("imitated", "attacker", host)
                imitated["metadata"]["ownerReferences"] = [owner(name)]
                with pytest.raises(APIError, match="written only by an operator"):
                    await attacker.create(imitated)
                assert (await env.client.create(imitated, dry_run=True))["spec"]
            await attacker.create(ingress("web", "attacker", "shop.apps.test"))
            await env.create(ray_cluster("prod", "victim"))
            await env.wait_until_idle()
            found = await env.get(INGRESS, "ray-dashboard-prod", "victim")
            assert found["spec"]["rules"][0]["host"] == VICTIMS_HOST


@pytest.mark.parametrize("kuberay", [True, False])
async def test_policy_allows_hosts_that_kuberay_writes_after_a_migration(*, kuberay: bool) -> None:
    """`cfo migrate --to kuberay` keeps the host of the dashboard in `ingressOptions`."""
    status = Rule("ray.io", "rayclusters/status", ("get", "patch", "update") if kuberay else "get")
    async with (
        start_policy() as env,
        start_tenant_client(env, EDIT_INGRESSES, status, namespace="attacker") as client,
    ):
        own = ingress("own", "attacker", "ray-dashboard-own-attacker.apps.test")
        own["metadata"]["ownerReferences"] = [owner("own")]
        if kuberay:
            await client.create(own)
        else:
            with pytest.raises(APIError, match="written only by an operator"):
                await client.create(own)
        for name in ("own", "prod"):
            foreign = ingress("foreign", "attacker", VICTIMS_HOST)
            foreign["metadata"]["ownerReferences"] = [owner(name)]
            with pytest.raises(APIError, match="reserved for RayClusters"):
                await client.create(foreign)


@asynccontextmanager
async def start_policy() -> AsyncIterator[Environment]:
    """Run a plane with the namespace ``attacker`` and the policy, which is effective."""
    async with start_environment(*VANILLA_CRDS, ROUTE_CRD) as env:
        await env.create_namespace("attacker")
        for obj in policy():
            await env.create(obj)

        async def is_effective() -> bool:
            return await denial(env, ingress("plain", "attacker", VICTIMS_HOST)) != ""

        await eventually(is_effective, "the policy is effective")
        yield env


async def denial(env: Environment, obj: Object) -> str:
    """Return the message with which the API server refuses ``obj``; empty if it accepts it."""
    try:
        await env.client.create(obj, dry_run=True)
    except APIError as error:
        return error.message
    return ""


@pytest.mark.parametrize("host_of", [dashboard_host, client_host])
async def test_policy_allows_each_host_that_a_raycluster_can_get(
    host_of: Callable[[Object, str, str], str],
) -> None:
    cluster = ray_cluster("rc", "attacker")
    cluster["metadata"]["uid"] = "d7a2d3ff-5c3c-4d0a-8a0c-7d7d0c1e5b11"
    hosts = CandidateHosts.of(cluster, "apps.test", host_of)
    async with start_policy() as env:
        for host in (hosts.plain, hosts.hashed, hosts.unguessable):
            child = ingress("child", "attacker", host)
            child["metadata"]["ownerReferences"] = [owner("rc")]
            assert await denial(env, child) == ""
        longer = ingress("child", "attacker", hosts.plain.replace(".", "-0123456789ab.", 1))
        longer["metadata"]["ownerReferences"] = [owner("rc")]
        assert "reserved for RayClusters" in await denial(env, longer)


async def test_route_with_a_generated_name_gets_no_reserved_host() -> None:
    async with start_policy() as env:
        route = template("route.openshift.io/v1", "Route", {"to": {"kind": "Service", "name": "x"}})
        route["metadata"] = {"generateName": "ray-dashboard-", "namespace": "attacker"}
        assert "reserved for RayClusters" in await denial(env, route)
        route["metadata"]["generateName"] = "shop-"
        assert await denial(env, route) == ""


@pytest.mark.parametrize("host", [{}, {"host": ""}, {"host": "shop.apps.test"}])
async def test_route_gets_no_reserved_host_by_its_subdomain(host: dict[str, str]) -> None:
    async with start_policy() as env:
        spec = {"to": {"kind": "Service", "name": "x"}, **host, "subdomain": "shop"}
        route = template("route.openshift.io/v1", "Route", spec)
        route["metadata"]["namespace"] = "attacker"
        assert await denial(env, route) == ""
        for subdomain in ("ray-dashboard-prod-victim", "Ray-Dashboard-prod-victim"):
            spec["subdomain"] = subdomain
            assert "reserved for RayClusters" in await denial(env, route)


async def test_route_gets_no_reserved_host_in_upper_case() -> None:
    """OpenShift accepts upper case, which DNS ignores."""
    async with start_policy() as env:
        spec = {"to": {"kind": "Service", "name": "x"}, "host": VICTIMS_HOST.upper()}
        route = template("route.openshift.io/v1", "Route", spec)
        route["metadata"]["namespace"] = "attacker"
        assert "reserved for RayClusters" in await denial(env, route)
        spec["host"] = "SHOP.apps.test"
        assert await denial(env, route) == ""


async def test_ingress_gets_no_certificate_for_a_reserved_host() -> None:
    async with start_policy() as env:
        shop = ingress("shop", "attacker", "shop.apps.test")
        shop["spec"]["tls"] = [{}, {"hosts": ["shop.apps.test"]}]
        assert await denial(env, shop) == ""
        shop["spec"]["tls"][1]["hosts"].append(VICTIMS_HOST)
        assert "reserved for RayClusters" in await denial(env, shop)


async def test_policy_limits_the_hosts_of_one_object() -> None:
    async with start_policy() as env:
        hosts = [f"{number}.a" for number in range(MAX_HOSTS + 1)]
        assert await denial(env, ingress("x", "attacker", *hosts[1:])) == ""
        assert f"at most {MAX_HOSTS} hosts" in await denial(env, ingress("x", "attacker", *hosts))
        without = ingress("x", "attacker", "a")
        path = without["spec"]["rules"][0]["http"]
        without["spec"]["rules"] = [{"http": path}] * (MAX_HOSTS + 1)
        assert f"at most {MAX_HOSTS} hosts" in await denial(env, without)


async def test_policy_lets_finalizers_of_older_objects_be_removed() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace("attacker")
        older = ingress("older", "attacker", VICTIMS_HOST)
        older["metadata"]["finalizers"] = ["test.example.com/keep"]
        await env.create(older)
        for obj in policy():
            await env.create(obj)

        async def is_effective() -> bool:
            return await denial(env, ingress("plain", "attacker", VICTIMS_HOST)) != ""

        await eventually(is_effective, "the policy is effective")
        key = NamespacedName("attacker", "older")
        changed = {"spec": {"rules": [{"host": VICTIMS_HOST.replace("prod", "test")}]}}
        with pytest.raises(APIError, match="reserved for RayClusters"):
            await env.client.patch(INGRESS, key, changed)
        await env.client.patch(INGRESS, key, {"metadata": {"finalizers": None}})


def owner(name: str) -> Object:
    """Return a forged controller reference to a RayCluster."""
    return {
        "apiVersion": RAY_CLUSTER.api_version,
        "kind": RAY_CLUSTER.kind,
        "name": name,
        "uid": f"uid-{name}",
        "controller": name != "evil",
    }
