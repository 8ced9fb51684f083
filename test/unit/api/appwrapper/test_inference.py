"""Pod sets that the Go operator does not infer, with samples of the projects' documentation."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cfo.api.appwrapper.inference import infer_pod_sets, pod_numbers, pod_sets_of
from cfo.api.appwrapper.podsets import PodSetError, pod_set_mismatches

LEADER_WORKER_SET = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: vllm}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 3
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      metadata: {labels: {role: leader}}
      spec:
        containers:
          - name: vllm-leader
            image: vllm/vllm-openai:latest
            resources: {limits: {nvidia.com/gpu: "8", memory: 1124Gi}, requests: {ephemeral-storage: 800Gi, cpu: 125}}
            ports: [{containerPort: 8080}]
            readinessProbe: {tcpSocket: {port: 8080}, initialDelaySeconds: 15, periodSeconds: 10}
    workerTemplate:
      spec:
        containers:
          - name: vllm-worker
            image: vllm/vllm-openai:latest
            resources: {limits: {nvidia.com/gpu: "8", memory: 1124Gi}}
"""

MPI_JOB = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 1
  runPolicy: {cleanPodPolicy: Running, ttlSecondsAfterFinished: 60}
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: mpi-launcher
              image: mpioperator/mpi-pi:openmpi
              securityContext: {runAsUser: 1000}
              command: [mpirun]
              args: [-n, "2", /home/mpiuser/pi]
              resources: {limits: {cpu: 1, memory: 1Gi}}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: mpi-worker
              image: mpioperator/mpi-pi:openmpi
              command: [/usr/sbin/sshd]
              args: [-De, -f, /home/mpiuser/.sshd_config]
"""

RAY_SERVICE = """
apiVersion: ray.io/v1
kind: RayService
metadata: {name: rayservice-sample}
spec:
  serveConfigV2: |
    applications: []
  rayClusterConfig:
    rayVersion: 2.46.0
    headGroupSpec:
      rayStartParams: {dashboard-host: 0.0.0.0}
      template:
        spec:
          containers:
            - name: ray-head
              image: rayproject/ray:2.46.0
              ports: [{containerPort: 6379, name: gcs}, {containerPort: 8000, name: serve}]
              resources: {limits: {cpu: 2, memory: 2Gi}}
    workerGroupSpecs:
      - replicas: 3
        minReplicas: 1
        maxReplicas: 5
        groupName: small-group
        rayStartParams: {}
        template: {spec: {containers: [{name: ray-worker, image: "rayproject/ray:2.46.0"}]}}
"""

RAY_JOB_SAMPLE = """
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: rayjob-sample}
spec:
  entrypoint: python /home/ray/samples/sample_code.py
  rayClusterSpec:
    rayVersion: 2.46.0
    headGroupSpec:
      rayStartParams: {}
      template: {spec: {containers: [{name: ray-head, image: "rayproject/ray:2.46.0"}]}}
    workerGroupSpecs:
      - groupName: small-group
        replicas: 1
        rayStartParams: {}
        template: {spec: {containers: [{name: ray-worker, image: "rayproject/ray:2.46.0"}]}}
  submitterPodTemplate:
    spec:
      restartPolicy: Never
      containers:
        - name: my-custom-rayjob-submitter-pod
          image: rayproject/ray:2.46.0
          resources: {requests: {cpu: 250m}}
