"""The number of replicas of stacks with one application, by the subresource scale; and stacks with the engine vllm."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.kinds import HORIZONTAL_POD_AUTOSCALER
from cfo.runtime.client.errors import APIError
from cfo.runtime.objects.kinds import DEPLOYMENT
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.inference_environment import (
    STACK,
    InferenceEnvironment,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.raycluster_environment import eventually

KEY = NamespacedName("ns", "s")
CONTROLLERS = ("gc", "namespace", "pods", "deployment", "horizontalpodautoscaling")
SELECTOR = (
    "app.kubernetes.io/component=application-a,app.kubernetes.io/name=inference-stack,"
    "app.kubernetes.io/instance=s"
)


def vllm(applications: dict[str, Any], **spec: Any) -> Object:
    template = {"engine": "vllm", "readerConfig": {"modelName": "org/model"}}
    return new_stack(applications, applicationTemplate=template, **spec)


async def scale_of(env: InferenceEnvironment) -> dict[str, Any]:
    found = await env.client.get_subresource(STACK, KEY, "scale")
    assert found is not None
    return {"replicas": found["spec"].get("replicas", 0), **found["status"]}


async def scale(env: InferenceEnvironment, replicas: int) -> None:
    """Scale as ``kubectl scale`` does."""
    await env.client.patch(STACK, KEY, {"spec": {"replicas": replicas}}, subresource="scale")


async def wait_for_replicas(env: InferenceEnvironment, replicas: int) -> None:
    async def check() -> bool:
        assert await scale_of(env) == {"replicas": replicas, "selector": SELECTOR}
        found = await env.client.get(
            DEPLOYMENT, NamespacedName("ns", "s-inference-stack-a"), live=True
        )
        assert found is not None
        assert found["spec"]["replicas"] == replicas
        stack = await env.stack()
        assert stack["status"].get("replicas") == replicas
        return True

    await eventually(check, f"{replicas} replicas")


async def test_stack_with_one_application_is_scaled_like_a_deployment() -> None:
    async with start_inference_environment(controllers=CONTROLLERS) as env:
        await env.create(vllm({"a": {"replicaCount": 1}}))
        async with run_inference_controllers(env):
            await env.wait_for_condition("Ready", "True")
            with pytest.raises(
                APIError, match=r'the spec replicas field ".spec.replicas" does not exist'
            ):
                await scale_of(env)
            assert "selector" not in (await env.stack())["status"], (
                "the status changes only if the field is used"
            )
            await scale(env, 3)
            await wait_for_replicas(env, 3)
            await env.create(autoscaler(minimum=4))
            await wait_for_replicas(env, 4)
            found = await env.client.get(HORIZONTAL_POD_AUTOSCALER, KEY, live=True)
            assert found is not None
            conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
            assert conditions["AbleToScale"] == "True"
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
        await check_restart(env)


def autoscaler(minimum: int) -> Object:
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "doublewordai.co/v1alpha1",
                "kind": "InferenceStack",
                "name": "s",
            },
            "minReplicas": minimum,
            "maxReplicas": 6,
            "metrics": [{"type": "Resource", "resource": metric}],
        },
    }


async def check_restart(env: InferenceEnvironment) -> None:
    async with run_inference_controllers(env):
        await env.wait_until_idle()
        assert env.writes() == []


async def test_stack_with_several_applications_has_no_scale() -> None:
    async with start_inference_environment() as env:
        await env.create(new_stack({"a": {}, "b": {}}))
        message = "must be set only for a stack with exactly one application"
        with pytest.raises(APIError, match=message):
            await scale(env, 3)
        await env.change(applications={"b": None})
        await scale(env, 3)
        with pytest.raises(APIError, match=message):
            await env.change(applications={"b": {}})


async def test_stack_of_vllm_becomes_ready_and_changes_its_engine() -> None:
    async with start_inference_environment() as env:
        await env.create(
            vllm({"a": {"loraAdapters": [{"name": "sql", "path": "org/sql"}]}, "b": {}})
        )
        async with run_inference_controllers(env):
            await env.wait_for_condition("Ready", "True")
            status = (await env.stack())["status"]
            assert status["openai"] == "http://s-inference-stack-gateway.ns.svc/v1"
            assert [item["consumerGroup"] for item in status["applications"]] == ["a", "b"]
            await env.wait_until_idle()
            env.clear_requests()
            await env.change(applications={"b": {"extraArgs": ["--enforce-eager"]}})
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
            assert env.child_writes() == ["apply"], "only the Deployment of the application"
            await env.change(
                applicationTemplate={"engine": None},
                applications={"a": {"loraAdapters": None}, "b": None},
            )
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
        assert sorted(await env.objects()) == [
            ("ConfigMap", "s-inference-stack-a"),
            ("ConfigMap", "s-inference-stack-gateway"),
            ("Deployment", "s-inference-stack-a"),
            ("Deployment", "s-inference-stack-gateway"),
            ("Service", "s-inference-stack-gateway"),
            ("ServiceAccount", "s-inference-stack"),
        ]


async def test_hostile_names_of_vllm_are_not_rendered_without_a_webhook() -> None:
    async with start_inference_environment() as env:
        hostile = {
            "loraAdapters": [{"name": 'x": {"url": "http://evil"}, "y', "path": "--api-key=x"}]
        }
        await env.create(vllm({"a": hostile}))
        async with run_inference_controllers(env):
            ready = await env.wait_for_condition("Ready", "False", "InvalidSpec")
            assert "spec.applications[a].loraAdapters[0].name: Invalid value" in ready["message"]
            assert "spec.applications[a].loraAdapters[0].path: Invalid value" in ready["message"]
            assert not await env.objects()
