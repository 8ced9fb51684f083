"""Rules of writes, reads and patches that random requests have shown (``make differential``).

They hold for envtest and for kube-apiserver, like those in ``test_differential``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient, Response
from test.integration.test_differential import CORE, TABLE, crd, custom

CUSTOM = "/apis/rules.example.com/v1/namespaces/default"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
AUTOSCALERS = "namespaces/default/horizontalpodautoscalers"
APPS = "/apis/apps/v1/namespaces/default"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
NOTE = {"a": {"type": "string"}}
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def causes(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields and the messages of the errors in a Status."""
    return [(each["field"], each["message"]) for each in body["details"]["causes"]]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"spec": {"minAvailable": 1, "unhealthyPodEvictionPolicy": "a\0<b"}},
            r'Unsupported value: "a\u0000\u003cb": ',
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            {"roleRef": {"apiGroup": "a\0<b", "kind": "Role", "name": "r"}},
            r'Unsupported value: "a\x00<b": ',
        ),
    ],
)
async def test_only_plain_strings_are_quoted_in_errors_of_choices(
    api: APIClient, path: str, body: dict[str, Any], message: str
) -> None:
    answer = await api.post(path, {"metadata": {"name": "a"}, **body})
    assert answer.code == 422
    assert causes(answer.body)[0][1].startswith(message)


async def test_a_control_character_in_a_field_name_is_quoted(api: APIClient) -> None:
    body = {"metadata": {"name": "a"}, "\0x": 1}
    answer = await api.post(f"{CORE}/configmaps", body)
    assert answer.code == 201
    assert answer.headers["Warning"] == '299 - "unknown field \\"\\\\x00x\\""'


async def test_warnings_with_control_characters_are_left_out(
    plane: ControlPlane, api: APIClient
) -> None:
    await plane.install_crds(crd("notes", NOTE))
    answer = await api.post(
        f"{CUSTOM}/notes", {**custom("Note"), "metadata": {"name": "a", "\nx": 1}}
    )
    assert answer.code == 201
    assert "Warning" not in answer.headers


async def test_endpoint_slices_count_changed_labels_and_dropped_topology(api: APIClient) -> None:
    endpoint: dict[str, Any] = {"addresses": ["10.1.0.1"]}
    body = {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint], "ports": []}
    await api.post(SLICES, body)
    endpoint["deprecatedTopology"] = {"a": "b"}
    dropped = await api.put(f"{SLICES}/s", body)
    labelled = await api.merge(f"{SLICES}/s", {"metadata": {"labels": {"a": "b"}}})
    annotated = await api.merge(f"{SLICES}/s", {"metadata": {"annotations": {"a": "b"}}})
    assert "deprecatedTopology" not in dropped.body["endpoints"][0]
    generations = [each.body["metadata"]["generation"] for each in (dropped, labelled, annotated)]
    assert generations == [2, 3, 3]


async def test_a_family_error_of_an_endpoint_names_the_list(api: APIClient) -> None:
    body = {
        "metadata": {"name": "s"},
        "addressType": "IPv6",
        "endpoints": [{"addresses": ["10.1.0.1"]}],
        "ports": [],
    }
    answer = await api.post(SLICES, body)
    message = 'Invalid value: "10.1.0.1": must be an IPv6 address'
    assert causes(answer.body) == [("endpoints[0].addresses", message)]


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


@pytest.mark.parametrize("kind", ["daemonsets", "deployments", "replicasets", "statefulsets"])
async def test_bookmarks_have_the_zero_values_of_internal_types(api: APIClient, kind: str) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    query["allowWatchBookmarks"] = "true"
    async with api.watch(f"{APPS}/{kind}", query) as watch:
        obj = (await watch.event())["object"]
    annotations = {"k8s.io/initial-events-end": "true"}
    if kind == "daemonsets":
        annotations["deprecated.daemonset.template.generation"] = "0"
    assert obj["metadata"]["annotations"] == annotations
    assert obj["spec"].get("replicas") == (None if kind == "daemonsets" else 0)


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


async def test_a_list_of_one_name_is_never_continued(api: APIClient) -> None:
    for name in ("a", "b", "c"):
        await api.post(f"{CORE}/configmaps", {"metadata": {"name": name}})
    query = {"fieldSelector": "metadata.name=a", "limit": "1"}
    answer = await api.get(f"{CORE}/configmaps", query)
    assert "continue" not in answer.body["metadata"]


async def test_null_is_an_empty_strategic_merge_patch(api: APIClient) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}})
    answer = await api.request("PATCH", f"{CORE}/configmaps/a", b"null", content_type=STRATEGIC)
    assert answer.code == 200


async def test_merge_patches_keep_nulls_in_lists(plane: ControlPlane, api: APIClient) -> None:
    items = {"type": "array", "items": {"type": "string"}}
    await plane.install_crds(crd("notes", {"items": items}))
    await api.post(f"{CUSTOM}/notes", custom("Note", items=["a"]))
    answer = await api.merge(f"{CUSTOM}/notes/a", {"spec": {"items": [None]}})
    assert answer.code == 422
    assert "spec.items[0]" in answer.body["message"]


