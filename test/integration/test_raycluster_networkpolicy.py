"""NetworkPolicies, and whose word says where the KubeRay operator comes from."""

from __future__ import annotations

import pytest

from cfo.api.raycluster.naming import FIELD_MANAGER, names_of
from cfo.runtime.kinds import NETWORK_POLICY
from cfo.runtime.objects import Object, owner_reference
from test.support.network_policies import NAMES, binding, let_in, operators, role
from test.support.raycluster_environment import (
    DSC_INITIALIZATIONS,
    OPENSHIFT,
    PLAIN,
    VANILLA,
    gone,
    kuberay,
    operating,
    ray_cluster,
    world,
)


def dsci(namespace: str) -> Object:
    return {
        "apiVersion": "dscinitialization.opendatahub.io/v1",
        "kind": "DSCInitialization",
        "metadata": {"name": "default-dsci"},
        "spec": {"applicationsNamespace": namespace},
    }


async def test_head_and_workers_get_a_policy() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
        async with operating(here, kuberay(**PLAIN)):
            cluster = await here.create(ray_cluster())
            await here.quiet()
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
    async with world(*VANILLA) as here:
        await here.namespace()
        async with operating(here, kuberay(**PLAIN, mTLSEnabled=mtls)):
            await here.create(ray_cluster())
            await here.quiet()
            policy = await here.get(NETWORK_POLICY, NAMES.head_policy)
            (to_all,) = [rule for rule in policy["spec"]["ingress"] if "from" not in rule]
            assert {port["port"] for port in to_all["ports"]} == ports


async def test_the_namespaces_of_ingress_controllers_can_be_named() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
        async with operating(here, kuberay(**PLAIN, mTLSEnabled=False, ingress={"namespaces": ["ingress-nginx"]})):
            await here.create(ray_cluster())
            await here.quiet()
            policy = await here.get(NETWORK_POLICY, NAMES.head_policy)
            (rule,) = [item for item in policy["spec"]["ingress"] if "ingress-nginx" in str(item)]
            assert {port["port"] for port in rule["ports"]} == {8265, 10001}
            (peer,) = rule["from"]
            assert "podSelector" not in peer


async def test_without_any_source_the_well_known_namespaces_are_let_in() -> None:
    for crds, expected in ((VANILLA, ["ray-system"]), (OPENSHIFT, ["opendatahub", "redhat-ods-applications"])):
        async with world(*crds) as here:
            await here.namespace()
            async with operating(here, kuberay(**PLAIN)):
                await here.create(ray_cluster())
                await here.quiet()
                assert await operators(here) == expected


async def test_the_configuration_comes_first() -> None:
    async with world(*VANILLA, DSC_INITIALIZATIONS) as here:
        await here.namespace()
        await here.create(dsci("apps"))
        async with operating(here, kuberay(**PLAIN, operatorNamespaces=["chosen", "also"])):
            await here.create(ray_cluster())
            await here.quiet()
            assert await operators(here) == ["chosen", "also"]


async def test_the_policy_follows_its_sources_and_stays_when_they_vanish() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
        async with operating(here, kuberay(**PLAIN)):
            await here.create(ray_cluster())
            await let_in(here, "ray-system")
            await here.create(role())
            await here.quiet()
            assert await operators(here) == ["ray-system"]
            bound = await here.create(binding("kuberay-space"))
            await let_in(here, "kuberay-space")
            await here.plane.install_crds(DSC_INITIALIZATIONS)
            settings = await here.create(dsci("apps"))
            await let_in(here, "apps")
            await here.patch(settings, {"spec": {"applicationsNamespace": "moved"}})
            await let_in(here, "moved")
            await here.delete(settings)
            await let_in(here, "kuberay-space")
            await here.delete(bound)
            await here.quiet()
            assert await operators(here) == ["kuberay-space"]
            await here.create(ray_cluster("newer"))
            await here.quiet()
            assert await operators(here, names_of(ray_cluster("newer")).head_policy) == ["kuberay-space"]


async def test_the_last_word_of_a_source_that_vanishes_stays() -> None:
    async with world(*VANILLA, DSC_INITIALIZATIONS) as here:
        await here.namespace()
        settings = await here.create(dsci("apps"))
        async with operating(here, kuberay(**PLAIN)):
            await here.create(ray_cluster())
            await let_in(here, "apps")
            await here.delete(settings)
            await here.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await here.quiet()
            assert await operators(here) == ["apps"]


