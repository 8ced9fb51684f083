"""Validation of FluxJobs and FluxSetups."""

from typing import Any

import pytest

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER, QUOTA_RESERVED, JobState
from cfo.api.flux.validation.minicluster import minicluster_warnings
from cfo.api.flux.validation.queue import (
    flux_job_update_errors,
    flux_job_warnings,
    minicluster_queue_errors,
    validate_flux_job,
    validate_flux_setup,
)
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime import GVK, Object


def obj(kind: GVK, spec: dict[str, Any], *true_conditions: str) -> Object:
    """Return an object of ``kind``; the conditions ``true_conditions`` are ``True``."""
    conditions = [{"type": name, "status": "True"} for name in true_conditions]
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": kind.kind,
        "metadata": {"name": "sample", "namespace": "default"},
        "spec": spec,
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"image": "fluxrm/flux-sched:focal", "command": "sleep", "size": 2}, []),
        ({"size": 2, "template": {"maxSize": 4, "containers": [{"environment": {"A": "b"}}]}}, []),
        (
            {"size": 100_001},
            ["spec.size: Invalid value: 100001: must be between 1 and 100000, inclusive"],
        ),
        (
            {"template": {"size": 0}},
            ["spec.template.size: Invalid value: 0: must be between 1 and 100000, inclusive"],
        ),
        (
            {"size": 3, "template": {"size": 1, "maxSize": 2}},
            ["spec.template.maxSize: Invalid value: 2: must not be less than size (3)"],
        ),
        (
            {"priority": 1, "priorityClassName": "high"},
            ["spec.priority: Forbidden: must not be set together with priorityClassName"],
        ),
        (
            {"template": {"suspend": True}},
            ["spec.template.suspend: Forbidden: set spec.suspend instead"],
        ),
        (
            {"command": "a", "template": {"containers": [{"commands": {"script": "b"}}]}},
            [
                "spec.template.containers[0].commands.script: Forbidden: must not be set together with spec.command",
            ],
        ),
        (
            {
                "environment": {"A": "b"},
                "template": {"containers": [{"secrets": {"A": {"name": "n", "key": "k"}}}]},
            },
            [
                "spec.template.containers[0].secrets[A]: Forbidden: must not be set together with spec.environment"
            ],
        ),
        (
            {"template": {"containers": [{"name": "a"}, {"name": "b"}]}},
            [
                "spec.template.containers: Invalid value: 0 containers have runFlux set to true; exactly one must"
            ],
        ),
        (
            {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
            [
                'spec.resources.requests: Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi'
            ],
        ),
        (
            {
                "resources": {"requests": {"cpu": "-1"}},
                "template": {"pod": {"resources": {"cpu": -2}, "runtimeClassName": "kata"}},
            },
            [
                'spec.template.pod.resources[cpu]: Invalid value: "-2": must be greater than or equal to 0',
                'spec.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
        (
            {"template": {"flux": {"topology": "ring"}}},
            [
                (
                    'spec.template.flux.topology: Unsupported value: "ring": supported values: '
                    '"flat", "kary:K", "binomial", "mincrit", "mincrit:K", "custom"'
                )
            ],
        ),
    ],
)
def test_flux_job_is_validated_with_its_template(spec: dict[str, Any], expected: list[str]) -> None:
    assert [str(error) for error in validate_flux_job(obj(FLUX_JOB, spec))] == expected


@pytest.mark.parametrize(
    ("conditions", "old", "new", "forbidden"),
    [
        # waiting: everything may change
        ([JobState.WAITING], {"size": 1, "command": "a"}, {"size": 2, "command": "b"}, []),
        # admitted
        ([JobState.WAITING, QUOTA_RESERVED], {"size": 1}, {"size": 2}, ["spec.size"]),
        ([JobState.RUNNING, QUOTA_RESERVED], {"command": "a"}, {"command": "b"}, ["spec.command"]),
        (
            [JobState.RUNNING, QUOTA_RESERVED],
            {},
            {"priority": 5, "suspend": True, "ttlSecondsAfterFinished": 1},
            [],
        ),
        ([JobState.READY, QUOTA_RESERVED], {}, {"command": "a"}, []),
        ([JobState.READY, QUOTA_RESERVED], {}, {"command": "a", "image": "b"}, ["spec.image"]),
        # elastic: scaled through the FluxJob
        (
            [JobState.RUNNING, QUOTA_RESERVED],
            {"size": 1, "template": {"maxSize": 4}},
            {"size": 2},
            ["spec.template"],
        ),
        (
            [JobState.RUNNING, QUOTA_RESERVED],
            {"size": 1, "template": {"maxSize": 4}},
            {"size": 2, "template": {"maxSize": 4}},
            [],
        ),
        # finished
        (
            [JobState.FINISHED],
            {"command": "a"},
            {"command": "b", "ttlSecondsAfterFinished": 1},
            ["spec.command"],
        ),
    ],
)
def test_admitted_flux_job_is_immutable(
    conditions: list[str], old: dict[str, Any], new: dict[str, Any], forbidden: list[str]
) -> None:
    errors = flux_job_update_errors(obj(FLUX_JOB, old, *conditions), obj(FLUX_JOB, new))
    assert [error.field for error in errors] == forbidden
    assert all("delete it and create another one" in error.detail for error in errors)


def test_queue_label_of_an_admitted_flux_job_is_immutable() -> None:
    waiting, admitted = (
        obj(FLUX_JOB, {}, JobState.WAITING),
        obj(FLUX_JOB, {}, JobState.WAITING, QUOTA_RESERVED),
    )
    labelled = obj(FLUX_JOB, {})
    labelled["metadata"]["labels"] = {QUEUE_NAME_LABEL: "x"}
    assert flux_job_update_errors(waiting, labelled) == []
    assert [error.field for error in flux_job_update_errors(admitted, labelled)] == [
        "metadata.labels[kueue.x-k8s.io/queue-name]"
    ]
    assert flux_job_update_errors(admitted, obj(FLUX_JOB, {"priority": 1})) == []


def test_queue_label_of_a_minicluster_is_immutable_while_its_job_may_have_pods() -> None:
    labelled = obj(MINICLUSTER, {"jobLabels": {QUEUE_NAME_LABEL: "x"}})
    for conditions, count in (
        ([], 0),
        ([JobState.WAITING], 0),
        ([JobState.REQUESTED], 1),
        ([JobState.RUNNING], 1),
    ):
        assert len(minicluster_queue_errors(obj(MINICLUSTER, {}, *conditions), labelled)) == count
    owned = obj(MINICLUSTER, {}, JobState.WAITING)
    owned["metadata"]["ownerReferences"] = [
        {"kind": "FluxJob", "name": "a", "uid": "1", "controller": True}
    ]
    assert [error.field for error in minicluster_queue_errors(owned, labelled)] == [
        "spec.jobLabels[kueue.x-k8s.io/queue-name]"
    ]
    assert minicluster_queue_errors(owned, obj(MINICLUSTER, {"jobLabels": {"a": "b"}})) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"mini-cluster": {"size": 1}, "max-size": 20}, []),
        ({"mini-cluster": {}, "max-size": 20, "namespaceSelector": {}}, []),
        ({"mini-cluster": {}, "queue": "Kueue", "kueue": {"localQueue": "team-a"}}, []),
        (
            {"mini-cluster": {}, "queue": "Kueue"},
            ["spec.kueue.localQueue: Required value: must be set if queue is Kueue"],
        ),
        (
            {"mini-cluster": {"size": 100_001}},
            [
                "spec.mini-cluster.size: Invalid value: 100001: must be between 1 and 100000, inclusive"
            ],
        ),
        (
            {"mini-cluster": {"pod": {"restartPolicy": "Always"}}},
            [
                (
                    'spec.mini-cluster.pod.restartPolicy: Unsupported value: "Always": '
                    'supported values: "OnFailure", "Never"'
                )
            ],
        ),
        (
            {
                "mini-cluster": {},
                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
            },
            [
                (
                    'spec.namespaceSelector: Invalid value: {"matchExpressions":[{"key":"a","operator":"In"}]}: '
                    "a: In needs at least one value"
                )
            ],
        ),
        (
            {"mini-cluster": {}, "resources": {"cpu": "-1"}},
            ['spec.resources[cpu]: Invalid value: "-1": must be a quantity such as 500m, 2 or 4Gi'],
        ),
        (
            {"mini-cluster": {}, "weights": {"Team": 2}},
            [
                (
                    "spec.weights: Invalid value: \"Team\": must be at most 63 lower-case letters, digits and '-', "
                    "with a letter or digit at both ends"
                )
            ],
        ),
    ],
)
def test_flux_setup_is_validated(spec: dict[str, Any], expected: list[str]) -> None:
    assert [str(error) for error in validate_flux_setup(obj(FLUX_SETUP, spec))] == expected