async def test_an_applied_null_is_an_error(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", NOTE))
    applied = await api.apply(f"{CUSTOM}/notes/a", custom("Note", a=None), "m")
    created = await api.post(f"{CUSTOM}/notes", custom("Note", a=None))
    assert (applied.code, created.code) == (422, 201)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "replace", "path": "", "value": "a"}, 422),
        ({"op": "add", "path": "", "value": {}}, 422),
        ({"op": "replace", "path": "", "value": {"kind": "ConfigMap", "apiVersion": "v1"}}, 200),
    ],
)
async def test_a_json_patch_can_replace_the_whole_document(
    api: APIClient, operation: dict[str, Any], code: int
) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}, "data": {"a": "b"}})
    operation = {**operation}
    if code == 200:
        operation["value"] = {**operation["value"], "metadata": {"name": "a"}}
    path = f"{CORE}/configmaps/a"
    answer = await api.request("PATCH", path, [operation], content_type=JSON_PATCH)
    assert answer.code == code
    assert "data" not in answer.body


async def test_a_custom_resource_is_not_a_list(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", NOTE))
    await api.post(f"{CUSTOM}/notes", custom("Note"))
    answer = await api.request("GET", f"{CUSTOM}/notes/a", headers={"Accept": METADATA_LIST})
    assert (answer.code, answer.body["message"]) == (500, "content is not a list")


@pytest.mark.parametrize("path", ["resource.k8s.io/v1/namespaces/default/resourceclaims/a/status"])
async def test_some_subresources_have_no_table(api: APIClient, path: str) -> None:
    answer = await api.request("GET", f"/apis/{path}", headers={"Accept": TABLE})
    assert answer.code == 406


async def test_other_documents_of_a_yaml_body_are_ignored(api: APIClient) -> None:
    text = b'{"metadata": {"name": "a"}} x'
    path = f"{CORE}/configmaps"
    answer = await api.request("POST", path, text, content_type="application/yaml")
    assert (answer.code, answer.body["metadata"]["name"]) == (201, "a")


async def test_errors_of_new_events_include_metadata_and_series(api: APIClient) -> None:
    event = {"eventTime": "2026-01-02T03:04:05.000006Z", "type": "Normal", "series": {"count": 1}}
    answer = await api.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    fields = [field for field, _ in causes(answer.body)]
    assert {"metadata.name", "series.count", "series.lastObservedTime"} <= {*fields}


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


async def test_addresses_have_no_generated_names(api: APIClient) -> None:
    spec = {"parentRef": {"resource": "services", "name": "s", "namespace": "default"}}
    body = {"metadata": {"generateName": "gen-"}, "spec": spec}
    answer = await api.post("/apis/networking.k8s.io/v1/ipaddresses", body)
    assert answer.body["details"]["name"] == "gen-"


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


async def test_unchanged_values_that_break_a_rule_are_warned_about(
    plane: ControlPlane, api: APIClient
) -> None:
    definition = crd("notes", {"a": {"type": "string"}, "b": {"type": "string"}})
    await plane.install_crds(definition)
    await api.post(f"{CUSTOM}/notes", custom("Note", a="wrong"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rule = {"rule": "self != 'wrong'", "message": "is wrong"}
    schema["properties"]["spec"]["properties"]["a"]["x-kubernetes-validations"] = [rule]
    await plane.install_crds(definition)
    path = f"{CUSTOM}/notes/a"

    async def warns() -> bool:
        answer = await api.merge(path, {"spec": {"b": "x"}}, {"dryRun": "All"})
        assert answer.code == 200
        return (
            answer.headers.get("Warning") == '299 - "spec.a: Invalid value: \\"wrong\\": is wrong"'
        )

    for _ in range(600):  # kube-apiserver serves the new schema later
        if await warns():
            break
        await asyncio.sleep(0.05)
    assert await warns()


async def test_whole_floats_count_as_a_change(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", {"size": {"type": "integer"}}))
    await api.post(f"{CUSTOM}/notes", custom("Note", size=1))
    answer = await api.merge(f"{CUSTOM}/notes/a", {"spec": {"size": 1.0}})
    assert answer.body["metadata"]["generation"] == 2


async def test_scales_are_read_at_valid_versions_only(api: APIClient) -> None:
    answer = await api.get(f"{APPS}/deployments/none/scale", {"resourceVersion": "x"})
    assert answer.code == 500


async def test_a_node_table_shows_the_architecture(api: APIClient) -> None:
    info = {"kernelVersion": "6", "architecture": "amd64"}
    await api.post("/api/v1/nodes", {"metadata": {"name": "n"}, "status": {"nodeInfo": info}})
    answer = await api.request("GET", "/api/v1/nodes/n", headers={"Accept": TABLE})
    assert answer.body["rows"][0]["cells"][8] == "6 (amd64)"


async def test_unsupported_patch_types_are_refused_before_warnings(api: APIClient) -> None:
    answer = await api.request("PATCH", f"{CORE}/endpoints/a", {}, content_type="text/plain")
    assert answer.code == 415
    assert "Warning" not in answer.headers


async def test_access_reviews_ignore_selectors_that_do_not_parse(api: APIClient) -> None:
    attributes = {"verb": "list", "resource": "pods", "labelSelector": {"rawSelector": "../a"}}
    body = {"spec": {"resourceAttributes": attributes}}
    answer = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    error = "spec.resourceAttributes.labelSelector ignored due to parse error"
    assert answer.body["status"]["evaluationError"] == error


async def test_numbers_that_overflow_are_decoding_errors(
    plane: ControlPlane, api: APIClient
) -> None:
    await plane.install_crds(crd("notes", {"size": {"type": "number"}}))
    head = b'{"apiVersion": "rules.example.com/v1", "kind": "Note", "metadata": {"name": "a"}'
    answer = await api.request("POST", f"{CUSTOM}/notes", head + b', "spec": {"size": 1e400}}')
    assert answer.code == 400
    assert answer.body["message"].startswith('Note in version "v1" cannot be handled as a Note: ')
    number = f"-{'1' * 50}e4000"
    body = head + f', "spec": {{"size": {number}}}}}'.encode()
    answer = await api.request("POST", f"{CUSTOM}/notes", body)
    assert f"cannot unmarshal number {number} into Go value" in answer.body["message"]
    built_in = b'{"metadata": {"name": "a"}, "\\ud800": 1e400}'
    answer = await api.request("POST", f"{CORE}/configmaps", built_in)
    assert answer.code == 201


@pytest.mark.parametrize(("spec", "shown"), [({}, "null"), ({"request": ""}, '""')])
async def test_an_absent_signing_request_is_shown_as_null(
    api: APIClient, spec: dict[str, Any], shown: str
) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    problem = f"Invalid value: {shown}: PEM block type must be CERTIFICATE REQUEST"
    assert ("spec.request", problem) in causes(answer.body)


async def test_rules_cannot_read_whole_floats_of_integers(
    plane: ControlPlane, api: APIClient
) -> None:
    sizes = crd("notes", {"size": {"type": "integer"}, "name": {"type": "string"}})
    schema = sizes["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    decided = {"rule": "self.name == 'a' || self.size < 9"}
    schema["x-kubernetes-validations"] = [decided, {"rule": "self.size < 5", "message": "large"}]
    await plane.install_crds(sizes)
    answer = await api.post(f"{CUSTOM}/notes", custom("Note", name="a", size=1.0))
    assert answer.code == 422
    error = "invalid data, expected int, got float64 evaluating rule: large"
    assert causes(answer.body) == [("spec", f'Invalid value: "object": {error}')]


async def test_rules_match_strings_with_control_characters(
    plane: ControlPlane, api: APIClient
) -> None:
    rule = {"rule": "self.matches('^[a-z]*$')"}
    named = {"type": "string", "x-kubernetes-validations": [rule], "maxLength": 9}
    await plane.install_crds(crd("notes", {"name": named}))
    answer = await api.post(f"{CUSTOM}/notes", custom("Note", name="a\0b"))
    assert answer.code == 422


async def test_symbols_are_allowed_in_hostnames(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", {"name": {"type": "string", "format": "hostname"}}))
    codes = []
    for name in ("a=b", "é", "a_b", "a--b"):
        path = f"{CUSTOM}/notes?dryRun=All"
        codes.append((await api.post(path, custom("Note", name=name))).code)
    assert codes == [201, 201, 422, 422]


async def test_a_default_of_another_version_is_a_change(
    plane: ControlPlane, api: APIClient
) -> None:
    notes = crd("notes", {"a": {"type": "string"}, "added": {"type": "string", "default": "x"}})
    older = crd("notes", {"a": {"type": "string"}})["spec"]["versions"][0]
    notes["spec"]["versions"].append({**older, "name": "v1beta1", "storage": False})
    await plane.install_crds(notes)
    older_path = CUSTOM.replace("/v1/", "/v1beta1/")
    body = {**custom("Note", a="b"), "apiVersion": "rules.example.com/v1beta1"}
    created = await api.post(f"{older_path}/notes", body)
    first = await api.merge(f"{CUSTOM}/notes/a", {})
    second = await api.merge(f"{CUSTOM}/notes/a", {})
    versions = [each.body["metadata"]["resourceVersion"] for each in (created, first, second)]
    assert versions[0] != versions[1] == versions[2]
    assert first.body["spec"] == {"a": "b", "added": "x"}


async def test_a_map_that_an_apply_empties_remains(plane: ControlPlane, api: APIClient) -> None:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    await plane.install_crds(crd("notes", {"labels": labels}))
    await api.apply(f"{CUSTOM}/notes/a", custom("Note", labels={"a": "b"}), "m")
    answer = await api.apply(f"{CUSTOM}/notes/a", custom("Note", labels={}), "m")
    assert answer.code == 200
    assert answer.body["spec"] == {"labels": {}}


async def test_only_mutating_policies_without_variables_declare_them(api: APIClient) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "variables.v == 1"}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert "undeclared reference to 'variables'" in causes(answer.body)[0][1]
    spec.pop("validations")
    expression = "Object{metadata: Object.metadata{name: variables.v}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    spec |= {"mutations": [mutation], "reinvocationPolicy": "Never"}
    path = path.replace("validating", "mutating")
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert "undefined field 'v'" in causes(answer.body)[0][1]


async def test_an_undeclared_path_is_reported_at_its_first_name(api: APIClient) -> None:
    spec = {"selectors": [{"cel": {"expression": "1 == k8s.io"}}]}
    body = {"metadata": {"name": "a"}, "spec": spec}
    answer = await api.post("/apis/resource.k8s.io/v1/deviceclasses", body)
    error = "ERROR: <input>:1:6: undeclared reference to 'k8s' (in container '')\n"
    assert f"{error} | 1 == k8s.io\n | .....^" in causes(answer.body)[0][1]


async def test_devices_of_slices_are_validated(api: APIClient) -> None:
    device = {
        "attributes": {"-a": {"int": 1}},
        "bindingConditions": ["a", "a"],
        "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}},
        "taints": [{"key": "a", "effect": "None"}],
    }
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [device]}
    body = {"metadata": {"name": "s"}, "spec": spec}
    path = "/apis/resource.k8s.io/v1/resourceslices"
    fields = sorted(field for field, _ in causes((await api.post(path, body)).body))
    assert fields == [
        "spec.devices[0].attributes",
        "spec.devices[0].bindingConditions[1]",
        "spec.devices[0].bindingFailureConditions",
        "spec.devices[0].capacity[m].requestPolicy",
        "spec.devices[0].name",
    ]
    device.clear()
    device |= {"name": "d", "taints": [{"key": "a", "effect": "None"}]}
    answer = await api.post(path, body)
    assert answer.body["spec"]["devices"][0]["taints"][0]["timeAdded"]


async def test_a_service_without_external_addresses_loses_their_policy(api: APIClient) -> None:
    spec = {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}
    await api.post(f"{CORE}/services", {"metadata": {"name": "s"}, "spec": spec})
    answer = await api.merge(f"{CORE}/services/s", {"spec": {"externalIPs": []}})
    assert answer.code == 200
    assert "externalTrafficPolicy" not in answer.body["spec"]


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


async def test_the_value_of_a_priority_class_is_only_limited_once(api: APIClient) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.post(path, {"metadata": {"name": "p"}, "value": 1})
    answer = await api.merge(f"{path}/p", {"value": 2147483647})
    assert causes(answer.body) == [("value", "Forbidden: may not be changed in an update.")]


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


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"


async def test_a_map_with_an_empty_key_is_shown_in_errors(api: APIClient) -> None:
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    spec = {"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    volume = {"accessModes": ["ReadWriteOnce"], "flexVolume": {"driver": "d", "options": {"": "x"}}}
    answer = await api.merge(f"{path}/a", {"spec": {"source": {"inlineVolumeSpec": volume}}})
    assert answer.code == 422
    assert '"Options":{"":"x"}' in dict(causes(answer.body))["spec"]


async def test_invalid_variables_are_declared_in_policies(api: APIClient) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "1", "expression": "1"}],
        "validations": [{"expression": "variables.v == 1"}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert "undefined field 'v'" in dict(causes(answer.body))["spec.validations[0].expression"]


async def test_the_case_of_a_device_driver_is_ignored(api: APIClient) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "aA", "nodeName": "n", "pool": pool, "devices": [{"name": "d"}]}
    body = {"metadata": {"name": "upper"}, "spec": spec}
    answer = await api.post("/apis/resource.k8s.io/v1/resourceslices", body)
    assert answer.code == 201


async def test_a_role_without_rules_has_no_owner_of_them(api: APIClient) -> None:
    answer = await api.post(ROLES, {"metadata": {"name": "none"}})
    assert "managedFields" not in answer.body["metadata"]
    answer = await api.post(ROLES, {"metadata": {"name": "empty"}, "rules": []})
    (entry,) = answer.body["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:rules": {}}


async def test_unknown_fields_of_strategic_patches_are_sorted(api: APIClient) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "c"}})
    body = {"zz": 1, "aa": 1}
    answer = await api.request("PATCH", f"{CORE}/configmaps/c", body, content_type=STRATEGIC)
    warnings = answer.headers.getall("Warning")
    assert ["aa" in warnings[0], "zz" in warnings[1]] == [True, True]


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


