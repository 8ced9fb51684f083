"""AppWrappers whose Workloads this operator makes itself; the test plays the scheduler of Kueue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from cfo.api.appwrapper import QUEUE_NAME_LABEL
from cfo.runtime.kinds import JOB, NODE, POD
from cfo.runtime.objects import GVK, NamespacedName, Object, find_condition, name_of, uid_of
from test.support.appwrapper_environment import (
    CONTROLLERS,
    Watched,
    configuration,
    job,
    operating,
    pod,
    watched_world,
    wrapper,
)
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN, load_appwrapper

KINDS = ("workloads", "clusterqueues", "localqueues", "resourceflavors")
WORKLOAD = GVK("kueue.x-k8s.io", "v1beta2", "Workload")
FLAVOR = GVK("kueue.x-k8s.io", "v1beta2", "ResourceFlavor")
CLUSTER_QUEUE = GVK("kueue.x-k8s.io", "v1beta2", "ClusterQueue")

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no definitions of Kueue's kinds beside the repository")


@pytest.fixture
async def here() -> AsyncIterator[Watched]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    folder = GOLDEN.parent / "crds"
    crds = [yaml.load((folder / f"kueue.x-k8s.io_{kind}.yaml").read_text(), Loader=loader) for kind in KINDS]
    for crd in crds:
        crd["spec"].pop("conversion", None)
        crd["spec"]["versions"] = [version for version in crd["spec"]["versions"] if version["name"] == "v1beta2"]
    async with watched_world(*crds, controllers=CONTROLLERS) as world:
        await world.create_namespace()
        gold: dict[str, Any] = {
            "nodeLabels": {"pool": "gold"},
            "tolerations": [{"key": "gold", "operator": "Exists", "effect": "NoSchedule"}],
        }
        await world.create(
            {"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, "metadata": {"name": "gold"}, "spec": gold}
        )
        yield world


def queued(*templates: Object, **settings: str) -> Object:
    obj = wrapper(*templates, **settings)
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    return obj


async def workload(here: Watched) -> Object:
    async def look() -> Object | None:
        found = await here.client.list(WORKLOAD, namespace="ns")
        return found[0] if found else None

    found: Object = await eventually(look, "a workload")
    return found


async def admit(here: Watched) -> Object:
    """Plays Kueue's scheduler."""
    there = await workload(here)
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}
        for kind in ("QuotaReserved", "Admitted")
    ]
    assignments = [
        {"name": item["name"], "count": item["count"], "flavors": {"cpu": "gold"}, "resourceUsage": {"cpu": "1"}}
        for item in there["spec"]["podSets"]
    ]
    status = {"conditions": conditions, "admission": {"clusterQueue": "cq", "podSetAssignments": assignments}}
    return await here.patch(there, {"status": status}, subresource="status")


async def evict(here: Watched) -> None:
    there = await workload(here)
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "Preempted to accommodate a workload",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    conditions = [*there["status"]["conditions"], evicted]
    await here.patch(there, {"status": {"conditions": conditions}}, subresource="status")


async def holds(here: Watched, kind: str, status: str) -> Object:
    async def look() -> Object:
        there = await workload(here)
        found = find_condition((there.get("status") or {}).get("conditions"), kind)
        assert found is not None, there.get("status")
        assert found["status"] == status, found
        return there

    found: Object = await eventually(look, f"{kind} {status}")
    return found


