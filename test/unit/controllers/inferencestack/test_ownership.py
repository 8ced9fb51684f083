"""Which objects belong to a stack, and how the fields of Helm are taken over."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cfo.api.inferencestack.names import CONFIG_HASH, names_of
from cfo.controllers.inferencestack.children import StackInformers
from cfo.controllers.inferencestack.ownership import (
    belongs_to,
    is_autoscaled,
    is_of_helm,
    observe,
    owns_replicas,
    taken_over,
    without_pods,
)
from cfo.controllers.inferencestack.rendering.facts import LiveDeployment
from cfo.controllers.inferencestack.status import component_state
from cfo.runtime import DEPLOYMENT, GVK, Client, NamespacedName
from cfo.runtime.cache.entry import EntryDecoder
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


def large_deployment(name: str, values: int) -> Object:
    """Return a Deployment of the stack with many labels, and a list with values of two bytes."""
    labels = {f"l{number}": "" for number in range(values)}
    metadata = {"name": name, "namespace": "ns", "generation": 2, "labels": labels}
    metadata["ownerReferences"] = [{"uid": "uid-s", "controller": True}]
    template = {
        "metadata": {"labels": {"helm.sh/chart": "c", **labels}, "annotations": {CONFIG_HASH: "h"}},
        "spec": {"tolerations": [{}] * values},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 3, "template": template},
        "status": {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1},
    }


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("values", [1000, 11_000])
async def test_one_large_deployment_is_decoded_at_a_time(is_cached: bool, values: int) -> None:
    """All of them can take more memory than the operator has: one value in a list takes 20 times its JSON."""
    applications = {f"a{number:02}": {} for number in range(20)}
    obj = stack(applications, name="s")
    obj["metadata"]["namespace"] = "ns"
    names = [names_of(obj).application(application) for application in applications]
    stored = {
        name: EntryDecoder(DEPLOYMENT).decode(orjson.dumps(large_deployment(name, values)))
        for name in names
    }
    encoded = sum(len(entry.raw) for entry in stored.values())

    async def get(gvk: GVK, key: NamespacedName, *, live: bool) -> Object | None:
        assert live
        entry = stored.get(key.name)
        return entry.object() if gvk == DEPLOYMENT and entry is not None else None

    children = SimpleNamespace(
        entry=lambda gvk, key: stored.get(key.name) if gvk == DEPLOYMENT and is_cached else None,
        served=frozenset(),
    )
    tracemalloc.start()
    try:
        found = await observe(
            cast("Client", SimpleNamespace(get=get)), cast("StackInformers", children), obj
        )
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.has_uncached is not is_cached
    assert list(found.deployments) == names
    assert found.facts.deployments[names[0]].template_labels == {"helm.sh/chart": "c"}
    assert found.facts.deployments[names[0]].labels == {}
    live = found.deployments[names[0]]
    assert component_state(live) == component_state(large_deployment(names[0], values))
    if values == 11_000:
        assert kept < encoded / 2
        assert peak < encoded * 4, "all of them take ten times as much"


def test_what_is_kept_of_a_written_deployment_has_its_state_and_its_facts() -> None:
    obj = large_deployment("d", 3)
    obj["metadata"]["labels"]["inference-stack-operator/autoscaled"] = "true"
    kept = without_pods(obj)
    assert component_state(kept) == component_state(obj)
    assert LiveDeployment.of(kept) == LiveDeployment.of(obj)
    assert belongs_to(kept, STACK)
    assert len(orjson.dumps(kept)) < 600
