"""The InferenceStack controllers with Sieve's three patterns: crashes, stale caches and unobserved states.

After each, the state must equal that after a run without faults. See :mod:`test.integration.test_faults_sieve`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from cfo.api.inferencestack.kinds import SCALED_OBJECT
from cfo.controllers.inferencestack.children import CHILD_KINDS
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.objects.kinds import CONFIG_MAP, DEPLOYMENT
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of
from test.support.faults import FaultyTransport
from test.support.inference_environment import (
    KEDA_CRD,
    STACK,
    InferenceEnvironment,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.planes import local_config
from test.support.raycluster_environment import eventually
from test.support.sweeps import sampled, sampled_numbers

VOLATILE = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "namespace",
)


def fresh_stack(namespace: str, *, small: bool = False) -> Object:
    """Return a stack with an object of each kind that differs in how it is written; if ``small``, fewer of them."""
    first = {"cache": {"size": "1Gi"}, "replicaCount": 2}
    if small:
        obj = new_stack({"a": first}, serviceAccount={"create": False})
    else:
        budget = {"podDisruptionBudget": {"minAvailable": 1}}
        second = {"scaling": {"enabled": True}, "readerConfig": {"modelName": "m"}}
        obj = new_stack({"a": {**first, **budget}, "b": second})
    obj["metadata"]["namespace"] = namespace
    return obj


async def snapshot(env: InferenceEnvironment, namespace: str) -> dict[str, Any]:
    """Return the objects of the stack and its conditions, without what differs between two runs."""
    found: dict[str, Any] = {}
    for gvk in (*CHILD_KINDS, SCALED_OBJECT):
        selector = "app.kubernetes.io/instance=s"
        try:
            items = await env.client.list(gvk, namespace=namespace, label_selector=selector)
        except UnknownKind:
            continue
        for item in items:
            metadata = {
                key: value for key, value in item["metadata"].items() if key not in VOLATILE
            }
            metadata["ownerReferences"] = [
                owner["name"] for owner in metadata.pop("ownerReferences", ())
            ]
            metadata.get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
            spec = {
                key: value
                for key, value in item.get("spec", {}).items()
                if not key.startswith("clusterIP")
            }
            found[f"{gvk.kind} {name_of(item)}"] = {
                "metadata": metadata,
                "spec": spec,
                "data": item.get("data"),
            }
    stack = await env.find(STACK, "s", namespace)
    if stack is not None:
        conditions = (stack.get("status") or {}).get("conditions") or ()
        found["conditions"] = sorted(
            (item["type"], item["status"], item["reason"]) for item in conditions
        )
    text = repr(found).replace(f".{namespace}.", ".<namespace>.")
    return {"text": text, **found} if namespace == "undisturbed" else {"text": text}


async def wait_for_snapshot(
    env: InferenceEnvironment, namespace: str, expected: str, description: str
) -> None:
    async def is_as_expected() -> bool:
        found = (await snapshot(env, namespace))["text"]
        assert found == expected, f"{found}\nexpected: {expected}"
        return True

    await eventually(is_as_expected, description)


async def undisturbed(env: InferenceEnvironment, *, small: bool = False) -> dict[str, Any]:
    """Return the snapshot of a stack that was reconciled without faults."""
    await env.create_namespace("undisturbed")
    async with run_inference_controllers(env):
        await env.create(fresh_stack("undisturbed", small=small))
        await env.wait_for_condition("Ready", "True", namespace="undisturbed")
        await env.wait_until_idle()
    return await snapshot(env, "undisturbed")


async def run_until_crash(env: InferenceEnvironment, *, after_writes: int) -> bool:
    """Run the controllers until they crash after so many writes, or are idle; return whether they crashed."""
    target = local_config(env.plane)
    async with FaultyTransport(
        target, observe=env.exchanges.append, crash_after_writes=after_writes
    ) as transport:
        with anyio.CancelScope() as scope:

            async def cancel_on_crash() -> None:
                await transport.crashed.wait()
                scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_on_crash)
                async with run_inference_controllers(env, transport=transport):
                    await env.wait_until_idle()
                tasks.cancel_scope.cancel()
    return transport.crashed.is_set()


@pytest.mark.sweep
async def test_restart_completes_the_work_after_a_crash_at_any_write() -> None:
    async with start_inference_environment() as env:
        expected = await undisturbed(env, small=True)
        for number in sampled_numbers():
            namespace = await env.create_namespace(f"crash-{number}")
            await env.create(fresh_stack(namespace, small=True))
            crashed = await run_until_crash(env, after_writes=number)
            async with run_inference_controllers(env):
                await wait_for_snapshot(
                    env, namespace, expected["text"], f"crash after write {number}"
                )
            await env.client.delete(STACK, NamespacedName(namespace, "s"))
            if not crashed:
                break
        assert number > len(expected) - 2, (
            "each object is a write, and there was a crash after each"
        )


Change = Callable[[InferenceEnvironment, str], Awaitable[None]]
"""A change of the stack or its objects in a namespace that does not change the state in the end."""


async def _recreate(env: InferenceEnvironment, namespace: str) -> None:
    await env.client.delete(STACK, NamespacedName(namespace, "s"))

    async def is_deleted() -> bool:
        return await env.find(STACK, "s", namespace) is None

    await eventually(is_deleted, "deleted")
    await env.create(fresh_stack(namespace))


async def _change_and_revert(env: InferenceEnvironment, namespace: str) -> None:
    await env.change(namespace=namespace, suspend=True)
    await env.change(namespace=namespace, suspend=None)


async def _remove_and_add_application(env: InferenceEnvironment, namespace: str) -> None:
    section = fresh_stack(namespace)["spec"]["applications"]["b"]
    await env.change(namespace=namespace, applications={"b": None})
    await env.change(namespace=namespace, applications={"b": section})


async def _delete_objects(env: InferenceEnvironment, namespace: str) -> None:
    for gvk in (CONFIG_MAP, DEPLOYMENT):
        await env.client.delete(gvk, NamespacedName(namespace, "s-inference-stack-gateway"))


CHANGES: list[Change] = [
    _recreate,
    _change_and_revert,
    _remove_and_add_application,
    _delete_objects,
]


def namespace_of_change(change: Change) -> str:
    return change.__name__.strip("_").replace("_", "-")


@pytest.mark.sweep
async def test_stale_caches_lead_to_the_same_state() -> None:
    """Watches pause during a change; reconciles run with the outdated cache; then all events arrive together."""
    async with start_inference_environment(KEDA_CRD) as env:
        expected = await undisturbed(env)
        target = local_config(env.plane)
        async with (
            FaultyTransport(target, observe=env.exchanges.append) as transport,
            run_inference_controllers(env, transport=transport) as manager,
        ):
            for change in sampled(CHANGES):
                namespace = await env.create_namespace(namespace_of_change(change))
                await env.create(fresh_stack(namespace))
                await env.wait_for_condition("Ready", "True", namespace=namespace)
                await env.wait_until_idle()
                transport.watch_gate.hold()
                await change(env, namespace)
                for controller in manager.controllers:
                    try:
                        await controller.reconciler.reconcile(NamespacedName(namespace, "s"))
                    except Exception as error:  # the controller would log it and retry
                        print("reconcile failed:", error)
                transport.watch_gate.release()
                await wait_for_snapshot(env, namespace, expected["text"], f"after {namespace}")


@pytest.mark.sweep
async def test_changes_while_operator_is_down_lead_to_the_same_state() -> None:
    changes = sampled(CHANGES, 1)
    async with start_inference_environment(KEDA_CRD) as env:
        expected = await undisturbed(env)
        namespaces = [await env.create_namespace(namespace_of_change(change)) for change in changes]
        async with run_inference_controllers(env):
            for namespace in namespaces:
                await env.create(fresh_stack(namespace))
            for namespace in namespaces:
                await env.wait_for_condition("Ready", "True", namespace=namespace)
        for change, namespace in zip(changes, namespaces, strict=True):
            await change(env, namespace)
        async with run_inference_controllers(env):
            for namespace in namespaces:
                await wait_for_snapshot(env, namespace, expected["text"], f"after {namespace}")
