"""What all four controllers have in common."""

from __future__ import annotations

import pytest

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import names_of
from cfo.controllers.raycluster import ingress, networkpolicy, oauth, rules
from cfo.runtime.availability import AVAILABILITY_RULES
from cfo.runtime.discovery import DiscoveryIncomplete, RESTMapper
from cfo.runtime.events import EVENT_RULES
from cfo.runtime.kinds import INGRESS, NETWORK_POLICY, POD, SECRET, SERVICE_ACCOUNT
from cfo.runtime.objects import Object
from cfo.runtime.reconcile import policy_rules
from test.support.permissions import create_token
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

NAMES = names_of(ray_cluster())


async def test_the_operator_waits_for_the_definition_of_rayclusters() -> None:
    async with start_environment() as here, run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
        await here.create_namespace()
        await here.plane.install_crds(RAY_CLUSTER_CRD)
        await here.create(ray_cluster())

        async def done() -> bool:
            return {kind for kind, _ in await here.children()} == {"Secret", "NetworkPolicy", "Ingress"}

        await eventually(done, "all children")


class Discovery:
    """Whether discovery can tell what is served."""

    complete = False


@pytest.fixture
def discovery(monkeypatch: pytest.MonkeyPatch) -> Discovery:
    state, serves_group = Discovery(), RESTMapper.serves_group

    async def unsure(self: RESTMapper, group: str) -> bool:
        if state.complete:
            return await serves_group(self, group)
        raise DiscoveryIncomplete(f"{group}: its API server does not answer")

    for module in (ingress, networkpolicy, oauth):
        monkeypatch.setattr(module, "UNKNOWN_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(RESTMapper, "serves_group", unsure)
    return state


@pytest.mark.parametrize("settings", [PLAIN_SETTINGS, OAUTH_SETTINGS])
async def test_an_incomplete_discovery_is_not_taken_for_vanilla(
    settings: dict[str, object], discovery: Discovery
) -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        await here.create(ray_cluster())
        async with run_controllers(here, kuberay_config(**settings), wait=False):

            async def half() -> bool:
                return NAMES.workers_policy in await here.child_names(NETWORK_POLICY)

            await eventually(half, "the workers' policy, which depends on no platform")
            assert not await here.child_names(INGRESS)
            assert await here.child_names(NETWORK_POLICY) == {NAMES.workers_policy}
            assert not [event for event in await here.events() if event[1] == "OAuthUnavailable"]
            discovery.complete = True

            async def whole() -> bool:
                return NAMES.head_policy in await here.child_names(NETWORK_POLICY)

            await eventually(whole, "the head's policy, once the platform is known")


async def test_a_policy_that_fails_is_tried_again() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        faults = getattr(here.plane, "faults", None)
        if faults is None:
            pytest.skip("the real control plane cannot be told to fail")
        from envtest.faults import Fault

        await here.create_namespace()
        for code in (500, 403):
            faults.add(Fault(verbs=("patch",), resources=("networkpolicies",), code=code, count=3))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_for_event("FailedToReconcile", "NetworkPolicy")

            async def made() -> bool:
                return await here.child_names(NETWORK_POLICY) == {NAMES.head_policy, NAMES.workers_policy}

            await eventually(made, "both policies")


async def test_a_create_whose_answer_was_lost_makes_no_second_secret() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        faults = getattr(here.plane, "faults", None)
        if faults is None:
            pytest.skip("the real control plane cannot be told to fail")
        from envtest.faults import Fault

        await here.create_namespace()
        faults.add(Fault(verbs=("create",), resources=("secrets",), code=504, count=2))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())

            async def made() -> bool:
                return await here.child_names(SECRET) == {NAMES.ca_secret}

            await eventually(made, "the Secret")


def test_the_rules_ask_for_no_more_than_is_used() -> None:
    found = {
        (group, resource): set(rule["verbs"])
        for rule in policy_rules(rules())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert found["ray.io", "rayclusters"] == {"get", "list", "watch", "patch"}
    assert found["", "pods"] == {"list", "watch", "delete"}
    assert "*" not in {verb for verbs in found.values() for verb in verbs}
    assert "*" not in {resource for _, resource in found}


@pytest.mark.parametrize(("crds", "settings"), [(VANILLA_CRDS, PLAIN_SETTINGS), (OPENSHIFT_CRDS, OAUTH_SETTINGS)])
async def test_the_rules_are_enough(crds: tuple[Object, ...], settings: dict[str, object]) -> None:
    async with start_environment(*crds) as here:
        await here.create_namespace()
        token = await create_token(here, [*rules(), *AVAILABILITY_RULES, *EVENT_RULES])
        openshift = crds is OPENSHIFT_CRDS
        async with run_controllers(here, kuberay_config(**settings), token=token):
            cluster = ray_cluster()
            template = cluster["spec"]["headGroupSpec"]["template"]["spec"]
            template["serviceAccountName"] = NAMES.proxy_service_account
            cluster = await here.create(cluster)
            await here.wait_until_idle()
            before = await here.children(openshift=openshift)
            assert before
            for child in before.values():
                await here.patch(child, {"metadata": {"labels": {"drifted": "yes"}, "ownerReferences": None}})
            await here.wait_until_idle()
            if openshift:
                labels = {"ray.io/cluster": "rc", "ray.io/node-type": "head"}
                metadata = {"name": "head", "namespace": "ns", "labels": labels}
                spec = {"containers": [{"name": "c", "image": "i"}]}
                await here.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
                account = await here.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
                await here.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
                await wait_until_deleted(here, [(POD, "head")])
            asked = {
                "tlsOptions": {"enabled": True},
                "networkPolicy": {"mode": "DenyAll"},
                "authOptions": {"mode": "token"},
            }
            await here.patch(cluster, {"spec": asked})
            await here.wait_for_event("MTLSByKubeRay")
            await here.wait_until_idle()
            await here.delete(cluster)
            await wait_until_deleted(here, [(RAY_CLUSTER, "rc")])
            refused = [exchange for exchange in here.exchanges if exchange.code in ("401", "403")]
            assert not refused
            assert not [note for kind, _, note in await here.events() if kind == "Warning"]
