"""Tests of what all concerns of a RayCluster share: start, platform detection, retries, permissions."""

from __future__ import annotations

import pytest

from cfo.api.raycluster.names import CLUSTER_LABEL, RAY_CLUSTER, names_of
from cfo.controllers.raycluster import OPENSHIFT_RULES, RULES, reconciler
from cfo.runtime.client.discovery import DiscoveryIncomplete, RESTMapper
from cfo.runtime.controller.availability import AVAILABILITY_RULES
from cfo.runtime.manager.events import EVENT_RULES
from cfo.runtime.objects.kinds import INGRESS, NETWORK_POLICY, POD, SECRET, SERVICE_ACCOUNT
from cfo.runtime.objects.rbac import policy_rules
from cfo.runtime.objects.unstructured import Object, owner_reference
from envtest import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    RAY_CLUSTER_CRD,
    VANILLA_CRDS,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)
from test.support.tenant_clients import service_account_token

NAMES = names_of(ray_cluster())


async def test_controllers_start_when_raycluster_crd_is_installed() -> None:
    async with start_environment() as env, run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
        await env.create_namespace()
        await env.plane.install_crds(RAY_CLUSTER_CRD)
        await env.create(ray_cluster())

        async def all_children_exist() -> bool:
            return {kind for kind, _ in await env.children()} == {
                "Secret",
                "NetworkPolicy",
                "Ingress",
            }

        await eventually(all_children_exist, "all children exist")


class Discovery:
    """A switch for API discovery: while it is not :attr:`complete`, no API group is known to be served or not."""

    complete = False


@pytest.fixture
def discovery(monkeypatch: pytest.MonkeyPatch) -> Discovery:
    """Return the switch of an API discovery that starts incomplete; the controller retries after 50 ms."""
    state, serves_group = Discovery(), RESTMapper.serves_group

    async def serves_group_if_complete(self: RESTMapper, group: str) -> bool:
        if state.complete:
            return await serves_group(self, group)
        raise DiscoveryIncomplete(f"{group}: its API server does not respond")

    monkeypatch.setattr(reconciler, "UNKNOWN_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(RESTMapper, "serves_group", serves_group_if_complete)
    return state


@pytest.mark.parametrize("settings", [PLAIN_SETTINGS, OAUTH_SETTINGS])
async def test_incomplete_discovery_is_not_treated_as_vanilla_kubernetes(
    settings: dict[str, object], discovery: Discovery
) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await env.create(ray_cluster())
        async with run_controllers(env, kuberay_config(**settings), wait=False):

            async def has_workers_policy() -> bool:
                return NAMES.workers_policy in await env.child_names(NETWORK_POLICY)

            await eventually(
                has_workers_policy, "the workers' policy, which depends on no platform, exists"
            )
            assert not await env.child_names(INGRESS)
            assert await env.child_names(NETWORK_POLICY) == {NAMES.workers_policy}
            assert not [event for event in await env.events() if event[1] == "OAuthUnavailable"]
            discovery.complete = True

            async def has_head_policy() -> bool:
                return NAMES.head_policy in await env.child_names(NETWORK_POLICY)

            await eventually(has_head_policy, "the head's policy exists once the platform is known")


@pytest.mark.embedded(reason="it injects faults")
async def test_concern_without_permission_is_left_out_until_it_has_it() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        assert isinstance(env.plane, EmbeddedControlPlane)
        await env.create_namespace()
        await env.create(ray_cluster())
        env.plane.faults.add(Fault(verbs=("list",), resources=("ingresses",), code=403, count=None))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS), wait=False):

            async def has_others() -> bool:
                return all([await env.child_names(kind) for kind in (SECRET, NETWORK_POLICY)])

            await eventually(has_others, "everything but the Ingresses exists")
            env.plane.faults.clear()

            async def has_ingresses() -> bool:
                return bool(await env.child_names(INGRESS))

            await eventually(has_ingresses, "the Ingresses exist")


