"""AppWrappers in Kueue queues: the operator creates the Workloads, and the test acts as Kueue's scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from cfo.api.appwrapper.kinds import JOB_SET, RAY_SERVICE, TRAIN_JOB
from cfo.api.appwrapper.names import APPWRAPPER_LABEL, APPWRAPPER_UID_LABEL, QUOTA_FINALIZER
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime.objects.kinds import EVENT, JOB, NODE, POD
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    find_condition,
    name_of,
    set_controller_owner,
    uid_of,
)
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.kueue_queue import (
    FLAVOR,
    WORKLOAD,
    admission_of,
    kueue_crds,
    workload_condition,
)
from test.support.raycluster_environment import crd, eventually
from test.support.recordings import GOLDEN, load_appwrapper

CLUSTER_QUEUE = GVK("kueue.x-k8s.io", "v1beta2", "ClusterQueue")

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        flavor_spec: dict[str, Any] = {
            "nodeLabels": {"pool": "gold"},
            "tolerations": [{"key": "gold", "operator": "Exists", "effect": "NoSchedule"}],
        }
        await environment.create(
            {
                "apiVersion": FLAVOR.api_version,
                "kind": FLAVOR.kind,
                "metadata": {"name": "gold"},
                "spec": flavor_spec,
            }
        )
        yield environment


def queued(*templates: Object, suspend: bool = False, **settings: str) -> Object:
    """Return an AppWrapper in the local queue ``lq``."""
    obj = wrapper(*templates, suspend=suspend, **settings)
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    return obj


async def get_workload(environment: AppWrapperEnvironment) -> Object:
    """Wait until the Workload exists, and return it."""

    async def check() -> Object | None:
        result = await environment.client.list(WORKLOAD, namespace="ns")
        return result[0] if result else None

    result: Object = await eventually(check, "a workload")
    return result


async def admit_workload(environment: AppWrapperEnvironment) -> Object:
    """Admit the Workload as Kueue's scheduler does."""
    workload = await get_workload(environment)
    conditions = [workload_condition(kind) for kind in ("QuotaReserved", "Admitted")]
    status = {"conditions": conditions, "admission": admission_of(workload)}
    return await environment.patch(workload, {"status": status}, subresource="status")


async def evict_workload(environment: AppWrapperEnvironment) -> None:
    """Evict the Workload as Kueue's scheduler does on preemption."""
    await add_condition(environment, "Evicted", "Preempted to accommodate a workload")


async def add_condition(environment: AppWrapperEnvironment, kind: str, message: str) -> None:
    """Add a condition to the status of the Workload, as Kueue or an administrator does."""
    workload = await get_workload(environment)
    conditions = [*workload["status"]["conditions"], workload_condition(kind, message=message)]
    await environment.patch(workload, {"status": {"conditions": conditions}}, subresource="status")


async def wait_for_workload_condition(
    environment: AppWrapperEnvironment, kind: str, status: str
) -> Object:
    """Wait until the Workload has the condition, and return it."""

    async def check() -> Object:
        workload = await get_workload(environment)
        result = find_condition((workload.get("status") or {}).get("conditions"), kind)
        assert result is not None, workload.get("status")
        assert result["status"] == status, result
        return workload

    result: Object = await eventually(check, f"{kind} {status}")
    return result


