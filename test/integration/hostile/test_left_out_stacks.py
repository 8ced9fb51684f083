"""Tests that InferenceStacks that the cache leaves out are reconciled like others, and only by their operator."""

from __future__ import annotations

from cfo.api.inferencestack.names import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL
from cfo.runtime import DEPLOYMENT, POD, Manager, NamespacedName, Object
from test.support.inference_environment import (
    KEDA_CRD,
    STACK,
    InferenceEnvironment,
    condition,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.raycluster_environment import eventually

BUDGET = 100_000
"""The budget of each namespace in bytes: a large stack does not fit, its objects do."""

UNREADY = {"podAnnotations": {"envtest.cfo/ready": "false"}}
APPLICATION = "s-inference-stack-a"


def large_stack(name: str = "s", version: str = "v2", replicas: int = 1) -> Object:
    """Return a stack that the cache leaves out."""
    stack = new_stack({"a": {**UNREADY, "replicaCount": replicas}}, name=name, version=version)
    stack["metadata"]["annotations"] = {"long": "x" * 2 * BUDGET}
    return stack


def check_left_out(manager: Manager, name: str = "s") -> None:
    """Check that no informer has the stack."""
    informers = [informer for informer in manager.cache.informers if informer.gvk == STACK]
    assert informers
    for informer in informers:
        assert not informer.reader.contains(NamespacedName("ns", name))
        assert not informer.reader.is_complete("ns")


async def pod_of_application(env: InferenceEnvironment) -> Object:
    async def pod() -> Object | None:
        labels = f"{COMPONENT_LABEL}=application-a,{INSTANCE_LABEL}=s"
        return next(iter(await env.client.list(POD, namespace="ns", label_selector=labels)), None)

    found: Object = await eventually(pod, "the pod of the application")
    return found


async def test_left_out_stack_is_reconciled_and_its_conditions_are_written() -> None:
    async with start_inference_environment(KEDA_CRD) as env:
        async with run_inference_controllers(env, namespace_bytes=BUDGET) as manager:
            await env.create(large_stack())
            await env.wait_for_condition("Ready", "False", "ApplicationsNotReady")
            pod = await pod_of_application(env)
            status = {"reason": "Evicted", "phase": "Failed"}
            await env.patch(pod, {"status": status}, subresource="status")
            await env.wait_for_condition("Degraded", "True", "Evicted")
            await env.change(applications={"a": {"replicaCount": 2}})
            await wait_for_replicas(env, 2)
            await env.wait_until_idle()
            check_left_out(manager)
        await env.change(applications={"a": {"replicaCount": 3}})
        async with run_inference_controllers(env, namespace_bytes=BUDGET) as manager:
            await wait_for_replicas(env, 3)
            await env.wait_until_idle()
            check_left_out(manager)
            env.clear_requests()
            await env.client.delete(STACK, NamespacedName("ns", "s"))
            await env.wait_until_idle()
            assert env.writes() == []


async def wait_for_replicas(env: InferenceEnvironment, number: int) -> None:
    async def has_replicas() -> bool:
        deployment = await env.client.get(DEPLOYMENT, NamespacedName("ns", APPLICATION))
        return deployment is not None and deployment["spec"]["replicas"] == number

    await eventually(has_replicas, f"{number} replicas")


async def test_stack_is_reconciled_if_its_objects_are_left_out_too() -> None:
    async with (
        start_inference_environment() as env,
        run_inference_controllers(env, namespace_bytes=1) as manager,
    ):
        await env.create(large_stack())
        await wait_for_replicas(env, 1)
        await env.wait_for_condition("Deployed", "True")
        await env.wait_until_idle()
        check_left_out(manager)


async def test_left_out_stack_is_reconciled_when_an_optional_kind_is_served() -> None:
    async with (
        start_inference_environment() as env,
        run_inference_controllers(env, namespace_bytes=BUDGET) as manager,
    ):
        stack = large_stack()
        limits = {"minReplicaCount": 1, "maxReplicaCount": 2}
        stack["spec"]["applications"]["a"]["scaling"] = {"enabled": True, "spec": limits}
        await env.create(stack)
        await env.wait_for_condition("ScalingReady", "False", "KEDANotInstalled")
        await env.create(KEDA_CRD)
        await env.wait_for(
            lambda found: condition(found, "ScalingReady").get("reason") != "KEDANotInstalled",
            "the kind is served",
        )
        check_left_out(manager)


async def test_operator_leaves_a_left_out_stack_of_another_version_unchanged() -> None:
    async with (
        start_inference_environment() as env,
        run_inference_controllers(env, namespace_bytes=BUDGET) as manager,
    ):
        await env.create(large_stack("own"))
        await env.wait_for_condition("Ready", "False", name="own")
        stack = await env.create(large_stack(version="v1"))
        await env.wait_until_idle()
        env.clear_requests()
        await fail(env, "s")
        await env.wait_until_idle()
        check_left_out(manager)
        assert ("get", "inferencestacks.doublewordai.co") not in env.requests()
        assert env.writes() == []
        assert await env.stack() == stack


def labelled_pod(stack: str) -> Object:
    """Return a pod with the labels of a stack's pods, which fails."""
    labels = {NAME_LABEL: "inference-stack", COMPONENT_LABEL: "gateway", INSTANCE_LABEL: stack}
    container = {"name": "c", "image": "i"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-of-{stack or 'none'}", "namespace": "ns", "labels": labels},
        "spec": {"containers": [container]},
        "status": {"phase": "Failed", "reason": "Evicted"},
    }


async def test_no_stack_is_read_from_the_api_server_while_none_is_left_out() -> None:
    async with start_inference_environment() as env, run_inference_controllers(env):
        await env.create(new_stack({"a": {}}))
        await env.wait_for_condition("Deployed", "True")
        await fail(env, "s")
        await fail(env, "missing")
        await env.wait_until_idle()
        await env.client.delete(STACK, NamespacedName("ns", "s"))
        await env.wait_until_idle()
        assert ("get", "inferencestacks.doublewordai.co") not in env.requests()


async def test_events_about_missing_stacks_read_none_while_one_is_left_out() -> None:
    async with (
        start_inference_environment() as env,
        run_inference_controllers(env, namespace_bytes=BUDGET),
    ):
        await env.create(large_stack())
        await env.wait_for_condition("Deployed", "True")
        await env.wait_until_idle()
        env.clear_requests()
        for number in range(5):
            await fail(env, f"missing-{number}")
        await fail(env, "")
        await env.wait_until_idle()
        reads = env.requests().count(("get", "inferencestacks.doublewordai.co"))
        assert reads == 0, "those that are left out are known by name"


async def fail(env: InferenceEnvironment, stack: str) -> None:
    """Create a pod of a stack, and let it fail."""
    pod = labelled_pod(stack)
    stored = await env.create(pod)
    await env.patch(stored, {"status": pod["status"]}, subresource="status")
