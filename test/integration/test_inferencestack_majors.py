"""Operators of several major versions: one Lease for each, and reports of stacks that none or several reconcile."""

from __future__ import annotations

import pytest

from cfo.controllers.inferencestack import claims
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.controller.lifecycle import RunnableFailed
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import CUSTOM_RESOURCE_DEFINITION, EVENT, LEASE
from cfo.runtime.objects.unstructured import NamespacedName
from test.support.inference_environment import (
    STACK,
    InferenceEnvironment,
    condition,
    election,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.planes import local_config
from test.support.raycluster_environment import eventually


async def unclaimed(manager: Manager) -> dict[tuple[str, ...], float]:
    """Return the values of the metric ``inferencestack_unclaimed`` by its labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for metric in manager.metrics.registry.collect()
        if metric.name == "inferencestack_unclaimed"
        for sample in metric.samples
    }


async def test_one_operator_of_a_major_version_reconciles() -> None:
    """Scenario k: a second operator of the version waits, and takes over when the first has stopped."""
    exchanges: list[Exchange] = []
    async with (
        start_inference_environment() as env,
        Transport(local_config(env.plane), observe=exchanges.append) as transport,
        run_inference_controllers(env, election=election("first", "ns")) as first,
    ):
        await env.create(new_stack({"a": {}}))
        await env.wait_for_condition("Ready", "True")
        assert (await env.get(LEASE, "inference-stack-operator-v2"))["spec"][
            "holderIdentity"
        ] == "first"
        async with run_inference_controllers(
            env, election=election("second", "ns"), transport=transport
        ) as second:
            await env.change(applications={"b": {}})
            await env.wait_for(
                lambda obj: obj["status"].get("readyApplications") == "2/2", "the first is active"
            )
            assert (first.is_leader, second.is_leader) == (True, True), "each of its own replicas"
            assert [item.verb for item in exchanges if item.verb == "apply"] == []
            first.stop()
            await env.change(applications={"c": {}})
            await env.wait_for(
                lambda obj: obj["status"].get("readyApplications") == "3/3", "the second took over"
            )
            assert (await env.get(LEASE, "inference-stack-operator-v2"))["spec"][
                "holderIdentity"
            ] == "second"


async def lose_lease(env: InferenceEnvironment) -> None:
    """Run an operator until another one has taken its Lease."""
    async with run_inference_controllers(env, election=election("first", "ns")) as manager:
        await env.create(new_stack({}))
        await env.wait_for_condition("Ready", "True")
        await env.patch(
            await env.get(LEASE, "inference-stack-operator-v2"),
            {"spec": {"holderIdentity": "thief"}},
        )

        async def is_stopping() -> bool:
            return "stopping" in str(await manager.health.failures())

        await eventually(is_stopping, "the operator stops")


async def test_operator_stops_when_it_loses_the_lease_of_its_major_version() -> None:
    async with start_inference_environment() as env:
        with pytest.raises(
            RunnableFailed, match="inference-stack-operator-v2 was acquired by thief"
        ):
            await lose_lease(env)


async def test_unclaimed_stacks_are_reported_by_one_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims, "GRACE_SECONDS", 0.3)
    async with start_inference_environment() as env:
        await env.create_namespace("other")
        for name, namespace in (("one", "ns"), ("two", "ns"), ("three", "other")):
            await create_operator_pod(env, name, namespace)
        for name, version in (("unlabelled", ""), ("future", "v7"), ("served", "v2")):
            await env.create(new_stack({}, name=name, version=version))
        async with (
            run_inference_controllers(env, "v2", election=election("two", "ns")) as higher,
            run_inference_controllers(env, "v1", election=election("one", "ns")) as lower,
        ):
            await env.wait_for_event("Unclaimed", "label operatorVersion is not set", "Running: ")
            await env.wait_for_event("Unclaimed", "No operator of version v7 is running")
            await eventually_unclaimed(env, higher, {("ns", "Unclaimed"): 2.0})
            await eventually_unclaimed(env, lower, {})
            await env.wait_for_condition("Claimed", "False", "Unclaimed", name="future")
            await env.wait_for_condition("Claimed", "False", "Unclaimed", name="unlabelled")
            await env.label("v1", "unlabelled")
            await env.wait_for_condition("Ready", "True", name="unlabelled")
            await eventually_unclaimed(env, higher, {("ns", "Unclaimed"): 1.0})
            await wait_until_claimed(env, "unlabelled")
            async with run_inference_controllers(
                env, "v2", election=election("three", "other")
            ) as twice:
                await env.wait_for_event("ClaimedTwice", "version v2: ns, other")
                assert await unclaimed(twice) == {}
                await env.wait_for_condition("Claimed", "False", "ClaimedTwice", name="served")
                assert condition(await env.stack("served"), "Ready")["status"] == "True"
            await eventually_unclaimed(env, higher, {("ns", "Unclaimed"): 1.0})
            await wait_until_claimed(env, "served")
        reported = {
            item["regarding"]["name"]
            for item in await env.client.list(EVENT, namespace="ns")
            if item["reason"] == "Unclaimed"
        }
        assert reported == {"unlabelled", "future"}


async def create_operator_pod(env: InferenceEnvironment, name: str, namespace: str) -> None:
    """Create the pod of an operator, whose service account has all permissions."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    await env.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        }
    )
    await env.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [account],
        }
    )
    await create_pod(env, name, namespace, serviceAccountName=name)


