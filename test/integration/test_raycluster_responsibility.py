"""Tests of the transitions between the operator and the other actors that can provide its concerns.

The cases of the decision itself are in docs/raycluster.md; the transitions to KubeRay's own policies are in
``test_raycluster_networkpolicy.py``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from cfo.api.raycluster.cluster import MULTIKUEUE_CONTROLLER, SECURE_TRUSTED_NETWORK
from cfo.api.raycluster.names import FINALIZER, RAY_CLUSTER, ROUTE, ClusterNames, Derived, names_of
from cfo.runtime.objects.kinds import INGRESS, SECRET
from cfo.runtime.objects.unstructured import Object
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
)

NAMES = names_of(ray_cluster())
POLICIES = {("NetworkPolicy", NAMES.head_policy), ("NetworkPolicy", NAMES.workers_policy)}


async def wait_for_children(
    env: Environment, expected: set[tuple[str, str]], *, openshift: bool
) -> None:
    async def are_expected() -> bool:
        assert set(await env.children(openshift=openshift)) == expected
        return True

    await eventually(are_expected, "the expected objects")
    await env.wait_until_idle()
    assert set(await env.children(openshift=openshift)) == expected


async def finalizers(env: Environment) -> list[str]:
    return list((await env.get(RAY_CLUSTER, "rc"))["metadata"].get("finalizers") or ())


async def normal_reasons(env: Environment) -> Counter[str]:
    """Return how many Events there are with each reason that names another actor."""
    reasons = [reason for kind, reason, _ in await env.events() if kind == "Normal"]
    return Counter(reason for reason in reasons if "By" in reason)


def writes(env: Environment) -> list[tuple[str, str]]:
    return [request for request in env.requests() if request[0] not in ("get", "discover")]


async def test_open_data_hub_takes_over_and_hands_back() -> None:
    config = kuberay_config(**OAUTH_SETTINGS, kubeRayFeatures=["secureTrustedNetwork"])
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, config):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            ours = set(await env.children(openshift=True))
            assert await finalizers(env) == [FINALIZER]
            await env.patch(
                cluster, {"metadata": {"annotations": {SECURE_TRUSTED_NETWORK: "true"}}}
            )
            await wait_for_children(env, POLICIES, openshift=True)
            assert await finalizers(env) == []
            assert await normal_reasons(env) == {"MTLSByOpenDataHub": 1, "OAuthByOpenDataHub": 1}
        async with run_controllers(env, config):
            assert writes(env) == []
            await env.patch(
                cluster, {"metadata": {"annotations": {SECURE_TRUSTED_NETWORK: "false"}}}
            )
            await wait_for_children(env, ours, openshift=True)
            assert await finalizers(env) == [FINALIZER]


async def test_annotation_of_open_data_hub_has_no_effect_unless_configured() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            ours = set(await env.children(openshift=True))
            await env.patch(
                cluster, {"metadata": {"annotations": {SECURE_TRUSTED_NETWORK: "true"}}}
            )
            await env.wait_for_event("KubeRayFeatureUnconfirmed", "secureTrustedNetwork")
            await env.wait_until_idle()
            assert set(await env.children(openshift=True)) == ours
            assert await finalizers(env) == [FINALIZER]


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_cluster_of_multikueue_gets_nothing(openshift: bool) -> None:
    crds, settings = (
        (OPENSHIFT_CRDS, OAUTH_SETTINGS) if openshift else (VANILLA_CRDS, PLAIN_SETTINGS)
    )
    async with start_environment(*crds) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**settings)):
            await env.create(ray_cluster(managedBy=MULTIKUEUE_CONTROLLER))
            await env.wait_for_event("ManagedByMultiKueue")
            await env.wait_until_idle()
            assert await env.children(openshift=openshift) == {}
            assert await finalizers(env) == []
            assert await normal_reasons(env) == {"ManagedByMultiKueue": 1}
            assert writes(env) == []


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_policies_stay_when_a_running_cluster_is_given_to_multikueue(openshift: bool) -> None:
    """The pods of such a cluster still run, but KubeRay no longer acts on it."""
    crds, settings = (
        (OPENSHIFT_CRDS, OAUTH_SETTINGS) if openshift else (VANILLA_CRDS, PLAIN_SETTINGS)
    )
    async with start_environment(*crds) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**settings)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            ours = set(await env.children(openshift=openshift))
            await env.patch(cluster, {"spec": {"managedBy": MULTIKUEUE_CONTROLLER}})
            await wait_for_children(env, POLICIES, openshift=openshift)
            assert await finalizers(env) == []
            await env.patch(cluster, {"spec": {"managedBy": None}})
            await wait_for_children(env, ours, openshift=openshift)


async def test_objects_of_cluster_that_was_created_for_multikueue_are_deleted() -> None:
    """An earlier release created them."""
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster("model"))
            await env.wait_until_idle()
            children = (await env.children()).values()
        managed = await env.create(ray_cluster(managedBy=MULTIKUEUE_CONTROLLER))
        for child in children:
            await env.create(_moved(child, managed))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            names = {name for _, name in await env.children()}
            assert names == {child["metadata"]["name"] for child in children}


def _moved(child: Object, cluster: Object) -> Object:
    """Return ``child`` of the cluster ``model`` as a child of ``cluster``."""
    names, own = names_of(ray_cluster("model")), names_of(cluster)
    new_names = {
        getattr(names, field): getattr(own, field)
        for field, value in vars(ClusterNames).items()
        if isinstance(value, Derived)
    }
    metadata = {
        "name": new_names[child["metadata"]["name"]],
        "namespace": "ns",
        "labels": {"ray.openshift.ai/cluster-name": "rc"},
        "ownerReferences": [
            {
                **child["metadata"]["ownerReferences"][0],
                "name": "rc",
                "uid": cluster["metadata"]["uid"],
            }
        ],
    }
    return {**{key: value for key, value in child.items() if key != "status"}, "metadata": metadata}


async def test_kuberay_exposes_cluster_only_if_configured() -> None:
    ingress = {"headGroupSpec": {"enableIngress": True, "ingressOptions": {"host": "ray.test"}}}
    ours = {NAMES.dashboard, NAMES.client}
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.patch(cluster, {"spec": ingress})
            await env.wait_for_event("KubeRayFeatureUnconfirmed", "enableIngress", "ingressOptions")
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == ours
        async with run_controllers(
            env, kuberay_config(**PLAIN_SETTINGS, kubeRayFeatures=["ingressOptions"])
        ):
            await env.wait_for_event("ExposedByKubeRay")
            assert await env.child_names(INGRESS) == set()
            assert await env.child_names(SECRET) == {NAMES.ca_secret}
            await env.patch(cluster, {"spec": {"headGroupSpec": {"enableIngress": False}}})
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == ours


async def test_routes_are_deleted_when_kuberay_exposes_cluster() -> None:
    config = kuberay_config(**OAUTH_SETTINGS, kubeRayFeatures=["ingressOptions"])
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, config):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            before = set(await env.children(openshift=True))
            await env.patch(cluster, {"spec": {"headGroupSpec": {"enableIngress": True}}})
            routes = {(ROUTE.kind, NAMES.dashboard), (ROUTE.kind, NAMES.client)}
            await wait_for_children(env, before - routes, openshift=True)
            assert await normal_reasons(env) == {"ExposedByKubeRay": 1}