async def test_reports_about_devices_need_their_allocation(api: APIClient) -> None:
    exactly = {"deviceClassName": "c"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    await api.post(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
    device = {"driver": "d.example.com", "pool": "p", "device": "x"}
    results = [{"request": "r", **device}]
    path = f"{CLAIMS}/c/status"

    answer = await api.merge(path, {"status": {"devices": [device]}})
    ((field, message),) = causes(answer.body)
    assert field == "status.devices[0]"
    assert "must be an allocated device in the claim" in message

    network = {
        "interfaceName": "i" * 257,
        "hardwareAddress": "h" * 129,
        "ips": ["1", "192.0.2.1/24", "192.0.2.1/24", "2001:DB8::1/64"],
    }
    report = {**device, "data": [], "networkData": network, "shareID": "abc"}
    answer = await api.merge(path, {"status": {"devices": [report]}})
    assert sorted(field for field, _ in causes(answer.body)) == [
        "status.devices[0]",
        "status.devices[0].data",
        "status.devices[0].networkData.hardwareAddress",
        "status.devices[0].networkData.interfaceName",
        "status.devices[0].networkData.ips[0]",
        "status.devices[0].networkData.ips[2]",
        "status.devices[0].networkData.ips[3]",
        "status.devices[0].shareID",
    ]

    allocation = {"devices": {"results": results}}
    body = {"status": {"allocation": allocation, "devices": [device, device]}}
    answer = await api.merge(path, body)
    shown = '{"Driver":"d.example.com","Pool":"p","Device":"x","ShareID":""}'
    assert causes(answer.body) == [("status.devices[1]", f"Duplicate value: {shown}")]

    answer = await api.merge(path, {"status": {"allocation": allocation, "devices": [device]}})
    assert answer.code == 200
    answer = await api.merge(path, {"status": {"allocation": None}})
    assert answer.code == 200
    assert answer.body["status"] == {}


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


async def test_errors_of_expressions_contain_nul(api: APIClient) -> None:
    spec = {"selectors": [{"cel": {"expression": "a\0b"}}]}
    body = {"metadata": {"name": "nul"}, "spec": spec}
    answer = await api.post("/apis/resource.k8s.io/v1/deviceclasses", body)
    ((_, message),) = causes(answer.body)
    assert "token recognition error at: '\0'\n | a\0b\n | .^\nERROR: <input>:1:3:" in message


async def test_a_list_of_one_object_by_its_name_has_no_pages(api: APIClient) -> None:
    created = await api.post(f"{CORE}/configmaps", {"metadata": {"name": "first"}})
    before = created.body["metadata"]["resourceVersion"]
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "named"}})
    query = {"limit": "1", "resourceVersion": before, "fieldSelector": "metadata.name=named"}
    answer = await api.get(f"{CORE}/configmaps", query)
    assert [each["metadata"]["name"] for each in answer.body["items"]] == ["named"]
    answer = await api.get(f"{CORE}/configmaps", {**query, "resourceVersionMatch": "Exact"})
    assert answer.body["items"] == []


