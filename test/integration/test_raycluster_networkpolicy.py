"""NetworkPolicies, and whose word says where the KubeRay operator comes from."""

from __future__ import annotations

import pytest

from cfo.api.raycluster.naming import FIELD_MANAGER, names_of
from cfo.runtime.kinds import NETWORK_POLICY
from cfo.runtime.objects import Object, owner_reference
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
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)


def dsci(namespace: str) -> Object:
    return {
        "apiVersion": "dscinitialization.opendatahub.io/v1",
        "kind": "DSCInitialization",
        "metadata": {"name": "default-dsci"},
        "spec": {"applicationsNamespace": namespace},
    }


async def test_head_and_workers_get_a_policy() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            head = await here.get(NETWORK_POLICY, NAMES.head_policy)
            workers = await here.get(NETWORK_POLICY, NAMES.workers_policy)
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


@pytest.mark.parametrize(("mtls", "ports"), [(True, {8443, 10001}), (False, {8443})])
async def test_the_client_port_is_open_to_everybody_only_with_mtls(mtls: bool, ports: set[int]) -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS, mTLSEnabled=mtls)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            policy = await here.get(NETWORK_POLICY, NAMES.head_policy)
            (to_all,) = [rule for rule in policy["spec"]["ingress"] if "from" not in rule]
            assert {port["port"] for port in to_all["ports"]} == ports


async def test_the_namespaces_of_ingress_controllers_can_be_named() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(
            here, kuberay_config(**PLAIN_SETTINGS, mTLSEnabled=False, ingress={"namespaces": ["ingress-nginx"]})
        ):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            policy = await here.get(NETWORK_POLICY, NAMES.head_policy)
            (rule,) = [item for item in policy["spec"]["ingress"] if "ingress-nginx" in str(item)]
            assert {port["port"] for port in rule["ports"]} == {8265, 10001}
            (peer,) = rule["from"]
            assert "podSelector" not in peer


async def test_without_any_source_the_well_known_namespaces_are_let_in() -> None:
    for crds, expected in (
        (VANILLA_CRDS, ["ray-system"]),
        (OPENSHIFT_CRDS, ["opendatahub", "redhat-ods-applications"]),
    ):
        async with start_environment(*crds) as here:
            await here.create_namespace()
            async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
                await here.create(ray_cluster())
                await here.wait_until_idle()
                assert await allowed_kuberay_namespaces(here) == expected


async def test_the_configuration_comes_first() -> None:
    async with start_environment(*VANILLA_CRDS, DSC_INITIALIZATION_CRD) as here:
        await here.create_namespace()
        await here.create(dsci("apps"))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS, operatorNamespaces=["chosen", "also"])):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            assert await allowed_kuberay_namespaces(here) == ["chosen", "also"]


async def test_the_policy_follows_its_sources_and_stays_when_they_vanish() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await wait_until_allowed(here, "ray-system")
            await here.create(kuberay_role())
            await here.wait_until_idle()
            assert await allowed_kuberay_namespaces(here) == ["ray-system"]
            bound = await here.create(kuberay_role_binding("kuberay-space"))
            await wait_until_allowed(here, "kuberay-space")
            await here.plane.install_crds(DSC_INITIALIZATION_CRD)
            settings = await here.create(dsci("apps"))
            await wait_until_allowed(here, "apps")
            await here.patch(settings, {"spec": {"applicationsNamespace": "moved"}})
            await wait_until_allowed(here, "moved")
            await here.delete(settings)
            await wait_until_allowed(here, "kuberay-space")
            await here.delete(bound)
            await here.wait_until_idle()
            assert await allowed_kuberay_namespaces(here) == ["kuberay-space"]
            await here.create(ray_cluster("newer"))
            await here.wait_until_idle()
            assert await allowed_kuberay_namespaces(here, names_of(ray_cluster("newer")).head_policy) == [
                "kuberay-space"
            ]


async def test_the_last_word_of_a_source_that_vanishes_stays() -> None:
    async with start_environment(*VANILLA_CRDS, DSC_INITIALIZATION_CRD) as here:
        await here.create_namespace()
        settings = await here.create(dsci("apps"))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await wait_until_allowed(here, "apps")
            await here.delete(settings)
            await here.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await here.wait_until_idle()
            assert await allowed_kuberay_namespaces(here) == ["apps"]