async def test_queued_appwrapper_runs_after_admission(environment: AppWrapperEnvironment) -> None:
    component = job(parallelism=2, phase="Succeeded", finish_after="2")
    container = component["spec"]["template"]["spec"]["containers"][0]
    # Pods may have both, and Kueue's CRD accepts neither.
    container["resources"] = {"requests": {"cpu": 0.5}}
    container["env"] = [{"name": "SEED", "value": "1"}, {"name": "SEED", "value": "2"}]
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(queued(component))
        workload = await get_workload(environment)
        assert (await environment.get_wrapper())["spec"]["suspend"] is True
        assert await environment.object_names(JOB) == []
        (admitted,) = workload["spec"]["podSets"][0]["template"]["spec"]["containers"]
        assert admitted["resources"] == {"requests": {"cpu": "0.5"}}
        assert admitted["env"] == [{"name": "SEED", "value": "2"}]
        recorded = next(
            item
            for step in load_appwrapper("kueue/kueue-admission")["steps"]
            if step.get("observe") == "admitted"
            for item in step["objects"]
            if item.get("kind") == "Workload"
        )
        assert set(recorded["spec"]) == set(workload["spec"])
        for key in ("count", "name", "topologyRequest"):
            assert workload["spec"]["podSets"][0][key] == recorded["spec"]["podSets"][0][key]
        owner = {
            **recorded["metadata"]["ownerReferences"][0],
            "uid": uid_of(await environment.get_wrapper()),
        }
        assert workload["metadata"]["ownerReferences"] == [owner]
        assert workload["metadata"]["labels"] == {APPWRAPPER_UID_LABEL: owner["uid"]}
        assert workload["metadata"]["annotations"] == {APPWRAPPER_LABEL: "w"}
        assert workload["metadata"]["finalizers"] == [QUOTA_FINALIZER]
        assert name_of(workload).startswith("appwrapper-w-")

        await admit_workload(environment)
        running = await environment.wait_for_phase("Running")
        assert running["spec"]["components"][0]["podSetInfos"] == [
            {
                "annotations": {"kueue.x-k8s.io/workload": name_of(workload)},
                "labels": {
                    "kueue.x-k8s.io/cluster-queue-name": "cq",
                    "kueue.x-k8s.io/local-queue-name": "lq",
                    "kueue.x-k8s.io/podset": "w-0",
                },
                "nodeSelector": {"pool": "gold"},
                "tolerations": [{"key": "gold", "operator": "Exists", "effect": "NoSchedule"}],
            }
        ]
        template = (await environment.get(JOB, "j"))["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"pool": "gold"}
        await wait_for_workload_condition(environment, "PodsReady", "True")
        done = await wait_for_workload_condition(environment, "Finished", "True")
        finished = find_condition(done["status"]["conditions"], "Finished")
        assert finished is not None
        assert (finished["reason"], finished["message"]) == (
            "Succeeded",
            "AppWrapper finished successfully",
        )
        await environment.wait_for_phases("", "Suspended", "Resuming", "Running", "Succeeded")
        assert ("Normal", "Started", "Admitted by clusterQueue cq") in await environment.events()


async def test_evicted_workload_releases_quota_after_its_pods_are_deleted(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(queued(pod(stop_after="0.5")))
        await admit_workload(environment)
        await environment.wait_for_condition("PodsReady", "True")
        await evict_workload(environment)
        released = await wait_for_workload_condition(environment, "QuotaReserved", "False")
        assert await environment.object_names(POD) == []
        assert "admission" not in released["status"]
        suspended = await environment.wait_for_phase("Suspended")
        assert "podSetInfos" not in suspended["spec"]["components"][0]
        conditions = [
            item for item in released["status"]["conditions"] if item["type"] != "Evicted"
        ]
        await environment.patch(
            released, {"status": {"conditions": conditions}}, subresource="status"
        )
        await admit_workload(environment)
        await environment.wait_for_phase("Running")


async def test_deactivated_workload_suspends_its_appwrapper(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(queued(pod()))
        await admit_workload(environment)
        await environment.wait_for_phase("Running")
        await environment.patch(await get_workload(environment), {"spec": {"active": False}})
        await environment.wait_for_phase("Suspended")
        await wait_for_workload_condition(environment, "QuotaReserved", "False")


async def test_workload_that_another_one_has_finished_suspends_its_appwrapper(
    environment: AppWrapperEnvironment,
) -> None:
    """Kueue gives the quota of a finished Workload to others."""
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(queued(pod()))
        await admit_workload(environment)
        await environment.wait_for_phase("Running")
        await add_condition(environment, "Finished", "Finished by an administrator")
        await environment.wait_for_phase("Suspended")
        assert await environment.object_names(POD) == []
        assert ("Normal", "Stopped", "The workload is finished") in await environment.events()


async def test_appwrapper_without_queue_runs_immediately(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(wrapper(pod()))
        await environment.wait_for_phase("Running")
        assert await environment.client.list(WORKLOAD, namespace="ns") == []


async def test_workload_contains_what_kuberay_adds(environment: AppWrapperEnvironment) -> None:
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    cluster = {"enableInTreeAutoscaling": True, "headGroupSpec": head}
    ray_job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r"}}
    obj = queued({**ray_job, "spec": {"rayClusterSpec": cluster}}, suspend=True)
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(obj)
        workload = await get_workload(environment)
    requests = [
        [
            container.get("resources", {}).get("requests")
            for container in item["template"]["spec"]["containers"]
        ]
        for item in workload["spec"]["podSets"]
    ]
    assert requests == [
        [None, {"cpu": "500m", "memory": "512Mi"}],
        [{"cpu": "500m", "memory": "200Mi"}],
    ]


def ray_service() -> Object:
    """Return a RayService with a head and a worker, which KubeRay upgrades in a second RayCluster."""
    template = {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}
    cluster = {
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "template": template}],
    }
    strategy = {"type": "NewClusterWithIncrementalUpgrade"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "svc"},
        "spec": {"upgradeStrategy": strategy, "rayClusterConfig": cluster},
    }


async def create_ray_cluster(
    environment: AppWrapperEnvironment, service: Object, suffix: str
) -> None:
    """Create a RayCluster of a RayService, and its pods, as KubeRay does."""
    cluster: Object = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": f"svc-{suffix}", "namespace": "ns"},
        "spec": service["spec"]["rayClusterConfig"],
    }
    cluster = await environment.create(set_controller_owner(cluster, service))
    groups = cluster["spec"]
    for group in (groups["headGroupSpec"], *groups["workerGroupSpecs"]):
        name = f"svc-{suffix}-{group.get('groupName', 'head')}"
        labels = group["template"]["metadata"]["labels"]
        new_pod = pod(name, labels=labels)
        new_pod["metadata"]["namespace"] = "ns"
        await environment.create(set_controller_owner(new_pod, cluster))


