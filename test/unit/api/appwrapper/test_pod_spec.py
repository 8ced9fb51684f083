"""Validation of objects as ``v1.PodSpec``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cfo.api.appwrapper.pod_spec import pod_spec_problems
from hack.generate.builtin_types import table

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
                resources={"requests": {"cpu": "500m", "memory": "1.5Gi", "nvidia.com/gpu": 1, "a": "1e3"}},
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
    assert list(pod_spec_problems(spec)) == []


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ({"Containers": []}, ['unknown field "Containers"']),
        (container(imaeg="typo", x=None), ['unknown field "containers[0].imaeg"', 'unknown field "containers[0].x"']),
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
        (container(resources={"limits": []}), ['field "containers[0].resources.limits" must be an object']),
        ({"priority": 2**31}, ['field "priority" must be an integer of 32 bits']),
        ({"priority": True}, ['field "priority" must be an integer of 32 bits']),
        ({"activeDeadlineSeconds": "60"}, ['field "activeDeadlineSeconds" must be an integer of 64 bits']),
        ({"hostNetwork": "yes"}, ['field "hostNetwork" must be true or false']),
        ({"nodeSelector": {"gpu": True}}, ['field "nodeSelector[gpu]" must be a string']),
        (
            container(livenessProbe={"httpGet": {"port": 1.5}}),
            ['field "containers[0].livenessProbe.httpGet.port" must be an integer or a string'],
        ),
    ],
)
def test_problem_contains_path_of_field(spec: dict[str, Any], problems: list[str]) -> None:
    assert list(pod_spec_problems(spec)) == problems


def test_schema_file_is_up_to_date() -> None:
    assert (ROOT / "cfo" / "api" / "builtin_types.json").read_text() == table()
