"""Rules that random requests to envtest and to kube-apiserver have shown (``make differential``).

They hold for both: the tests also run on the real one if ``KUBEBUILDER_ASSETS`` is set.
"""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient, Response

CORE = "/api/v1/namespaces/default"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
STORAGE = "/apis/storage.k8s.io/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
POD = {"containers": [{"name": "c", "image": "i"}]}


def fields(response: Response) -> set[str]:
    """Return the fields of the errors in a response."""
    return {cause["field"] for cause in response.body["details"]["causes"]}


def crd(plural: str, spec: dict[str, Any], **subresources: Any) -> dict[str, Any]:
    """Return a CRD whose objects have a spec."""
    kind = plural.capitalize()[:-1]
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.rules.example.com"},
        "spec": {
            "group": "rules.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{**version, "subresources": subresources}],
        },
    }


def custom(kind: str, **spec: Any) -> dict[str, Any]:
    """Return a custom resource named ``a``."""
    return {
        "apiVersion": "rules.example.com/v1",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": spec,
    }


async def test_rules_reviews_return_neither_metadata_nor_namespace(api: APIClient) -> None:
    review = {"metadata": {"finalizers": ["a.b/c"]}, "spec": {"namespace": "default"}}
    answer = await api.post(f"{AUTHORIZATION}/selfsubjectrulesreviews", review)
    assert answer.code == 201
    assert "finalizers" not in answer.body["metadata"]
    assert "managedFields" not in answer.body["metadata"]
    assert answer.body["spec"] == {}


async def test_selectors_of_access_reviews_are_validated(api: APIClient) -> None:
    async def review(selector: dict[str, Any]) -> Response:
        attributes = {"verb": "list", "resource": "pods", "labelSelector": selector}
        body = {"spec": {"resourceAttributes": attributes}}
        return await api.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", body)

    path = "spec.resourceAttributes.labelSelector"
    empty = await review({})
    both = await review({"rawSelector": "a", "requirements": [{"key": "a", "operator": "Exists"}]})
    wrong = await review({"requirements": [{"key": "", "operator": "In", "values": ["-"]}]})
    unknown = await review({"requirements": [{"key": "a", "operator": "New", "values": ["b"]}]})
    assert fields(empty) == {f"{path}.requirements"}
    assert fields(both) == {f"{path}.rawSelector"}
    assert fields(wrong) == {f"{path}.requirements[0].key", f"{path}.requirements[0].values[0]"}
    assert unknown.body["status"]["evaluationError"] == f"{path} ignored due to parse error"


async def test_reviews_with_repeated_owners_warn(api: APIClient) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    body = {"metadata": {"ownerReferences": [owner, owner]}, "spec": {"token": "x"}}
    answer = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", body)
    assert answer.body["metadata"]["ownerReferences"] == [owner]
    assert "duplicate UID(s) observed: u" in answer.headers["Warning"]


async def test_a_status_creates_a_service(api: APIClient) -> None:
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    created = await api.put(f"{CORE}/services/s/status", service)
    applied = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "t"}}
    rejected = await api.apply(f"{CORE}/services/t/status", applied, "m")
    node = await api.put("/api/v1/nodes/n/status", {"metadata": {"name": "n"}})
    assert (created.code, created.body["spec"]["ports"][0]["port"]) == (201, 80)
    assert fields(rejected) == {"spec.ports"}
    assert node.code == 404


async def test_templates_and_signing_requests_are_not_created_by_update(api: APIClient) -> None:
    body = {"metadata": {"name": "t"}, "template": {"spec": POD}}
    assert (await api.put(f"{CORE}/podtemplates/t", body)).code == 404
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    request = {"metadata": {"name": "r"}, "spec": {"request": "YQ==", "signerName": "a.b/c"}}
    assert (await api.put(f"{requests}/r", request)).code == 404


