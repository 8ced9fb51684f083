"""Pod sets of components: inference per kind, declaration and mismatches."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from cfo.api.appwrapper.inference import (
    PodNumbers,
    infer_pod_sets,
    pod_numbers,
    pod_sets_of,
    undercounted_pod_sets,
    unlimited_worker_groups,
)
from cfo.api.appwrapper.podsets import (
    PodSetError,
    pod_set_mismatches,
    pod_template_at,
    pod_template_problems,
)
from hack.generate.builtin_types import table

TEMPLATE: dict[str, Any] = {
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
}
INDEX = {
    "workload.codeflare.dev.appwrapper/tas-pod-index-label": "batch.kubernetes.io/job-completion-index"
}


def component(api_version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def job(**spec: Any) -> dict[str, Any]:
    return component("batch/v1", "Job", template=TEMPLATE, **spec)


def ray_group(**group: Any) -> dict[str, Any]:
    workers = [{"template": TEMPLATE, **group}]
    return component(
        "ray.io/v1", "RayCluster", headGroupSpec={"template": TEMPLATE}, workerGroupSpecs=workers
    )


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"completions": 4}, 1),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 2, "completions": 4}, 2),
        ({"parallelism": 0}, 0),
        ({"parallelism": None, "completions": None}, 1),
        ({"parallelism": 3, "completions": 3, "suspend": True}, 3),
    ],
)
def test_job_replicas_are_pods_running_at_the_same_time(spec: dict[str, Any], pods: int) -> None:
    assert infer_pod_sets(job(**spec)) == [
        {"path": "template.spec.template", "replicas": pods, "annotations": INDEX}
    ]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_deployment_and_stateful_set_replicas(kind: str) -> None:
    assert infer_pod_sets(component("apps/v1", kind, template=TEMPLATE, replicas=3)) == [
        {"path": "template.spec.template", "replicas": 3}
    ]


@pytest.mark.parametrize(
    ("group", "pods"),
    [
        ({}, 1),
        ({"replicas": 2}, 2),
        ({"replicas": 0}, 0),
        ({"replicas": 2, "numOfHosts": 1}, 2),
        ({"replicas": 2, "numOfHosts": 4}, 8),
        ({"numOfHosts": 4}, 4),
        ({"replicas": 2, "suspend": True}, 0),
        ({"replicas": 2, "suspend": False}, 2),
        ({"replicas": 1, "minReplicas": 3}, 3),
        ({"replicas": 5, "maxReplicas": 3}, 3),
        ({"replicas": 1, "maxReplicas": 3}, 1),
        ({"minReplicas": 2, "numOfHosts": 2}, 4),
    ],
)
def test_worker_group_replicas_are_pods_created_by_kuberay(
    group: dict[str, Any], pods: int
) -> None:
    head, workers = infer_pod_sets(ray_group(**group))
    assert head == {"path": "template.spec.headGroupSpec.template", "replicas": 1}
    assert workers == {"path": "template.spec.workerGroupSpecs[0].template", "replicas": pods}


def test_workers_that_the_autoscaler_can_add_are_counted() -> None:
    """M1: a cluster with the autoscaler ran six pods on a quota for two."""
    group = {"replicas": 1, "minReplicas": 1, "maxReplicas": 5, "numOfHosts": 2}
    template = ray_group(**group)
    template["spec"]["enableInTreeAutoscaling"] = True
    found = infer_pod_sets(template)
    assert [pod_set["replicas"] for pod_set in found] == [1, 10]
    assert pod_numbers(template, found) == PodNumbers(3, 11)
    assert unlimited_worker_groups(template) == []
    recorded_by_an_earlier_version = [{"path": item["path"], "replicas": 1} for item in found]
    assert pod_numbers(template, recorded_by_an_earlier_version).expected == 2
    assert pod_numbers(template, recorded_by_an_earlier_version).admitted == 11


@pytest.mark.parametrize("limit", [None, 2**31 - 1])
def test_worker_group_that_the_autoscaler_can_grow_without_limit_is_found(
    limit: int | None,
) -> None:
    template = ray_group(replicas=1, maxReplicas=limit, numOfHosts=4)
    assert unlimited_worker_groups(template) == []
    template["spec"]["enableInTreeAutoscaling"] = True
    assert unlimited_worker_groups(template) == ["template.spec.workerGroupSpecs[0]"]
    template["spec"]["workerGroupSpecs"][0]["suspend"] = True
    assert unlimited_worker_groups(template) == []


@pytest.mark.parametrize(
    ("strategy", "clusters"),
    [
        (None, 1),
        ({"type": "None"}, 1),
        ({"type": "NewCluster"}, 2),
        ({"type": "NewClusterWithIncrementalUpgrade"}, 2),
    ],
)
def test_ray_service_with_an_upgrade_strategy_has_pods_of_two_clusters(
    strategy: Any, clusters: int
) -> None:
    cluster = ray_group(replicas=2)["spec"]
    template = component(
        "ray.io/v1", "RayService", rayClusterConfig=cluster, upgradeStrategy=strategy
    )
    found = infer_pod_sets(template)
    assert [pod_set["replicas"] for pod_set in found] == [clusters, 2 * clusters]
    assert pod_numbers(template, found) == PodNumbers(3, 3 * clusters)


def test_ray_job_has_pod_sets_of_its_cluster() -> None:
    cluster = ray_group(replicas=2)["spec"]
    template = component("ray.io/v1", "RayJob", entrypoint="true", rayClusterSpec=cluster)
    found = infer_pod_sets(template)
    assert [pod_set["path"] for pod_set in found] == [
        "template.spec.rayClusterSpec.headGroupSpec.template",
        "template.spec.rayClusterSpec.workerGroupSpecs[0].template",
    ]
    assert pod_numbers(template, found).expected == 3


def test_job_set_replicas_are_multiplied() -> None:
    jobs = [
        {
            "name": "a",
            "replicas": 2,
            "template": {"spec": job(parallelism=3, completions=5)["spec"]},
        }
    ]
    (found,) = infer_pod_sets(component("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=jobs))
    assert (found["path"], found["replicas"]) == (
        "template.spec.replicatedJobs[0].template.spec.template",
        6,
    )
    assert found["annotations"]["workload.codeflare.dev.appwrapper/tas-sub-group-count"] == "2"


def test_pytorch_job_without_workers() -> None:
    replica_specs = {"Master": {"template": TEMPLATE}}
    (found,) = infer_pod_sets(
        component("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=replica_specs)
    )
    assert (found["path"], found["replicas"]) == (
        "template.spec.pytorchReplicaSpecs.Master.template",
        1,
    )


def test_other_kinds_have_no_pod_sets() -> None:
    assert infer_pod_sets(component("v1", "Service", template=TEMPLATE)) == []


def test_known_kinds_have_the_same_pod_sets_in_each_version() -> None:
    """Otherwise, four large workers of a v1alpha1 RayCluster would use the quota for a small head."""
    groups = [{"groupName": "workers", "replicas": 4, "template": TEMPLATE}]
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": groups}
    for version in ("v1", "v1alpha1"):
        cluster = component(f"ray.io/{version}", "RayCluster", **spec)
        found = {item["path"]: item["replicas"] for item in infer_pod_sets(cluster)}
        assert found == {
            "template.spec.headGroupSpec.template": 1,
            "template.spec.workerGroupSpecs[0].template": 4,
        }


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            job(parallelism="three"),
            "at path position 'template.spec.parallelism' non-int value three",
        ),
        (job(parallelism=1.5), "at path position 'template.spec.parallelism' non-int value 1.5"),
        (job(parallelism=True), "at path position 'template.spec.parallelism' non-int value true"),
        (
            job(completions={"a": 1}),
            "at path position 'template.spec.completions' non-int value (an object)",
        ),
        (
            job(completions="x" * 999),
            f"at path position 'template.spec.completions' non-int value {'x' * 64}...",
        ),
        (
            job(completions=-1),
            "at path position 'template.spec.completions' value -1 is not between 0 and 2147483647",
        ),
        (
            component("apps/v1", "Deployment", template=TEMPLATE, replicas=2**31),
            "at path position 'template.spec.replicas' value 2147483648 is not between 0 and 2147483647",
        ),
        (
            ray_group(replicas=2**30, numOfHosts=4),
            (
                "at path position 'template.spec.workerGroupSpecs[0].template' 4294967296 pods; "
                "at most 2147483647 are allowed"
            ),
        ),
        (
            component("apps/v1", "StatefulSet", replicas=2),
            (
                "template.spec.template does not refer to a v1.PodSpecTemplate: "
                "at path position 'template.spec.' missing field 'template'"
            ),
        ),
        (
            component("apps/v1", "StatefulSet", template=[]),
            (
                "template.spec.template does not refer to a v1.PodSpecTemplate: "
                "at path position 'template.spec.template' non-map value"
            ),
        ),
        (
            component("batch/v1", "Job", template={"spec": "x"}),
            (
                "template.spec.template does not refer to a v1.PodSpecTemplate: "
                "content at template.spec.template does not contain a spec"
            ),
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "spec": {"container": [], "replicas": 1}},
            (
                "template does not refer to a v1.PodSpecTemplate: "
                "content at template.spec not parseable as a v1.PodSpec: "
                'strict decoding error: unknown field "container", unknown field "replicas"'
                "; did you mean containers?"
            ),
        ),
    ],
)
def test_invalid_pod_count_error_contains_path(template: dict[str, Any], message: str) -> None:
    with pytest.raises(PodSetError) as raised:
        infer_pod_sets(template)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("x", "content at template.metadata is not an object"),
        ({"labels": ["a"]}, "content at template.metadata.labels is not a map of strings"),
        (
            {"annotations": {"a": 1}},
            "content at template.metadata.annotations is not a map of strings",
        ),
    ],
)
def test_metadata_of_pod_template_must_have_maps_of_strings(metadata: Any, message: str) -> None:
    with pytest.raises(PodSetError, match=message):
        pod_template_at({"metadata": metadata, "spec": {}}, "template")


def test_long_list_of_problems_is_truncated() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {f"x{number}": 1 for number in range(25)}}
    with pytest.raises(PodSetError, match=r'unknown field "x19", and 5 more$'):
        infer_pod_sets(pod)


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"limit": {}}, 'unknown field "containers[0].resources.limit"; did you mean limits?'),
        ({"xyz": {}}, 'unknown field "containers[0].resources.xyz"'),
    ],
)
def test_misspelled_field_of_a_pod_template_is_followed_by_the_field_that_is_meant(
    resources: dict[str, Any], problem: str
) -> None:
    assert pod_template_problems(container(resources=resources)) == problem


def test_declared_pod_sets_take_precedence() -> None:
    declared = [{"path": "template.spec.template"}]
    assert pod_sets_of({"template": job(parallelism=3), "podSets": declared}) is declared
    assert pod_numbers(job(), pod_sets_of({"template": job(parallelism=3)})).expected == 3
    assert pod_numbers(job(), declared).expected == 1


def autoscaled(**group: Any) -> dict[str, Any]:
    template = ray_group(**group)
    template["spec"]["enableInTreeAutoscaling"] = True
    return template


WORKERS = "template.spec.workerGroupSpecs[0].template"


@pytest.mark.parametrize(
    ("template", "declared", "number"),
    [
        (autoscaled(replicas=1, maxReplicas=5), 1, 5),
        (ray_group(replicas=2, numOfHosts=4), 2, 8),
        (ray_group(replicas=1, minReplicas=3), 1, 3),
        (autoscaled(replicas=1, maxReplicas=5), 5, None),
        (autoscaled(replicas=1, maxReplicas=5), 6, None),
        (autoscaled(replicas=2, maxReplicas=5), 1, None),
    ],
)
def test_worker_group_declared_with_its_replicas_is_counted_as_it_can_grow(
    template: dict[str, Any], declared: int, number: int | None
) -> None:
    pod_sets = [
        {"path": "template.spec.headGroupSpec.template"},
        {"path": WORKERS, "replicas": declared, "annotations": {"a": "b"}},
    ]
    replaced = {WORKERS: number} if number else {}
    assert undercounted_pod_sets(template, pod_sets) == replaced
    found = pod_sets_of({"template": template, "podSets": pod_sets})
    assert found[1] == {**pod_sets[1], "replicas": number or declared}
    assert found[0] is pod_sets[0]


def test_only_kinds_that_the_go_operator_counts_differently_are_counted_again() -> None:
    pod_sets = [{"path": "template.spec.template", "replicas": 1}]
    assert undercounted_pod_sets(job(parallelism=3), pod_sets) == {}
    assert undercounted_pod_sets(component("example.com/v1", "Thing"), pod_sets) == {}


def test_pod_template_is_not_a_copy() -> None:
    template = copy.deepcopy(job())
    pod_template_at(template, "template.spec.template")["metadata"] = {"labels": {"a": "b"}}
    assert template["spec"]["template"]["metadata"] == {"labels": {"a": "b"}}


def test_replaced_number_is_no_mismatch() -> None:
    inferred = [{"path": "template.a", "replicas": 2}, {"path": "template.b", "replicas": 2}]
    declared = [{"path": "template.a"}, {"path": "template.b"}]
    assert list(pod_set_mismatches(declared, inferred, {"template.a"})) == [
        "replica count 1 differs from inferred count 2 for PodSet at path position 'template.b'"
    ]


def test_all_mismatches_are_reported() -> None:
    inferred = [{"path": "template.a", "replicas": 1}, {"path": "template.b", "replicas": 2}]
    assert list(pod_set_mismatches([], inferred)) == []
    assert list(pod_set_mismatches(inferred, inferred)) == []
    assert list(pod_set_mismatches(inferred, [])) == []
    assert list(pod_set_mismatches(inferred[:1], inferred)) == [
        "DeclaredPodSet count 1 differs from inferred count 2"
    ]
    assert list(
        pod_set_mismatches(
            [{"path": "template.b", "replicas": 7}, {"path": "template.c"}], inferred
        )
    ) == [
        "PodSet with path 'template.a' is missing",
        "replica count 7 differs from inferred count 2 for PodSet at path position 'template.b'",
    ]


ROOT = Path(__file__).parents[4]


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "busybox", **fields}]}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": None, "nodeSelector": None},
        {
            **container(
                resources={
                    "requests": {"cpu": "500m", "memory": "1.5Gi", "nvidia.com/gpu": 1, "a": "1e3"}
                },
                env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                args=["-c", None],
                livenessProbe={"httpGet": {"port": "http"}, "initialDelaySeconds": 3},
                readinessProbe={"httpGet": {"port": 8080}},
                securityContext={"runAsUser": 2**40, "runAsNonRoot": True},
            ),
            "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 30}],
            "nodeSelector": {"a": "b"},
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    ],
)
def test_valid_pod_spec_has_no_problems(spec: dict[str, Any]) -> None:
    assert pod_template_problems(spec) == ""


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ({"Containers": []}, ['unknown field "Containers"']),
        (
            container(imaeg="typo", x=None),
            ['unknown field "containers[0].imaeg"', 'unknown field "containers[0].x"'],
        ),
        ({"containers": {}}, ['field "containers" must be a list']),
        ({"containers": [None]}, ['field "containers[0]" must be an object']),
        ({"containers": ["busybox"]}, ['field "containers[0]" must be an object']),
        (container(command="sh"), ['field "containers[0].command" must be a list']),
        (container(args=["-c", 1]), ['field "containers[0].args[1]" must be a string']),
        (
            container(resources={"limits": {"cpu": "lots", "memory": True}}),
            [
                'field "containers[0].resources.limits[cpu]" must be a quantity such as 500m, 2 or 4Gi',
                'field "containers[0].resources.limits[memory]" must be a quantity such as 500m, 2 or 4Gi',
            ],
        ),
        (
            container(resources={"limits": []}),
            ['field "containers[0].resources.limits" must be an object'],
        ),
        ({"priority": 2**31}, ['field "priority" must be an integer of 32 bits']),
        ({"priority": True}, ['field "priority" must be an integer of 32 bits']),
        (
            {"activeDeadlineSeconds": "60"},
            ['field "activeDeadlineSeconds" must be an integer of 64 bits'],
        ),
        ({"hostNetwork": "yes"}, ['field "hostNetwork" must be true or false']),
        ({"nodeSelector": {"gpu": True}}, ['field "nodeSelector[gpu]" must be a string']),
        (
            container(livenessProbe={"httpGet": {"port": 1.5}}),
            ['field "containers[0].livenessProbe.httpGet.port" must be an integer or a string'],
        ),
    ],
)
def test_problem_contains_path_of_field(spec: dict[str, Any], problems: list[str]) -> None:
    found, _, _ = pod_template_problems(spec).partition("; did you mean ")
    assert found == ", ".join(problems)


def test_schema_file_is_up_to_date() -> None:
    assert (ROOT / "cfo" / "api" / "builtin_types.json").read_text() == table()