async def test_only_reads_of_the_cache_can_be_tried_again(api: APIClient) -> None:
    future = {"resourceVersion": "99999999"}
    answer = await api.get(f"{CORE}/configmaps", future)
    assert answer.body["details"]["retryAfterSeconds"] == 1
    named = {**future, "fieldSelector": "metadata.name=a"}
    for query in ({"limit": "1"}, {"resourceVersionMatch": "Exact"}):
        answer = await api.get(f"{CORE}/configmaps", {**future, **query})
        assert answer.body["details"]["retryAfterSeconds"] == 1
        answer = await api.get(f"{CORE}/configmaps", {**named, **query})
        assert answer.code == 504
        assert "retryAfterSeconds" not in answer.body["details"]


async def test_objects_that_no_webhook_converts(plane: ControlPlane, api: APIClient) -> None:
    definition = crd("stones", NOTE)
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"].append({**version, "name": "v2", "storage": False})
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"}}
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    await plane.install_crds(definition)
    await api.post(f"{CUSTOM}/stones", custom("Stone"))
    path = f"{CUSTOM}/stones".replace("/v1/", "/v2/")
    answer = await api.get(path, {"labelSelector": "a=b"})
    assert answer.code == 500
    assert (
        "conversion webhook for rules.example.com/v1, Kind=Stone failed" in answer.body["message"]
    )
    answer = await api.get(path, {"fieldSelector": "metadata.name=other"})
    assert answer.body["items"] == []
    answer = await api.get(path, {"watch": "1", "timeoutSeconds": "1"})
    assert answer.code == 200
    assert answer.body["type"] == "ERROR"
    assert answer.body["object"]["code"] == 504


