"""Tests of the NetworkPolicy controller, and of the sources from which it learns the KubeRay operator's namespace."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.raycluster.names import FIELD_MANAGER, names_of
from cfo.runtime.objects.kinds import INGRESS, NETWORK_POLICY
from cfo.runtime.objects.unstructured import Object, key_of, owner_reference
from test.support.network_policies import (
    NAMES,
    allowed_kuberay_namespaces,
    kuberay_role,
    kuberay_role_binding,
    wait_until_allowed,
)
from test.support.raycluster_environment import (
    DSC_INITIALIZATION_CRD,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)


def dsci(namespace: str) -> Object:
    """Return a DSCInitialization whose applications (among them KubeRay) run in ``namespace``."""
    return {
        "apiVersion": "dscinitialization.opendatahub.io/v1",
        "kind": "DSCInitialization",
        "metadata": {"name": "default-dsci"},
        "spec": {"applicationsNamespace": namespace},
    }


async def test_head_and_workers_each_get_a_policy() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            head = await env.get(NETWORK_POLICY, NAMES.head_policy)
            workers = await env.get(NETWORK_POLICY, NAMES.workers_policy)
            for policy, node_type in ((head, "head"), (workers, "worker")):
                assert policy["spec"]["policyTypes"] == ["Ingress"]
                assert policy["spec"]["podSelector"] == {
                    "matchLabels": {"ray.io/cluster": "rc", "ray.io/node-type": node_type}
                }
                assert policy["metadata"]["ownerReferences"] == [owner_reference(cluster)]
                (field,) = policy["metadata"]["managedFields"]
                assert (field["manager"], field["operation"]) == (FIELD_MANAGER, "Apply")
            assert workers["spec"]["ingress"] == [
                {"from": [{"podSelector": {"matchLabels": {"ray.io/cluster": "rc"}}}]}
            ]


INIT_CONTAINERS = [{"name": "create-cert", "image": "ubi"}]
TLS_ENV = [{"name": "RAY_USE_TLS", "value": "1"}]


def cluster_with_head(
    *,
    init: list[Object] = INIT_CONTAINERS,
    env: list[Object] = TLS_ENV,
    more: tuple[Object, ...] = (),
    **spec: Any,
) -> Object:
    """Return a RayCluster whose head has these init containers, this environment, and ``more`` containers."""
    containers = [{"name": "ray-head", "image": "ray", "env": env}, *more]
    head = {
        "rayStartParams": {},
        "template": {"spec": {"initContainers": init, "containers": containers}},
    }
    return ray_cluster(**{"headGroupSpec": head, **spec})


@pytest.mark.parametrize(
    ("mtls", "cluster", "ports"),
    [
        pytest.param(True, cluster_with_head(), {8443, 10001}, id="injected"),
        pytest.param(False, cluster_with_head(), {8443}, id="mtls-disabled"),
        pytest.param(True, ray_cluster(), {8443}, id="created-before-mtls"),
        pytest.param(True, ray_cluster(version=None), {8443}, id="old-names"),
        pytest.param(True, cluster_with_head(init=[]), {8443}, id="no-certificate"),
        pytest.param(True, cluster_with_head(env=[]), {8443}, id="no-variable"),
        pytest.param(
            True,
            cluster_with_head(env=[{"name": "RAY_USE_TLS", "value": "0"}]),
            {8443},
            id="tls-off",
        ),
        pytest.param(
            True,
            cluster_with_head(env=[*TLS_ENV, {"name": "RAY_USE_TLS"}]),
            {8443},
            id="overridden-variable",
        ),
        pytest.param(
            True,
            cluster_with_head(env=[], more=({"name": "other", "image": "x", "env": TLS_ENV},)),
            {8443},
            id="variable-of-another-container",
        ),
        pytest.param(
            True, cluster_with_head(tlsOptions={"enabled": True}), {8443}, id="kuberay-tls"
        ),
        pytest.param(
            True, ray_cluster(tlsOptions={"enabled": True}), {8443}, id="kuberay-tls-not-injected"
        ),
    ],
)
async def test_client_port_is_open_to_all_sources_only_where_ray_requires_certificates(
    mtls: bool, cluster: Object, ports: set[int]
) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, mTLSEnabled=mtls)):
            await env.create(copy.deepcopy(cluster))
            await env.wait_until_idle()
            policy = await env.get(NETWORK_POLICY, names_of(cluster).head_policy)
            (open_rule,) = [rule for rule in policy["spec"]["ingress"] if "from" not in rule]
            assert {port["port"] for port in open_rule["ports"]} == ports


async def test_namespaces_of_ingress_controllers_are_configurable() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(
            env,
            kuberay_config(
                **PLAIN_SETTINGS, mTLSEnabled=False, ingress={"namespaces": ["ingress-nginx"]}
            ),
        ):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            policy = await env.get(NETWORK_POLICY, NAMES.head_policy)
            (rule,) = [item for item in policy["spec"]["ingress"] if "ingress-nginx" in str(item)]
            assert {port["port"] for port in rule["ports"]} == {8265, 10001}
            (peer,) = rule["from"]
            assert "podSelector" not in peer


async def test_egress_rules_are_stored_and_a_restart_writes_nothing() -> None:
    destination = {
        "cidrs": ["198.51.100.0/24", "2001:db8::/64"],
        "namespaces": ["minio"],
        "ports": [443, 9000],
    }
    egress = {"restrict": True, "apiServerCIDRs": ["192.0.2.1/32"], "destinations": [destination]}
    settings = {**PLAIN_SETTINGS, "mTLSEnabled": False, "networkPolicy": {"egress": egress}}
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**settings)):
            cluster = await env.create(ray_cluster(networkPolicy={}))
            await env.create(kuberay_policy(cluster, "head", "Ingress"))
            await env.wait_until_idle()
            for name in (NAMES.head_policy, NAMES.workers_policy):
                spec = (await env.get(NETWORK_POLICY, name))["spec"]
                assert spec["policyTypes"] == ["Ingress", "Egress"]
                assert len(spec["egress"]) == 4
        async with run_controllers(env, kuberay_config(**settings)):
            assert [
                request for request in env.requests() if request[0] not in ("get", "discover")
            ] == []
            await env.patch(
                kuberay_policy(cluster, "head"), {"spec": {"policyTypes": ["Ingress", "Egress"]}}
            )
            await wait_until_deleted(env, [(NETWORK_POLICY, NAMES.head_policy)])


async def test_ports_follow_the_spec_of_a_cluster_that_serves() -> None:
    cluster = ray_cluster()
    cluster["metadata"]["annotations"]["ray.io/enable-serve-service"] = "true"
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, mTLSEnabled=False)):
            await env.create(cluster)
            await env.wait_until_idle()
            for name in (NAMES.head_policy, NAMES.workers_policy):
                assert 8000 in ports_for_namespace(await env.get(NETWORK_POLICY, name))
            ports = [
                {"name": "serve", "containerPort": 8001},
                {"name": "client", "containerPort": 20001},
            ]
            head = {
                "rayStartParams": {"ray-client-server-port": "20001"},
                "template": {
                    "spec": {"containers": [{"name": "ray-head", "image": "ray", "ports": ports}]}
                },
            }
            await env.patch(cluster, {"spec": {"headGroupSpec": head}})
            await env.wait_until_idle()
            assert ports_for_namespace(await env.get(NETWORK_POLICY, NAMES.head_policy)) == {
                8265,
                20001,
                8001,
            }
            assert ports_for_namespace(await env.get(NETWORK_POLICY, NAMES.workers_policy)) == {
                8001
            }
            ingress = await env.get(INGRESS, NAMES.client)
            (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
            assert path["backend"]["service"]["port"] == {"number": 20001}


def ports_for_namespace(policy: Object) -> set[int]:
    """Return the ports that a policy opens to the namespace of the RayCluster."""
    return {
        port["port"]
        for rule in policy["spec"]["ingress"]
        if {"podSelector": {}} in rule.get("from", ())
        for port in rule["ports"]
    }


async def test_well_known_namespaces_are_allowed_without_any_source() -> None:
    for crds, expected in (
        (VANILLA_CRDS, ["ray-system"]),
        (OPENSHIFT_CRDS, ["opendatahub", "redhat-ods-applications"]),
    ):
        async with start_environment(*crds) as env:
            await env.create_namespace()
            async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
                await env.create(ray_cluster())
                await env.wait_until_idle()
                assert await allowed_kuberay_namespaces(env) == expected


async def test_configured_operator_namespaces_take_precedence() -> None:
    async with start_environment(*VANILLA_CRDS, DSC_INITIALIZATION_CRD) as env:
        await env.create_namespace()
        await env.create(dsci("apps"))
        async with run_controllers(
            env, kuberay_config(**PLAIN_SETTINGS, operatorNamespaces=["chosen", "also"])
        ):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await allowed_kuberay_namespaces(env) == ["chosen", "also"]


async def test_policy_follows_its_sources_and_is_kept_when_they_are_deleted() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await wait_until_allowed(env, "ray-system")
            await env.create(kuberay_role())
            await env.wait_until_idle()
            assert await allowed_kuberay_namespaces(env) == ["ray-system"]
            binding = await env.create(kuberay_role_binding("kuberay-space"))
            await wait_until_allowed(env, "kuberay-space")
            await env.plane.install_crds(DSC_INITIALIZATION_CRD)
            settings = await env.create(dsci("apps"))
            await wait_until_allowed(env, "apps")
            await env.patch(settings, {"spec": {"applicationsNamespace": "moved"}})
            await wait_until_allowed(env, "moved")
            await env.delete(settings)
            await wait_until_allowed(env, "kuberay-space")
            await env.delete(binding)
            await env.wait_until_idle()
            assert await allowed_kuberay_namespaces(env) == ["kuberay-space"]
            await env.create(ray_cluster("newer"))
            await env.wait_until_idle()
            assert await allowed_kuberay_namespaces(
                env, names_of(ray_cluster("newer")).head_policy
            ) == ["kuberay-space"]


async def test_last_value_of_deleted_source_is_kept() -> None:
    async with start_environment(*VANILLA_CRDS, DSC_INITIALIZATION_CRD) as env:
        await env.create_namespace()
        settings = await env.create(dsci("apps"))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await wait_until_allowed(env, "apps")
            await env.delete(settings)
            await env.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await env.wait_until_idle()
            assert await allowed_kuberay_namespaces(env) == ["apps"]


async def test_pod_labels_and_other_dscinitializations_are_ignored() -> None:
    async with start_environment(*VANILLA_CRDS, DSC_INITIALIZATION_CRD) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await wait_until_allowed(env, "ray-system")
            labels = {"app.kubernetes.io/component": "kuberay-operator"}
            metadata = {"name": "kuberay-operator", "namespace": "ns", "labels": labels}
            spec = {"containers": [{"name": "c", "image": "i"}]}
            await env.create(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
            other = dsci("tenant")
            other["metadata"]["name"] = "another"
            await env.create(other)
            await env.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await env.wait_until_idle()
            assert await allowed_kuberay_namespaces(env) == ["ray-system"]


async def test_own_service_account_and_cluster_admins_are_not_treated_as_kuberay() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await env.create(kuberay_role())
        await env.create(kuberay_role("everything", apiGroups=["*"], resources=["*"], verbs=["*"]))
        await env.create(kuberay_role("reader", verbs=["get", "list"]))
        account = "codeflare-operator-controller-manager"
        await env.create(kuberay_role_binding("codeflare", "own", account=account))
        await env.create(kuberay_role_binding("admins", "admins", role="everything"))
        await env.create(kuberay_role_binding("readers", "readers", role="reader"))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await allowed_kuberay_namespaces(env) == ["ray-system"]
            for namespace in ("two", "one"):
                await env.create(kuberay_role_binding(namespace, namespace))
            await wait_until_allowed(env, "one", "two")


async def test_policy_of_kuberay_is_not_adopted() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster(version=None))
        spec = {"podSelector": {"matchLabels": {"ray.io/cluster": "rc"}}, "policyTypes": ["Egress"]}
        metadata = {
            "name": "rc-head",
            "namespace": "ns",
            "ownerReferences": [owner_reference(cluster)],
        }
        policy = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata,
            "spec": spec,
        }
        foreign = await env.create(policy)
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.wait_for_event("NameTaken", "NetworkPolicy rc-head")
            await env.wait_until_idle()
            assert await env.get(NETWORK_POLICY, "rc-head") == foreign
            await env.get(NETWORK_POLICY, "rc-workers")


def kuberay_policy(cluster: Object, group: str, *policy_types: str, **metadata: Any) -> Object:
    """Return the policy that KubeRay creates for the ``head`` or the ``workers`` of a RayCluster."""
    name = cluster["metadata"]["name"]
    labels = {
        "ray.io/cluster": name,
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    owners = [owner_reference(cluster)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"{name}-{group}",
            "namespace": "ns",
            "labels": labels,
            "ownerReferences": owners,
            **metadata,
        },
        "spec": {
            "podSelector": {"matchLabels": {"ray.io/cluster": name}},
            "policyTypes": list(policy_types),
        },
    }


async def test_policies_are_replaced_only_by_policies_that_kuberay_created() -> None:
    ours = {NAMES.head_policy, NAMES.workers_policy}
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster(workerGroupSpecs=[{"groupName": "a"}]))
            await env.wait_until_idle()
            await env.patch(cluster, {"spec": {"networkPolicy": {}}})
            await env.wait_for_event("KubeRayFeatureUnconfirmed", "networkPolicy")
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == ours
            await env.create(kuberay_policy(cluster, "head", "Egress"))
            await env.create(kuberay_policy(cluster, "workers", "Ingress", ownerReferences=[]))
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == ours
            await env.patch(
                kuberay_policy(cluster, "head"), {"spec": {"policyTypes": ["Ingress", "Egress"]}}
            )
            await wait_until_deleted(env, [(NETWORK_POLICY, NAMES.head_policy)])
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == {NAMES.workers_policy}
            metadata = {"metadata": {"ownerReferences": [owner_reference(cluster)]}}
            await env.patch(kuberay_policy(cluster, "workers"), metadata)
            await env.wait_for_event("NetworkPolicyByKubeRay", "networkPolicy")
            await wait_until_deleted(env, [(NETWORK_POLICY, NAMES.workers_policy)])
            await env.delete(kuberay_policy(cluster, "head"))
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == {NAMES.head_policy}
            await env.patch(cluster, {"spec": {"networkPolicy": None}})
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == ours
        await env.patch(cluster, {"spec": {"networkPolicy": {}}})
        await env.delete(kuberay_policy(cluster, "workers"))
        async with run_controllers(
            env, kuberay_config(**PLAIN_SETTINGS, kubeRayFeatures=["networkPolicy"])
        ):
            assert await env.child_names(NETWORK_POLICY) == ours
            groups = [{"groupName": "a"}, {"groupName": "b"}]
            await env.patch(cluster, {"spec": {"workerGroupSpecs": groups}})
            await env.create(kuberay_policy(cluster, "head", "Ingress", "Egress"))
            await env.create(kuberay_policy(cluster, "workers-a", "Ingress"))
            await wait_until_deleted(env, [(NETWORK_POLICY, NAMES.head_policy)])
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == {NAMES.workers_policy}
            await env.create(kuberay_policy(cluster, "workers-b", "Ingress"))
            await wait_until_deleted(env, [(NETWORK_POLICY, NAMES.workers_policy)])
            await env.patch(cluster, {"spec": {"workerGroupSpecs": [*groups, {"groupName": "c"}]}})
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == {NAMES.workers_policy}
            await env.patch(cluster, {"spec": {"networkPolicy": {"mode": "DenyAllEgress"}}})
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == ours


async def test_policy_that_kuberay_took_over_is_left_to_kuberay() -> None:
    """The policies of a cluster with old-style names have KubeRay's names."""
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster(version=None, networkPolicy={}))
            await env.wait_until_idle()
            ours = await env.get(NETWORK_POLICY, "rc-head")
            theirs = kuberay_policy(cluster, "head", "Ingress")
            ours["metadata"]["labels"] = theirs["metadata"]["labels"]
            taken = await env.client.update({**ours, "spec": theirs["spec"]})
            await env.wait_until_idle()
            assert await env.get(NETWORK_POLICY, "rc-head") == taken
            await env.patch(taken, {"spec": {"policyTypes": ["Egress"]}})
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == {NAMES.head_policy, "rc-workers"}
            assert (await env.get(NETWORK_POLICY, NAMES.head_policy))["spec"] == ours["spec"]
            await env.delete(taken)
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == {"rc-head", "rc-workers"}