def kueue_setup(namespace: str, *true_conditions: str, **spec: Any) -> Object:
    """Return a FluxSetup that leaves its jobs to Kueue, unless ``spec`` says otherwise."""
    setup = obj(FLUX_SETUP, {"queue": "Kueue", **spec}, *true_conditions)
    setup["metadata"]["namespace"] = namespace
    return setup


@pytest.mark.parametrize(
    ("setups", "warned"),
    [
        ([], ""),
        ([kueue_setup("default", "Active")], "default/sample"),
        ([kueue_setup("default")], ""),  # replaced by another one
        ([kueue_setup("admins", "Active", namespaceSelector={})], "admins/sample"),
        ([kueue_setup("admins", "Active")], ""),
        (
            [
                kueue_setup("admins", "Active", namespaceSelector={}),
                kueue_setup("default", "Active", queue="Internal"),
            ],
            "",
        ),
    ],
)
def test_priority_without_effect_in_kueue_causes_a_warning(
    setups: list[Object], warned: str
) -> None:
    found = flux_job_warnings(obj(FLUX_JOB, {"priority": 5}), setups)
    assert [warned in message for message in found] == ([True] if warned else [])
    assert flux_job_warnings(obj(FLUX_JOB, {"priorityClassName": "high"}), setups) == []


