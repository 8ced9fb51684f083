"""Rules of metadata, names and field owners, which random requests have shown (``make differential``)."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.api_client import APIClient
from test.integration.test_differential import CORE
from test.support.rules import AUTOSCALERS, TEMPLATE, causes


async def test_some_statuses_keep_all_metadata(api: APIClient) -> None:
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    metadata = {"name": "c", "labels": {"a": "b"}, "annotations": {"a": "b"}}
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    created = await api.post(claims, {"metadata": metadata, "spec": spec})
    assert created.code == 201
    body = {"metadata": {"name": "c", "labels": {"new": "x"}}, "spec": spec, "status": {}}
    answer = await api.put(f"{claims}/c/status", body)
    assert answer.code == 200
    assert answer.body["metadata"]["labels"] == {"a": "b"}
    assert answer.body["metadata"]["annotations"] == {"a": "b"}
    assert answer.body["metadata"]["managedFields"] == created.body["metadata"]["managedFields"]


async def test_errors_of_metadata_are_repeated_less_often_for_a_status(api: APIClient) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    wrong = {"metadata": {"labels": {"a": " b"}}}
    main = await api.merge("/api/v1/namespaces/n", wrong)
    status = await api.merge("/api/v1/namespaces/n/status", wrong)
    assert [len(causes(each.body)) for each in (main, status)] == [4, 3]


async def test_a_status_has_no_warnings_about_the_spec(api: APIClient) -> None:
    service = {
        "spec": {"ports": [{"port": 80}], "externalIPs": ["203.0.113.1"], "externalName": "x"}
    }
    created = await api.post(f"{CORE}/services", {"metadata": {"name": "s"}, **service})
    answer = await api.merge(f"{CORE}/services/s/status", {"metadata": {"labels": {"a": "b"}}})
    warnings = created.headers.getall("Warning")
    assert "externalIPs is deprecated" in warnings[0]
    assert "externalName is ignored" in warnings[1]
    assert "Warning" not in answer.headers


async def test_a_template_cannot_reset_managers(api: APIClient) -> None:
    template = {**TEMPLATE, "metadata": {"managedFields": []}}
    body = {"metadata": {"name": "t"}, "template": template}
    answer = await api.post(f"{CORE}/podtemplates", body)
    assert "managedFields" not in answer.body["template"]["metadata"]


async def test_updates_check_the_names_of_finalizers(api: APIClient) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}})
    answer = await api.merge(f"{CORE}/configmaps/a", {"metadata": {"finalizers": ["*"]}})
    fields = [field for field, _ in causes(answer.body)]
    assert fields.count("metadata.finalizers") == 2
    assert fields.count("metadata.finalizers[0]") == 2


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"}, 201),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {}, 201),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 1}, 422),
    ],
)
async def test_some_kinds_accept_unqualified_finalizers(
    api: APIClient, path: str, body: dict[str, Any], code: int
) -> None:
    answer = await api.post(path, {"metadata": {"name": "a", "finalizers": ["bad"]}, **body})
    assert answer.code == code


async def test_the_names_of_budgets_are_path_segments(api: APIClient) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    answer = await api.post(budgets, {"metadata": {"name": "aA"}, "spec": {"minAvailable": 1}})
    assert answer.code == 201


async def test_initial_objects_have_owners_of_their_fields(api: APIClient) -> None:
    expected = {
        "rbac.authorization.k8s.io/v1/clusterroles/admin": ["kube-apiserver"],
        "networking.k8s.io/v1/ipaddresses/10.0.0.1": ["kube-apiserver"],
        "flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt": [
            "api-priority-and-fairness-config-consumer-v1",
            "api-priority-and-fairness-config-producer-v1",
        ],
    }
    for path, managers in expected.items():
        answer = await api.get(f"/apis/{path}")
        entries = answer.body["metadata"]["managedFields"]
        assert [entry["manager"] for entry in entries] == managers


async def test_an_empty_list_of_a_spec_has_an_owner(api: APIClient) -> None:
    body = {"metadata": {"name": "n"}, "spec": {"drivers": []}}
    answer = await api.post("/apis/storage.k8s.io/v1/csinodes", body)
    fields = answer.body["metadata"]["managedFields"][0]["fieldsV1"]
    assert fields == {"f:spec": {"f:drivers": {}}}


async def test_a_status_update_keeps_owners_in_other_versions(api: APIClient) -> None:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
    spec |= {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}
    body = {"metadata": {"name": "h"}, "spec": spec}
    await api.post(f"/apis/autoscaling/v1/{AUTOSCALERS}", body)
    status = {**body, "apiVersion": "autoscaling/v2", "status": {"currentReplicas": 1}}
    status["spec"] = {"scaleTargetRef": spec["scaleTargetRef"], "maxReplicas": 3}
    answer = await api.put(f"/apis/autoscaling/v2/{AUTOSCALERS}/h/status", status)
    owners = {
        entry["apiVersion"]: entry["fieldsV1"] for entry in answer.body["metadata"]["managedFields"]
    }
    assert "f:targetCPUUtilizationPercentage" in owners["autoscaling/v1"]["f:spec"]


async def test_a_status_in_another_version_keeps_the_order_of_the_spec(api: APIClient) -> None:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    pods = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    metrics = [{"type": "Resource", "resource": cpu}, {"type": "Pods", "pods": pods}]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": target, "maxReplicas": 5, "metrics": metrics}
    body = {"metadata": {"name": "ordered"}, "spec": spec}
    await api.post(f"/apis/autoscaling/v2/{AUTOSCALERS}", body)
    status = {"status": {"currentReplicas": 2}}
    await api.merge(f"/apis/autoscaling/v1/{AUTOSCALERS}/ordered/status", status)
    answer = await api.get(f"/apis/autoscaling/v2/{AUTOSCALERS}/ordered")
    assert answer.body["status"]["currentReplicas"] == 2
    assert answer.body["spec"]["metrics"] == metrics


@pytest.mark.parametrize(
    ("finalizers", "options", "after"),
    [
        ([], {"orphanDependents": False}, ["foregroundDeletion"]),
        (["orphan"], {"orphanDependents": False}, ["foregroundDeletion"]),
        (["foregroundDeletion"], {"orphanDependents": True}, ["orphan"]),
        (["foregroundDeletion"], {"propagationPolicy": "Background"}, None),
        (["foregroundDeletion"], {}, ["foregroundDeletion"]),
    ],
)
async def test_a_namespace_that_does_not_orphan_is_deleted_in_the_foreground(
    api: APIClient, finalizers: list[str], options: dict[str, Any], after: list[str] | None
) -> None:
    metadata = {"name": "to-delete", "finalizers": finalizers}
    assert (await api.post("/api/v1/namespaces", {"metadata": metadata})).code == 201
    body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
    answer = await api.delete("/api/v1/namespaces/to-delete", body)
    assert answer.body["metadata"].get("finalizers") == after


async def test_an_invalid_name_is_quoted_in_the_message(api: APIClient) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    spec = {"policyName": "p", "validationActions": ["Deny"]}
    answer = await api.post(path, {"metadata": {"name": '\0"'}, "spec": spec})
    kind = "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io"
    assert answer.body["message"].startswith(rf'{kind} "\x00\"" is invalid: metadata.name: ')


async def test_a_generated_name_of_an_object_that_is_being_deleted_is_reported(
    api: APIClient,
) -> None:
    path = f"{CORE}/configmaps"
    await api.post(path, {"metadata": {"name": "c", "finalizers": ["a.b/c"]}})
    await api.delete(f"{path}/c")
    answer = await api.post(path, {"metadata": {"name": "c", "generateName": "x-"}})
    assert answer.body["message"] == (
        'object is being deleted: configmaps "c" already exists, '
        "the server was not able to generate a unique name for the object"
    )