async def test_only_variables_with_an_expression_are_declared(api: APIClient) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "v"}],
        "validations": [{"expression": "variables.v == 1"}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    answer = await api.post(path, {"metadata": {"name": "none"}, "spec": spec})
    assert sorted(field for field, _ in causes(answer.body)) == [
        "spec.validations[0].expression",
        "spec.variables[0].expression",
    ]


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


async def test_a_status_without_the_time_of_its_phase_keeps_it(api: APIClient) -> None:
    path = "/api/v1/persistentvolumes"
    csi = {"driver": "d.example.com", "volumeHandle": "h"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
    created = await api.post(path, {"metadata": {"name": "pv"}, "spec": spec})
    body = {"metadata": {"name": "pv"}, "spec": spec, "status": {"phase": "Pending"}}
    answer = await api.put(f"{path}/pv/status", body)
    assert answer.body["status"] == created.body["status"]


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


async def test_a_body_of_another_version_is_decoded_before_it_is_refused(api: APIClient) -> None:
    path = f"/apis/autoscaling/v1/{AUTOSCALERS}"
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "unknown": 1}
    answer = await api.post(path, body)
    assert "does not match the expected API version" in answer.body["message"]
    assert 'unknown field \\"unknown\\"' in answer.headers.getall("Warning")[0]
    answer = await api.post(path, body, {"fieldValidation": "Strict"})
    assert "strict decoding error" in answer.body["message"]
    answer = await api.post(path, {**body, "spec": 1})
    assert 'in version "v2" cannot be handled' in answer.body["message"]
    event = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}}
    answer = await api.post(f"{CORE}/events", event)
    assert "does not match the expected API version (v1)" in answer.body["message"]


async def test_the_prefix_of_an_address_is_validated_in_updates(api: APIClient) -> None:
    path = "/apis/networking.k8s.io/v1/ipaddresses"
    spec = {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}
    await api.post(path, {"metadata": {"name": "192.0.2.7"}, "spec": spec})
    answer = await api.merge(f"{path}/192.0.2.7", {"metadata": {"generateName": "a-"}})
    assert [field for field, _ in causes(answer.body)] == ["metadata.generateName"]


async def test_errors_of_reasons_show_all_examples(api: APIClient) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await api.post(path, {"metadata": {"name": "r"}, "spec": {"minAvailable": 1}})
    condition = {"type": "T", "status": "True", "reason": "-", "message": ""}
    condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    answer = await api.merge(f"{path}/r/status", {"status": {"conditions": [condition]}})
    ((_, message),) = causes(answer.body)
    assert "or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex" in message


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
DRY_RUN = {"dryRun": "All"}


async def test_a_value_that_decodes_itself_is_reported_before_wrong_types(api: APIClient) -> None:
    path = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
    body = {"metadata": {"name": "c"}, "storageClassName": 1, "nodeTopology": 1, "capacity": "x"}
    answer = await api.post(path, body)
    assert answer.code == 400
    assert "quantities must match the regular expression" in answer.body["message"]
    answer = await api.post(path, {**body, "capacity": "1Gi"})
    assert ".storageClassName of type string" in answer.body["message"]


