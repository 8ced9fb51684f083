"""Tests of the MiniCluster controller with the patterns of Sieve; see :mod:`test.integration.test_faults_sieve`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cfo.api.flux.names import MINICLUSTER
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of, uid_of
from test.support.faults import run_manager_until_crash, run_manager_with_faulty_transport
from test.support.flux_environment import (
    CHILD_KINDS,
    FluxEnvironment,
    mini_cluster,
    minicluster_manager,
    start_flux_environment,
    true_conditions,
)
from test.support.raycluster_environment import eventually
from test.support.sweeps import sampled, sampled_numbers

SIDECAR = {"name": "web", "image": "nginx", "ports": [80]}
CONTAINERS = [{"image": "i", "runFlux": True, "command": "sleep 1"}, SIDECAR]


def cluster_in(namespace: str) -> Object:
    """Return a MiniCluster that has every kind of object."""
    return mini_cluster(
        namespace=namespace, containers=CONTAINERS, services=[{"name": "svc", "image": "i"}]
    )


async def snapshot(env: FluxEnvironment, namespace: str) -> dict[str, Any]:
    """Return what can be compared between namespaces: the state of the MiniCluster, and labels and specs of objects."""
    found: dict[str, Any] = {
        name_of(item): (true_conditions(item), item["status"].get("size"))
        for item in await env.client.list(MINICLUSTER, namespace=namespace)
        if item.get("status")
    }
    for gvk in CHILD_KINDS:
        for obj in await env.client.list(gvk, namespace=namespace):
            labels = {
                key: value
                for key, value in (obj["metadata"].get("labels") or {}).items()
                if "uid" not in key
            }
            content = obj.get("data") if gvk.kind == "ConfigMap" else None
            suspended = (obj.get("spec") or {}).get("suspend")
            text = str((gvk.kind, name_of(obj), labels, content, suspended)).replace(
                namespace, "<namespace>"
            )
            found[f"{gvk.kind} {name_of(obj)}"] = text
    return found


async def owners_exist(env: FluxEnvironment, namespace: str) -> bool:
    """Report whether each object belongs to a MiniCluster that exists."""
    uids = {uid_of(item) for item in await env.client.list(MINICLUSTER, namespace=namespace)}
    owners = [
        owner["uid"]
        for gvk in CHILD_KINDS
        for obj in await env.client.list(gvk, namespace=namespace)
        for owner in obj["metadata"].get("ownerReferences") or ()
    ]
    return set(owners) <= uids


async def wait_for_snapshot(
    env: FluxEnvironment, namespace: str, expected: dict[str, Any], description: str
) -> None:
    """Wait until the snapshot equals ``expected``."""

    async def is_as_expected() -> bool:
        found = await snapshot(env, namespace)
        assert found == expected, {
            key: (found.get(key), expected.get(key)) for key in {*found, *expected}
        }
        return await owners_exist(env, namespace)

    await eventually(is_as_expected, description)


async def undisturbed_snapshot(env: FluxEnvironment) -> dict[str, Any]:
    """Return the snapshot after a run without faults."""
    namespace = await env.create_namespace("undisturbed")
    async with run_manager_with_faulty_transport(env, minicluster_manager):
        await env.create(cluster_in(namespace))
        await env.wait_until_idle()
        return await snapshot(env, namespace)


@pytest.mark.sweep
async def test_restart_completes_the_work_after_a_crash_at_any_write() -> None:
    async with start_flux_environment() as env:
        expected = await undisturbed_snapshot(env)
        for number in sampled_numbers():
            namespace = await env.create_namespace(f"crash-{number}")
            await env.create(cluster_in(namespace))
            crashed = await run_manager_until_crash(env, minicluster_manager, after_writes=number)
            async with run_manager_with_faulty_transport(env, minicluster_manager):
                await wait_for_snapshot(env, namespace, expected, f"crash after write {number}")
            if not crashed:
                break
        assert number > len(
            expected
        )  # each object and the status is a write, and there was a crash after each


Change = Callable[[FluxEnvironment, Object], Awaitable[bool]]
"""A change of a MiniCluster or its objects; returns whether the MiniCluster still exists."""


async def recreate(env: FluxEnvironment, cluster: Object) -> bool:
    """Delete the MiniCluster and create it again."""
    await env.delete(cluster)
    await env.wait_until_removed(MINICLUSTER, name_of(cluster), cluster["metadata"]["namespace"])
    await env.create(cluster_in(cluster["metadata"]["namespace"]))
    return True


async def delete(env: FluxEnvironment, cluster: Object) -> bool:
    """Delete the MiniCluster."""
    await env.delete(cluster)
    return False


async def suspend_and_resume(env: FluxEnvironment, cluster: Object) -> bool:
    """Suspend the MiniCluster and resume it before the controller can see that."""
    await env.patch(cluster, {"spec": {"suspend": True}})
    await env.patch(cluster, {"spec": {"suspend": False}})
    return True


async def scale_up_and_down(env: FluxEnvironment, cluster: Object) -> bool:
    """Change the size and change it back."""
    await env.patch(cluster, {"spec": {"size": 1}})
    await env.patch(cluster, {"spec": {"size": 2}})
    return True


async def delete_objects(env: FluxEnvironment, cluster: Object) -> bool:
    """Delete all objects of the MiniCluster."""
    for gvk in CHILD_KINDS:
        for obj in await env.client.list(gvk, namespace=cluster["metadata"]["namespace"]):
            await env.client.delete(gvk, NamespacedName(obj["metadata"]["namespace"], name_of(obj)))
    return True


CHANGES: list[Change] = [recreate, delete, suspend_and_resume, scale_up_and_down, delete_objects]


def namespace_for(change: Change) -> str:
    """Return the namespace in which a test makes ``change``."""
    return change.__name__.replace("_", "-")


@pytest.mark.sweep
async def test_stale_caches_lead_to_the_same_state() -> None:
    """Watches pause during a change; a reconcile runs with the outdated cache; then all events arrive together."""
    async with start_flux_environment() as env:
        expected = await undisturbed_snapshot(env)
        async with run_manager_with_faulty_transport(env, minicluster_manager) as (
            manager,
            transport,
        ):
            for change in sampled(CHANGES):
                namespace = await env.create_namespace(namespace_for(change))
                cluster = await env.create(cluster_in(namespace))
                await env.wait_until_idle()
                transport.watch_gate.hold()
                exists = await change(env, cluster)
                request = NamespacedName(namespace, "flux-sample")
                for controller in manager.controllers:
                    await controller.reconciler.reconcile(request)
                transport.watch_gate.release()
                await wait_for_snapshot(
                    env, namespace, expected if exists else {}, f"after {change.__name__}"
                )


@pytest.mark.sweep
async def test_changes_while_operator_is_down_lead_to_the_same_state() -> None:
    changes = sampled(CHANGES, 1)
    async with start_flux_environment() as env:
        expected = await undisturbed_snapshot(env)
        async with run_manager_with_faulty_transport(env, minicluster_manager):
            for change in changes:
                await env.create(cluster_in(await env.create_namespace(namespace_for(change))))
            await env.wait_until_idle()
        exist = {}
        for change in changes:
            exist[change] = await change(
                env, await env.get(MINICLUSTER, "flux-sample", namespace_for(change))
            )
        async with run_manager_with_faulty_transport(
            env, minicluster_manager, repeat_probability=0.5
        ):
            for change in changes:
                namespace = namespace_for(change)
                await wait_for_snapshot(
                    env, namespace, expected if exist[change] else {}, f"after {namespace}"
                )