async def test_policies_avoid_names_that_open_data_hub_uses() -> None:
    """Its KubeRay deletes ``<cluster>-head`` and ``<cluster>-workers`` of a cluster without networkIsolation."""
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster(version=None))
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == {"rc-head", "rc-workers"}
        ours = {NAMES.head_policy, NAMES.workers_policy}
        config = kuberay_config(**PLAIN_SETTINGS, kubeRayFeatures=["networkIsolation"])
        async with run_controllers(env, config):
            assert await env.child_names(NETWORK_POLICY) == ours
            await env.patch(cluster, {"spec": {"networkIsolation": {}}})
            await env.wait_for_event("KubeRayFeatureUnconfirmed", "networkIsolation")
            for group in ("head", "workers"):
                await env.create(kuberay_policy(cluster, group, "Ingress"))
            await env.wait_for_event("NetworkPolicyByOpenDataHub")
            await wait_until_deleted(env, [(NETWORK_POLICY, name) for name in sorted(ours)])
            await env.patch(cluster, {"spec": {"networkIsolation": None}})
            await env.wait_until_idle()
            assert await env.child_names(NETWORK_POLICY) == ours


async def test_policies_of_go_operator_are_adopted() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
        policy = await env.get(NETWORK_POLICY, NAMES.head_policy)
        await env.delete(policy)
        spec = {key: value for key, value in policy["spec"].items() if key != "policyTypes"}
        metadata = {
            key: policy["metadata"][key]
            for key in ("name", "namespace", "labels", "ownerReferences")
        }
        go_client = env.client.with_field_manager(FIELD_MANAGER)
        created = await go_client.apply(
            {
                **{key: policy[key] for key in ("apiVersion", "kind")},
                "metadata": metadata,
                "spec": spec,
            }
        )
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            adopted = await env.get(NETWORK_POLICY, NAMES.head_policy)
            assert adopted["metadata"]["uid"] == created["metadata"]["uid"]
            assert adopted["spec"] == policy["spec"]
            writes = [request for request in env.requests() if "networkpolicies" in request[1]]
            assert len(writes) <= 1
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert await env.get(NETWORK_POLICY, NAMES.head_policy) == adopted


async def test_suspended_clusters_have_policies_and_deleted_ones_get_none() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        held = ray_cluster("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster(suspend=True))
            await env.create(held)
            await env.wait_until_idle()
            assert NAMES.head_policy in await env.child_names(NETWORK_POLICY)
            await env.delete(held)
            name = names_of(held).head_policy
            await env.delete(await env.get(NETWORK_POLICY, name))
            await env.wait_until_idle()
            assert name not in await env.child_names(NETWORK_POLICY)


async def test_policy_that_is_too_large_for_the_cache_is_restored() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            (policy,) = [
                item
                for item in await env.client.list(NETWORK_POLICY)
                if "head" in item["metadata"]["name"]
            ]
            key, opened = key_of(policy), {"spec": {"ingress": [{}]}}
            await env.client.patch(
                NETWORK_POLICY, key, {"metadata": {"annotations": {"a": "x" * 70_000}}, **opened}
            )

            async def is_restored() -> bool:
                current = await env.client.get(NETWORK_POLICY, key)
                return current is not None and current["spec"] == policy["spec"]

            await eventually(is_restored, "the operator restores the policy")