@pytest.mark.embedded(reason="it injects faults")
async def test_failed_network_policy_is_retried() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        assert isinstance(env.plane, EmbeddedControlPlane)
        faults = env.plane.faults
        await env.create_namespace()
        for code in (500, 403):
            faults.add(Fault(verbs=("patch",), resources=("networkpolicies",), code=code, count=3))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_for_event("FailedToReconcile", "NetworkPolicy")

            async def has_both_policies() -> bool:
                return await env.child_names(NETWORK_POLICY) == {
                    NAMES.head_policy,
                    NAMES.workers_policy,
                }

            await eventually(has_both_policies, "both policies exist")


@pytest.mark.embedded(reason="it injects faults")
async def test_lost_create_response_does_not_create_second_secret() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        assert isinstance(env.plane, EmbeddedControlPlane)
        faults = env.plane.faults
        await env.create_namespace()
        faults.add(Fault(verbs=("create",), resources=("secrets",), code=504, count=2))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())

            async def has_one_secret() -> bool:
                return await env.child_names(SECRET) == {NAMES.ca_secret}

            await eventually(has_one_secret, "one Secret exists")


def test_rules_grant_only_the_verbs_in_use() -> None:
    found = {
        (group, resource): set(rule["verbs"])
        for rule in policy_rules([*RULES, *OPENSHIFT_RULES])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert found["ray.io", "rayclusters"] == {"get", "list", "watch", "patch"}
    assert found["", "pods"] == {"list", "watch", "delete"}
    assert not {"pods", "services", "routes", "serviceaccounts"} & {
        name for rule in RULES for name in rule.resources
    }
    assert "*" not in {verb for verbs in found.values() for verb in verbs}
    assert "*" not in {resource for _, resource in found}


@pytest.mark.parametrize(
    ("crds", "settings"), [(VANILLA_CRDS, PLAIN_SETTINGS), (OPENSHIFT_CRDS, OAUTH_SETTINGS)]
)
async def test_rules_are_sufficient(crds: tuple[Object, ...], settings: dict[str, object]) -> None:
    async with start_environment(*crds) as env:
        await env.create_namespace()
        openshift = crds is OPENSHIFT_CRDS
        granted = [*RULES, *OPENSHIFT_RULES] if openshift else RULES
        token = await service_account_token(env, *granted, *AVAILABILITY_RULES, *EVENT_RULES)
        features = ["networkPolicy", "tlsOptions", "authOptions"]
        config = kuberay_config(**settings, kubeRayFeatures=features)
        async with run_controllers(env, config, token=token):
            cluster = ray_cluster()
            template = cluster["spec"]["headGroupSpec"]["template"]["spec"]
            template["serviceAccountName"] = NAMES.proxy_service_account
            cluster = await env.create(cluster)
            await env.wait_until_idle()
            before = await env.children(openshift=openshift)
            assert before
            for child in before.values():
                drift: Object = {"labels": {"drifted": "yes"}, "ownerReferences": None}
                if (
                    child["kind"] == "Secret"
                ):  # without its owner reference it would be replaced, with a Warning
                    drift = {"labels": {CLUSTER_LABEL: None}}
                await env.patch(child, {"metadata": drift})
            await env.wait_until_idle()
            if openshift:
                labels = {"ray.io/cluster": "rc", "ray.io/node-type": "head"}
                references = [owner_reference(cluster)]
                metadata = {
                    "name": "head",
                    "namespace": "ns",
                    "labels": labels,
                    "ownerReferences": references,
                }
                spec = {"containers": [{"name": "c", "image": "i"}]}
                await env.create(
                    {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                )
                account = await env.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
                await env.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
                await wait_until_deleted(env, [(POD, "head")])
            kuberay_options = {
                "tlsOptions": {"enabled": True},
                "networkPolicy": {"mode": "DenyAll"},
                "authOptions": {"mode": "token"},
            }
            await env.patch(cluster, {"spec": kuberay_options})
            await env.wait_for_event("MTLSByKubeRay")
            await env.wait_until_idle()
            await env.delete(cluster)
            await wait_until_deleted(env, [(RAY_CLUSTER, "rc")])
            denied = [exchange for exchange in env.exchanges if exchange.code in ("401", "403")]
            assert not denied
            assert not [note for kind, _, note in await env.events() if kind == "Warning"]