async def test_attribute_classes_are_protected(api: APIClient) -> None:
    body = {"metadata": {"name": "v"}, "driverName": "d.example.com", "parameters": {"a": "b"}}
    answer = await api.post(f"{STORAGE}/volumeattributesclasses", body)
    assert answer.body["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]


async def test_drivers_warn_about_tokens_and_count_changes(api: APIClient) -> None:
    spec = {"tokenRequests": [{"audience": "a"}]}
    created = await api.post(f"{STORAGE}/csidrivers", {"metadata": {"name": "d"}, "spec": spec})
    path = f"{STORAGE}/csidrivers/d"
    changed = await api.merge(path, {"spec": {"podInfoOnMount": True}})
    assert "serviceAccountTokenInSecrets is unset" in created.headers["Warning"]
    assert "generation" not in created.body["metadata"]
    assert changed.body["metadata"]["generation"] == 1
    assert "Warning" not in changed.headers


async def test_topologies_without_labels_are_duplicates(api: APIClient) -> None:
    topologies = [{"matchLabelExpressions": []}]
    body = {"metadata": {"name": "c"}, "provisioner": "p", "allowedTopologies": topologies}
    answer = await api.post(f"{STORAGE}/storageclasses", body)
    assert fields(answer) == {"allowedTopologies[0].matchLabelExpressions"}


async def test_topologies_of_endpoint_slices_are_dropped(api: APIClient) -> None:
    endpoint = {"addresses": ["192.0.2.1"], "deprecatedTopology": {"a": "b"}}
    body = {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint]}
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    created = await api.post(path, body)
    updated = await api.put(f"{path}/s", body)
    for answer in (created, updated):
        assert "deprecatedTopology" not in answer.body["endpoints"][0]


async def test_the_bookmark_after_initial_events_has_the_fields_that_are_always_written(
    api: APIClient,
) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    query |= {"allowWatchBookmarks": "true", "fieldSelector": "metadata.name=absent"}
    async with api.watch(f"{CORE}/pods", query) as watch:
        event = await watch.event()
    assert event["type"] == "BOOKMARK"
    assert event["object"]["spec"] == {"containers": None}
    assert event["object"]["status"] == {}


async def test_integers_overflow_in_applies_and_strategic_patches(api: APIClient) -> None:
    controllers = f"{CORE}/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
    spec = {"selector": {"a": "b"}, "template": template}
    await api.post(controllers, {"metadata": {"name": "r"}, "spec": spec})
    patched = await api.request(
        "PATCH",
        f"{controllers}/r",
        {"spec": {"replicas": 2**31}},
        content_type="application/strategic-merge-patch+json",
    )
    applied = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "r"}}
    body = {**applied, "spec": {**spec, "replicas": 2**32 + 3}}
    result = await api.apply(f"{controllers}/r", body, "m", {"force": "true"})
    assert "spec.replicas: Invalid value: -2147483648" in patched.body["message"]
    assert result.body["spec"]["replicas"] == 3


async def test_fields_of_disabled_features_are_owned(api: APIClient) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
    rolling = {"rollingUpdate": {"maxUnavailable": 1}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "serviceName": "s"}
    body = {"metadata": {"name": "s"}, "spec": {**spec, "updateStrategy": rolling}}
    answer = await api.post("/apis/apps/v1/namespaces/default/statefulsets", body)
    owned = answer.body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:updateStrategy"]
    assert "maxUnavailable" not in answer.body["spec"]["updateStrategy"]["rollingUpdate"]
    assert "f:maxUnavailable" in owned["f:rollingUpdate"]


async def test_daemon_sets_have_no_generation_in_their_partial_metadata(api: APIClient) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = "/apis/apps/v1/namespaces/default/daemonsets"
    await api.post(path, {"metadata": {"name": "d"}, "spec": spec})
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    answer = await api.get(f"{path}/d", headers={"Accept": accept})
    assert "annotations" not in answer.body["metadata"]


async def test_metadata_of_invalid_events_is_not_checked(api: APIClient) -> None:
    body = {"metadata": {"name": "e", "finalizers": ["-"]}, "involvedObject": {"namespace": "x"}}
    assert fields(await api.post(f"{CORE}/events", body)) == {"involvedObject.namespace"}
    body["involvedObject"] = {"namespace": "default"}
    assert fields(await api.post(f"{CORE}/events", body)) == {"metadata.finalizers"}


