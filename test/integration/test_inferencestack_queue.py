"""InferenceStacks in a queue of Kueue: no pod runs without quota, and the status says what waits and why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from cfo.console.demo import kueue_queues
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import DEPLOYMENT
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of
from test.support.config_map_webhooks import OPTIONS, free_url
from test.support.inference_environment import (
    STACK,
    InferenceEnvironment,
    condition,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.kueue_pods import GATE, QUEUE, DeploymentDefaulter, PodsInQueue, is_gated
from test.support.kueue_queue import kueue_crds
from test.support.planes import local_config
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

KEY = NamespacedName("ns", "s")
APPLICATION = NamespacedName("ns", "s-inference-stack-a")
GATEWAY = NamespacedName("ns", "s-inference-stack-gateway")


def queued_stack(queue: str = "team", version: str = "v2", **application: Any) -> Object:
    obj = new_stack({"a": application}, version=version)
    obj["metadata"]["labels"][QUEUE] = queue
    return obj


@asynccontextmanager
async def run_kueue_webhook(env: InferenceEnvironment) -> AsyncIterator[None]:
    """Let Kueue's webhook change the Deployments until the end of the block."""
    options = ManagerOptions(field_manager="kueue", webhook=replace(OPTIONS, url=free_url()))
    target = local_config(env.plane)
    async with Transport(target) as transport:
        manager = Manager(transport, options)
        manager.webhooks.register(
            DEPLOYMENT, defaulter=DeploymentDefaulter(), defaulter_name="mdeployment.kueue.test"
        )
        async with manager:
            await manager.started()
            yield


async def wait_for_pods(queue: PodsInQueue, number: int) -> list[Object]:
    async def check() -> list[Object]:
        pods = await queue.pods()
        assert len(pods) == number
        return pods

    found: list[Object] = await eventually(check, f"{number} pods in the queue")
    return found


async def wait_for_no_pods(queue: PodsInQueue) -> None:
    async def check() -> bool:
        return not await queue.pods()

    await eventually(check, "no pod in the queue")


async def application_state(env: InferenceEnvironment) -> tuple[str, str]:
    (found,) = (await env.stack())["status"]["applications"]
    return found["state"], found["message"]


async def test_pods_of_a_stack_run_within_the_quota_of_its_queue() -> None:
    """With Workloads, if there are CRDs of Kueue; all other tests have none."""
    has_workloads = GOLDEN.is_dir()
    crds = kueue_crds() if has_workloads else ()
    async with start_inference_environment(*crds) as env, run_kueue_webhook(env):
        queue = PodsInQueue(env, "team", quota=2, has_workloads=has_workloads)
        await env.create(queued_stack(replicaCount=2))
        async with run_inference_controllers(env):
            pods = await wait_for_pods(queue, 3)
            assert all(map(is_gated, pods)), "no pod runs before it has quota"
            await env.wait_for_condition("QuotaReserved", "False", "WaitingForKueue")
            await env.wait_for(
                lambda stack: (
                    condition(stack, "QuotaReserved")["message"]
                    == "gateway: 1 of 1 pods wait for quota in the LocalQueue team; "
                    "application a: 2 of 2 pods wait for quota in the LocalQueue team"
                ),
                "all pods wait",
            )
            ready = await env.wait_for_condition("Ready", "False", "WaitingForKueue")
            assert "gateway: WaitingForKueue" in ready["message"]
            assert condition(await env.stack(), "Degraded")["status"] == "False"

            await queue.schedule()
            # Names are in the order of their Deployments, so the application has both.
            await env.wait_for(
                lambda stack: (
                    condition(stack, "QuotaReserved")["message"]
                    == "gateway: 1 of 1 pods wait for quota in the LocalQueue team"
                ),
                "the gateway waits",
            )
            queue.quota = 3
            await queue.schedule()
            await env.wait_for_condition("Ready", "True")
            admitted = await env.wait_for_condition("QuotaReserved", "True", "AdmittedByKueue")
            assert admitted["message"] == "3 pods have quota"
            assert condition(await env.stack(), "Evicted") == {}
            if has_workloads:
                assert len(await queue.workloads()) == 3


async def test_kueues_changes_of_a_deployment_are_not_written_again() -> None:
    async with start_inference_environment() as env, run_kueue_webhook(env):
        queue = PodsInQueue(env, "team", quota=9, has_workloads=False)
        await env.create(queued_stack())
        async with run_inference_controllers(env):
            await wait_for_pods(queue, 2)
            await queue.schedule()
            await env.wait_for_condition("Ready", "True")
            deployment = await env.client.get(DEPLOYMENT, APPLICATION, live=True)
            assert deployment is not None
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert labels["kueue.x-k8s.io/managed"] == "true", "the webhook was called"
            generations = await env.generations()
        async with run_inference_controllers(env):
            annotation = {"metadata": {"annotations": {"note": "reconcile"}}}
            await env.client.patch(STACK, KEY, annotation)
            await env.change(applications={"b": {}})
            await wait_for_pods(queue, 3)
            after = await env.generations()
            assert {name: after[name] for name in generations} == generations


async def test_pods_wait_for_quota_after_each_change_of_a_running_stack() -> None:
    async with start_inference_environment() as env:
        queue = PodsInQueue(env, "team", quota=2, has_workloads=False)
        await env.create(queued_stack(terminationGracePeriodSeconds=1))
        async with run_inference_controllers(env):
            await wait_for_pods(queue, 2)
            await queue.schedule()
            await env.wait_for_condition("Ready", "True")
            await check_preemption(env, queue)
            await check_rollout(env, queue)
            await check_scaling(env, queue)
            await check_change_of_queue(env, queue)


