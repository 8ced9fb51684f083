"""Tests of profiles in the controllers, without the webhooks: what is stored does not weaken a profile either."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from cfo.api.raycluster.names import RAY_CLUSTER, names_of
from cfo.config.kuberay import CAConfiguration, KubeRayConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.controllers.raycluster import RULES
from cfo.features.roles import enabled_roles
from cfo.runtime.controller.availability import AVAILABILITY_RULES
from cfo.runtime.manager.events import EVENT_RULES
from cfo.runtime.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    INGRESS,
    NAMESPACE,
    NETWORK_POLICY,
    SECRET,
)
from cfo.runtime.objects.unstructured import Object, owner_reference
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.ray_nodes import injected_ray_cluster
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)
from test.support.tenant_clients import service_account_token

NAMES = names_of(ray_cluster())
INGRESSES = {NAMES.dashboard, NAMES.client}
POLICIES = {NAMES.head_policy, NAMES.workers_policy}


def config(**enforced: str) -> KubeRayConfiguration:
    """Return a configuration without mTLS and OAuth, and with a profile for the namespaces with ``tenant=strict``."""
    profiles = [
        {"name": "none", "namespaceSelector": "tenant=trusted"},
        {"name": "strict", "namespaceSelector": "tenant", **enforced},
    ]
    return kuberay_config(
        **PLAIN_SETTINGS, mTLSEnabled=False, kubeRayFeatures=["ingressOptions"], profiles=profiles
    )


async def label(env: Environment, tenant: str | None) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
    await env.patch(namespace, {"metadata": {"labels": {"tenant": tenant}}})


async def test_profile_applies_when_the_label_of_the_namespace_changes() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, config(mTLS="enforced")):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == INGRESSES
            assert await env.child_names(SECRET) == set()
            await label(env, "strict")
            await env.wait_for_event("ProfileNotMet", "profile strict", "mutual TLS")
            await wait_until_deleted(env, [(INGRESS, name) for name in sorted(INGRESSES)])
            await env.wait_until_idle()
            assert await env.child_names(SECRET) == {NAMES.ca_secret}
            assert await env.child_names(NETWORK_POLICY) == POLICIES
        async with run_controllers(env, config(mTLS="enforced")):
            assert [verb for verb, _ in env.requests() if verb not in ("get", "discover")] == []
            await label(env, "trusted")
            await wait_until_deleted(env, [(SECRET, NAMES.ca_secret)])
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == INGRESSES


def kuberay_policy(cluster: Object, group: str) -> Object:
    labels = {"ray.io/cluster": "rc", "app.kubernetes.io/created-by": "kuberay-operator"}
    owners = [owner_reference(cluster)]
    metadata = {
        "name": f"rc-{group}",
        "namespace": "ns",
        "labels": labels,
        "ownerReferences": owners,
    }
    spec: Any = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": spec,
    }


async def test_stored_network_policy_of_user_does_not_replace_enforced_policies() -> None:
    rule = {"ingressRules": [{}]}
    policy = {
        "mode": "DenyAll",
        "head": {**rule, "egressRules": [{}]},
        "workerGroups": [{"groupName": "a", **rule}],
    }
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await label(env, "strict")
        async with run_controllers(env, config()):
            cluster = await env.create(
                ray_cluster(
                    networkPolicy=policy, workerGroupSpecs=[{"groupName": "a"}], version=None
                )
            )
            for group in ("head", "workers-a"):
                await env.create(kuberay_policy(cluster, group))
            await env.wait_for_event("NetworkPolicyByKubeRay")
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == set()
        async with run_controllers(env, config(networkPolicy="enforced")):
            await env.wait_for_event(
                "ProfileEnforced", "spec.networkPolicy.head.ingressRules", "workerGroups"
            )
            assert await env.child_names(NETWORK_POLICY) == {NAMES.head_policy, "rc-workers"}
            stored = (await env.get(RAY_CLUSTER, "rc"))["spec"]["networkPolicy"]
            assert stored == {
                "mode": "DenyAll",
                "head": {"egressRules": [{}]},
                "workerGroups": [{"groupName": "a"}],
            }
        async with run_controllers(env, config(networkPolicy="enforced")):
            assert [verb for verb, _ in env.requests() if verb not in ("get", "discover")] == []


async def test_enforced_authentication_leaves_no_ingress() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, config(authentication="enforced")):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == INGRESSES
            await label(env, "strict")
            await wait_until_deleted(env, [(INGRESS, name) for name in sorted(INGRESSES)])
            await env.wait_for_event("OAuthUnavailable")
            await env.patch(cluster, {"spec": {"headGroupSpec": {"enableIngress": True}}})
            await env.wait_for_event("ProfileEnforced", "spec.headGroupSpec.enableIngress")
            await env.wait_until_idle()
            stored = await env.get(RAY_CLUSTER, "rc")
            assert stored["spec"]["headGroupSpec"]["enableIngress"] is False


async def test_every_profile_applies_while_namespaces_cannot_be_read() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        granted = [rule for rule in RULES if "namespaces" not in rule.resources]
        token = await service_account_token(env, *granted, *AVAILABILITY_RULES, *EVENT_RULES)
        settings = config(authentication="enforced", mTLS="enforced")
        async with run_controllers(env, settings, token=token, wait=False):
            await env.create(ray_cluster())
            await env.wait_for_event("ProfileNotMet", "mutual TLS")
            await env.wait_for_event("OAuthUnavailable")
            assert await env.child_names(INGRESS) == set()


async def test_pods_get_certificates_where_only_a_profile_requires_them() -> None:
    settings = InjectionSettings(version="test", oauth=False, mtls=True, requests_certificates=True)
    issuer = structs.replace(
        config(mTLS="enforced"), ca=CAConfiguration(issuer="certificateSigningRequest")
    )
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await label(env, "strict")
        async with run_controllers(env, issuer):
            await env.create(injected_ray_cluster(settings))
            await env.wait_until_idle()
            assert (
                await env.find(CLUSTER_ROLE_BINDING, "codeflare-certificate-requesters-ns", "")
                is not None
            )
            configuration = OperatorConfiguration(kuberay=issuer)
            names = {role.name for role in await enabled_roles(env.client, configuration)}
            assert {"csr", "namespaces"} <= names


async def test_namespaces_are_watched_only_with_profiles() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            assert NAMESPACE not in {informer.gvk for informer in manager.cache.informers}
        async with run_controllers(env, config()) as manager:
            (informer,) = [
                informer for informer in manager.cache.informers if informer.gvk == NAMESPACE
            ]
            assert informer.selection.metadata_only