async def test_finalizers_of_webhook_configurations_need_no_domain(api: APIClient) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert (await api.post(path, {"metadata": {"name": "w", "finalizers": ["a"]}})).code == 201


async def test_delete_options_report_both_errors_of_the_policy(api: APIClient) -> None:
    options = {"propagationPolicy": "Odd", "orphanDependents": True}
    answer = await api.delete(f"{CORE}/configmaps/a", options)
    assert len(answer.body["details"]["causes"]) == 2


async def test_label_selectors_are_parsed_before_other_options(api: APIClient) -> None:
    query = {"labelSelector": "=x", "resourceVersionMatch": "Exact", "fieldSelector": "a=b"}
    answer = await api.get(f"{CORE}/configmaps", query)
    assert answer.code == 400
    assert "found '='" in answer.body["message"]
    token = {"continue": "x", "resourceVersion": "5"}
    assert "invalid continue token" in (await api.get(f"{CORE}/configmaps", token)).body["message"]


async def test_finalize_replaces_metadata(api: APIClient) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "f", "labels": {"a": "b"}}})
    body = {"metadata": {"name": "f"}, "spec": {"finalizers": ["kubernetes"]}}
    answer = await api.put("/api/v1/namespaces/f/finalize", body)
    wrong = await api.put(
        "/api/v1/namespaces/f/finalize", {**body, "spec": {"finalizers": ["a b"]}}
    )
    assert "a" not in answer.body["metadata"]["labels"]
    assert fields(wrong) == {"spec.finalizers[0]"}


async def test_updates_of_claim_templates_and_addresses_are_validated(api: APIClient) -> None:
    templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
    body = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {}}}}
    await api.post(templates, body)
    answer = await api.merge(f"{templates}/t", {"spec": {"metadata": {"labels": {"-": "a"}}}})
    assert fields(answer) == {"spec", "spec.metadata.labels"}
    addresses = "/apis/networking.k8s.io/v1/ipaddresses"
    parent = {"resource": "services", "name": "s", "namespace": "default"}
    await api.post(addresses, {"metadata": {"name": "192.0.2.1"}, "spec": {"parentRef": parent}})
    answer = await api.merge(f"{addresses}/192.0.2.1", {"spec": {"parentRef": {"name": ""}}})
    assert fields(answer) == {"spec.parentRef", "spec.parentRef.name"}


async def test_scales_of_custom_resources_fail_like_their_objects(
    plane: ControlPlane, api: APIClient
) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}
    await plane.install_crds(crd("scaleds", {"size": {"type": "integer"}}, scale=paths))
    path = "/apis/rules.example.com/v1/namespaces/default/scaleds"
    await api.post(path, custom("Scaled", size=1))
    negative = await api.merge(f"{path}/a/scale", {"spec": {"replicas": -1}})
    text = await api.merge(f"{path}/a/scale", {"spec": {"replicas": "x"}})
    table = await api.get(f"{path}/a/scale", headers={"Accept": TABLE})
    assert (negative.body["details"]["kind"], fields(negative)) == ("Scaled", {".spec.size"})
    assert (text.code, fields(text)) == (422, {"patch"})
    assert table.body["kind"] == "Table"


async def test_types_of_embedded_resources_are_decoded(plane: ControlPlane, api: APIClient) -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    step = {"type": "integer", "multipleOf": 5}
    await plane.install_crds(crd("holders", {"embedded": embedded, "step": step}))
    path = "/apis/rules.example.com/v1/namespaces/default/holders"
    kind = await api.post(path, custom("Holder", embedded={"apiVersion": "v1", "kind": 1}))
    metadata = {"apiVersion": "v1", "kind": "A", "metadata": {"name": 1}}
    name = await api.post(path, custom("Holder", embedded=metadata))
    large = await api.post(path, custom("Holder", step=2**63 - 1))
    assert (kind.code, name.code) == (400, 400)
    assert "spec.embedded.kind: Invalid value: 1: must be a string" in kind.body["message"]
    assert "spec.embedded.metadata: Invalid value" in name.body["message"]
    assert fields(large) == {"spec.step"}


