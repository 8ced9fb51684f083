"""Which objects belong to a stack, and how the fields of Helm are taken over."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.controllers.inferencestack.ownership import (
    belongs_to,
    is_autoscaled,
    is_of_helm,
    owns_replicas,
    taken_over,
)
from cfo.runtime.objects.unstructured import Object
from test.support.inference_stacks import stack

STACK = stack(name="s")
INSTANCE = {"app.kubernetes.io/instance": "s"}
HELM = {
    **INSTANCE,
    "app.kubernetes.io/managed-by": "Helm",
    "helm.sh/chart": "inference-stack-1.8.2",
}
OWN = {**INSTANCE, "app.kubernetes.io/managed-by": "inference-stack-operator"}
RELEASE = {"meta.helm.sh/release-name": "s"}
RETAINED = {"inference-stack-operator/retained": "true"}


def obj(
    labels: dict[str, str],
    annotations: dict[str, str] | None = None,
    owner: str = "",
    **fields: Any,
) -> Object:
    metadata: dict[str, Any] = {
        "name": "o",
        "labels": labels,
        "annotations": annotations or {},
        **fields,
    }
    if owner:
        metadata["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (obj({}, owner="uid-s"), True),
        (obj(OWN, owner="uid-of-another"), False),
        (obj(HELM, RELEASE, owner="uid-of-another"), False),
        (obj(HELM, RELEASE), True),
        (obj(HELM), False),
        (obj(HELM, {"meta.helm.sh/release-name": "t"}), False),
        (obj({**HELM, "app.kubernetes.io/instance": "t"}, RELEASE), False),
        (obj({**HELM, "helm.sh/chart": "web-1.0.0"}, RELEASE), False),
        (obj({**HELM, "helm.sh/chart": "inference-stack-console-1.0.0"}, RELEASE), False),
        (obj({**HELM, "helm.sh/chart": ""}, RELEASE), False),
        ({**obj(OWN, RETAINED), "kind": "PersistentVolumeClaim"}, True),
        (obj(OWN, RETAINED), False),
        (obj(OWN), False),
        ({**obj(INSTANCE, RETAINED), "kind": "PersistentVolumeClaim"}, False),
    ],
)
def test_object_belongs_to_stack_by_controller_release_or_retention(
    found: Object, expected: bool
) -> None:
    assert belongs_to(found, STACK) == expected


def manager(name: str, fields: dict[str, Any], **entry: Any) -> dict[str, Any]:
    return {"manager": name, "operation": "Update", "apiVersion": "v1", "fieldsV1": fields, **entry}


def test_fields_of_helm_are_taken_over_and_others_stay() -> None:
    annotations = {"f:annotations": {"f:meta.helm.sh/release-name": {}}}
    helm = manager(
        "any-name", {"f:metadata": annotations, "f:spec": {"f:replicas": {}, "f:type": {}}}
    )
    own = manager("inference-stack-operator", {"f:spec": {"f:ports": {}}}, operation="Apply")
    scale = manager("kube-controller-manager", {"f:spec": {"f:replicas": {}}}, subresource="scale")
    service = obj(HELM, RELEASE, managedFields=[helm, own, scale])
    assert is_of_helm(service)
    others, taken = taken_over(service)
    assert others == scale
    assert (taken["manager"], taken["operation"]) == ("inference-stack-operator", "Apply")
    assert taken["fieldsV1"] == {
        "f:metadata": annotations,
        "f:spec": {"f:replicas": {}, "f:type": {}, "f:ports": {}},
    }
    assert owns_replicas([helm]), "we will own it"
    assert not owns_replicas([own, scale])


def test_replicas_are_autoscaled_if_a_client_other_than_kubectl_scaled_the_deployment() -> None:
    replicas = {"f:spec": {"f:replicas": {}}}
    assert is_autoscaled([manager("kube-controller-manager", replicas, subresource="scale")])
    assert not is_autoscaled([manager("kubectl", replicas, subresource="scale")])
    assert not is_autoscaled([manager("kubectl-edit", replicas)])
    assert not is_autoscaled(
        [manager("kube-controller-manager", {"f:status": {}}, subresource="status")]
    )


def test_annotations_of_a_deployment_stay_with_helm() -> None:
    annotations = {"f:annotations": {"f:meta.helm.sh/release-name": {}}}
    helm = manager("helm", {"f:metadata": {**annotations, "f:labels": {"f:a": {}}}})
    deployment = {
        **obj(HELM, RELEASE, managedFields=[helm]),
        "apiVersion": "apps/v1",
        "kind": "Deployment",
    }
    kept, taken = taken_over(deployment)
    assert (kept["manager"], kept["fieldsV1"]) == ("helm", {"f:metadata": annotations})
    assert taken["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a": {}}}}