async def test_a_wrong_type_in_items_of_a_schema_ends_the_decoding(api: APIClient) -> None:
    array: dict[str, Any] = {"type": "array", "maxItems": "x", "items": {"type": 1}}
    body = crd("items", {"a": array})
    answer = await api.post(CRDS, body)
    assert answer.code == 400
    assert "openAPIV3Schema.properties.properties.items.type of type" in answer.body["message"]
    del array["maxItems"]
    answer = await api.request(
        "PATCH",
        f"{CRDS}/{body['metadata']['name']}",
        body,
        query={"fieldManager": "a"},
        content_type="application/apply-patch+yaml",
    )
    assert "Go struct field JSONSchemaProps.type of type string" in answer.body["message"]


@pytest.mark.parametrize(
    ("path", "version", "kind", "problem"),
    [
        ("/apis/apiregistration.k8s.io/v1/apiservices", "v1", "List", "no kind"),
        ("/apis/apiregistration.k8s.io/v1/apiservices", "v1", "ListOptions", "converting (v1."),
        ("/apis/apiregistration.k8s.io/v1/apiservices", "meta.k8s.io/v9", "Status", "(v1.Status)"),
        (CRDS, "apps/v1", "WatchEvent", "converting (v1.WatchEvent)"),
        (CRDS, "apps/v1", "DeleteOptions", "no kind"),
        ("/api/v1/namespaces", "autoscaling/v1", "Scale", "converting (v1.Scale)"),
        ("/api/v1/namespaces", "apiregistration.k8s.io/v1", "APIService", "no kind"),
    ],
)
async def test_each_api_server_has_a_scheme_with_its_own_kinds(
    api: APIClient, path: str, version: str, kind: str, problem: str
) -> None:
    answer = await api.post(path, {"apiVersion": version, "kind": kind})
    assert answer.code == 400
    assert problem in answer.body["message"]


async def test_an_api_service_of_a_version_that_is_not_served_is_known(api: APIClient) -> None:
    body = {"apiVersion": "apiregistration.k8s.io/v1beta1", "kind": "APIService"}
    answer = await api.post("/apis/apiregistration.k8s.io/v1/apiservices", body)
    assert "does not match the expected API version" in answer.body["message"]


async def test_a_list_of_one_object_in_its_namespace_has_no_pages(api: APIClient) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "only"}})
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "other"}})
    query = {"fieldSelector": "metadata.name=only,metadata.namespace=default", "limit": "1"}
    answer = await api.get("/api/v1/configmaps", query)
    assert "continue" not in answer.body["metadata"]
    answer = await api.get("/api/v1/configmaps", {**query, "resourceVersion": "1"})
    assert [each["metadata"]["name"] for each in answer.body["items"]] == ["only"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("variables == 1", "'(kubernetes.variables, int)'"),
        ("request == 1", "'(kubernetes.AdmissionRequest, int)'"),
        ("request.userInfo == 1", "'(kubernetes.UserInfo, int)'"),
        ("namespaceObject.status.conditions == 1", "'(list(kubernetes.NamespaceCondition), int)'"),
        ("variables.v.x", "type 'int' does not support field selection"),
    ],
)
async def test_errors_of_expressions_name_the_types_of_admission(
    api: APIClient, expression: str, message: str
) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "v", "expression": "1"}],
        "validations": [{"expression": expression}],
    }
    answer = await api.post(POLICIES, {"metadata": {"name": "types"}, "spec": spec})
    assert message in dict(causes(answer.body))["spec.validations[0].expression"]


@pytest.mark.parametrize(
    "name",
    ["extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking"],
)
async def test_the_server_owns_the_config_maps_that_it_creates(api: APIClient, name: str) -> None:
    answer = await api.get(f"/api/v1/namespaces/kube-system/configmaps/{name}")
    (entry,) = answer.body["metadata"]["managedFields"]
    assert entry["manager"] == "kube-apiserver"
    owned = {f"f:{key}" for key in answer.body["data"]}
    assert entry["fieldsV1"]["f:data"].keys() == {".", *owned}


async def test_an_address_needs_a_service_with_a_name(api: APIClient) -> None:
    body = {"metadata": None, "spec": {"ports": [{"port": 80}]}}
    answer = await api.post(f"{CORE}/services", body)
    ((field, message),) = causes(answer.body)
    assert field == "spec.clusterIPs"
    assert message.endswith("is invalid: spec.parentRef.name: Required value")
    answer = await api.post(f"{CORE}/services", body, DRY_RUN)
    assert [field for field, _ in causes(answer.body)] == ["metadata.name"]


async def test_an_applied_object_without_metadata_has_no_name(api: APIClient) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}
    answer = await api.request(
        "PATCH",
        f"{CORE}/configmaps/applied",
        body,
        query={"fieldManager": "a"},
        content_type="application/apply-patch+yaml",
    )
    assert answer.code == 400
    assert "was undeterminable: name must be provided" in answer.body["message"]


async def test_only_times_that_go_parses_are_quoted_in_yaml(api: APIClient) -> None:
    quoted = [
        "2026-01-02",
        "2026-1-2t3:4:5Z",
        "2026-01-02  03:04:05",
        "2026-01-02T03:04:05.5+24:00",
    ]
    plain = ["2026-02-30", "2026-01-02t03:04:05z", "2026-01-02T03:04:05", "2026-01-02 25:04:05"]
    data = {str(position): text for position, text in enumerate([*quoted, *plain])}
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "times"}, "data": data})
    answer = await api.get(f"{CORE}/configmaps/times", headers={"Accept": "application/yaml"})
    text = answer.body
    assert [f': "{each}"\n' in text for each in quoted] == [True] * len(quoted)
    assert [f": {each}\n" in text for each in plain] == [True] * len(plain)


