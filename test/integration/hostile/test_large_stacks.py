"""Tests that an InferenceStack that is rendered to many or large objects does not delay others."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cfo.api.inferencestack.names import MANAGED_BY, MANAGED_BY_LABEL
from cfo.controllers.inferencestack import reconciler
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    Manager,
    NamespacedName,
    is_deleting,
    owner_reference,
)
from test.support.inference_environment import (
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)


def template_of(size: int) -> dict[str, Any]:
    """Return an applicationTemplate of about ``size`` bytes, which is rendered once for each application."""
    return {"env": [{"name": f"V{number}", "value": "x" * 500} for number in range(size // 530)]}


@pytest.mark.parametrize(
    ("size", "applications", "in_thread"), [(0, 3, False), (10_000, 2, True), (0, 7, True)]
)
async def test_stack_is_rendered_in_a_thread_by_the_size_of_its_objects(
    monkeypatch: pytest.MonkeyPatch, size: int, applications: int, in_thread: bool
) -> None:
    threads = set()
    original = reconciler.render_with

    def render_with(*arguments: Any) -> Any:
        threads.add(threading.current_thread())
        return original(*arguments)

    monkeypatch.setattr(reconciler, "render_with", render_with)
    monkeypatch.setattr(reconciler, "_LARGE_BYTES", 24 << 10)
    async with start_inference_environment() as env, run_inference_controllers(env):
        sections: dict[str, Any] = {f"a{number}": {} for number in range(applications)}
        await env.create(new_stack(sections, applicationTemplate=template_of(size)))
        await env.wait_for_condition("Deployed", "True")
        await env.wait_until_idle()
    assert (threading.main_thread() not in threads) is in_thread


async def test_one_reconcile_creates_a_limited_number_of_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "_MAX_CREATED", 10)
    async with start_inference_environment() as env, run_inference_controllers(env) as manager:
        await env.create(new_stack({f"a{number}": {} for number in range(5)}))
        await env.wait_for_condition("Deployed", "True")
        await env.wait_until_idle()
        assert len(await env.client.list(DEPLOYMENT, namespace="ns")) == 6
        assert requeued(manager) >= 1, "of at least 12 objects, a reconcile creates 10"


async def test_one_reconcile_deletes_a_limited_number_of_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "_MAX_DELETED", 10)
    async with start_inference_environment() as env:
        stack = await env.create(new_stack({"a": {}}))
        planted = [NamespacedName("ns", f"planted-{number}") for number in range(12)]
        for key in planted:
            metadata = {
                "namespace": key.namespace,
                "name": key.name,
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                "ownerReferences": [owner_reference(stack)],
                "finalizers": ["example.com/hold"],
            }
            await env.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        async with run_inference_controllers(env) as manager:
            await env.wait_for_condition("Deployed", "True")
            await env.wait_until_idle()
            for key in planted:
                obj = await env.client.get(CONFIG_MAP, key, live=True)
                assert obj is not None
                assert is_deleting(obj)
            assert requeued(manager) == 1, "of 12 objects, a reconcile deletes 10"


def requeued(manager: Manager) -> float:
    """Return how many reconciles of stacks have asked for another one."""
    labels = {"controller": "inferencestack-doublewordai", "result": "requeue_after"}
    count = manager.metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels)
    return count or 0.0