async def test_upgrade_of_a_rayservice_runs_within_its_quota(
    environment: AppWrapperEnvironment,
) -> None:
    await environment.plane.install_crds(
        crd("ray.io", "v1", "RayService", "rayservices"),
        crd("ray.io", "v1", "RayCluster", "rayclusters"),
    )
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(queued(ray_service()))
        workload = await get_workload(environment)
        assert [item["count"] for item in workload["spec"]["podSets"]] == [2, 2]
        await admit_workload(environment)
        await environment.wait_for_phase("Running")
        service = await environment.get(RAY_SERVICE, "svc")
        for suffix in ("aaaaa", "bbbbb"):
            await create_ray_cluster(environment, service, suffix)
        await environment.wait_for_condition("PodsReady", "True")
        await environment.wait_until_idle()
        running = await environment.wait_for_condition("Unhealthy", "False")
        assert running["status"]["phase"] == "Running"
        await create_ray_cluster(environment, service, "ccccc")
        await environment.wait_for_condition("Unhealthy", "True", "ExcessPods")


PATCHES = "template.spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs"


def train_job() -> Object:
    """Return a component: a TrainJob with two nodes, whose pod template is in its training runtime."""
    patch = {"name": "node", "template": {"spec": {"template": {"spec": {}}}}}
    runtime = {"template": {"spec": {"replicatedJobs": [patch]}}}
    template = {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": TRAIN_JOB.kind,
        "metadata": {"name": "t"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
            "runtimePatches": [{"manager": "example.com/user", "trainingRuntimeSpec": runtime}],
        },
    }
    pod_set = {"path": f"{PATCHES}[0].template.spec.template", "replicas": 2}
    return {"template": template, "podSets": [pod_set]}


async def create_nodes(environment: AppWrapperEnvironment, train: Object, replicas: int) -> None:
    """Create the JobSet of a TrainJob, and its Job, as Kubeflow Trainer and JobSet do."""
    (patch,) = train["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"][
        "replicatedJobs"
    ]
    patched = patch["template"]["spec"]["template"]
    job_set: Object = {
        "apiVersion": JOB_SET.api_version,
        "kind": JOB_SET.kind,
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {},
    }
    job_set = await environment.create(set_controller_owner(job_set, train))
    nodes = job("t-node-0", parallelism=replicas)
    nodes["metadata"]["namespace"] = "ns"
    template = nodes["spec"]["template"]
    template["metadata"]["labels"] = patched["metadata"]["labels"]
    template["spec"]["nodeSelector"] = patched["spec"]["nodeSelector"]
    template["spec"]["containers"][0]["resources"] = train["spec"]["trainer"]["resourcesPerNode"]
    await environment.create(set_controller_owner(nodes, job_set))


