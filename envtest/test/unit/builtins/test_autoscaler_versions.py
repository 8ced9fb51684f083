"""Conversion of HorizontalPodAutoscalers between autoscaling/v1 and autoscaling/v2, which loses no data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envtest import User
from envtest.apimachinery.objects import Object
from envtest.builtins.autoscaler_versions import to_v1, to_v2
from envtest.builtins.catalog import all_resources
from envtest.builtins.normalization import decode
from envtest.builtins.table import strategy_for
from envtest.registry.resource import RequestContext, ResourceInfo

PREFIX = "autoscaling.alpha.kubernetes.io/"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
}
METRICS: list[tuple[dict[str, Any], str]] = [
    (
        {
            "type": "Resource",
            "resource": {
                "name": "memory",
                "target": {"type": "Utilization", "averageUtilization": 50},
            },
        },
        '{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":50}}',
    ),
    (
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "2"}},
        },
        '{"type":"Resource","resource":{"name":"cpu","targetAverageValue":"2"}}',
    ),
    (
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 5},
            },
        },
        (
            '{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":5,'
            '"container":"c"}}'
        ),
    ),
    (
        {
            "type": "External",
            "external": {
                "metric": {"name": "q", "selector": {"matchLabels": {"b": "<1", "a": "2"}}},
                "target": {"type": "AverageValue", "averageValue": "30"},
            },
        },
        (
            '{"type":"External","external":{"metricName":"q","metricSelector":{"matchLabels":{"a":"2",'
            '"b":"\\u003c1"}},"targetAverageValue":"30"}}'
        ),
    ),
    (
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "p"},
                "target": {"type": "AverageValue", "averageValue": "1k"},
            },
        },
        '{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"1k"}}',
    ),
    (
        {
            "type": "Object",
            "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
                "metric": {"name": "o"},
                "target": {"type": "Value", "value": "3"},
            },
        },
        (
            '{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"o",'
            '"targetValue":"3"}}'
        ),
    ),
]


def autoscaler(**spec: Any) -> Object:
    return {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 5, **spec}}


def annotated(**annotations: str) -> Object:
    texts = {PREFIX + name.replace("_", "-"): text for name, text in annotations.items()}
    return {**autoscaler(), "metadata": {"name": "a", "annotations": texts}}


@pytest.mark.parametrize(("metric", "text"), METRICS)
def test_metrics_are_in_an_annotation_of_v1(metric: dict[str, Any], text: str) -> None:
    old = to_v1(autoscaler(metrics=[CPU, metric]))
    assert old["metadata"]["annotations"] == {f"{PREFIX}metrics": f"[{text}]"}
    is_first_cpu = metric["type"] == "Resource" and metric["resource"]["name"] == "cpu"
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    new = to_v2(old)
    assert new["spec"]["metrics"] == [metric, CPU]
    assert "annotations" not in new["metadata"]
    if is_first_cpu:
        assert (
            "targetCPUUtilizationPercentage" not in to_v1(autoscaler(metrics=[metric, CPU]))["spec"]
        )


def test_behavior_is_in_an_annotation_of_v1_as_internal_type() -> None:
    policies = [{"type": "Pods", "value": 4, "periodSeconds": 15}]
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies}
    }
    old = to_v1(autoscaler(metrics=[CPU], behavior=behavior))
    assert old["metadata"]["annotations"][f"{PREFIX}behavior"] == (
        '{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,'
        '"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}'
    )
    assert to_v2(old)["spec"]["behavior"] == behavior


def test_status_is_in_annotations_of_v1() -> None:
    current = [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}
    ]
    condition = {
        "message": "m",
        "lastTransitionTime": None,
        "status": "True",
        "type": "AbleToScale",
    }
    status = {
        "currentReplicas": 1,
        "desiredReplicas": 2,
        "currentMetrics": current,
        "conditions": [condition],
    }
    old = to_v1({**autoscaler(metrics=[CPU]), "status": status})
    assert old["status"] == {
        "currentReplicas": 1,
        "desiredReplicas": 2,
        "currentCPUUtilizationPercentage": 7,
    }
    assert old["metadata"]["annotations"] == {
        f"{PREFIX}current-metrics": (
            '[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":7,"currentAverageValue":"0"}}]'
        ),
        f"{PREFIX}conditions": (
            '[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"message":"m"}]'
        ),
    }
    new = to_v2(old)["status"]
    assert new["conditions"] == [condition]
    assert new["currentMetrics"][0]["resource"]["current"] == {
        "averageUtilization": 7,
        "averageValue": "0",
    }


def test_names_in_annotations_have_any_case() -> None:
    obj = annotated(
        metrics='[{"TYPE":"Resource","Resource":{"Name":"memory","targetaverageutilization":50}}]'
    )
    assert to_v2(obj)["spec"]["metrics"] == [METRICS[0][0]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[1]",
        '[{"resource": {"name": 5}}]',
        '[{"pods":{"selector":"x"}}]',
        "[" * 9999,
    ],
)
def test_malformed_annotations_are_dropped(text: str) -> None:
    new = to_v2(
        annotated(
            metrics=text,
            current_metrics=text,
            conditions=text,
            behavior=text,
            scale_up_tolerance=text,
        )
    )
    assert new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
    assert "behavior" not in new["spec"]
    assert "annotations" not in new["metadata"]


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    "metrics",
    [[], [CPU], [CPU, METRICS[0][0]], [each for each, _ in METRICS]],
    ids=["none", "cpu", "memory", "all"],
)
def test_defaults_do_not_change_a_converted_object(version: str, metrics: list[Any]) -> None:
    strategy, _ = strategy_of(version)
    obj = autoscaler(metrics=metrics, minReplicas=1)
    if version == "v1":
        obj = to_v1(to_v2(to_v1(obj)))
    strategy.default(obj)
    before = json.dumps(obj, sort_keys=True)
    strategy.default(obj)
    assert json.dumps(obj, sort_keys=True) == before


def strategy_of(version: str) -> tuple[Any, RequestContext]:
    [resource] = [
        each
        for each in all_resources()
        if (each.kind, each.version) == ("HorizontalPodAutoscaler", version)
    ]
    strategy = strategy_for(resource)
    info = ResourceInfo(
        "autoscaling", version, "x", "x", resource.kind, namespaced=True, strategy=strategy
    )
    return strategy, RequestContext(User("u"), "update", info, "default", "a")


def errors(version: str, obj: Object, old: Object | None = None) -> list[str]:
    strategy, ctx = strategy_of(version)
    for each in (obj, old):
        if each is not None:
            strategy.decode(each, ctx)
            strategy.default(each)
    return [str(each) for each in strategy.validate(obj, old, ctx)]


def test_objects_of_v1_are_validated_as_v2() -> None:
    path = "spec.metrics[0].resource.target.averageUtilization"
    expected = [f"{path}: Invalid value: 0: must be greater than 0"]
    assert errors("v1", autoscaler(targetCPUUtilizationPercentage=0)) == expected
    behavior = annotated(behavior='{"ScaleUp":{"StabilizationWindowSeconds":-1}}')
    assert errors("v1", behavior) == [
        "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
        "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
    ]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_api_version_of_the_target_is_parsed_when_it_changes(version: str) -> None:
    def target(api_version: str, kind: str = "Deployment") -> Object:
        return autoscaler(scaleTargetRef={"apiVersion": api_version, "kind": kind, "name": "d"})

    path = "spec.scaleTargetRef.apiVersion: Invalid value"
    several = [f'{path}: "a/b/c": unexpected GroupVersion string: a/b/c']
    assert errors(version, target("a/b/c")) == several
    assert errors(version, target("/v1")) == [f'{path}: "/v1": apiVersion must specify API group']
    assert not errors(version, target("a/b/c"), target("a/b/c"))
    assert errors(version, target("a/b/c"), target("a/b/c", "StatefulSet")) == several
    assert errors(version, target("a/b/c", "ReplicationController")) == several
    assert not errors(version, target("v1", "ReplicationController"))


def test_object_metrics_need_a_value_and_a_valid_api_version() -> None:
    def metric(api_version: str, **target: Any) -> Object:
        described = {"apiVersion": api_version, "kind": "Service", "name": "s"}
        source = {
            "describedObject": described,
            "metric": {"name": "m"},
            "target": {"type": "Value", **target},
        }
        return autoscaler(metrics=[{"type": "Object", "object": source}])

    path = "spec.metrics[0].object"
    assert errors("v2", metric("v1")) == [
        f"{path}.target.averageValue: Required value: must set either a target value or averageValue"
    ]
    invalid = [
        f'{path}.describedObject.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'
    ]
    assert errors("v2", metric("a/b/c", value="1")) == invalid
    assert not errors("v2", metric("a/b/d", value="1"), metric("a/b/c", value="1"))


def test_metrics_of_the_table_exist_in_v2() -> None:
    for metric, _ in METRICS:
        assert decode("io.k8s.api.autoscaling.v2.MetricSpec", metric) == (metric, [])