async def test_labels_of_pods_and_other_dscinitializations_decide_nothing() -> None:
    async with world(*VANILLA, DSC_INITIALIZATIONS) as here:
        await here.namespace()
        async with operating(here, kuberay(**PLAIN)):
            await here.create(ray_cluster())
            await let_in(here, "ray-system")
            labels = {"app.kubernetes.io/component": "kuberay-operator"}
            metadata = {"name": "kuberay-operator", "namespace": "ns", "labels": labels}
            spec = {"containers": [{"name": "c", "image": "i"}]}
            await here.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            other = dsci("tenant")
            other["metadata"]["name"] = "another"
            await here.create(other)
            await here.patch(ray_cluster(), {"metadata": {"labels": {"touch": "1"}}})
            await here.quiet()
            assert await operators(here) == ["ray-system"]


async def test_this_operator_and_those_who_may_do_everything_are_not_kuberay() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
        await here.create(role())
        await here.create(role("everything", apiGroups=["*"], resources=["*"], verbs=["*"]))
        await here.create(role("reader", verbs=["get", "list"]))
        account = "codeflare-operator-controller-manager"
        await here.create(binding("codeflare", "us", account=account))
        await here.create(binding("admins", "admins", role="everything"))
        await here.create(binding("readers", "readers", role="reader"))
        async with operating(here, kuberay(**PLAIN)):
            await here.create(ray_cluster())
            await here.quiet()
            assert await operators(here) == ["ray-system"]
            for namespace in ("two", "one"):
                await here.create(binding(namespace, namespace))
            await let_in(here, "one", "two")


async def test_kuberays_own_policy_is_not_taken() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
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
        async with operating(here, kuberay(**PLAIN)):
            await here.event("NameTaken", "NetworkPolicy rc-head")
            await here.quiet()
            assert await here.get(NETWORK_POLICY, "rc-head") == theirs
            await here.get(NETWORK_POLICY, "rc-workers")
            await here.patch(cluster, {"spec": {"networkPolicy": {"mode": "DenyAll"}}})
            await gone(here, [(NETWORK_POLICY, "rc-workers")])
            await here.quiet()
            assert await here.get(NETWORK_POLICY, "rc-head") == theirs


async def test_kuberays_own_network_policy_makes_ours_step_aside() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
        async with operating(here, kuberay(**PLAIN)):
            cluster = await here.create(ray_cluster())
            await here.quiet()
            await here.patch(cluster, {"spec": {"networkPolicy": {"mode": "DenyAll"}}})
            await here.event("NetworkPolicyByKubeRay", "networkPolicy")
            await gone(here, [(NETWORK_POLICY, NAMES.head_policy), (NETWORK_POLICY, NAMES.workers_policy)])
            await here.patch(cluster, {"spec": {"networkPolicy": None}})
            await here.quiet()
            assert await here.names(NETWORK_POLICY) == {NAMES.head_policy, NAMES.workers_policy}


async def test_the_go_operators_policies_are_taken_over() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
        async with operating(here, kuberay(**PLAIN)):
            await here.create(ray_cluster())
            await here.quiet()
        policy = await here.get(NETWORK_POLICY, NAMES.head_policy)
        await here.delete(policy)
        spec = {key: value for key, value in policy["spec"].items() if key != "policyTypes"}
        metadata = {key: policy["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
        go = here.client.with_field_manager(FIELD_MANAGER)
        made = await go.apply(
            {**{key: policy[key] for key in ("apiVersion", "kind")}, "metadata": metadata, "spec": spec}
        )
        async with operating(here, kuberay(**PLAIN)):
            adopted = await here.get(NETWORK_POLICY, NAMES.head_policy)
            assert adopted["metadata"]["uid"] == made["metadata"]["uid"]
            assert adopted["spec"] == policy["spec"]
            written = [request for request in here.requests() if "networkpolicies" in request[1]]
            assert len(written) <= 1
        async with operating(here, kuberay(**PLAIN)):
            assert await here.get(NETWORK_POLICY, NAMES.head_policy) == adopted


async def test_suspended_clusters_have_policies_deleted_ones_get_none() -> None:
    async with world(*VANILLA) as here:
        await here.namespace()
        held = ray_cluster("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with operating(here, kuberay(**PLAIN)):
            await here.create(ray_cluster(suspend=True))
            await here.create(held)
            await here.quiet()
            assert NAMES.head_policy in await here.names(NETWORK_POLICY)
            await here.delete(held)
            name = names_of(held).head_policy
            await here.delete(await here.get(NETWORK_POLICY, name))
            await here.quiet()
            assert name not in await here.names(NETWORK_POLICY)