async def test_conflict_of_a_request_with_generate_name_has_its_own_message(api: APIClient) -> None:
    body = {"metadata": {"name": "taken", "generateName": "x-"}}
    await api.post(f"{CORE}/configmaps", body)
    answer = await api.post(f"{CORE}/configmaps", body)
    assert answer.code == 409
    assert "not able to generate a unique name" in answer.body["message"]
    assert answer.body["details"]["retryAfterSeconds"] == 1


JSON = "application/json"
YAML = "application/yaml"
LISTS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


async def test_routes_name_the_media_types_that_they_serve(api: APIClient) -> None:
    listed = await api.get(f"{CORE}/configmaps", headers={"Accept": "odd"})
    single = await api.get(f"{CORE}/configmaps/a", headers={"Accept": "odd"})
    version = await api.get("/apis/apps/v1", headers={"Accept": "odd"})
    group = await api.get("/apis/apps", headers={"Accept": "odd"})
    watch = {"watch": "true", "timeoutSeconds": "1"}
    watched = await api.get(f"{CORE}/configmaps", watch, headers={"Accept": YAML})
    codes = [each.code for each in (listed, single, version, group, watched)]
    assert codes == [406] * 5
    assert listed.body["message"].endswith(STREAMS)
    assert single.body["message"].endswith("application/vnd.kubernetes.protobuf")
    assert version.body["message"].startswith("406: Not Acceptable")
    assert group.body["message"].startswith("only the following media types are accepted")


async def test_yaml_repeats_equal_values(api: APIClient) -> None:
    answer = await api.get("/apis/apps", headers={"Accept": YAML})
    assert "&id" not in str(answer.body)


async def test_watches_for_lists_send_no_event(api: APIClient) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "unlisted"}})
    query = {"watch": "true", "timeoutSeconds": "1"}
    answer = await api.get(f"{CORE}/configmaps", query, headers={"Accept": LISTS})
    assert answer.code == 200
    assert not answer.body


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", f"{CORE}/namespaces", 404),
        ("DELETE", "/api/v1/nodes/a/status/absent", 404),
        ("GET", f"{CORE}/configmaps?limit=", 400),
        ("DELETE", f"{CORE}/configmaps/a?gracePeriodSeconds=", 400),
        ("GET", f"{CORE}/configmaps?fieldSelector=a&resourceVersionMatch=Odd", 400),
    ],
)
async def test_odd_paths_and_options(api: APIClient, method: str, path: str, code: int) -> None:
    assert (await api.request(method, path)).code == code


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"apiVersion":"a/b/c","kind":"ConfigMap"}', "unexpected GroupVersion string: a/b/c"),
        ('{"kind":"Other"}', 'no kind "Other" is registered'),
        (
            '{"apiVersion":"v1","kind":"List","items":[]}',
            "converting (v1.List) to (core.ConfigMap)",
        ),
        ('{"metadata":{"generation":1.0}}', "cannot unmarshal number 1.0"),
        ('{"\\ud800":1,"metadata":{"name":1}}', "cannot unmarshal number"),
    ],
)
async def test_bodies_that_are_no_config_map(api: APIClient, body: str, message: str) -> None:
    answer = await api.request("POST", f"{CORE}/configmaps", body.encode())
    assert answer.code == 400
    assert message in answer.body["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[]", "couldn't get version/kind; json parse error"),
        ('{"kind":"Other"}', 'no kind "Other" is registered for version "meta.k8s.io/v1"'),
        ('{"preconditions":{"uid":1}}', "preconditions.uid"),
        ('{"dryRun":[1]}', "dryRun"),
    ],
)
async def test_delete_options_that_cannot_be_decoded(
    api: APIClient, body: str, message: str
) -> None:
    answer = await api.request("DELETE", f"{CORE}/configmaps/a", body.encode())
    assert answer.code == 400
    assert message in answer.body["message"]