async def start_train_job(environment: AppWrapperEnvironment) -> Object:
    """Create an AppWrapper with a TrainJob, let Kueue admit it, and return the TrainJob."""
    await environment.plane.install_crds(
        crd("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
        crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    )
    obj = queued()
    obj["spec"]["components"] = [train_job()]
    await environment.create(obj)
    (pod_set,) = (await get_workload(environment))["spec"]["podSets"]
    assert pod_set["count"] == 2
    assert pod_set["template"]["spec"]["containers"] == [
        {"name": "node", "resources": {"requests": {"cpu": "1"}}}
    ]
    await admit_workload(environment)
    await environment.wait_for_phase("Running")
    return await environment.get(TRAIN_JOB, "t")


async def test_pods_of_a_train_job_are_counted_and_its_report_decides(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.client.patch(
            NODE, NamespacedName("", "envtest"), {"metadata": {"labels": {"pool": "gold"}}}
        )
        train = await start_train_job(environment)
        await environment.wait_for_condition("PodsReady", "False")
        await create_nodes(environment, train, 2)
        await environment.wait_for_condition("PodsReady", "True")
        conditions = [
            {
                "type": "Complete",
                "status": "True",
                "reason": "Complete",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
        await environment.patch(train, {"status": {"conditions": conditions}}, subresource="status")
        pods = await environment.client.list(POD, namespace="ns")
        for each in pods:
            await environment.set_pod_status(name_of(each), "Succeeded")
        await environment.wait_for_phase("Succeeded")
        await wait_for_workload_condition(environment, "Finished", "True")


async def test_train_job_with_more_nodes_than_admitted_is_reset(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        train = await start_train_job(environment)
        await create_nodes(environment, train, 3)
        await environment.wait_for_condition("Unhealthy", "True", "ExcessPods")


async def test_pods_with_a_topology_wait_until_kueue_has_placed_them(
    environment: AppWrapperEnvironment,
) -> None:
    component = job(parallelism=2)
    annotations = component["spec"]["template"]["metadata"]["annotations"]
    annotations["kueue.x-k8s.io/podset-required-topology"] = "rack"
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.client.patch(
            NODE, NamespacedName("", "envtest"), {"metadata": {"labels": {"pool": "gold"}}}
        )
        await environment.create(queued(component))
        workload = await get_workload(environment)
        assert workload["spec"]["podSets"][0]["topologyRequest"] == {
            "required": "rack",
            "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        }
        admission = admission_of(workload)
        placed = {
            "domainCount": 1,
            "podCounts": {"universal": 2},
            "valuesPerLevel": [{"universal": "rack-1"}],
        }
        topology = {"levels": ["rack"], "slices": [placed]}
        admission["podSetAssignments"][0]["topologyAssignment"] = topology
        conditions = [workload_condition(kind) for kind in ("QuotaReserved", "Admitted")]
        status = {"conditions": conditions, "admission": admission}
        await environment.patch(workload, {"status": status}, subresource="status")
        await environment.wait_for_phase("Running")
        await environment.wait_for_condition("PodsReady", "False")

        async def created_pods() -> list[Object]:
            pods = await environment.client.list(POD, namespace="ns")
            assert len(pods) == 2
            return pods

        for each in await eventually(created_pods, "two pods"):
            assert each["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
            assert each["spec"]["nodeSelector"] == {"pool": "gold"}
            assert each["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "w-0"
            assert each["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == name_of(workload)
            await environment.patch(each, {"spec": {"schedulingGates": None}})
        await environment.wait_for_condition("PodsReady", "True")


async def test_workload_of_multikueue_is_left_to_kueues_own_integration(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        copied = queued(pod(), suspend=True)
        copied["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = "theirs"
        await environment.create(copied)
        await environment.wait_for_event("PrebuiltWorkload")
        await environment.wait_until_idle()
        assert await environment.client.list(WORKLOAD, namespace="ns") == []
        await environment.set_suspend(False)
        await environment.wait_for_phase("Suspended")
        await environment.wait_until_idle()
        assert await environment.object_names(POD) == []


async def test_copy_of_multikueue_runs_as_any_other_appwrapper(
    environment: AppWrapperEnvironment,
) -> None:
    """In the worker cluster, Kueue's own integration admits the copy with the Workload that MultiKueue created."""
    async with run_appwrapper_controllers(environment):
        copied = queued(pod(phase="Succeeded", finish_after="0.2"))
        labels = {"prebuilt-workload-name": "theirs", "multikueue-origin": "multikueue"}
        for name, value in labels.items():
            copied["metadata"]["labels"][f"kueue.x-k8s.io/{name}"] = value
        copied["spec"]["suspend"] = True
        await environment.create(copied)
        await environment.wait_for_phase("Suspended")
        await environment.set_suspend(False)
        await environment.wait_for_phase("Succeeded")


async def test_manager_cluster_keeps_the_status_that_multikueue_copies(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        obj = queued(pod())
        obj["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
        created = await environment.create(obj)
        status = {"status": {"phase": "Running"}}
        copied = await environment.patch(created, status, subresource="status")
        await environment.wait_until_idle()
        assert await environment.get_wrapper() == copied
        assert await environment.object_names(POD) == []
        assert await environment.client.list(WORKLOAD, namespace="ns") == []
        await environment.delete(copied)
        await environment.wait_until_deleted()


async def test_external_queue_controls_the_appwrapper(environment: AppWrapperEnvironment) -> None:
    """Kueue's own integration suspends and resumes the AppWrapper and sets the fields to inject into the pods."""
    async with run_appwrapper_controllers(environment):
        obj = queued(pod(phase="Succeeded", finish_after="0.2"))
        obj["spec"]["suspend"] = True
        await environment.create(obj)
        await environment.wait_for_phase("Suspended")
        queued_wrapper = await environment.get_wrapper()
        queued_wrapper["spec"]["components"][0]["podSetInfos"] = [{"labels": {"flavor": "gold"}}]
        queued_wrapper["spec"]["suspend"] = False
        await environment.client.update(queued_wrapper)
        await environment.wait_for_phase("Running", "Succeeded")
        assert (await environment.get(POD, "p"))["metadata"]["labels"]["flavor"] == "gold"
        await environment.wait_for_phase("Succeeded")
        assert await environment.client.list(WORKLOAD, namespace="ns") == []


async def test_slack_queue_lends_only_schedulable_capacity(
    environment: AppWrapperEnvironment,
) -> None:
    resources = [
        {"name": "cpu", "nominalQuota": "10"},
        {"name": "nvidia.com/gpu", "nominalQuota": "8"},
    ]
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
        found = await environment.client.get(CLUSTER_QUEUE, NamespacedName("", "slack"))
        assert found is not None
        groups = found["spec"]["resourceGroups"]
        return {
            item["name"]: item["lendingLimit"]
            for item in groups[0]["flavors"][0]["resources"]
            if "lendingLimit" in item
        }

    async def wait_for_limits(expected: dict[str, str]) -> None:
        async def check() -> bool:
            result = await limits()
            assert result == expected, result
            return True

        await eventually(check, "the limits")

    async with run_appwrapper_controllers(environment, configuration(slackQueueName="slack")):
        await environment.create(queue)
        await environment.client.patch(
            NODE, NamespacedName("", "envtest"), {"spec": {"taints": None}}
        )
        for name in ("one", "two"):
            await environment.create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            )
            capacity = {"status": {"capacity": {"cpu": "4", "nvidia.com/gpu": "4", "pods": "100"}}}
            await environment.client.patch(
                NODE, NamespacedName("", name), capacity, subresource="status"
            )
            # remove the not-ready taint of a new node
            await environment.client.patch(
                NODE, NamespacedName("", name), {"spec": {"taints": None}}
            )
        testing_label = {"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "TESTING"}}}
        await environment.client.patch(NODE, NamespacedName("", "one"), testing_label)
        await wait_for_limits({"nvidia.com/gpu": "4"})
        await environment.client.patch(
            NODE, NamespacedName("", "two"), {"spec": {"unschedulable": True}}
        )
        await wait_for_limits({"cpu": "6", "nvidia.com/gpu": "0"})
        await environment.client.delete(NODE, NamespacedName("", "one"))
        await wait_for_limits({"cpu": "6", "nvidia.com/gpu": "4"})
        await environment.client.patch(
            NODE, NamespacedName("", "two"), {"spec": {"unschedulable": None}}
        )
        await wait_for_limits({})


async def test_queue_that_does_not_exist_is_reported_once(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration(kueueIntegration=True)):
        await environment.create(queued(job()))
        workload = await get_workload(environment)
        message = "LocalQueue lq doesn't exist"
        refused = {
            **workload_condition("QuotaReserved", message=message),
            "status": "False",
            "reason": "Inadmissible",
        }
        status = {"conditions": [refused]}
        workload = await environment.patch(workload, {"status": status}, subresource="status")
        labels = {"metadata": {"labels": {"touched": "true"}}}
        await environment.patch(workload, labels)

        async def is_reported() -> bool:
            events = await environment.client.list(EVENT, namespace="ns")
            found = [each for each in events if each["reason"] == "Inadmissible"]
            return [each["note"] for each in found] == [message]

        await eventually(is_reported, "the Event")
