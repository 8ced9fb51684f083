"""More rules that random requests have shown (``make differential``), each with the requests that show it.

They hold for envtest and for kube-apiserver, like those in ``test_differential``.
"""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from test.integration.test_differential import CORE, crd, custom

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CUSTOM = "/apis/rules.example.com/v1/namespaces/default"
STRATEGIC = "application/strategic-merge-patch+json"
CONFIG: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


@pytest.mark.parametrize(
    "identity",
    [
        {"apiVersion": "v9"},
        {"apiVersion": None},
        {"kind": "Other"},
        {"apiVersion": "apps/v1", "kind": "Deployment"},
    ],
)
async def test_strategic_patches_cannot_change_the_kind(
    api: APIClient, identity: dict[str, Any]
) -> None:
    await api.post(f"{CORE}/configmaps", CONFIG)
    path = f"{CORE}/configmaps/a"
    answer = await api.request("PATCH", path, identity, content_type=STRATEGIC)
    assert answer.code == 200
    assert (answer.body["apiVersion"], answer.body["kind"]) == ("v1", "ConfigMap")


@pytest.mark.parametrize(
    ("identity", "problem"),
    [
        ({"kind": "Other"}, 'no kind "Other" is registered for version "v1" in scheme'),
        ({"apiVersion": "v9"}, 'no kind "ConfigMap" is registered for version "v9" in scheme'),
        ({"apiVersion": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
        ({"apiVersion": 1}, "couldn't get version/kind; json parse error"),
        (
            {"apiVersion": "apps/v1", "kind": "Deployment"},
            "converting (v1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
    ],
)
async def test_merge_patches_that_change_the_kind_are_invalid(
    api: APIClient, identity: dict[str, Any], problem: str
) -> None:
    await api.post(f"{CORE}/configmaps", CONFIG)
    answer = await api.merge(f"{CORE}/configmaps/a", identity)
    assert answer.code == 422
    assert problem in answer.body["message"]


@pytest.mark.parametrize(
    ("collection", "body", "labels", "deletion"),
    [
        (
            f"{ADMISSION}/validatingwebhookconfigurations",
            {},
            3,
            1,
        ),
        (f"{CORE}/services", {"spec": {"ports": [{"port": 80}]}}, 3, 2),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"}, 4, 2),
        ("/apis/networking.k8s.io/v1/ingressclasses", {"spec": {"controller": "a.b/c"}}, 4, 2),
    ],
)
async def test_errors_of_metadata_repeat_as_often_as_the_kind_checks_it(
    api: APIClient, collection: str, body: dict[str, Any], labels: int, deletion: int
) -> None:
    assert (await api.post(collection, {"metadata": {"name": "a"}, **body})).code == 201
    wrong_label = await api.merge(f"{collection}/a", {"metadata": {"labels": {"a": " b"}}})
    change = {"metadata": {"deletionGracePeriodSeconds": 3}}
    wrong_change = await api.merge(f"{collection}/a", change)
    assert len(wrong_label.body["details"]["causes"]) == labels
    assert len(wrong_change.body["details"]["causes"]) == deletion


@pytest.mark.parametrize(
    ("collection", "field", "problem"),
    [
        ("/api/v1/namespaces", "metadata.namespace", "field label not supported: "),
        ("/api/v1/namespaces", "name", "field label not supported: "),
        ("/api/v1/nodes", "metadata.namespace", "field label not supported: "),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "metadata.namespace",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: ",
        ),
    ],
)
async def test_some_cluster_scoped_kinds_have_no_namespace_in_field_selectors(
    api: APIClient, collection: str, field: str, problem: str
) -> None:
    answer = await api.get(collection, {"fieldSelector": f"{field}!=x"})
    assert (answer.code, answer.body["message"]) == (400, f"{problem}{field}")


async def test_an_apply_that_creates_drops_the_self_link(api: APIClient) -> None:
    applied = {**CONFIG, "metadata": {"name": "a", "selfLink": "x"}}
    answer = await api.apply(f"{CORE}/configmaps/a", applied, "m")
    assert answer.code == 201
    assert "selfLink" not in answer.body["metadata"]


async def test_events_are_read_at_valid_versions_only(api: APIClient) -> None:
    answer = await api.get(f"{CORE}/events/a", {"resourceVersion": "1.5"})
    assert answer.code == 400
    assert answer.body["message"].startswith("invalid resource version: ")


async def test_an_empty_list_does_not_reset_the_managers_of_custom_resources(
    plane: ControlPlane, api: APIClient
) -> None:
    await plane.install_crds(crd("resets", {"size": {"type": "integer"}}))
    await api.post(f"{CUSTOM}/resets", custom("Reset", size=1))
    kept = await api.merge(f"{CUSTOM}/resets/a", {"metadata": {"managedFields": []}})
    reset = await api.merge(f"{CUSTOM}/resets/a", {"metadata": {"managedFields": [{}]}})
    assert "managedFields" in kept.body["metadata"]
    assert "managedFields" not in reset.body["metadata"]


async def test_the_scale_of_custom_resources_needs_integers_without_a_point(
    plane: ControlPlane, api: APIClient
) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    await plane.install_crds(crd("scaled", {"size": {"type": "integer"}}, scale=scale))
    path = f"{CUSTOM}/scaled"
    float_text = (
        '{"apiVersion":"rules.example.com/v1","kind":"Scale","metadata":{"name":"a"},"spec":%s}'
    )
    problems = {
        '{"size":1.0}': "1 is of the type float64, expected int64",
        '{"size":9223372036854775808}': "9.223372036854776e+18 is of the type float64, expected int64",
        "-1.5": "-1.5 is of the type float64, expected map[string]interface{}",
    }
    for spec, problem in problems.items():
        answer = await api.post(path, (float_text % spec).encode())
        assert f".spec.size accessor error: {problem}" in answer.body["message"]


async def test_whole_floats_are_stored_as_integers(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("wholes", {"size": {"type": "integer"}}))
    text = b'{"apiVersion":"rules.example.com/v1","kind":"Whole","metadata":{"name":"a"},"spec":{"size":2.0}}'
    created = await api.post(f"{CUSTOM}/wholes", text)
    assert repr(created.body["spec"]["size"]) == "2"
    assert repr((await api.get(f"{CUSTOM}/wholes/a")).body["spec"]["size"]) == "2"


async def test_embedded_resources_cannot_have_null_as_their_kind(
    plane: ControlPlane, api: APIClient
) -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True}
    embedded["x-kubernetes-preserve-unknown-fields"] = True
    await plane.install_crds(crd("holders", {"part": embedded}))
    part = {"apiVersion": "v1", "kind": None}
    answer = await api.post(f"{CUSTOM}/holders", custom("Holder", part=part))
    assert answer.code == 400
    assert "spec.part.kind: Invalid value: null: must be a string" in answer.body["message"]


async def test_scale_ownership_follows_all_versions_of_a_custom_resource(
    plane: ControlPlane, api: APIClient
) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    definition = crd("versioned", {"size": {"type": "integer"}}, scale=scale)
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    await plane.install_crds(definition)
    await api.post(f"{CUSTOM}/versioned", custom("Versione", size=1))
    path = "/apis/rules.example.com/v2/namespaces/default/versioned/a"
    await api.merge(f"{path}/scale", {"spec": {"replicas": 2}})
    await api.merge(f"{CUSTOM}/versioned/a/scale", {"spec": {"replicas": 3}})
    managers = (await api.get(path)).body["metadata"]["managedFields"]
    owners = [each for each in managers if each.get("subresource") == "scale"]
    assert [each["apiVersion"] for each in owners] == ["rules.example.com/v1"]


async def test_a_patch_of_a_custom_collection_fails_by_its_type_first(
    plane: ControlPlane, api: APIClient
) -> None:
    await plane.install_crds(crd("groups", {}))
    unknown = await api.request("PATCH", f"{CUSTOM}/groups", {}, content_type="application/json")
    known = await api.merge(f"{CUSTOM}/groups", {})
    assert (unknown.code, known.code) == (415, 400)
    assert known.body["message"] == "name must be provided"


async def test_api_services_and_policies_report_missing_names_without_a_detail(
    api: APIClient,
) -> None:
    spec = {"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 1}
    spec |= {"versionPriority": 1, "insecureSkipTLSVerify": True}
    service = {"metadata": {"name": "v1.x.example.com"}, "spec": {**spec, "service": {}}}
    answer = await api.post("/apis/apiregistration.k8s.io/v1/apiservices", service)
    assert "spec.service.name: Required value" in answer.body["message"]
    upper = {"metadata": {"name": "V1"}, "spec": spec}
    named = await api.post("/apis/apiregistration.k8s.io/v1/apiservices", upper)
    causes = [each for each in named.body["details"]["causes"] if each["field"] == "metadata.name"]
    assert len(causes) == 1
    assert "RFC 1123" not in causes[0]["message"]


async def test_webhook_services_need_names_and_namespaces(api: APIClient) -> None:
    webhook = {"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    webhook |= {"clientConfig": {"service": {"name": "", "namespace": ""}}}
    body = {"metadata": {"name": "w"}, "webhooks": [webhook]}
    answer = await api.post(f"{ADMISSION}/validatingwebhookconfigurations", body)
    path = "webhooks[0].clientConfig.service"
    problems = {each["field"]: each["message"] for each in answer.body["details"]["causes"]}
    assert problems[f"{path}.name"] == "Required value"
    assert problems[f"{path}.namespace"] == "Required value"


async def test_the_position_of_an_empty_expression_is_column_zero(api: APIClient) -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": []},
            "auditAnnotations": [{"key": "k", "valueExpression": ""}],
            "validations": [{"expression": "true", "messageExpression": " "}],
        },
    }
    answer = await api.post(f"{ADMISSION}/validatingadmissionpolicies", body)
    assert answer.code == 422
    assert "spec.auditAnnotations[0].valueExpression: Required value" in answer.body["message"]


async def test_volume_attachments_name_valid_volumes(api: APIClient) -> None:
    spec = {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "A_"}}
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    answer = await api.post(path, {"metadata": {"name": "v"}, "spec": spec})
    problems = {each["field"] for each in answer.body["details"]["causes"]}
    assert problems == {"spec.source.persistentVolumeName"}


async def test_bindings_of_mutating_policies_cannot_match_deletions(api: APIClient) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    resources = {"resourceRules": [{**rule, "operations": ["DELETE"]}]}
    body = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "matchResources": resources}}
    answer = await api.post(f"{ADMISSION}/mutatingadmissionpolicybindings", body)
    problems = {each["field"] for each in answer.body["details"]["causes"]}
    assert problems == {"spec.matchResources.resourceRules.operations"}


@pytest.mark.parametrize(
    ("collection", "body", "key"),
    [
        (f"{CORE}/services", {"spec": {"ports": [{"port": 80}]}}, "services/specs/default/a"),
        ("/api/v1/nodes", {}, "minions/a"),
        (f"{CORE}/configmaps", {}, "configmaps/default/a"),
    ],
)
async def test_conflicts_name_the_etcd_key(
    api: APIClient, collection: str, body: dict[str, Any], key: str
) -> None:
    body = {"metadata": {"name": "a"}, **body}
    await api.post(collection, body)
    wrong = {**body, "metadata": {"name": "a", "uid": "00000000-0000-4000-8000-000000000000"}}
    answer = await api.put(f"{collection}/a", wrong)
    assert answer.code == 409
    assert f"Key: /registry/{key}, " in answer.body["message"]
