"""Rules of pods, jobs, other workloads and autoscalers, which random requests have shown (``make differential``)."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.api_client import APIClient
from test.integration.test_differential import CORE, TABLE
from test.support.rules import APPS, AUTOSCALERS, DRY_RUN, STRATEGIC, TEMPLATE, causes


async def test_tables_of_autoscalers_show_the_metrics_in_their_order(api: APIClient) -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    average = {"type": "AverageValue", "averageValue": "10"}
    pods = {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": average}}
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
    spec |= {"maxReplicas": 3, "metrics": [cpu, pods]}
    await api.post(f"/apis/autoscaling/v2/{AUTOSCALERS}", {"metadata": {"name": "h"}, "spec": spec})
    answer = await api.request(
        "GET", f"/apis/autoscaling/v1/{AUTOSCALERS}", headers={"Accept": TABLE}
    )
    row = answer.body["rows"][0]
    assert row["cells"][2] == "cpu: <unknown>/50%, <unknown>/10"
    assert "annotations" not in row["object"]["metadata"]


async def test_fields_of_autoscalers_are_owned_across_versions(api: APIClient) -> None:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
    spec |= {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}
    body = {"metadata": {"name": "h"}, "spec": spec}
    await api.post(f"/apis/autoscaling/v1/{AUTOSCALERS}", body)
    change = {"spec": {"maxReplicas": 4}}
    answer = await api.merge(f"/apis/autoscaling/v2/{AUTOSCALERS}/h", change)
    versions = {each["apiVersion"] for each in answer.body["metadata"]["managedFields"]}
    assert versions == {"autoscaling/v1", "autoscaling/v2"}


async def test_ended_pods_are_not_counted_twice(api: APIClient) -> None:
    path = "/apis/batch/v1/namespaces/default/jobs"
    spec = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
    await api.post(path, {"metadata": {"name": "j"}, "spec": spec})
    status = {"uncountedTerminatedPods": {"succeeded": ["a", "a"], "failed": ["a"]}}
    answer = await api.merge(f"{path}/j/status", {"status": status})
    assert [field for field, _ in causes(answer.body)] == [
        "status.uncountedTerminatedPods.succeeded[1]",
        "status.uncountedTerminatedPods.failed[0]",
    ]


async def test_the_value_of_a_priority_class_is_only_limited_once(api: APIClient) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.post(path, {"metadata": {"name": "p"}, "value": 1})
    answer = await api.merge(f"{path}/p", {"value": 2147483647})
    assert causes(answer.body) == [("value", "Forbidden: may not be changed in an update.")]


@pytest.mark.parametrize(("replicas", "shown"), [(2**31, -(2**31)), (2**32 - 1, -1)])
async def test_integers_of_converted_scales_overflow(
    api: APIClient, replicas: int, shown: int
) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
    await api.post(f"{APPS}/deployments", {"metadata": {"name": "d"}, "spec": spec})
    path = f"{APPS}/deployments/d/scale"
    message = f"Invalid value: {shown}: must be greater than or equal to 0"
    body = {"spec": {"replicas": replicas}}
    answer = await api.request("PATCH", path, body, content_type=STRATEGIC)
    assert causes(answer.body) == [("spec.replicas", message)]
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, **body}
    answer = await api.apply(path, scale, "m", {"force": "true"})
    assert causes(answer.body) == [("spec.replicas", message)]


async def test_claim_templates_of_stateful_sets_are_claims(api: APIClient) -> None:
    claim = {
        "apiVersion": "a:b",
        "kind": "X",
        "metadata": {"name": "d"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1.5"}},
        },
    }
    spec = {
        "serviceName": "s",
        "selector": {"matchLabels": {"a": "b"}},
        "template": TEMPLATE,
        "volumeClaimTemplates": [claim, claim],
    }
    path = f"{APPS}/statefulsets"
    answer = await api.post(path, {"metadata": {"name": "s"}, "spec": spec})
    assert answer.code == 201
    templates = answer.body["spec"]["volumeClaimTemplates"]
    kinds = [(each["apiVersion"], each["kind"]) for each in templates]
    assert kinds == [("v1", "PersistentVolumeClaim")] * 2
    warning = "spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value"
    assert warning in answer.headers.getall("Warning")[0]
    answer = await api.merge(f"{path}/s/scale", {"spec": {"replicas": 2}})
    warning = warning.replace(".resources", ".Spec.resources")
    assert warning in answer.headers.getall("Warning")[0]


async def test_inline_volumes_can_have_any_class_of_attributes(api: APIClient) -> None:
    csi = {"driver": "d.example.com", "volumeHandle": "h"}
    volume = {"accessModes": ["ReadWriteOnce"], "csi": csi, "volumeAttributesClassName": "A B"}
    spec = {"attacher": "a.example.com", "nodeName": "n", "source": {"inlineVolumeSpec": volume}}
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    answer = await api.post(path, {"metadata": {"name": "inline"}, "spec": spec})
    assert answer.code == 201
    answer = await api.merge(
        f"{path}/inline/status", {"status": {"attachError": {"errorCode": -1}}}
    )
    message = "Invalid value: -1: must be between 0 and 2147483647, inclusive"
    assert causes(answer.body) == [("status.attachError.errorCode", message)]


@pytest.mark.parametrize(("terms", "errors"), [([{}], 1), ([{}, {}], 5)])
async def test_empty_topologies_are_compared_with_as_many_empty_ones(
    api: APIClient, terms: list[dict[str, Any]], errors: int
) -> None:
    body = {"metadata": {"name": "c"}, "provisioner": "a.b", "allowedTopologies": terms}
    answer = await api.post("/apis/storage.k8s.io/v1/storageclasses", body, {"dryRun": "All"})
    assert len(causes(answer.body)) == errors


async def test_autoscalers_to_zero_need_a_metric_of_others(api: APIClient) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": target, "minReplicas": 0, "maxReplicas": 5}
    body = {"metadata": {"name": "zero"}, "spec": spec}
    answer = await api.post(f"/apis/autoscaling/v2/{AUTOSCALERS}", body)
    fields = sorted(field for field, _ in causes(answer.body))
    assert fields == ["spec.metrics", "spec.minReplicas"]


JOBS = "/apis/batch/v1/namespaces/default/jobs"


JOB_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}


async def test_an_operating_system_without_a_name_is_reported_without_a_reason(
    api: APIClient,
) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "os": {}}
    answer = await api.post(f"{CORE}/pods", {"metadata": {"name": "os"}, "spec": spec})
    assert causes(answer.body) == [("spec.os.name", "Required value")]


@pytest.mark.parametrize(("name", "code"), [("a_b", 422), ("a.b", 422), ("1a", 201), ("", 201)])
async def test_the_service_of_a_new_stateful_set_is_a_label(
    api: APIClient, name: str, code: int
) -> None:
    spec = {"serviceName": name, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
    body = {"metadata": {"name": "s"}, "spec": spec}
    answer = await api.post(f"{APPS}/statefulsets", body, DRY_RUN)
    assert answer.code == code


async def test_a_job_without_labels_has_those_of_its_template(api: APIClient) -> None:
    answer = await api.post(JOBS, {"metadata": {"name": "l"}, "spec": {"template": JOB_TEMPLATE}})
    labels = answer.body["spec"]["template"]["metadata"]["labels"]
    assert labels["job-name"] == "l"
    assert answer.body["metadata"]["labels"] == labels
    spec = {"template": JOB_TEMPLATE, "selector": {"matchLabels": {"a": "b"}}}
    answer = await api.put(f"{JOBS}/l", {"metadata": {"name": "l"}, "spec": spec})
    fields = {field for field, _ in causes(answer.body)}
    assert "spec.template.metadata.labels[job-name]" in fields


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({}, None),
        ({"startTime": "2026-01-02T03:04:05Z"}, "spec.template"),
        ({"startTime": "2026-01-02T03:04:05Z", "conditions": True}, None),
        ({"startTime": "2026-01-02T03:04:05Z", "conditions": True, "active": 1}, "spec.template"),
    ],
)
async def test_the_template_of_a_suspended_job_can_change_while_it_has_no_pods(
    api: APIClient, status: dict[str, Any], field: str | None
) -> None:
    metadata = {"name": "suspended", "labels": {"a": "b"}}
    spec = {"suspend": True, "template": JOB_TEMPLATE}
    await api.post(JOBS, {"metadata": metadata, "spec": spec})
    if "conditions" in status:
        condition = {"type": "Suspended", "status": "True", "reason": "R", "message": ""}
        condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        status = {**status, "conditions": [condition]}
    if status:
        assert (await api.merge(f"{JOBS}/suspended/status", {"status": status})).code == 200
    resources = {"requests": {"cpu": "1"}}
    container = {"name": "c", "image": "i", "resources": resources}
    changed = {"spec": {"nodeSelector": {"a": "b"}, "containers": [container]}}
    answer = await api.merge(f"{JOBS}/suspended", {"spec": {"template": changed}})
    reported = [each for each, _ in causes(answer.body)] if answer.code == 422 else []
    assert reported == ([field] if field else [])


async def test_a_job_with_an_unparsable_selector_has_only_this_error(api: APIClient) -> None:
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "-", "operator": "Exists"}]}
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    for is_manual in (True, False):
        spec = {"manualSelector": is_manual, "selector": selector, "template": template}
        body = {"metadata": {"name": "j"}, "spec": spec}
        answer = await api.post("/apis/batch/v1/namespaces/default/jobs", body)
        assert [path for path, _ in causes(answer.body)] == [
            "spec.selector.matchExpressions[0].key"
        ]


async def test_an_invalid_percentage_is_shown_as_json(api: APIClient) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    answer = await api.post(path, {"metadata": {"name": "p"}, "spec": {"minAvailable": "<\0%"}})
    assert causes(answer.body)[0][1].startswith(r'Invalid value: "\u003c\u0000%": a valid percent')


async def test_overhead_of_a_runtime_class_is_not_rounded(api: APIClient) -> None:
    body = {
        "metadata": {"name": "exact"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "0.1m"}},
    }
    answer = await api.post("/apis/node.k8s.io/v1/runtimeclasses", body)
    assert answer.body["overhead"]["podFixed"] == {"cpu": "100u"}