async def create_pod(env: InferenceEnvironment, name: str, namespace: str, **spec: str) -> None:
    containers = [{"name": "main", "image": "image"}]
    metadata = {"name": name, "namespace": namespace}
    await env.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": containers, **spec},
        }
    )


async def test_stack_that_the_cache_leaves_out_is_reported_when_its_operator_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stack does not change, so only the end of the Lease can cause the report."""
    monkeypatch.setattr(claims, "GRACE_SECONDS", 0.2)
    async with (
        start_inference_environment() as env,
        run_inference_controllers(
            env, "v2", election=election("two", "ns"), namespace_bytes=100_000
        ) as manager,
    ):
        async with run_inference_controllers(env, "v1", election=election("one", "ns")):
            stack = new_stack({}, name="old", version="v1")
            stack["metadata"]["annotations"] = {"long": "x" * 200_000}
            await env.create(stack)
            await env.wait_for_condition("Ready", "True", name="old")
            await env.wait_until_idle()
            assert not condition(await env.stack("old"), "Claimed")
        await env.wait_for_condition("Claimed", "False", "Unclaimed", name="old")
        for informer in manager.cache.informers:
            if informer.gvk == STACK:
                assert not informer.reader.contains(NamespacedName("ns", "old"))


async def test_leases_that_tenants_create_change_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role ``edit`` allows it: neither are stacks of others reported, nor does the operator stop to report."""
    monkeypatch.setattr(claims, "GRACE_SECONDS", 0.2)
    async with start_inference_environment() as env:
        await env.create_namespace("a-tenant")
        await create_pod(env, "pod", "a-tenant")
        for version in ("v2", "v3", "v999999"):
            await env.create(
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {
                        "name": f"inference-stack-operator-{version}",
                        "namespace": "a-tenant",
                        "labels": {"app.kubernetes.io/part-of": "inference-stack-operator"},
                    },
                    "spec": {"holderIdentity": "pod_1", "leaseDurationSeconds": 2**31 - 1},
                }
            )
        for name, version in (("served", "v2"), ("newer", "v3")):
            await env.create(new_stack({}, name=name, version=version))
        async with run_inference_controllers(env, election=election("one", "ns")):
            await env.wait_for_condition("Claimed", "False", "Unclaimed", name="newer")
            await env.wait_for_condition("Ready", "True", name="served")
            assert not condition(await env.stack("served"), "Claimed")


