"""Rules that random requests to envtest and to kube-apiserver have shown (``make differential``).

They hold for both: the tests also run on the real one if ``KUBEBUILDER_ASSETS`` is set.
"""

from __future__ import annotations

from typing import Any

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