async def test_an_appwrapper_goes_through_its_queue(here: Watched) -> None:
    one = job(parallelism=2, phase="Succeeded", finish_after="2")
    one["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    async with operating(here, configuration(kueueIntegration=True)):
        await here.create(queued(one))
        there = await workload(here)
        assert (await here.wrapper())["spec"]["suspend"] is True
        assert await here.names_of(JOB) == []
        recorded = next(
            item
            for step in load_appwrapper("kueue/kueue-admission")["steps"]
            if step.get("observe") == "admitted"
            for item in step["objects"]
            if item.get("kind") == "Workload"
        )
        assert set(recorded["spec"]) == set(there["spec"])
        for key in ("count", "name", "topologyRequest"):
            assert there["spec"]["podSets"][0][key] == recorded["spec"]["podSets"][0][key]
        owner = {**recorded["metadata"]["ownerReferences"][0], "uid": uid_of(await here.wrapper())}
        assert there["metadata"]["ownerReferences"] == [owner]
        assert there["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": owner["uid"]}
        assert name_of(there).startswith("appwrapper-w-")

        await admit(here)
        running = await here.phase("Running")
        assert running["spec"]["components"][0]["podSetInfos"] == [
            {
                "annotations": {"kueue.x-k8s.io/workload": name_of(there)},
                "labels": {
                    "kueue.x-k8s.io/cluster-queue-name": "cq",
                    "kueue.x-k8s.io/local-queue-name": "lq",
                    "kueue.x-k8s.io/podset": "w-0",
                },
                "nodeSelector": {"pool": "gold"},
                "tolerations": [{"key": "gold", "operator": "Exists", "effect": "NoSchedule"}],
            }
        ]
        template = (await here.get(JOB, "j"))["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"pool": "gold"}
        await holds(here, "PodsReady", "True")
        done = await holds(here, "Finished", "True")
        finished = find_condition(done["status"]["conditions"], "Finished")
        assert finished is not None
        assert (finished["reason"], finished["message"]) == ("Succeeded", "AppWrapper finished successfully")
        await here.went_through("", "Suspended", "Resuming", "Running", "Succeeded")
        assert ("Normal", "Started", "Admitted by clusterQueue cq") in await here.events()


async def test_an_eviction_gives_the_quota_back_when_nothing_uses_it_any_more(here: Watched) -> None:
    async with operating(here, configuration(kueueIntegration=True)):
        await here.create(queued(pod(stop_after="0.5")))
        await admit(here)
        await here.condition("PodsReady", "True")
        await evict(here)
        released = await holds(here, "QuotaReserved", "False")
        assert await here.names_of(POD) == []
        assert "admission" not in released["status"]
        stopped = await here.phase("Suspended")
        assert "podSetInfos" not in stopped["spec"]["components"][0]
        conditions = [item for item in released["status"]["conditions"] if item["type"] != "Evicted"]
        await here.patch(released, {"status": {"conditions": conditions}}, subresource="status")
        await admit(here)
        await here.phase("Running")


async def test_a_deactivated_workload_stops_its_appwrapper(here: Watched) -> None:
    async with operating(here, configuration(kueueIntegration=True)):
        await here.create(queued(pod()))
        await admit(here)
        await here.phase("Running")
        await here.patch(await workload(here), {"spec": {"active": False}})
        await here.phase("Suspended")
        await holds(here, "QuotaReserved", "False")


async def test_what_has_no_queue_runs_at_once(here: Watched) -> None:
    async with operating(here, configuration(kueueIntegration=True)):
        await here.create(wrapper(pod()))
        await here.phase("Running")
        assert await here.client.list(WORKLOAD, namespace="ns") == []


async def test_a_queue_that_somebody_else_plays_is_obeyed(here: Watched) -> None:
    """Kueue's own integration: it suspends, resumes, and says what goes into the pods."""
    async with operating(here):
        obj = queued(pod(phase="Succeeded", finish_after="0.2"))
        obj["spec"]["suspend"] = True
        await here.create(obj)
        await here.phase("Suspended")
        there = await here.wrapper()
        there["spec"]["components"][0]["podSetInfos"] = [{"labels": {"flavor": "gold"}}]
        there["spec"]["suspend"] = False
        await here.client.update(there)
        await here.phase("Running", "Succeeded")
        assert (await here.get(POD, "p"))["metadata"]["labels"]["flavor"] == "gold"
        await here.phase("Succeeded")
        assert await here.client.list(WORKLOAD, namespace="ns") == []


async def test_the_slack_queue_lends_what_can_be_scheduled(here: Watched) -> None:
    resources = [{"name": "cpu", "nominalQuota": "10"}, {"name": "nvidia.com/gpu", "nominalQuota": "8"}]
    queue = {
        "apiVersion": CLUSTER_QUEUE.api_version,
        "kind": CLUSTER_QUEUE.kind,
        "metadata": {"name": "slack"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "nvidia.com/gpu"],
                    "flavors": [{"name": "gold", "resources": resources}],
                }
            ],
        },
    }

    async def limits() -> dict[str, str]:
        there = await here.client.get(CLUSTER_QUEUE, NamespacedName("", "slack"))
        assert there is not None
        groups = there["spec"]["resourceGroups"]
        return {
            item["name"]: item["lendingLimit"]
            for item in groups[0]["flavors"][0]["resources"]
            if "lendingLimit" in item
        }

    async def becomes(expected: dict[str, str]) -> None:
        async def look() -> bool:
            found = await limits()
            assert found == expected, found
            return True

        await eventually(look, "the limits")

    async with operating(here, configuration(slackQueueName="slack")):
        await here.create(queue)
        await here.client.patch(NODE, NamespacedName("", "envtest"), {"spec": {"taints": None}})
        for name in ("one", "two"):
            await here.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            capacity = {"status": {"capacity": {"cpu": "4", "nvidia.com/gpu": "4", "pods": "100"}}}
            await here.client.patch(NODE, NamespacedName("", name), capacity, subresource="status")
            await here.client.patch(NODE, NamespacedName("", name), {"spec": {"taints": None}})  # it is ready
        mark = {"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "TESTING"}}}
        await here.client.patch(NODE, NamespacedName("", "one"), mark)
        await becomes({"nvidia.com/gpu": "4"})
        await here.client.patch(NODE, NamespacedName("", "two"), {"spec": {"unschedulable": True}})
        await becomes({"cpu": "6", "nvidia.com/gpu": "0"})
        await here.client.delete(NODE, NamespacedName("", "one"))
        await becomes({"cpu": "6", "nvidia.com/gpu": "4"})
        await here.client.patch(NODE, NamespacedName("", "two"), {"spec": {"unschedulable": None}})
        await becomes({})
