"""The demo's replacement for KubeRay runs RayJobs: one that fails, one that is suspended, one that is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cfo.api.appwrapper.kinds import RAY_JOB
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.demo import rayjobs
from cfo.runtime import JOB, Client, Manager, NamespacedName, Object, key_of, name_of
from cfo.runtime.objects import CORE_EVENT
from envtest import ControlPlane
from test.support.planes import local_config
from test.support.raycluster_environment import crd, eventually

KEY = NamespacedName("default", "train")
HEAD = {"template": {"spec": {"containers": [{"name": "head", "image": "ray:1"}]}}}
CRDS = [
    crd("ray.io", "v1", "RayJob", "rayjobs"),
    crd("ray.io", "v1", "RayCluster", "rayclusters"),
]


@asynccontextmanager
async def simulation() -> AsyncIterator[Client]:
    async with ControlPlane.embedded(crds=CRDS) as plane:
        manager = Manager(local_config(plane))
        rayjobs.setup(manager)
        async with manager:
            await manager.started()
            yield manager.api_reader.with_field_manager("test")


async def create(client: Client, **spec: Any) -> None:
    await client.create(
        {
            "apiVersion": RAY_JOB.api_version,
            "kind": RAY_JOB.kind,
            "metadata": {"name": KEY.name, "namespace": KEY.namespace},
            "spec": {"rayClusterSpec": {"headGroupSpec": HEAD}, **spec},
        }
    )


async def ready_cluster(client: Client) -> Object:
    """Report that the RayCluster of the RayJob is ready, as soon as it exists."""

    async def only_cluster() -> Object | None:
        return next(iter(await client.list(RAY_CLUSTER, namespace=KEY.namespace)), None)

    cluster: Object = await eventually(only_cluster, "the RayCluster")
    return await client.patch(
        RAY_CLUSTER, key_of(cluster), {"status": {"state": "ready"}}, subresource="status"
    )


async def wait_for_state(client: Client, state: str) -> None:
    async def is_reached() -> bool:
        job = await client.get(RAY_JOB, KEY)
        return job is not None and job.get("status", {}).get("jobDeploymentStatus") == state

    await eventually(is_reached, state)


async def wait_for_clusters(client: Client, names: list[str]) -> None:
    async def are_left() -> bool:
        found = await client.list(RAY_CLUSTER, namespace=KEY.namespace)
        return [name_of(each) for each in found] == names

    await eventually(are_left, f"RayClusters {names}")


async def test_cluster_of_a_rayjob_that_failed_is_deleted() -> None:
    async with simulation() as client:
        await create(client, shutdownAfterJobFinishes=True)
        await ready_cluster(client)
        await wait_for_state(client, "Running")
        types = ("FailureTarget", "Failed")
        conditions = [{"type": each, "status": "True"} for each in types]
        status = {"startTime": "2026-01-01T00:00:00Z", "conditions": conditions}
        await client.patch(JOB, KEY, {"status": status}, subresource="status")
        await wait_for_state(client, "Failed")
        await wait_for_clusters(client, [])


async def test_suspended_rayjob_has_no_cluster_until_it_is_resumed() -> None:
    async with simulation() as client:
        await create(client, shutdownAfterJobFinishes=True)
        cluster = await ready_cluster(client)
        await wait_for_state(client, "Running")
        await client.patch(RAY_JOB, KEY, {"spec": {"suspend": True}})
        await wait_for_state(client, "Suspended")
        await wait_for_clusters(client, [])
        assert await client.get(JOB, KEY) is None
        await client.patch(RAY_JOB, KEY, {"spec": {"suspend": False}})
        await wait_for_clusters(client, [name_of(cluster)])


async def test_refused_cluster_is_an_event_of_the_rayjob() -> None:
    async with simulation() as client:
        await create(client, rayClusterSpec="refused")

        async def event() -> Object | None:
            events = await client.list(CORE_EVENT, namespace=KEY.namespace)
            return next((each for each in events if each["type"] == "Warning"), None)

        found = await eventually(event, "an Event")
        assert found["reason"] == "FailedToCreateRayCluster"
        assert found["involvedObject"]["name"] == KEY.name
        await wait_for_state(client, "Initializing")