@pytest.mark.parametrize(
    ("patch", "media", "validation", "code", "message"),
    [
        ("[1, null]", MERGE, "Warn", 400, "error decoding patch"),
        ("[1, null]", MERGE, "Ignore", 422, "couldn't get version/kind"),
        ("null", MERGE, "Warn", 400, "Invalid JSON Patch"),
        ('"a"', MERGE, "Ignore", 400, "Invalid JSON Patch"),
        ("[1]", "application/json-patch+json", "Warn", 400, "error decoding patch"),
    ],
)
async def test_patches_that_are_no_objects(
    api: APIClient, patch: str, media: str, validation: str, code: int, message: str
) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "patched"}})
    query = {"fieldValidation": validation}
    answer = await api.request(
        "PATCH", f"{CORE}/configmaps/patched", patch.encode(), content_type=media, query=query
    )
    absent = await api.request(
        "PATCH", f"{CORE}/configmaps/absent", patch.encode(), content_type=media, query=query
    )
    assert (answer.code, absent.code) == (code, 404)
    assert message in answer.body["message"]


async def test_strategic_patches_cannot_change_embedded_objects(api: APIClient) -> None:
    path = "/apis/apps/v1/namespaces/default/controllerrevisions"
    await api.post(path, {"metadata": {"name": "r"}, "revision": 1, "data": {"spec": {"a": 1}}})
    patch = {"data": {"spec": {"b": 2}}}
    answer = await api.request("PATCH", f"{path}/r", patch, content_type=STRATEGIC)
    patch = {"data": {"spec": "replaced"}}
    replaced = await api.request("PATCH", f"{path}/r", patch, content_type=STRATEGIC)
    assert (answer.code, replaced.code) == (500, 422)
    assert (
        'unable to find api field in struct RawExtension for the json field "spec"'
        in (answer.body["message"])
    )


async def test_services_created_by_their_status_have_no_address(api: APIClient) -> None:
    service = {"metadata": {"name": "without"}, "spec": {"ports": [{"port": 80}]}}
    created = await api.put(f"{CORE}/services/without/status", service)
    changed = await api.merge(f"{CORE}/services/without", {"spec": {"selector": {"a": "b"}}})
    for answer in (created, changed):
        assert "clusterIP" not in answer.body["spec"]


async def test_creations_by_update_check_the_version(api: APIClient) -> None:
    body = {"metadata": {"name": "v", "resourceVersion": "x"}, "subsets": []}
    wrong = await api.put(f"{CORE}/endpoints/v", body)
    body["metadata"] = {"name": "v", "resourceVersion": "7"}
    dry = await api.put(f"{CORE}/endpoints/v", body, {"dryRun": "All"})
    assert wrong.code == 500
    assert (dry.code, dry.body["metadata"]["resourceVersion"]) == (201, "7")


async def test_finalize_checks_the_uid(api: APIClient) -> None:
    body = {"metadata": {"name": "default", "uid": "other"}, "spec": {}}
    answer = await api.put("/api/v1/namespaces/default/finalize", body)
    assert answer.code == 409
    assert "UID in precondition: other" in answer.body["message"]


async def test_references_to_secrets_keep_only_names(api: APIClient) -> None:
    body = {"metadata": {"name": "secrets"}, "secrets": [{"name": "s", "namespace": "x"}, {}]}
    answer = await api.post(f"{CORE}/serviceaccounts", body)
    assert answer.body["secrets"] == [{"name": "s"}, {}]


async def test_limit_ranges_without_a_name_get_one(api: APIClient) -> None:
    answer = await api.post(f"{CORE}/limitranges", {"spec": {"limits": []}})
    assert (answer.code, len(answer.body["metadata"]["name"])) == (201, 36)


async def test_quantities_of_resource_lists_are_rounded_up_to_thousandths(api: APIClient) -> None:
    item = {"type": "Container", "max": {"cpu": "100u", "memory": "1500m"}}
    body = {"metadata": {"name": "rounded"}, "spec": {"limits": [item]}}
    answer = await api.post(f"{CORE}/limitranges", body)
    assert answer.body["spec"]["limits"][0]["max"] == {"cpu": "1m", "memory": "1500m"}