async def test_an_operating_system_without_a_name_is_reported_without_a_reason(
    api: APIClient,
) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "os": {}}
    answer = await api.post(f"{CORE}/pods", {"metadata": {"name": "os"}, "spec": spec})
    assert causes(answer.body) == [("spec.os.name", "Required value")]


async def test_a_changed_reason_of_an_event_is_reported_twice(api: APIClient) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    body = {"metadata": {"name": "twice"}, "eventTime": "2026-01-02T03:04:05.000006Z"}
    body |= {"action": "A", "reason": "R", "type": "Normal"}
    body |= {"reportingController": "example.com/a", "reportingInstance": "i"}
    assert (await api.post(path, body)).code == 201
    answer = await api.put(f"{path}/twice", {**body, "reason": "S"})
    assert [field for field, _ in causes(answer.body)] == ["reason", "reason"]


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


async def test_quantities_are_stored_in_canonical_form_or_as_sent(api: APIClient) -> None:
    stored = {
        "-843.929e3": "-843.929e3",
        "1.5e3": "1500",
        "1.500": "1.500",
        "+1": "+1",
        "010Gi": "010Gi",
        "08Gi": "8Gi",
        "1000E": "1",
        "1000e18": "1e21",
    }
    sent = {f"example.com/r{index}": quantity for index, quantity in enumerate(stored)}
    body = {
        "metadata": {"name": "quantities"},
        "spec": {"limits": [{"type": "Pod", "max": sent}]},
    }
    assert (await api.post(f"{CORE}/limitranges", body)).code == 201
    answer = await api.get(f"{CORE}/limitranges/quantities")
    assert list(answer.body["spec"]["limits"][0]["max"].values()) == list(stored.values())
    await api.delete(f"{CORE}/limitranges/quantities")


REVISIONS = f"{APPS}/controllerrevisions"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


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


@pytest.mark.parametrize("version", ["0", ""])
async def test_a_watch_for_lists_of_metadata_ends_at_the_first_event(
    api: APIClient, version: str
) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "m"}})
    query = {"watch": "true", "resourceVersion": version}
    headers = {"Accept": METADATA_LIST}
    answer = await api.get(f"{CORE}/configmaps", query, headers=headers)
    assert (answer.code, answer.body) == (200, "")


@pytest.mark.parametrize("plural", ["replicasets", "statefulsets", "daemonsets", "deployments"])
async def test_a_label_selector_is_shown_in_the_order_of_its_type(
    api: APIClient, plural: str
) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
    assert (
        await api.post(f"{APPS}/{plural}", {"metadata": {"name": "o"}, "spec": spec})
    ).code == 201
    selector = {"matchExpressions": [{"key": "-", "operator": "Exists"}], "matchLabels": {"a": "b"}}
    answer = await api.merge(f"{APPS}/{plural}/o", {"spec": {"selector": selector}})
    shown = 'Invalid value: {"matchLabels":{"a":"b"},"matchExpressions":[{"key":"-","operator":"Exists"}]}'
    assert any(text.startswith(shown) for _, text in causes(answer.body))


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


@pytest.mark.parametrize("data", [[1], "x", 1, True])
async def test_data_of_a_revision_is_a_json_object(api: APIClient, data: Any) -> None:
    answer = await api.post(REVISIONS, {"metadata": {"name": "r"}, "data": data, "revision": 1})
    assert causes(answer.body) == [("data", "Required value: data must be a valid JSON object")]


async def test_data_of_a_revision_is_immutable(api: APIClient) -> None:
    body = {"metadata": {"name": "r"}, "data": {"a": 1.0}, "revision": 1}
    assert (await api.post(REVISIONS, body)).code == 201
    assert (await api.put(f"{REVISIONS}/r", {**body, "revision": 2})).code == 200
    answer = await api.put(f"{REVISIONS}/r", {**body, "data": {"a": 1}})
    assert causes(answer.body) == [("data", 'Invalid value: {"a":1}: field is immutable')]
    answer = await api.put(f"{REVISIONS}/r", {"metadata": {"name": "r"}, "revision": 3})
    assert causes(answer.body) == [("data", "Invalid value: null: field is immutable")]


