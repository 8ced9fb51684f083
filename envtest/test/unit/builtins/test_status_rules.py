"""Validation of built-in kinds' status, and of the kinds whose rules are small."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.builtins.catalog import all_resources
from envtest.builtins.table import strategy_for
from envtest.registry.resource import RequestContext, ResourceInfo

RESOURCES = {
    each.kind: each
    for each in all_resources()
    if (each.group, each.version) != ("autoscaling", "v1")
}
POLICY = {"matchConstraints": {}, "validations": []}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
SERVICE = {"group": "a.b", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}


def errors(kind: str, subresource: str, name: str = "a", **fields: Any) -> list[str]:
    """Return the errors of an object: of its status as an update, otherwise as a new object."""
    resource = RESOURCES[kind]
    strategy = strategy_for(resource)
    info = ResourceInfo(
        resource.group, resource.version, "x", "x", kind, namespaced=False, strategy=strategy
    )
    ctx = RequestContext(User("u"), "update", info, "", name, subresource)
    objects = [{"metadata": {"name": name}, **fields} for _ in range(2)]
    for each in objects:
        strategy.decode(each, ctx)
        strategy.default(each)
    return [
        str(each)
        for each in strategy.validate(objects[0], objects[1] if subresource else None, ctx)
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (
            "Namespace",
            {"status": {"phase": "Odd"}},
            [
                "status.Phase: Invalid value: \"Odd\": may only be 'Active' if `deletionTimestamp` is empty"
            ],
        ),
        ("Namespace", {"status": {"phase": "Active"}}, []),
        (
            "DaemonSet",
            {"spec": {"template": {}}, "status": {"currentNumberScheduled": -2, "numberReady": -1}},
            [
                "status.currentNumberScheduled: Invalid value: -2: must be greater than or equal to 0",
                "status.numberReady: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            "FlowSchema",
            {
                "spec": {"priorityLevelConfiguration": {}},
                "status": {"conditions": [{"type": "A"}, {"type": "A"}, {}]},
            },
            [
                'status.conditions[1].type: Duplicate value: "A"',
                "status.conditions[2].type: Required value: must not be empty",
            ],
        ),
        (
            "PersistentVolumeClaim",
            {
                "spec": {},
                "status": {
                    "capacity": {"storage": "-1500m"},
                    "allocatedResources": {"cpu": "1", "storage": "1"},
                    "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                },
            },
            [
                "status.capacity[storage]: Invalid value: -2: must be a valid resource quantity",
                'status.allocatedResources: Unsupported value: "cpu": supported values: "storage"',
            ],
        ),
        (
            "VolumeAttachment",
            {
                "spec": {
                    "attacher": "d.io",
                    "nodeName": "n",
                    "source": {"persistentVolumeName": "v"},
                },
                "status": {
                    "attached": True,
                    "attachError": {"message": "a" * 1025, "errorCode": -1},
                },
            },
            [
                "status.attachError.message: Too long: may not be more than 1024 bytes",
                "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ],
        ),
        (
            "ValidatingAdmissionPolicy",
            {
                "spec": POLICY,
                "status": {
                    "typeChecking": {"expressionWarnings": [{"fieldRef": " ", "warning": "w"}]}
                },
            },
            ["status.typeChecking.expressionWarnings[0].fieldRef: Required value"],
        ),
        (
            "APIService",
            {"spec": SERVICE, "status": {"conditions": [{"type": "Available", "status": "Odd"}]}},
            [
                'status.conditions[0].status: Unsupported value: "Odd": supported values: "True", "False", "Unknown"',
            ],
        ),
        (
            "HorizontalPodAutoscaler",
            {
                "spec": {"maxReplicas": 1, "scaleTargetRef": TARGET},
                "status": {"desiredReplicas": -1},
            },
            ["status.desiredReplicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
    ],
)
def test_status_updates(kind: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert errors(kind, "status", **fields) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"service": {"namespace": "n", "name": "s"}, "caBundle": "eHl6"}, []),
        (
            {"caBundle": "eHl6", "insecureSkipTLSVerify": True},
            [
                'spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle',
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
            ],
        ),
        (
            {"service": {"name": "s", "port": 70000}, "versionPriority": 1001},
            [
                "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
                "spec.service.namespace: Required value",
                "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
            ],
        ),
    ],
)
def test_api_services(fields: dict[str, Any], expected: list[str]) -> None:
    assert errors("APIService", "", "v1.a.b", spec={**SERVICE, **fields}) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "metrics": [
                    {
                        "type": "Pods",
                        "pods": {"metric": {"name": "a/b"}, "target": {"type": "AverageValue"}},
                    }
                ]
            },
            [
                "metrics[0].pods.metric.name: Invalid value: \"a/b\": may not contain '/'",
                "metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue",
            ],
        ),
        (
            {
                "metrics": [
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "m"},
                            "target": {"type": "Value", "value": "0", "averageValue": "1"},
                        },
                    }
                ]
            },
            [
                'metrics[0].external.target.value: Invalid value: "0": must be positive',
                (
                    "metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a "
                    "per-pod target"
                ),
            ],
        ),
        (
            {
                "metrics": [
                    {
                        "type": "Object",
                        "object": {"describedObject": {"kind": "K"}, "metric": {"name": "m"}},
                    }
                ]
            },
            [
                "metrics[0].object.describedObject.name: Required value",
                "metrics[0].object.target.type: Required value: must specify a metric target type",
                (
                    'metrics[0].object.target.type: Invalid value: "": must be either Utilization, Value, or '
                    "AverageValue"
                ),
                (
                    "metrics[0].object.target.averageValue: Required value: must set either a target value or "
                    "averageValue"
                ),
            ],
        ),
        (
            {
                "behavior": {
                    "scaleUp": {"stabilizationWindowSeconds": 3601},
                    "scaleDown": {"policies": [{"type": "X", "value": 0, "periodSeconds": 1801}]},
                }
            },
            [
                (
                    "behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to "
                    "3600"
                ),
                'behavior.scaleDown.policies[0].type: Unsupported value: "X": supported values: "Percent", "Pods"',
                "behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero",
                (
                    "behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to "
                    "1800"
                ),
            ],
        ),
    ],
)
def test_autoscalers(fields: dict[str, Any], expected: list[str]) -> None:
    found = errors(
        "HorizontalPodAutoscaler", "", spec={"maxReplicas": 1, "scaleTargetRef": TARGET, **fields}
    )
    assert [each.removeprefix("spec.") for each in found] == expected