async def test_clients_own_the_fields_of_disabled_features(api: APIClient) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    answer = await api.post(path, {"metadata": {"name": "l"}, "spec": {"preferredHolder": "a"}})
    assert answer.body["spec"] == {}
    owned = answer.body["metadata"]["managedFields"][0]["fieldsV1"]
    assert owned == {"f:spec": {"f:preferredHolder": {}}}


async def test_integers_with_more_than_64_bits_overflow_in_applies(api: APIClient) -> None:
    spec = {"driver": "d.example.com", "nodeName": "n", "devices": []}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2**63}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
    path = "/apis/resource.k8s.io/v1/resourceslices/s"
    answer = await api.apply(path, {**body, "spec": {**spec, "pool": pool}}, "m")
    assert "Invalid value: -9223372036854775808" in answer.body["message"]


async def test_years_without_a_number_are_times(api: APIClient) -> None:
    metadata = {"name": "old", "deletionTimestamp": "0000-01-01T00:00:00Z"}
    assert (await api.post(f"{CORE}/configmaps", {"metadata": metadata})).code == 201
    event = {"metadata": {"name": "e0"}, "involvedObject": {"namespace": "default"}}
    event["firstTimestamp"] = "2026-01-02T03:04:05,5Z"
    answer = await api.post(f"{CORE}/events", event)
    assert answer.body["firstTimestamp"] == "2026-01-02T03:04:05Z"


async def test_tables_of_kinds_without_columns_have_no_rows(api: APIClient) -> None:
    answer = await api.get(f"{CORE}/limitranges?labelSelector=none", headers={"Accept": TABLE})
    assert answer.body["rows"] is None


async def test_hashes_of_storage_versions_equal(api: APIClient) -> None:
    core = (await api.get("/api/v1")).body["resources"]
    admission = (await api.get("/apis/admissionregistration.k8s.io/v1")).body["resources"]
    hashes = {each["name"]: each.get("storageVersionHash") for each in (*core, *admission)}
    assert hashes["configmaps"] == "qFsyl6wFWjQ="
    assert hashes["mutatingadmissionpolicies"] == "LYmCf+UMVdg="


async def test_only_one_priority_class_is_the_default(api: APIClient) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    first = {"metadata": {"name": "one"}, "value": 1, "globalDefault": True}
    await api.post(path, first)
    answer = await api.post(path, {**first, "metadata": {"name": "two"}})
    changed = await api.merge(f"{path}/one", {"description": "d"})
    await api.delete(f"{path}/one")
    assert answer.code == 403
    assert "PriorityClass one is already marked as default" in answer.body["message"]
    assert changed.code == 200


async def test_pods_with_an_empty_overhead_are_rejected(api: APIClient) -> None:
    body = {"metadata": {"name": "heavy"}, "spec": {**POD, "overhead": {}}}
    answer = await api.post(f"{CORE}/pods", body)
    assert answer.code == 403
    assert "Pod Overhead set without" in answer.body["message"]


async def test_sizes_of_storage_capacities(api: APIClient) -> None:
    path = f"{STORAGE}/namespaces/default/csistoragecapacities"
    body = {"metadata": {"name": "c"}, "storageClassName": "s", "maximumVolumeSize": "-1"}
    created = await api.post(path, {**body, "capacity": "1"})
    rejected = await api.post(path, {**body, "capacity": "-1"})
    assert created.code == 201
    assert fields(rejected) == {"capacity"}


async def test_updates_keep_the_sources_of_claims_equal(api: APIClient) -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "o"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": "copy"}, "spec": {**spec, "dataSource": source}}
    path = f"{CORE}/persistentvolumeclaims"
    await api.post(path, body)
    answer = await api.put(f"{path}/copy", body)
    assert answer.code == 200
    assert answer.body["spec"]["dataSourceRef"]["name"] == "o"


CONTAINER_METRIC = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "cpu",
        "container": "c",
        "target": {"type": "Utilization", "averageUtilization": 1},
    },
}


