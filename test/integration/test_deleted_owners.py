"""While the watch of an owner lags, objects that the garbage collector deletes with the owner are not recreated."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from cfo.api.flux.names import MINICLUSTER
from cfo.runtime.objects.kinds import DEPLOYMENT, NETWORK_POLICY, SECRET
from cfo.runtime.objects.unstructured import GVK, Object, uid_of
from envtest import EmbeddedControlPlane
from test.support.flux_environment import (
    flux_job,
    flux_setup,
    mini_cluster,
    run_flux_controllers,
    run_minicluster_controller,
    start_flux_environment,
)
from test.support.inference_environment import (
    election,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

pytestmark = pytest.mark.embedded(reason="it holds watches back and has a garbage collector")

WRITES = ("create", "apply")

Run = Callable[[], AbstractAsyncContextManager[tuple[Environment, Object, str, GVK]]]
"""Runs controllers; returns an object with children, its resource, and the kind of a child."""


@asynccontextmanager
async def run_with_ray_cluster() -> AsyncIterator[tuple[Environment, Object, str, GVK]]:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            yield env, await env.create(ray_cluster()), "rayclusters.ray.io", NETWORK_POLICY


@asynccontextmanager
async def run_with_mini_cluster() -> AsyncIterator[tuple[Environment, Object, str, GVK]]:
    async with start_flux_environment() as env:
        await env.create_namespace()
        async with run_minicluster_controller(env):
            yield env, await env.create(mini_cluster()), "miniclusters.flux-framework.org", SECRET


@asynccontextmanager
async def run_with_flux_job() -> AsyncIterator[tuple[Environment, Object, str, GVK]]:
    async with start_flux_environment() as env:
        await env.create_namespace()
        async with run_flux_controllers(env):
            await env.create(flux_setup())
            yield env, await env.create(flux_job()), "fluxjobs.flux-framework.org", MINICLUSTER


@asynccontextmanager
async def run_with_stack() -> AsyncIterator[tuple[Environment, Object, str, GVK]]:
    async with (
        start_inference_environment() as env,
        run_inference_controllers(env, election=election("one", "ns")),
    ):
        yield (
            env,
            await env.create(new_stack({"a": {}})),
            "inferencestacks.doublewordai.co",
            DEPLOYMENT,
        )


@pytest.mark.parametrize(
    "run", [run_with_ray_cluster, run_with_mini_cluster, run_with_flux_job, run_with_stack]
)
async def test_children_are_not_recreated_while_the_watch_of_the_owner_lags(run: Run) -> None:
    async with run() as (env, owner, resource, kind):

        async def owned() -> list[Object]:
            found = await env.client.list(kind, namespace="ns")
            return [
                item
                for item in found
                if uid_of(owner) in str(item["metadata"].get("ownerReferences"))
            ]

        await eventually(owned, "the children exist")
        await env.wait_until_idle()
        assert isinstance(env.plane, EmbeddedControlPlane)
        env.plane.faults.hold_watches(resource.partition(".")[0])
        children = len([verb for verb, _ in env.requests() if verb in WRITES])
        env.clear_requests()
        await env.delete(owner)

        async def collected() -> bool:
            return not await owned()

        await eventually(collected, "the children are deleted")
        await env.wait_until_idle()
        found = Counter(env.requests())
        assert not [name for verb, name in found if verb in WRITES and not name.endswith("/status")]
        assert found["get", resource] <= children
        assert sum(count for (_, name), count in found.items() if name == f"{resource}/status") <= 1