async def test_labels_of_pods_and_other_dscinitializations_decide_nothing() -> None:
    async with start_environment(*VANILLA_CRDS, DSC_INITIALIZATION_CRD) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await wait_until_allowed(here, "ray-system")
            labels = {"app.kubernetes.io/component": "kuberay-operator"}
            metadata = {"name": "kuberay-operator", "namespace": "ns", "labels": labels}
            spec = {"containers": [{"name": "c", "image": "i"}]}
            await here.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            other = dsci("tenant")
            other["metadata"]["name"] = "another"
            await here.create(other)
            await here.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await here.wait_until_idle()
            assert await allowed_kuberay_namespaces(here) == ["ray-system"]


async def test_this_operator_and_those_who_may_do_everything_are_not_kuberay() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        await here.create(kuberay_role())
        await here.create(kuberay_role("everything", apiGroups=["*"], resources=["*"], verbs=["*"]))
        await here.create(kuberay_role("reader", verbs=["get", "list"]))
        account = "codeflare-operator-controller-manager"
        await here.create(kuberay_role_binding("codeflare", "us", account=account))
        await here.create(kuberay_role_binding("admins", "admins", role="everything"))
        await here.create(kuberay_role_binding("readers", "readers", role="reader"))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            assert await allowed_kuberay_namespaces(here) == ["ray-system"]
            for namespace in ("two", "one"):
                await here.create(kuberay_role_binding(namespace, namespace))
            await wait_until_allowed(here, "one", "two")


async def test_kuberays_own_policy_is_not_taken() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        cluster = await here.create(ray_cluster(version=None))
        spec = {"podSelector": {"matchLabels": {"ray.io/cluster": "rc"}}, "policyTypes": ["Egress"]}
        metadata = {"name": "rc-head", "namespace": "ns", "ownerReferences": [owner_reference(cluster)]}
        policy = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata,
            "spec": spec,
        }
        theirs = await here.create(policy)
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.wait_for_event("NameTaken", "NetworkPolicy rc-head")
            await here.wait_until_idle()
            assert await here.get(NETWORK_POLICY, "rc-head") == theirs
            await here.get(NETWORK_POLICY, "rc-workers")
            await here.patch(cluster, {"spec": {"networkPolicy": {"mode": "DenyAll"}}})
            await wait_until_deleted(here, [(NETWORK_POLICY, "rc-workers")])
            await here.wait_until_idle()
            assert await here.get(NETWORK_POLICY, "rc-head") == theirs


async def test_kuberays_own_network_policy_makes_ours_step_aside() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            await here.patch(cluster, {"spec": {"networkPolicy": {"mode": "DenyAll"}}})
            await here.wait_for_event("NetworkPolicyByKubeRay", "networkPolicy")
            await wait_until_deleted(
                here, [(NETWORK_POLICY, NAMES.head_policy), (NETWORK_POLICY, NAMES.workers_policy)]
            )
            await here.patch(cluster, {"spec": {"networkPolicy": None}})
            await here.wait_until_idle()
            assert await here.child_names(NETWORK_POLICY) == {NAMES.head_policy, NAMES.workers_policy}


async def test_the_go_operators_policies_are_taken_over() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
        policy = await here.get(NETWORK_POLICY, NAMES.head_policy)
        await here.delete(policy)
        spec = {key: value for key, value in policy["spec"].items() if key != "policyTypes"}
        metadata = {key: policy["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
        go = here.client.with_field_manager(FIELD_MANAGER)
        made = await go.apply(
            {**{key: policy[key] for key in ("apiVersion", "kind")}, "metadata": metadata, "spec": spec}
        )
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            adopted = await here.get(NETWORK_POLICY, NAMES.head_policy)
            assert adopted["metadata"]["uid"] == made["metadata"]["uid"]
            assert adopted["spec"] == policy["spec"]
            written = [request for request in here.requests() if "networkpolicies" in request[1]]
            assert len(written) <= 1
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            assert await here.get(NETWORK_POLICY, NAMES.head_policy) == adopted


async def test_suspended_clusters_have_policies_deleted_ones_get_none() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        held = ray_cluster("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster(suspend=True))
            await here.create(held)
            await here.wait_until_idle()
            assert NAMES.head_policy in await here.child_names(NETWORK_POLICY)
            await here.delete(held)
            name = names_of(held).head_policy
            await here.delete(await here.get(NETWORK_POLICY, name))
            await here.wait_until_idle()
            assert name not in await here.child_names(NETWORK_POLICY)
