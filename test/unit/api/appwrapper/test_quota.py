"""Pods that need quota: what KubeRay adds to the pods of a component.

The resources are those of KubeRay 1.7, and of Kueue's integrations for RayClusters and RayJobs.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.appwrapper.inference import pod_sets_of
from cfo.api.appwrapper.pod_use import least_use
from cfo.api.appwrapper.podsets import PodSetError
from cfo.api.appwrapper.quota import check_added_pods, pods_with_quota, uncounted_additions
from cfo.api.appwrapper.train_jobs import queue_errors
from cfo.api.pod_requests import requests_of_spec
from cfo.runtime.objects.field import Path

HEAD: dict[str, Any] = {
    "name": "ray-head",
    "image": "ray:2",
    "resources": {"requests": {"cpu": "2", "memory": "8G"}},
}
CLUSTER: dict[str, Any] = {
    "headGroupSpec": {"template": {"spec": {"containers": [HEAD]}}},
    "workerGroupSpecs": [
        {"replicas": 2, "template": {"spec": {"containers": [{"name": "ray-worker"}]}}}
    ],
}
AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}
SUBMITTER = {
    "name": "ray-job-submitter",
    "resources": {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "200Mi"},
    },
}


def ray_cluster(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "x"},
        "spec": {**CLUSTER, **spec},
    }


def ray_job(cluster: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"entrypoint": "true", "rayClusterSpec": {**CLUSTER, **(cluster or {})}, **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "x"}, "spec": spec}


def ray_service(**cluster: Any) -> dict[str, Any]:
    spec = {"rayClusterConfig": {**CLUSTER, **cluster}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "x"},
        "spec": spec,
    }


def containers(template: dict[str, Any]) -> list[list[dict[str, Any]]]:
    before = copy.deepcopy(template)
    found = [
        group.template["spec"]["containers"] for group in pods_with_quota({"template": template})
    ]
    assert template == before
    return found


@pytest.mark.parametrize(
    ("options", "resources"),
    [
        ({}, {"limits": AUTOSCALER, "requests": AUTOSCALER}),
        (
            {"autoscalerOptions": {"idleTimeoutSeconds": 60}},
            {"limits": AUTOSCALER, "requests": AUTOSCALER},
        ),
        (
            {"autoscalerOptions": {"resources": {"requests": {"cpu": "1"}}}},
            {"requests": {"cpu": "1"}},
        ),
        ({"autoscalerOptions": {"resources": {}}}, {}),
    ],
)
def test_autoscaler_is_counted_in_the_head_pod(
    options: dict[str, Any], resources: dict[str, Any]
) -> None:
    options = {"enableInTreeAutoscaling": True, **options}
    for template in (
        ray_cluster(**options),
        ray_job(options, submissionMode="HTTPMode"),
        ray_service(**options),
    ):
        head, worker = containers(template)
        assert head == [HEAD, {"name": "autoscaler", "resources": resources}]
        assert worker == [{"name": "ray-worker"}]
        assert uncounted_additions(template) == ["container autoscaler of the head pod"]


def test_cluster_without_autoscaler_is_counted_unchanged() -> None:
    for template in (
        ray_cluster(),
        ray_cluster(enableInTreeAutoscaling=False, autoscalerOptions={}),
        ray_service(),
    ):
        assert containers(template) == [[HEAD], [{"name": "ray-worker"}]]
        assert uncounted_additions(template) == []


def test_default_submitter_is_counted_as_its_own_pod() -> None:
    head, _, submitter = containers(ray_job())
    assert head == [HEAD]
    assert submitter == [{**SUBMITTER, "image": "ray:2"}]
    assert len(uncounted_additions(ray_job())) == 1
    declared = [{"path": "template.spec.rayClusterSpec.headGroupSpec.template"}]
    groups = pods_with_quota({"template": ray_job(), "podSets": declared})
    assert [(group.position, group.is_submitter) for group in groups] == [(0, False), (1, True)]


def test_submitter_with_a_template_is_counted_with_its_resources() -> None:
    own = {"spec": {"containers": [{"name": "own", "resources": {"requests": {"cpu": "3"}}}]}}
    template = ray_job(submitterPodTemplate=own)
    assert containers(template)[2] == own["spec"]["containers"]
    assert uncounted_additions(template) == []


def test_sidecar_submitter_is_counted_in_the_head_pod() -> None:
    template = ray_job({"enableInTreeAutoscaling": True}, submissionMode="SidecarMode")
    head, _ = containers(template)
    assert [container["name"] for container in head] == [
        "ray-head",
        "autoscaler",
        "ray-job-submitter",
    ]
    assert head[2] == SUBMITTER


@pytest.mark.parametrize(
    ("options", "resources"),
    [
        (
            {"image": "collector:1"},
            {
                "limits": {"cpu": "200m", "memory": "256Mi"},
                "requests": {"cpu": "50m", "memory": "64Mi"},
            },
        ),
        ({"resources": {"requests": {"cpu": "1"}}}, {"requests": {"cpu": "1"}}),
        ({"resources": {}}, {}),
    ],
)
def test_collector_of_the_history_server_is_counted_in_each_ray_pod(
    options: dict[str, Any], resources: dict[str, Any]
) -> None:
    cluster = {"historyServerOptions": {"collectorOptions": options}}
    collector = {"name": "ray-history-collector", "resources": resources}
    for template in (ray_cluster(**cluster), ray_job(cluster), ray_service(**cluster)):
        found = containers(template)
        assert found[0] == [HEAD, collector]
        assert found[1] == [{"name": "ray-worker"}, collector]
        assert "container ray-history-collector of each Ray pod" in uncounted_additions(template)
    submitter = containers(ray_job(cluster))[2]
    assert [container["name"] for container in submitter] == ["ray-job-submitter"]


def test_history_server_without_a_collector_adds_nothing() -> None:
    for options in ({}, {"collectorOptions": None}):
        template = ray_cluster(historyServerOptions=options)
        assert containers(template) == [[HEAD], [{"name": "ray-worker"}]]


def test_invalid_resources_of_the_collector_are_an_error() -> None:
    options = {"collectorOptions": {"resources": {"requests": ["cpu"]}}}
    with pytest.raises(PodSetError, match=r"historyServerOptions\.collectorOptions\.resources not"):
        check_added_pods(ray_cluster(historyServerOptions=options))


@pytest.mark.parametrize("mode", ["HTTPMode", "InteractiveMode"])
def test_submission_without_pod_is_not_counted(mode: str) -> None:
    assert containers(ray_job(submissionMode=mode)) == [[HEAD], [{"name": "ray-worker"}]]


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({}, {}, {"cpu": "200m", "memory": "256Mi"}),
        ({"cpu": "100m", "memory": "1Gi"}, {}, {"cpu": "200m", "memory": "1Gi"}),
        ({"memory": None}, {}, {"cpu": "200m", "memory": None}),
        ({"cpu": "1e999"}, {}, {"cpu": "1e999", "memory": "256Mi"}),
        ({}, {"cpu": "32", "memory": "100Mi"}, {"cpu": "32", "memory": "256Mi"}),
        (
            {"cpu": "100m"},
            {"cpu": "32", "memory": "100Gi"},
            {"cpu": "200m", "memory": "100Gi"},
        ),
    ],
)
def test_head_pod_has_quota_for_the_cleanup_of_redis(
    requests: dict[str, Any], limits: dict[str, Any], expected: dict[str, Any]
) -> None:
    resources = {"requests": requests, "limits": limits}
    head = {"template": {"spec": {"containers": [{"name": "h", "resources": resources}]}}}
    template = ray_cluster(
        headGroupSpec=head, gcsFaultToleranceOptions={"redisAddress": "redis:6379"}
    )
    found = containers(template)
    assert found[0][0]["resources"]["requests"] == expected
    template = ray_cluster(headGroupSpec=head)
    template["metadata"]["annotations"] = {"ray.io/ft-enabled": "True"}
    assert containers(template)[0] == found[0]


def test_workers_have_quota_for_the_container_that_waits_for_the_head() -> None:
    small = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    pod = {"spec": {"containers": [{"name": "c", "resources": small}]}}
    template = ray_cluster(
        headGroupSpec={"template": copy.deepcopy(pod)},
        workerGroupSpecs=[{"groupName": "g", "replicas": 1, "template": pod}],
    )
    head, worker = (
        requests_of_spec(group.template["spec"])
        for group in pods_with_quota({"template": template})
    )
    assert head["cpu"] == 1
    assert worker == {"cpu": 200, "memory": 256 * 2**20 * 1000}


@pytest.mark.parametrize(
    "resources",
    [
        "1",
        {"requests": {"cpu": {}}},
        {"requests": ["cpu"]},
        {"unknown": {}},
        {"limits": {"cpu": [1]}},
    ],
)
def test_invalid_resources_of_the_autoscaler_are_an_error(resources: Any) -> None:
    template = ray_cluster(enableInTreeAutoscaling=True, autoscalerOptions={"resources": resources})
    with pytest.raises(
        PodSetError, match=r"content at template\.spec\.autoscalerOptions\.resources not parseable"
    ):
        check_added_pods(template)


def train_job(**trainer: Any) -> dict[str, Any]:
    """Return a component with a TrainJob that patches the pods of an initializer and of two nodes."""
    patches = [
        {"name": name, "template": {"spec": {"template": {"spec": {}}}}}
        for name in ("model-initializer", "node")
    ]
    spec = {"template": {"spec": {"replicatedJobs": patches}}}
    template = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "x"},
        "spec": {
            "runtimeRef": {"name": "torchtune"},
            "trainer": {"numNodes": 2, **trainer},
            "runtimePatches": [{"manager": "example.com/user", "trainingRuntimeSpec": spec}],
        },
    }
    jobs = "template.spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs"
    pod_sets = [
        {"path": f"{jobs}[0].template.spec.template"},
        {"path": f"{jobs}[1].template.spec.template", "replicas": 2},
    ]
    return {"template": template, "podSets": pod_sets}


def test_nodes_of_a_train_job_are_counted_with_their_resources() -> None:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    component = train_job(resourcesPerNode=resources)
    before = copy.deepcopy(component)
    initializer, nodes = pods_with_quota(component)
    assert component == before
    assert initializer.template["spec"]["containers"] == [{"name": "model-initializer"}]
    requested = {**resources, "requests": resources["limits"]}
    assert nodes.template["spec"]["containers"] == [{"name": "node", "resources": requested}]
    assert [each.pod_set.get("replicas", 1) for each in (initializer, nodes)] == [1, 2]
    assert uncounted_additions(component["template"]) == [
        "spec.trainer.resourcesPerNode of the TrainJob"
    ]


def test_patched_container_of_a_node_gets_the_resources() -> None:
    component = train_job(resourcesPerNode={"requests": {"cpu": "1"}})
    patches = component["template"]["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
    pod = patches["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    pod["containers"] = [{"name": "metrics"}, {"name": "node", "volumeMounts": []}]
    found = pods_with_quota(component)[1].template["spec"]["containers"]
    assert [each.get("resources") for each in found] == [None, {"requests": {"cpu": "1"}}]


def test_resources_in_patches_of_a_train_job_are_not_counted() -> None:
    """Kubeflow Trainer does not know them, so no pod would request them."""
    component = train_job(resourcesPerNode=KNOWN_RESOURCES)
    patches = component["template"]["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
    many = {"resources": {"requests": {"nvidia.com/gpu": "1000"}}}
    for patch in patches["template"]["spec"]["replicatedJobs"]:
        containers = [{"name": "c", **many}]
        spec = {"containers": containers, "initContainers": containers, "overhead": {"cpu": "9"}}
        patch["template"]["spec"]["template"]["spec"] = {**spec, **many, "nodeSelector": {"a": "b"}}
    initializer, nodes = (group.template["spec"] for group in pods_with_quota(component))
    expected = {
        "containers": [{"name": "c"}],
        "initContainers": [{"name": "c"}],
        "nodeSelector": {"a": "b"},
    }
    assert initializer == expected
    assert nodes == {**expected, "containers": [{"name": "c", "resources": KNOWN_RESOURCES}]}


def test_invalid_resources_of_a_train_job_are_an_error() -> None:
    with pytest.raises(PodSetError, match=r"trainer\.resourcesPerNode not parseable"):
        check_added_pods(train_job(resourcesPerNode={"requests": ["cpu"]})["template"])


def errors_in_queue(component: dict[str, Any]) -> list[str]:
    """Return the errors in a component of an AppWrapper that has a queue."""
    return [str(error) for error in queue_errors(component, Path("components[0]"))]


KNOWN_RESOURCES = {"requests": {"cpu": "1"}}


def test_complete_train_job_has_no_errors_in_a_queue() -> None:
    assert errors_in_queue(train_job(resourcesPerNode=KNOWN_RESOURCES)) == []
    assert errors_in_queue({"template": ray_job()}) == []


def test_other_jobs_of_a_train_job_have_no_more_pods_than_nodes_in_a_queue() -> None:
    component = train_job(resourcesPerNode=KNOWN_RESOURCES)
    patches = component["template"]["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
    patches["template"]["spec"]["replicatedJobs"][0]["name"] = "evaluator"
    component["podSets"][0]["replicas"] = 2
    assert errors_in_queue(component) == []
    component["podSets"][0]["replicas"] = 3
    (error,) = errors_in_queue(component)
    assert error.startswith("components[0].podSets: Invalid value")
    assert "pod sets of other replicated jobs than node have 3 pods" in error


def test_queue_must_know_pod_sets_of_a_train_job() -> None:
    component = train_job(resourcesPerNode=KNOWN_RESOURCES)
    (error,) = errors_in_queue({"template": component["template"]})
    assert error.startswith("components[0].podSets: Required value: the pod templates")


def test_queue_must_know_all_nodes_of_a_train_job() -> None:
    (error,) = errors_in_queue(train_job(resourcesPerNode=KNOWN_RESOURCES, numNodes=3))
    assert error.startswith("components[0].podSets: Required value: ")
    assert error.endswith("is 3, but the pod sets have 2 training pods")
    (error,) = errors_in_queue(train_job(resourcesPerNode=KNOWN_RESOURCES, numNodes=None))
    assert error.startswith("components[0].template.spec.trainer.numNodes: Required value: ")


@pytest.mark.parametrize("resources", [None, {}, {"limits": {}}, {"claims": [{"name": "gpu"}]}])
def test_queue_must_know_resources_of_a_train_job(resources: Any) -> None:
    """Without requests and limits, Kubeflow Trainer keeps the resources of the training runtime."""
    (error,) = errors_in_queue(train_job(resourcesPerNode=resources))
    assert error.startswith("components[0].template.spec.trainer.resourcesPerNode: Required value")


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "TrainingRuntime"), ("kind", ""), ("kind", 1), ("apiGroup", "example.com")],
)
def test_train_job_in_a_queue_must_not_refer_to_a_runtime_of_users(field: str, value: Any) -> None:
    """The runtime can have replicated jobs, and thus pods, that no pod set describes."""
    component = train_job(resourcesPerNode=KNOWN_RESOURCES)
    component["template"]["spec"]["runtimeRef"][field] = value
    (error,) = errors_in_queue(component)
    assert error.startswith(f"components[0].template.spec.runtimeRef.{field}: Invalid value: ")
    allowed = {"kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    assert f"must be {allowed[field]} in a queue" in error
    component["template"]["spec"]["runtimeRef"][field] = allowed[field]
    assert errors_in_queue(component) == []


def test_other_kinds_are_counted_as_declared() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [HEAD]},
    }
    assert containers(pod) == [[HEAD]]
    check_added_pods(pod)
    assert uncounted_additions(pod) == []


def test_ray_pods_with_limits_of_the_pod_need_what_the_api_server_lets_them_request() -> None:
    """By default a pod requests the sum of its containers, also of those that KubeRay adds."""
    pod = {"spec": {"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "4"}}}}
    template = ray_cluster(
        headGroupSpec={"template": pod},
        workerGroupSpecs=[{"groupName": "g", "replicas": 1, "template": pod}],
    )
    head, worker = least_use(template, pod_sets_of({"template": template}))
    assert head.requests == {"cpu": 1000}
    assert worker.requests == {"cpu": 50}