"""


def parsed(text: str, **spec: Any) -> dict[str, Any]:
    obj: dict[str, Any] = yaml.safe_load(text)
    obj["spec"] |= spec
    return obj


def paths_and_counts(obj: dict[str, Any]) -> dict[str, int]:
    return {
        pod_set["path"].removeprefix("template.spec."): pod_set["replicas"]
        for pod_set in infer_pod_sets(obj)
    }


def test_leader_worker_set_has_one_leader_for_each_group() -> None:
    assert paths_and_counts(parsed(LEADER_WORKER_SET)) == {
        "leaderWorkerTemplate.leaderTemplate": 2,
        "leaderWorkerTemplate.workerTemplate": 4,
    }


def test_leader_worker_set_declared_with_too_few_workers_is_counted_as_it_runs() -> None:
    """L2: the sample of the AppWrapper project declares three workers, and four run."""
    path = "template.spec.leaderWorkerTemplate"
    declared = [
        {"path": f"{path}.leaderTemplate", "replicas": 2},
        {"path": f"{path}.workerTemplate", "replicas": 3},
    ]
    found = pod_sets_of({"template": parsed(LEADER_WORKER_SET), "podSets": declared})
    assert [pod_set["replicas"] for pod_set in found] == [2, 4]


def test_leader_worker_set_without_leader_template_has_groups_of_workers() -> None:
    obj = parsed(LEADER_WORKER_SET)
    del obj["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    (workers,) = infer_pod_sets(obj)
    assert workers == {
        "path": "template.spec.leaderWorkerTemplate.workerTemplate",
        "replicas": 6,
        "annotations": {
            "workload.codeflare.dev.appwrapper/tas-pod-index-label": "leaderworkerset.sigs.k8s.io/worker-index",
            "workload.codeflare.dev.appwrapper/tas-sub-group-index-label": "leaderworkerset.sigs.k8s.io/group-index",
            "workload.codeflare.dev.appwrapper/tas-sub-group-count": "2",
        },
    }
    del obj["spec"]["replicas"], obj["spec"]["leaderWorkerTemplate"]["size"]
    assert paths_and_counts(obj) == {"leaderWorkerTemplate.workerTemplate": 1}


@pytest.mark.parametrize("version", ["v2beta1", "v1"])
def test_mpi_job_has_launcher_and_workers(version: str) -> None:
    obj = parsed(MPI_JOB) | {"apiVersion": f"kubeflow.org/{version}"}
    assert paths_and_counts(obj) == {
        "mpiReplicaSpecs.Launcher.template": 1,
        "mpiReplicaSpecs.Worker.template": 2,
    }
    del obj["spec"]["mpiReplicaSpecs"]["Worker"]
    assert paths_and_counts(obj) == {"mpiReplicaSpecs.Launcher.template": 1}


def test_ray_service_has_pod_sets_of_its_cluster() -> None:
    assert paths_and_counts(parsed(RAY_SERVICE)) == {
        "rayClusterConfig.headGroupSpec.template": 1,
        "rayClusterConfig.workerGroupSpecs[0].template": 3,
    }


RAY_JOB_CLUSTER = {
    "rayClusterSpec.headGroupSpec.template": 1,
    "rayClusterSpec.workerGroupSpecs[0].template": 1,
}


@pytest.mark.parametrize(
    ("mode", "submitter"),
    [
        (None, {"submitterPodTemplate": 1}),
        ("K8sJobMode", {"submitterPodTemplate": 1}),
        ("HTTPMode", {}),
        ("SidecarMode", {}),
        ("InteractiveMode", {}),
    ],
)
def test_submitter_has_a_pod_set_if_kuberay_creates_its_pod(
    mode: str | None, submitter: dict[str, int]
) -> None:
    template = parsed(RAY_JOB_SAMPLE, submissionMode=mode)
    assert paths_and_counts(template) == RAY_JOB_CLUSTER | submitter
    found = infer_pod_sets(template)
    assert pod_numbers(template, found).expected == 2, (
        "the submitter is created once the cluster is ready"
    )


def test_more_declared_pod_sets_than_allowed_are_an_error() -> None:
    component = {
        "podSets": [{"path": "template"}] * 9,
        "template": {"apiVersion": "v1", "kind": "Pod"},
    }
    with pytest.raises(PodSetError, match="component contains 9 podspecs; at most 8 are allowed"):
        pod_sets_of(component)
    assert len(pod_sets_of({**component, "podSets": component["podSets"][:8]})) == 8


def test_pod_sets_that_the_go_operator_infers_can_be_declared() -> None:
    inferred = infer_pod_sets(parsed(RAY_JOB_SAMPLE))
    assert list(pod_set_mismatches(inferred, inferred)) == []
    assert list(pod_set_mismatches(inferred[:2], inferred)) == []
    assert list(pod_set_mismatches(inferred[:1], inferred)) == [
        "DeclaredPodSet count 1 differs from inferred count 2"
    ]


@pytest.mark.parametrize("kind", ["RayJob", "Thing"])
def test_submitter_path_of_another_kind_is_an_ordinary_pod_set(kind: str) -> None:
    pod_sets = [{"path": "template.spec.submitterPodTemplate", "replicas": 2}]
    template = {"apiVersion": "example.com/v1", "kind": kind}
    assert pod_numbers(template, pod_sets).expected == 2


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (
            LEADER_WORKER_SET,
            {"replicas": -1},
            "spec.replicas' value -1 is not between 0 and 2147483647",
        ),
        (LEADER_WORKER_SET, {"replicas": 2**30}, "at most 2147483647 are allowed"),
        (
            LEADER_WORKER_SET,
            {"leaderWorkerTemplate": {"size": 2}},
            "missing field 'workerTemplate'",
        ),
        (MPI_JOB, {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}}}, "missing field 'template'"),
        (MPI_JOB, {"mpiReplicaSpecs": {"Launcher": []}}, "non-map value"),
        (RAY_SERVICE, {"rayClusterConfig": {}}, "missing field 'headGroupSpec'"),
        (
            RAY_JOB_SAMPLE,
            {"submitterPodTemplate": {}},
            "submitterPodTemplate does not contain a spec",
        ),
        (RAY_JOB_SAMPLE, {"submitterPodTemplate": "x"}, "non-map value"),
    ],
)
def test_invalid_component_is_an_error_with_its_path(
    text: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(PodSetError) as raised:
        infer_pod_sets(parsed(text, **change))
    assert message in str(raised.value)