@pytest.mark.parametrize(
    ("field", "requirements", "error"),
    [
        ("fieldSelector", [("a", "In", ["b"])], None),
        ("fieldSelector", [("a", "NotIn", ["b c"])], None),
        ("fieldSelector", [("a", "In", ["b", "c"])], "ignored"),
        ("fieldSelector", [("a", "Exists", [])], "ignored"),
        ("fieldSelector", [("a", "In", ["b"]), ("a", "Exists", [])], "partially ignored"),
        ("labelSelector", [("a", "In", ["b", "c"])], None),
        ("labelSelector", [("a", "Other", ["b"])], "ignored"),
        ("labelSelector", [("a", "In", ["b"]), ("a", "Other", [])], "partially ignored"),
    ],
)
async def test_a_review_reports_the_requirements_that_it_ignores(
    api: APIClient,
    field: str,
    requirements: list[tuple[str, str, list[str]]],
    error: str | None,
) -> None:
    selector = {
        "requirements": [
            {"key": key, "operator": operator, "values": values}
            for key, operator, values in requirements
        ]
    }
    attributes = {"verb": "list", "resource": "pods", "namespace": "default", field: selector}
    answer = await api.post(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    expected = error and f"spec.resourceAttributes.{field} {error} due to parse error"
    assert answer.body["status"].get("evaluationError") == expected


async def test_errors_of_both_selectors_of_a_review_are_separated_by_semicolons(
    api: APIClient,
) -> None:
    selector = {"rawSelector": "a in (b"}
    attributes = {
        "verb": "list",
        "resource": "pods",
        "namespace": "default",
        "fieldSelector": selector,
        "labelSelector": selector,
    }
    answer = await api.post(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    assert answer.body["status"]["evaluationError"] == (
        "spec.resourceAttributes.fieldSelector ignored due to parse error; "
        "spec.resourceAttributes.labelSelector ignored due to parse error"
    )


async def test_an_invalid_percentage_is_shown_as_json(api: APIClient) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    answer = await api.post(path, {"metadata": {"name": "p"}, "spec": {"minAvailable": "<\0%"}})
    assert causes(answer.body)[0][1].startswith(r'Invalid value: "\u003c\u0000%": a valid percent')


async def test_an_invalid_name_is_quoted_in_the_message(api: APIClient) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    spec = {"policyName": "p", "validationActions": ["Deny"]}
    answer = await api.post(path, {"metadata": {"name": '\0"'}, "spec": spec})
    kind = "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io"
    assert answer.body["message"].startswith(rf'{kind} "\x00\"" is invalid: metadata.name: ')


def patched(key: str, value: Any) -> list[dict[str, Any]]:
    """Return a JSON patch that replaces a field of the object."""
    return [{"op": "replace", "path": f"/{key}", "value": value}]


async def test_a_patch_can_give_a_custom_resource_another_version_only_with_errors(
    api: APIClient,
) -> None:
    definition = crd("versions", NOTE)
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = f"{CUSTOM}/versions"
    await api.until(path)
    await api.post(path, custom("Version", a="b"))
    for version, group in (
        ("v9", ""),
        ("other/v1", ".other"),
        ("rules.example.com/v9", ".rules.example.com"),
    ):
        answer = await api.merge(f"{path}/a", {"apiVersion": version, "kind": "F"})
        assert answer.code == 422
        assert answer.body["message"].startswith(f'F{group} "a" is invalid: ')
        assert sorted(causes(answer.body)) == [
            ("apiVersion", f'Invalid value: "{version}": must be rules.example.com/v1'),
            ("kind", 'Invalid value: "F": must be Version'),
        ]
    answer = await api.merge(f"{path}/a", {"apiVersion": "rules.example.com/v9"})
    assert "unknown field" in answer.headers["Warning"]
    for value, problem in (
        ("a/b/c", ": unexpected GroupVersion string: a/b/c"),
        (None, ": .apiVersion accessor error: <nil> is of the type <nil>, expected string"),
    ):
        patch = patched("apiVersion", value)
        answer = await api.request("PATCH", f"{path}/a", patch, content_type=JSON_PATCH)
        assert causes(answer.body)[0][0] == "patch"
        assert answer.body["message"].endswith(problem)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a/b", "may not contain '/'"),
        ("..", "may not be '..'"),
        ("x", 'must be `spec.version+"."+spec.group`: "v1.g.example.com"'),
    ],
)
async def test_an_apiservice_has_one_error_about_its_name(
    api: APIClient, name: str, problem: str
) -> None:
    spec = {"group": "g.example.com", "version": "v1", "insecureSkipTLSVerify": True}
    spec |= {"groupPriorityMinimum": 1000, "versionPriority": 10}
    spec["service"] = {"namespace": "default", "name": "s"}
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    answer = await api.post(path, {"metadata": {"name": name}, "spec": spec})
    assert causes(answer.body) == [("metadata.name", f'Invalid value: "{name}": {problem}')]


async def test_an_empty_volume_name_of_an_attachment_has_two_errors(api: APIClient) -> None:
    spec = {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": ""}}
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert answer.code == 422
    reasons = sorted(each["reason"] for each in answer.body["details"]["causes"])
    assert reasons == ["FieldValueInvalid", "FieldValueRequired"]


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


async def test_an_applied_number_that_is_not_convertible_is_reported(api: APIClient) -> None:
    paths = {version: f"/apis/autoscaling/{version}/{AUTOSCALERS}/a" for version in ("v1", "v2")}
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}

    async def apply(version: str, most: float, manager: str) -> Response:
        body = {
            "apiVersion": f"autoscaling/{version}",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"},
            "spec": {"scaleTargetRef": target, "maxReplicas": most},
        }
        return await api.apply(paths[version], body, manager, {"force": "true"})

    assert (await apply("v2", 3, "x")).code == 201
    answer = await apply("v1", 1.5, "y")
    assert answer.code == 500
    assert answer.body["message"] == (
        "failed to convert new object: unable to convert unstructured object to autoscaling/v1, "
        "Kind=HorizontalPodAutoscaler: cannot convert float64 to int32"
    )


async def test_overhead_of_a_runtime_class_is_not_rounded(api: APIClient) -> None:
    body = {
        "metadata": {"name": "exact"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "0.1m"}},
    }
    answer = await api.post("/apis/node.k8s.io/v1/runtimeclasses", body)
    assert answer.body["overhead"]["podFixed"] == {"cpu": "100u"}
