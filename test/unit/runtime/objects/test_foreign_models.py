"""Models of generated clients as objects."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from kubernetes_asyncio.client import (
    V1Condition,
    V1ConfigMap,
    V1Container,
    V1Deployment,
    V1DeploymentSpec,
    V1DeploymentStrategy,
    V1HTTPGetAction,
    V1LabelSelector,
    V1Lease,
    V1LeaseSpec,
    V1ObjectMeta,
    V1PodSpec,
    V1PodTemplateSpec,
    V1Probe,
    V1RollingUpdateDeployment,
)
from kubernetes_asyncio.dynamic.resource import ResourceInstance

from cfo.runtime.objects.foreign_models import model_to_object, model_to_wire
from cfo.runtime.objects.unstructured import to_object

LABELS = {"app.kubernetes.io/name": "web"}


def deployment() -> V1Deployment:
    """Return a Deployment with lists, maps, integers and strings of IntOrString fields."""
    probe = V1Probe(http_get=V1HTTPGetAction(path="/healthz", port="http"))
    container = V1Container(name="web", image="nginx", liveness_probe=probe, args=[])
    return V1Deployment(
        api_version="apps/v1",
        kind="Deployment",
        metadata=V1ObjectMeta(name="web", namespace="ns", labels=LABELS),
        spec=V1DeploymentSpec(
            selector=V1LabelSelector(match_labels=LABELS),
            strategy=V1DeploymentStrategy(
                rolling_update=V1RollingUpdateDeployment(max_surge="25%", max_unavailable=0)
            ),
            template=V1PodTemplateSpec(
                metadata=V1ObjectMeta(labels=LABELS), spec=V1PodSpec(containers=[container])
            ),
        ),
    )


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "ns", "labels": LABELS},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": "nginx",
                        "args": [],
                        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
                    }
                ]
            },
        },
    },
}


def test_model_becomes_its_wire_form() -> None:
    assert to_object(deployment()) == DEPLOYMENT


def test_keys_of_maps_and_their_null_values_are_kept() -> None:
    model = V1ConfigMap(metadata=V1ObjectMeta(annotations={"snake_case": None}), data={"a_b": "c"})
    assert model_to_wire(model) == {
        "metadata": {"annotations": {"snake_case": None}},
        "data": {"a_b": "c"},
    }


def test_dict_is_the_same_object() -> None:
    obj: dict[str, Any] = {"kind": "ConfigMap"}
    assert to_object(obj) is obj


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (V1Deployment(), "V1Deployment: api_version and kind must be set"),
        (V1Deployment(kind="Deployment"), "V1Deployment: api_version must be set"),
        (V1Deployment(api_version="apps/v1"), "V1Deployment: kind must be set"),
        (V1PodSpec(containers=[]), "V1PodSpec: apiVersion and kind must be set"),
    ],
)
def test_model_without_api_version_or_kind_is_an_error(model: object, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        model_to_object(model)


@pytest.mark.parametrize(
    ("moment", "stored"),
    [
        (datetime(2026, 11, 27, 12, 0, tzinfo=UTC), "2026-11-27T12:00:00Z"),
        (datetime(2026, 11, 27, 12, 0, 1, 999, tzinfo=UTC), "2026-11-27T12:00:01Z"),
        (
            datetime(2026, 11, 27, 12, 0, tzinfo=timezone(timedelta(hours=2))),
            "2026-11-27T10:00:00Z",
        ),
        (date(2026, 11, 27), "2026-11-27"),
    ],
)
def test_timestamp_has_the_format_of_the_api_server(moment: date, stored: str) -> None:
    condition = V1Condition(
        type="Ready", status="True", reason="R", message="", last_transition_time=moment
    )
    assert model_to_wire(condition)["lastTransitionTime"] == stored


def test_timestamp_of_a_lease_has_microseconds() -> None:
    lease = V1Lease(spec=V1LeaseSpec(renew_time=datetime(2026, 11, 27, tzinfo=UTC)))
    assert model_to_wire(lease) == {"spec": {"renewTime": "2026-11-27T00:00:00.000000Z"}}


def test_timestamp_without_time_zone_is_an_error() -> None:
    lease = V1Lease(spec=V1LeaseSpec(renew_time=datetime(2026, 11, 27)))  # noqa: DTZ001
    problem = r"^V1Lease.spec.renew_time: 2026-11-27T00:00:00: must have a time zone$"
    with pytest.raises(ValueError, match=problem):
        model_to_wire(lease)


def test_object_of_a_dynamic_client_becomes_its_wire_form() -> None:
    assert model_to_object(ResourceInstance(None, DEPLOYMENT)) == DEPLOYMENT


@pytest.mark.parametrize("value", [1, "text", None, [DEPLOYMENT], object()])
def test_other_objects_are_an_error(value: object) -> None:
    with pytest.raises(TypeError, match="must be a dict, a TypedObject, a generated model"):
        model_to_object(value)