def test_fields_of_the_template_without_effect_are_named() -> None:
    pod = {"securityContext": {"fsGroup": 1, "runAsUser": 1, "runAsNonRoot": True}}
    warned = flux_job_warnings(obj(FLUX_JOB, {"template": {"pod": pod}}), [])
    path = "spec.template.pod.securityContext"
    effect = "has no effect; use the securityContext of each container"
    assert warned == [f"{path}.runAsUser: {effect}", f"{path}.runAsNonRoot: {effect}"]


def test_more_pods_than_kubernetes_supports_nodes_cause_a_warning() -> None:
    limit = (
        "Kubernetes supports clusters of at most 5000 nodes; correct the number if it is a mistake"
    )
    spec = {"size": 20_000, "template": {"size": 5_000}}
    assert flux_job_warnings(obj(FLUX_JOB, spec), []) == [f"spec.size: 20000: {limit}"]
    assert minicluster_warnings(obj(MINICLUSTER, {"size": 100_000})) == [
        f"spec.size: 100000: {limit}"
    ]


def test_fractions_of_bytes_are_admitted_with_a_warning() -> None:
    resources = {"limits": {"memory": "8m"}}
    template = {"containers": [{"resources": resources}], "services": [{"resources": resources}]}
    spec = {
        "resources": resources,
        "template": template | {"flux": {"container": template["services"][0]}},
    }
    rule = 'limits[memory]: fractional byte value "8m" is invalid, must be an integer'
    assert flux_job_warnings(obj(FLUX_JOB, spec), []) == [
        f"spec.resources.{rule}",
        f"spec.template.containers[0].resources.{rule}",
        f"spec.template.services[0].resources.{rule}",
        f"spec.template.flux.container.resources.{rule}",
    ]