@pytest.mark.parametrize(("name", "value"), [("name", "A"), ("container", "::1")])
async def test_metrics_of_containers_are_validated(api: APIClient, name: str, value: str) -> None:
    source = {**CONTAINER_METRIC["containerResource"], name: value}
    metric = {**CONTAINER_METRIC, "containerResource": source}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": target, "maxReplicas": 2, "metrics": [metric]}
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    answer = await api.post(path, {"metadata": {"name": "h"}, "spec": spec})
    assert fields(answer) == {f"spec.metrics[0].containerResource.{name}"}


async def test_names_of_attributes_are_identifiers(api: APIClient) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    devices = {"requests": [request], "constraints": [{"matchAttribute": "a.b"}]}
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    answer = await api.post(path, {"metadata": {"name": "c"}, "spec": {"devices": devices}})
    assert len(answer.body["details"]["causes"]) == 2
    assert "a valid C identifier" in answer.body["message"]


async def test_limits_of_indexes_need_indexes(api: APIClient) -> None:
    template = {"spec": {**POD, "restartPolicy": "Never"}}
    spec = {"template": template, "backoffLimitPerIndex": 1, "maxFailedIndexes": 1}
    path = "/apis/batch/v1/namespaces/default/jobs"
    answer = await api.post(path, {"metadata": {"name": "j"}, "spec": spec})
    assert fields(answer) == {"spec.backoffLimitPerIndex", "spec.maxFailedIndexes"}


async def test_custom_resources_at_odd_paths(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("odds", {"size": {"type": "integer"}}))
    path = "/apis/rules.example.com/v1/namespaces/default/odds"
    created = await api.post(f"{path}/other", custom("Odd", size=1))
    unnamed = await api.put(path, custom("Odd"))
    large = await api.post(path, custom("Odd", size=2**63))
    assert (created.code, created.body["metadata"]["name"]) == (201, "a")
    assert (unnamed.code, unnamed.body["message"]) == (400, "name must be provided")
    assert "spec.size in body must be of type integer" in large.body["message"]


async def test_formats_of_custom_resources(plane: ControlPlane, api: APIClient) -> None:
    time = {"type": "string", "format": "date-time"}
    address = {"type": "string", "format": "ipv4"}
    await plane.install_crds(crd("formats", {"time": time, "address": address}))
    path = "/apis/rules.example.com/v1/namespaces/default/formats"
    created = await api.post(path, custom("Format", time="0000-01-01T00:00:00,5Z"))
    wrong = await api.post(path, custom("Format", address="a\nb"))
    assert created.code == 201
    assert 'must be of type ipv4: "a\\nb"' in wrong.body["message"]


async def test_scales_of_custom_resources_cannot_be_applied(
    plane: ControlPlane, api: APIClient
) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}
    await plane.install_crds(crd("applieds", {"size": {"type": "integer"}}, scale=paths))
    path = "/apis/rules.example.com/v1/namespaces/default/applieds"
    await api.post(path, custom("Applied", size=1))
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}}
    body = {**scale, "spec": {"replicas": 2}}
    answer = await api.apply(f"{path}/a/scale", body, "m", {"force": "true"})
    assert answer.code == 500
    assert "request to convert CR to an invalid group/version" in answer.body["message"]


async def test_versions_lose_fields_that_the_stored_version_lacks(
    plane: ControlPlane, api: APIClient
) -> None:
    definition = crd("versions", {"flag": {"type": "boolean", "default": True}})
    old = crd("versions", {"added": {"type": "string", "default": "old"}})["spec"]["versions"][0]
    definition["spec"]["versions"].append({**old, "name": "v1beta1", "storage": False})
    await plane.install_crds(definition)
    group = "/apis/rules.example.com"
    body = {**custom("Version"), "apiVersion": "rules.example.com/v1beta1"}
    path = f"{group}/v1beta1/namespaces/default/versions"
    dry = await api.post(path, body, {"dryRun": "All"})
    await api.post(path, body)
    stored = await api.get(f"{group}/v1/namespaces/default/versions/a")
    assert dry.body["spec"] == {}
    assert stored.body["spec"] == {"flag": True}