async def test_reports_outlive_the_operator_and_end_when_a_new_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restarted operator writes nothing to stacks that have been reported, and ends the reports of others."""
    monkeypatch.setattr(claims, "GRACE_SECONDS", 0.2)
    async with start_inference_environment() as env:
        for name, version in (("unlabelled", ""), ("newer", "v3")):
            await env.create(new_stack({}, name=name, version=version))
        async with run_inference_controllers(env, election=election("one", "ns")):
            for name in ("unlabelled", "newer"):
                await env.wait_for_condition("Claimed", "False", "Unclaimed", name=name)
        before = await env.stack("unlabelled")
        async with run_inference_controllers(env, election=election("one", "ns")) as manager:
            await eventually_unclaimed(env, manager, {("ns", "Unclaimed"): 2.0})
            await env.wait_until_idle()
            assert env.writes() == [], "reported before"
            async with run_inference_controllers(env, "v3", election=election("three", "ns")):
                await wait_until_claimed(env, "newer")
                await env.wait_for_condition("Ready", "True", name="newer")
                # While it runs: afterwards, "newer" is reported again.
                notes = [
                    item
                    for item in await env.client.list(EVENT, namespace="ns")
                    if item["reason"] == "Unclaimed"
                ]
        assert await env.stack("unlabelled") == before
        assert len(notes) == 2, "no second Event of the restarted operator"


async def test_condition_is_not_written_to_conditions_that_another_client_owns_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the CRD of the original operator, which has no schema, conditions are an atomic list."""
    monkeypatch.setattr(claims, "GRACE_SECONDS", 0.2)
    async with start_inference_environment() as env:
        crd = await env.get(CUSTOM_RESOURCE_DEFINITION, "inferencestacks.doublewordai.co", "")
        (version,) = crd["spec"]["versions"]
        version["schema"]["openAPIV3Schema"] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
        await env.client.update(crd)
        await env.create(new_stack({}))
        status = {"conditions": [{"type": "Deployed", "status": "True"}]}
        await env.client.patch(
            STACK, NamespacedName("ns", "s"), {"status": status}, subresource="status"
        )
        async with run_inference_controllers(env, "v1", election=election("one", "ns")):
            await env.wait_for_event("Unclaimed", "No operator of version v2")
            await env.wait_until_idle()
        assert (await env.stack())["status"] == status


async def wait_until_claimed(env: InferenceEnvironment, name: str) -> None:
    await env.wait_for(lambda obj: not condition(obj, "Claimed"), "Claimed is removed", name=name)


async def eventually_unclaimed(
    env: InferenceEnvironment, manager: Manager, expected: dict[tuple[str, ...], float]
) -> None:
    async def check() -> bool:
        found = await unclaimed(manager)
        assert found == expected, found
        return True

    await eventually(check, "the metric")


async def test_operator_without_leader_election_reports_stacks_that_no_operator_of_their_version_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator that has no Lease either is known by the status that it writes."""
    monkeypatch.setattr(claims, "GRACE_SECONDS", 0.3)
    async with start_inference_environment() as env:
        await env.create(new_stack({}, name="taken", version="v1"))
        async with run_inference_controllers(env, "v1"):
            await env.wait_for_condition("Ready", "True", name="taken")
        for name, version in (("future", "v9"), ("served", "v2"), ("left", "v2"), ("bare", "v2")):
            await env.create(new_stack({}, name=name, version=version))
        async with run_inference_controllers(env, "v2") as manager:
            for name in ("served", "left", "bare"):
                await env.wait_for_condition("Ready", "True", name=name)
            await env.label("v8", "left")
            await env.label(None, "bare")
            for name in ("future", "left", "bare"):
                await env.wait_for_condition("Claimed", "False", "Unclaimed", name=name)
            await env.wait_for_event("Unclaimed", "No operator of version v9 is running", "to: v2")
            await env.wait_for_event("Unclaimed", "No operator of version v8 is running", "to: v2")
            await eventually_unclaimed(env, manager, {("ns", "Unclaimed"): 3.0})
            assert not condition(await env.stack("taken"), "Claimed")
            for name in ("future", "left", "bare"):
                await env.label("v2", name)
                await env.wait_for_condition("Ready", "True", name=name)
                await wait_until_claimed(env, name)
            await eventually_unclaimed(env, manager, {})
