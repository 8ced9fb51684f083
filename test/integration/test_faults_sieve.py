"""Tests of the RayCluster controllers with the three patterns by which Sieve (OSDI 2022) broke ten popular controllers.

*Intermediate states*: a crash after each single write. *Stale states*: reconciles with a consistent, but outdated
cache. *Unobserved states*: changes that are reverted before the controllers see them. After each, the state must equal
that after a run without faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.objects.kinds import NETWORK_POLICY, SECRET
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.faults import (
    FaultyTransport,
    run_until_crash,
    run_with_faulty_transport,
    snapshot,
    wait_for_snapshot,
)
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    kuberay_config,
    ray_cluster,
    start_environment,
    wait_until_deleted,
)
from test.support.sweeps import ALL, sampled, sampled_numbers

PLATFORMS = [
    pytest.param(VANILLA_CRDS, PLAIN_SETTINGS, False, id="vanilla"),
    pytest.param(OPENSHIFT_CRDS, OAUTH_SETTINGS, True, id="openshift"),
]
TESTED_PLATFORMS = PLATFORMS if ALL else PLATFORMS[1:]
"""For what does not depend on the platform: both in a run with all cases, otherwise the one with more objects."""


async def _undisturbed_snapshot(
    env: Environment, settings: dict[str, Any], openshift: bool, cluster: Object
) -> dict[str, Any]:
    """Return the snapshot of a cluster that was created and reconciled without faults."""
    namespace = await env.create_namespace(cluster["metadata"]["namespace"])
    async with run_with_faulty_transport(env, kuberay_config(**settings)):
        await env.create(cluster)
        await env.wait_until_idle()
    return await snapshot(env, namespace, openshift=openshift)


@pytest.mark.parametrize(("crds", "settings", "openshift"), PLATFORMS)
@pytest.mark.sweep
async def test_restart_completes_the_work_after_a_crash_at_any_write(
    crds: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with start_environment(*crds) as env:
        expected = await _undisturbed_snapshot(
            env, settings, openshift, ray_cluster(namespace="undisturbed")
        )
        for number in sampled_numbers():
            namespace = await env.create_namespace(f"crash-{number}")
            cluster = await env.create(ray_cluster(namespace=namespace))
            crashed_at_creation = await run_until_crash(
                env, kuberay_config(**settings), after_writes=number
            )
            async with run_with_faulty_transport(env, kuberay_config(**settings)):
                await wait_for_snapshot(
                    env,
                    namespace,
                    expected,
                    openshift=openshift,
                    description=f"crash after write {number}",
                )
            await env.delete(cluster)
            crashed_at_deletion = await run_until_crash(
                env, kuberay_config(**settings), after_writes=number
            )
            async with run_with_faulty_transport(env, kuberay_config(**settings)):
                await wait_for_snapshot(
                    env, namespace, {}, openshift=openshift, description=f"deletion, write {number}"
                )
            if not crashed_at_creation and not crashed_at_deletion:
                break
        assert (
            number > len(expected) - 1
        )  # each child is a write, and there was a crash after each write


Change = Callable[[Environment, Object], Awaitable[Object | None]]
"""A change of a RayCluster or its children; returns the RayCluster, or None if it was deleted."""


async def _recreate(env: Environment, cluster: Object) -> Object | None:
    await env.delete(cluster)
    await wait_until_deleted(
        env, [(RAY_CLUSTER, cluster["metadata"]["name"])], cluster["metadata"]["namespace"]
    )
    return await env.create(ray_cluster(namespace=cluster["metadata"]["namespace"]))


async def _delete(env: Environment, cluster: Object) -> Object | None:
    await env.delete(cluster)
    return None


async def _suspend_and_resume(env: Environment, cluster: Object) -> Object | None:
    await env.patch(cluster, {"spec": {"suspend": True}})
    return await env.patch(cluster, {"spec": {"suspend": False}})


async def _delete_children(env: Environment, cluster: Object) -> Object | None:
    namespace = cluster["metadata"]["namespace"]
    for child in (await env.children(namespace)).values():
        if child["kind"] in (NETWORK_POLICY.kind, SECRET.kind):
            await env.delete(child)
    return cluster


async def _change_and_delete_policies(env: Environment, cluster: Object) -> Object | None:
    namespace = cluster["metadata"]["namespace"]
    for child in (await env.children(namespace)).values():
        if child["kind"] == NETWORK_POLICY.kind:
            await env.patch(child, {"spec": {"podSelector": {"matchLabels": {"drifted": "yes"}}}})
            await env.delete(child)
    return cluster


CHANGES: list[Change] = [
    _recreate,
    _delete,
    _suspend_and_resume,
    _delete_children,
    _change_and_delete_policies,
]


def _name_of(change: Change) -> str:
    return change.__name__.strip("_").replace("_", "-")


@pytest.mark.parametrize(("crds", "settings", "openshift"), TESTED_PLATFORMS)
@pytest.mark.sweep
async def test_stale_caches_lead_to_the_same_state(
    crds: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    """Watches pause during a change; reconciles run with the outdated cache; then all events arrive together."""
    async with start_environment(*crds) as env:
        expected = await _undisturbed_snapshot(
            env, settings, openshift, ray_cluster(namespace="undisturbed")
        )
        async with run_with_faulty_transport(env, kuberay_config(**settings)) as (
            manager,
            transport,
        ):
            for change in sampled(CHANGES, int(openshift)):
                namespace = await env.create_namespace(_name_of(change))
                cluster = await env.create(ray_cluster(namespace=namespace))
                await env.wait_until_idle()
                transport.watch_gate.hold()
                if change is _recreate and openshift:
                    # otherwise the finalizer keeps the cluster until the operator sees the deletion
                    cluster = await env.patch(cluster, {"metadata": {"finalizers": None}})
                remaining = await change(env, cluster)
                await _reconcile_with_cache(
                    manager.controllers, transport, NamespacedName(namespace, "rc")
                )
                transport.watch_gate.release()
                await wait_for_snapshot(
                    env,
                    namespace,
                    expected if remaining else {},
                    openshift=openshift,
                    description=f"after {_name_of(change)}",
                )


async def _reconcile_with_cache(
    controllers: Any, transport: FaultyTransport, request: NamespacedName
) -> None:
    """Reconcile once with each controller while watches are held back."""
    assert not transport.watch_gate.open.is_set()
    for controller in controllers:
        await controller.reconciler.reconcile(request)


@pytest.mark.parametrize(("crds", "settings", "openshift"), TESTED_PLATFORMS)
@pytest.mark.sweep
async def test_changes_while_operator_is_down_lead_to_the_same_state(
    crds: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with start_environment(*crds) as env:
        expected = await _undisturbed_snapshot(
            env, settings, openshift, ray_cluster(namespace="undisturbed")
        )
        namespaces = {}
        async with run_with_faulty_transport(env, kuberay_config(**settings)):
            for change in sampled(CHANGES, int(openshift) + 1):
                namespace = namespaces[change] = await env.create_namespace(_name_of(change))
                await env.create(ray_cluster(namespace=namespace))
            await env.wait_until_idle()
        remaining = {}
        for change, namespace in namespaces.items():
            cluster = await env.get(RAY_CLUSTER, "rc", namespace)
            if change is _recreate:
                cluster = await env.patch(cluster, {"metadata": {"finalizers": None}})
            remaining[change] = await change(env, cluster)
        async with run_with_faulty_transport(env, kuberay_config(**settings)):
            for change, namespace in namespaces.items():
                await wait_for_snapshot(
                    env,
                    namespace,
                    expected if remaining[change] else {},
                    openshift=openshift,
                    description=f"after {_name_of(change)}",
                )


@pytest.mark.parametrize(("crds", "settings", "openshift"), PLATFORMS if ALL else PLATFORMS[:1])
@pytest.mark.sweep
async def test_repeated_watch_events_lead_to_the_same_state(
    crds: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with start_environment(*crds) as env:
        expected = await _undisturbed_snapshot(
            env, settings, openshift, ray_cluster(namespace="undisturbed")
        )
        config = kuberay_config(**settings)
        async with run_with_faulty_transport(env, config, repeat_probability=0.7, seed=4) as (
            _,
            transport,
        ):
            for round_ in range(2):
                namespace = await env.create_namespace(f"round-{round_}")
                cluster = await env.create(ray_cluster(namespace=namespace))
                await env.wait_until_idle()
                await _suspend_and_resume(env, cluster)
                await env.wait_until_idle()
                await wait_for_snapshot(env, namespace, expected, openshift=openshift)
                if round_ % 2:
                    await env.delete(cluster)
                    await wait_for_snapshot(env, namespace, {}, openshift=openshift)
            await env.wait_until_idle()
            before = transport.writes
            await env.wait_until_idle()
            assert transport.writes == before