async def check_preemption(env: InferenceEnvironment, queue: PodsInQueue) -> None:
    """A preempted pod is replaced by one that waits, and the reason is reported."""
    admitted = await queue.admitted()
    (victim,) = [pod for pod in admitted if name_of(pod).startswith(APPLICATION.name)]
    await queue.preempt(victim)
    evicted = await env.wait_for_condition("Evicted", "True", "Preempted")
    assert "higher priority" in evicted["message"]
    await queue.terminate(victim)
    await env.wait_for_condition("QuotaReserved", "False", "WaitingForKueue")
    await wait_for_pods(queue, 2)
    await env.wait_for(
        lambda stack: stack["status"]["applications"][0]["state"] == "Waiting", "Waiting"
    )
    assert condition(await env.stack(), "Evicted")["status"] == "True"
    await queue.schedule()
    await env.wait_for_condition("Evicted", "False", "AdmittedByKueue")
    await env.wait_for_condition("Ready", "True")
    events = await env.events()
    assert [kind for kind, reason, _ in events if reason == "Evicted"] == ["Normal"]


async def check_rollout(env: InferenceEnvironment, queue: PodsInQueue) -> None:
    """In a full queue, a new pod takes the quota of an old one."""
    before = await queue.schedule()
    await env.change(applications={"a": {"podAnnotations": {"note": "new"}}})

    async def is_replaced() -> bool:
        after = await queue.schedule()
        assert len(after) == 2
        assert after != before
        return True

    await eventually(is_replaced, "the new pod takes the quota of the old one")
    await env.wait_for_condition("Ready", "True")


async def check_scaling(env: InferenceEnvironment, queue: PodsInQueue) -> None:
    """Pods that scaling adds wait."""
    await env.change(replicas=1)  # as kubectl scale does
    await env.client.patch(STACK, KEY, {"spec": {"replicas": 3}}, subresource="scale")
    await wait_for_pods(queue, 4)
    assert len(await queue.schedule()) == 2, "the quota holds"
    await env.wait_for(
        lambda stack: (
            stack["status"]["applications"][0].get("message")
            == "2 of 3 pods wait for quota in the LocalQueue team"
        ),
        "two pods wait",
    )
    assert await application_state(env) == (
        "Waiting",
        "2 of 3 pods wait for quota in the LocalQueue team",
    )
    await env.client.patch(STACK, KEY, {"spec": {"replicas": 1}}, subresource="scale")
    await env.wait_for_condition("QuotaReserved", "True")


async def check_change_of_queue(env: InferenceEnvironment, queue: PodsInQueue) -> None:
    """A stack can change its queue while it is suspended."""
    other = PodsInQueue(env, "other", quota=2, has_workloads=False)
    await env.change(suspend=True)
    await env.wait_for_condition("QuotaReserved", "False", "Suspended")
    await wait_for_no_pods(queue)
    await env.client.patch(STACK, KEY, {"metadata": {"labels": {QUEUE: "other"}}})
    await env.change(suspend=False)
    pods = await wait_for_pods(other, 2)
    assert all(map(is_gated, pods))
    await other.schedule()
    await env.wait_for_condition("Ready", "True")


async def test_first_major_version_passes_the_queue_on() -> None:
    """All other tests have stacks of the second one."""
    async with start_inference_environment() as env:
        obj = queued_stack(version="v1")
        obj["apiVersion"] = "models.takeoff.co/v1alpha1"
        await env.create(obj)
        queue = PodsInQueue(env, "team", quota=0, has_workloads=False)
        async with run_inference_controllers(env, "v1"):
            pods = await wait_for_pods(queue, 2)
            assert all(map(is_gated, pods))
            for key in (APPLICATION, GATEWAY):
                deployment = await env.client.get(DEPLOYMENT, key, live=True)
                assert deployment is not None
                assert deployment["metadata"]["labels"][QUEUE] == "team"
                gates = deployment["spec"]["template"]["spec"]["schedulingGates"]
                assert gates == [{"name": GATE}]


async def test_demo_admits_as_many_pods_as_its_queues_have_quota_for() -> None:
    async with start_inference_environment() as env:
        queue = PodsInQueue(env, "team", quota=0, has_workloads=False)
        obj = queued_stack()
        obj["spec"]["replicas"] = kueue_queues.QUOTA
        await env.create(obj)
        async with run_inference_controllers(env) as manager:
            kueue_queues.setup(manager)
            await env.wait_for(
                lambda stack: (
                    " 1 of " in condition(stack, "QuotaReserved").get("message", "")
                    and ";" not in condition(stack, "QuotaReserved")["message"]
                ),
                "one pod waits",
            )
            assert len(await queue.admitted()) == kueue_queues.QUOTA
            await env.change(replicas=kueue_queues.QUOTA - 1)
            await env.wait_for_condition("Ready", "True")


async def test_pods_of_a_stack_without_a_queue_have_no_gate() -> None:
    async with start_inference_environment() as env:
        await env.create(new_stack({"a": {}}))
        async with run_inference_controllers(env):
            await env.wait_for_condition("Ready", "True")
            deployment = await env.client.get(DEPLOYMENT, APPLICATION, live=True)
            assert deployment is not None
            assert "schedulingGates" not in deployment["spec"]["template"]["spec"]
            assert condition(await env.stack(), "QuotaReserved") == {}
