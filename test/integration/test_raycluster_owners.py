"""RayClusters that KubeRay creates for RayServices and RayCronJobs, with KubeRay's CRD of RayClusters.

The tests act as KubeRay 1.7 (``rayservice_controller.go`` and ``raycronjob_controller.go`` of ``ray-operator``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import anyio
import pytest

from cfo.api.raycluster.names import VERSION_ANNOTATION
from cfo.features import all_views
from cfo.runtime import (
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    Cache,
    Object,
    RESTMapper,
    Transport,
    annotations_of,
    controller_of,
    name_of,
    owner_reference,
)
from cfo.runtime.objects import set_controller_owner
from cfo.summaries.kind_view import related_kinds
from cfo.summaries.overview import Overview
from cfo.summaries.summary import Level, Summary
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.network_policies import ports_open_to_namespace
from test.support.planes import local_config
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    Environment,
    crd,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)
from test.support.raycluster_recordings import recorded_crds
from test.support.recordings import GOLDEN

RAY_SERVICE = GVK("ray.io", "v1", "RayService")
RAY_JOB = GVK("ray.io", "v1", "RayJob")
RAY_CRON_JOB = GVK("ray.io", "v1", "RayCronJob")
OWNER_CRDS = [
    crd("ray.io", "v1", "RayService", "rayservices"),
    crd("ray.io", "v1", "RayJob", "rayjobs"),
    crd("ray.io", "v1", "RayCronJob", "raycronjobs"),
]
SETTINGS = InjectionSettings(version="test", oauth=False, mtls=True, ingress_domain="apps.test")

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRD of KubeRay next to the repository"
)


@pytest.fixture
async def env() -> AsyncIterator[Environment]:
    async with start_environment(*recorded_crds(openshift=False), *OWNER_CRDS) as env:
        await env.create_namespace()
        yield env


async def create_owner(
    env: Environment, gvk: GVK, name: str, owner: Object | None = None
) -> Object:
    obj: Object = {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {},
    }
    if owner is not None:
        obj = set_controller_owner(obj, owner)
    return await env.create(obj)


def constructed(owner: Object, name: str) -> Object:
    """Return a RayCluster as KubeRay constructs it for ``owner``."""
    cluster = ray_cluster(name, version=None)
    cluster["metadata"]["labels"] = {
        "ray.io/originated-from-cr-name": name_of(owner),
        "ray.io/originated-from-crd": owner["kind"],
    }
    cluster["metadata"]["annotations"] = {"ray.io/kuberay-version": "v1.7.0"}
    return set_controller_owner(cluster, owner)


async def create_ready_cluster(env: Environment, owner: Object, name: str) -> Object:
    """Create a RayCluster as it is stored after the webhook, and report that it is ready."""
    cluster = await env.create(default(constructed(owner, name), None, SETTINGS).cluster)
    return await env.patch(cluster, {"status": {"state": "ready"}}, subresource="status")


async def summaries_of(env: Environment, *names: str) -> Mapping[str, Summary]:
    """Return the summaries of RayClusters, which ``cfo status`` and the page show, once all are well."""
    views = all_views()
    async with (
        Transport(local_config(env.plane)) as transport,
        anyio.create_task_group() as tasks,
    ):
        cache = Cache(transport, RESTMapper(transport))
        overview = Overview(cache, views, related=related_kinds(views))
        await tasks.start(cache.run)

        async def are_well() -> dict[str, Summary]:
            found = {each.key.name: each for each in await overview.snapshot()}
            assert set(names) <= set(found), found
            levels = {each: (found[each].level, found[each].problems) for each in names}
            assert {level for level, _ in levels.values()} == {Level.OK}, levels
            assert all(found[each].fact("dashboard") for each in names), found  # of other informers
            return found

        with overview.subscribe():
            found: Mapping[str, Summary] = await eventually(are_well, f"well: {names}")
        overview.close()
        tasks.cancel_scope.cancel()
    return found


async def test_clusters_of_an_upgraded_rayservice_are_protected_and_exposed_apart(
    env: Environment,
) -> None:
    network = {"serveNamespaces": ["gateways"]}
    config = kuberay_config(**PLAIN_SETTINGS, networkPolicy=network)
    async with run_controllers(env, config):
        service = await create_owner(env, RAY_SERVICE, "svc")
        active = await create_ready_cluster(env, service, "svc-aaaaa")
        await create_ready_cluster(env, service, "svc-bbbbb")
        await env.wait_until_idle()

        hosts = {
            name_of(item): item["spec"]["rules"][0]["host"]
            for item in await env.client.list(INGRESS, namespace="ns")
        }
        assert hosts == {
            f"{kind}-svc-{suffix}": f"{kind}-svc-{suffix}-ns.apps.test"
            for kind in ("ray-dashboard", "rayclient")
            for suffix in ("aaaaa", "bbbbb")
        }
        policies = await env.client.list(NETWORK_POLICY, namespace="ns")
        serving = [
            item["metadata"]["labels"]["ray.openshift.ai/cluster-name"]
            for item in policies
            if 8000 in ports_open_to_namespace(item, "gateways")
        ]
        assert sorted(serving) == ["svc-aaaaa", "svc-aaaaa", "svc-bbbbb", "svc-bbbbb"], (
            "the Gateway of an incremental upgrade sends requests to head and workers of both"
        )
        authorities = [
            item["data"]["ca.crt"] for item in await env.client.list(SECRET, namespace="ns")
        ]
        assert len(set(authorities)) == 2

        shown = await summaries_of(env, "svc-aaaaa", "svc-bbbbb")
        for suffix in ("aaaaa", "bbbbb"):
            summary = shown[f"svc-{suffix}"]
            assert summary.fact("owner") == "RayService svc"
            assert summary.fact("dashboard") == f"http://ray-dashboard-svc-{suffix}-ns.apps.test"

        await env.delete(active)
        await env.wait_until_idle()
        if await env.collects_garbage():
            kept = {"svc-bbbbb-head", "svc-bbbbb-workers"}

            async def is_cleaned_up() -> bool:
                names = await env.child_names(NETWORK_POLICY)
                assert all(any(name.startswith(each) for each in kept) for name in names), names
                return len(names) == len(kept)

            await eventually(is_cleaned_up, "only the objects of the new cluster")


def test_cluster_that_kuberay_updates_in_place_keeps_its_injected_parts() -> None:
    service: Object = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "svc", "namespace": "ns", "uid": "u"},
    }
    goal = constructed(service, "svc-aaaaa")
    stored = default(goal, None, SETTINGS).cluster
    goal["spec"]["workerGroupSpecs"] = [
        {
            "groupName": "small",
            "replicas": 3,
            "rayStartParams": {},
            "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray"}]}},
        }
    ]
    # KubeRay replaces the spec, all labels and all annotations.
    updated = default(goal, stored, SETTINGS).cluster
    assert annotations_of(updated) == {
        "ray.io/kuberay-version": "v1.7.0",
        VERSION_ANNOTATION: "test",
    }
    assert updated["spec"]["headGroupSpec"] == stored["spec"]["headGroupSpec"]
    (group,) = updated["spec"]["workerGroupSpecs"]
    assert [each["name"] for each in group["template"]["spec"]["initContainers"]] == ["create-cert"]


@pytest.mark.parametrize(
    ("name", "is_exposed"), [("nightly", True), ("nightly-training-of-the-large-model", False)]
)
async def test_each_run_of_a_raycronjob_has_its_own_host(
    env: Environment, name: str, is_exposed: bool
) -> None:
    async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
        cron_job = await create_owner(env, RAY_CRON_JOB, name)
        run = await create_owner(env, RAY_JOB, f"{name}-29746080", cron_job)
        cluster = await create_ready_cluster(env, run, f"{name}-29746080-aaaaa")
        assert (controller_of(cluster) or {})["uid"] == owner_reference(run)["uid"]
        await env.wait_until_idle()
        ingresses = await env.client.list(INGRESS, namespace="ns")
        hosts = [item["spec"]["rules"][0]["host"] for item in ingresses]
        host = f"ray-dashboard-{name}-29746080-aaaaa-ns.apps.test"
        assert host in hosts
        assert len(await env.child_names(NETWORK_POLICY)) == 2
        reported = [note for _, reason, note in await env.events() if reason == "HostTooLong"]
        assert bool(reported) is not is_exposed
        if is_exposed:
            shown = await summaries_of(env, name_of(cluster))
            assert shown[name_of(cluster)].fact("owner") == f"RayJob {name_of(run)}"
