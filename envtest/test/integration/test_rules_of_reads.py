"""Rules of lists, watches, tables and discovery, which random requests have shown (``make differential``)."""

from __future__ import annotations

import pytest

from envtest.api_client import APIClient
from test.integration.test_differential import CORE, TABLE
from test.support.rules import APPS, METADATA_LIST, TEMPLATE, causes


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


async def test_a_list_of_one_name_is_never_continued(api: APIClient) -> None:
    for name in ("a", "b", "c"):
        await api.post(f"{CORE}/configmaps", {"metadata": {"name": name}})
    query = {"fieldSelector": "metadata.name=a", "limit": "1"}
    answer = await api.get(f"{CORE}/configmaps", query)
    assert "continue" not in answer.body["metadata"]


@pytest.mark.parametrize("path", ["resource.k8s.io/v1/namespaces/default/resourceclaims/a/status"])
async def test_some_subresources_have_no_table(api: APIClient, path: str) -> None:
    answer = await api.request("GET", f"/apis/{path}", headers={"Accept": TABLE})
    assert answer.code == 406


async def test_scales_are_read_at_valid_versions_only(api: APIClient) -> None:
    answer = await api.get(f"{APPS}/deployments/none/scale", {"resourceVersion": "x"})
    assert answer.code == 500


async def test_a_node_table_shows_the_architecture(api: APIClient) -> None:
    info = {"kernelVersion": "6", "architecture": "amd64"}
    await api.post("/api/v1/nodes", {"metadata": {"name": "n"}, "status": {"nodeInfo": info}})
    answer = await api.request("GET", "/api/v1/nodes/n", headers={"Accept": TABLE})
    assert answer.body["rows"][0]["cells"][8] == "6 (amd64)"


async def test_access_reviews_ignore_selectors_that_do_not_parse(api: APIClient) -> None:
    attributes = {"verb": "list", "resource": "pods", "labelSelector": {"rawSelector": "../a"}}
    body = {"spec": {"resourceAttributes": attributes}}
    answer = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    error = "spec.resourceAttributes.labelSelector ignored due to parse error"
    assert answer.body["status"]["evaluationError"] == error


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


ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


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
