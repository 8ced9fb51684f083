"""Discovery documents, health checks, metrics and version, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envtest.apimachinery.errors import StatusError
from envtest.pages.api_discovery import Discovery, PageResponse, storage_version_hash, version_order
from envtest.pages.health import HealthChecks, RequestLabels, RequestMetrics, version_response
from envtest.registry.registry import Registry
from envtest.registry.resource import ResourceInfo, Strategy, Subresource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
SCALE = Subresource("scale", "Scale", "autoscaling", "v1")


def info(group: str, version: str, plural: str, kind: str, **more: Any) -> ResourceInfo:
    return ResourceInfo(
        group, version, plural, kind.lower(), kind, more.pop("namespaced", True), Strategy(), **more
    )


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    status = Subresource("status")
    registry.register(
        info("acme.io", "v1beta1", "widgets", "Widget", is_crd=True, short_names=("wd",))
    )
    subresources = {"scale": SCALE, "status": status}
    registry.register(
        info("acme.io", "v1", "widgets", "Widget", is_crd=True, subresources=subresources)
    )
    registry.register(
        info(
            "apps",
            "v1",
            "deployments",
            "Deployment",
            subresources=subresources,
            categories=("all",),
        )
    )
    registry.register(
        info("", "v1", "pods", "Pod", subresources={"status": status}, short_names=("po",))
    )
    registry.register(info("", "v1", "bindings", "Binding", verbs=("create",)))
    registry.register(
        info("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
    )
    registry.register(
        info("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
    )
    return registry


@pytest.fixture
def discovery(registry: Registry) -> Discovery:
    return Discovery(registry)


def body(response: PageResponse | None) -> Any:
    assert response is not None
    assert response.code == 200
    return json.loads(response.body)


def test_groups_are_sorted_by_priority_and_versions_by_stability(discovery: Discovery) -> None:
    groups = body(discovery.respond("/apis"))["groups"]
    assert [each["name"] for each in groups] == ["apps", "autoscaling", "acme.io"]
    assert [each["preferredVersion"]["version"] for each in groups] == ["v1", "v2", "v1"]
    assert [each["version"] for each in groups[2]["versions"]] == ["v1", "v1beta1"]


def test_api_versions_contain_the_server_address(discovery: Discovery) -> None:
    assert (
        body(discovery.respond("/api", address="h:1"))["serverAddressByClientCIDRs"][0][
            "serverAddress"
        ]
        == "h:1"
    )
    assert (
        body(discovery.respond("/api/", address="h:2"))["serverAddressByClientCIDRs"][0][
            "serverAddress"
        ]
        == "h:2"
    )


def test_built_in_resources_are_sorted_with_subresources(discovery: Discovery) -> None:
    document = body(discovery.respond("/api/v1"))
    assert "apiVersion" not in document
    assert [each["name"] for each in document["resources"]] == ["bindings", "pods", "pods/status"]
    bindings, pods, status = document["resources"]
    assert "storageVersionHash" not in bindings
    assert pods["storageVersionHash"] == "xPOwRZ+Yhw8="
    assert pods["verbs"] == [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
    assert pods["shortNames"] == ["po"]
    assert status == {
        "name": "pods/status",
        "singularName": "",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "patch", "update"],
    }


def test_custom_resources_list_status_before_scale(discovery: Discovery) -> None:
    document = body(discovery.respond("/apis/acme.io/v1"))
    assert document["apiVersion"] == "v1"
    assert [each["name"] for each in document["resources"]] == [
        "widgets",
        "widgets/status",
        "widgets/scale",
    ]
    assert document["resources"][0]["verbs"][0] == "delete"
    scale = document["resources"][2]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


def test_aggregated_discovery_has_response_kinds_and_etag(discovery: Discovery) -> None:
    response = discovery.respond("/apis", AGGREGATED)
    assert response is not None
    assert (
        response.headers["Content-Type"]
        == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    items = body(response)["items"]
    assert [each["metadata"].get("name") for each in items] == ["apps", "autoscaling", "acme.io"]
    (deployments,) = items[0]["versions"][0]["resources"]
    assert deployments["responseKind"] == {"group": "", "version": "", "kind": "Deployment"}
    assert [each["responseKind"]["kind"] for each in deployments["subresources"]] == [
        "Scale",
        "Deployment",
    ]
    (widgets,) = items[2]["versions"][0]["resources"]
    assert widgets["responseKind"] == {"group": "acme.io", "version": "v1", "kind": "Widget"}
    assert discovery.respond("/apis", AGGREGATED, response.headers["ETag"]) == (
        304,
        response.headers,
        b"",
    )
    assert body(discovery.respond("/apis", "application/json"))["kind"] == "APIGroupList"
    assert body(discovery.respond("/api", AGGREGATED))["items"][0]["metadata"] == {}


def test_documents_change_with_the_registry(discovery: Discovery, registry: Registry) -> None:
    assert discovery.respond("/apis/new.io/v1") is None
    before = discovery.respond("/apis", AGGREGATED)
    registry.register(info("new.io", "v1", "things", "Thing", is_crd=True))
    assert body(discovery.respond("/apis/new.io/v1"))["groupVersion"] == "new.io/v1"
    after = discovery.respond("/apis", AGGREGATED)
    assert before is not None
    assert after is not None
    assert before.headers["ETag"] != after.headers["ETag"]


def test_unknown_group_version_or_media_type(discovery: Discovery) -> None:
    assert discovery.respond("/apis/nosuch.io") is None
    assert discovery.respond("/apis/acme.io/v1alpha1") is None
    assert discovery.respond("/metrics") is None
    for path in ("/apis/apps/v9", "/api/v2"):
        with pytest.raises(StatusError) as error:
            discovery.respond(path)
        assert (error.value.code, error.value.details) == (404, {})
    with pytest.raises(StatusError) as error:
        discovery.respond("/apis", "text/html")
    assert error.value.code == 406


def test_documents_are_available_as_yaml(discovery: Discovery) -> None:
    response = discovery.respond("/apis/apps", "application/yaml")
    assert response is not None
    assert response.headers["Content-Type"] == "application/yaml"
    assert response.body.startswith(b"apiVersion: v1\nkind: APIGroup\nname: apps\n")


def test_terminating_resource_has_no_write_verbs(discovery: Discovery, registry: Registry) -> None:
    registry.register(info("acme.io", "v1", "widgets", "Widget", is_crd=True, terminating=True))
    (widgets,) = body(discovery.respond("/apis/acme.io/v1"))["resources"]
    assert widgets["verbs"] == ["delete", "deletecollection", "get", "list", "watch"]


def test_versions_are_sorted_by_kubernetes_rules() -> None:
    versions = ["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1", "v1beta10"]
    assert sorted(versions, key=version_order) == [
        "v10",
        "v2",
        "v1",
        "v1beta10",
        "v1beta2",
        "v1alpha1",
        "foo",
    ]
    assert storage_version_hash("", "v1", "ConfigMap") == "qFsyl6wFWjQ="


def test_health_reports_failed_check() -> None:
    health = HealthChecks()
    healthy = [True]
    health.add("own", lambda: healthy[0], endpoints=("healthz", "readyz"))
    assert health.respond("/readyz") == (200, health.respond("/healthz/ping").headers, b"ok")  # type: ignore[union-attr]
    verbose = health.respond("/readyz", verbose=True)
    assert verbose is not None
    assert verbose.body.startswith(b"[+]ping ok\n[+]log ok\n[+]informer-sync ok\n[+]poststarthook/")
    assert verbose.body.endswith(b"[+]shutdown ok\n[+]own ok\nreadyz check passed\n")
    healthy[0] = False
    failed = health.respond("/readyz")
    assert failed is not None
    assert failed.code == 500
    assert b"[-]own failed: reason withheld\nreadyz check failed\n" in failed.body
    assert health.respond("/livez").code == 200  # type: ignore[union-attr]
    assert health.respond("/readyz", exclude=["own"]).code == 200  # type: ignore[union-attr]
    assert health.respond("/readyz/own").code == 500  # type: ignore[union-attr]
    assert health.respond("/readyz/nosuch") is None
    assert health.respond("/readyz/") is None
    assert health.respond("/livez/etcd").code == 200  # type: ignore[union-attr]
    assert health.respond("/readyz/etcd") is None
    assert health.respond("/other") is None


def test_metrics_count_requests() -> None:
    metrics = RequestMetrics(lambda: iter([("pods", 2)]))
    for code, seconds in (("200", 0.004), ("200", 0.3), ("404", 70.0)):
        metrics.observe(
            RequestLabels("GET", "", "v1", "pods", scope="resource", code=code), seconds
        )
    text = metrics.respond().body.decode()
    labels = 'component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="GET"'
    assert f'apiserver_request_total{{code="200",{labels},version="v1"}} 2.0' in text
    assert f'apiserver_request_duration_seconds_count{{{labels},version="v1"}} 3.0' in text
    assert 'apiserver_storage_objects{resource="pods"} 2.0' in text


def test_version_document() -> None:
    version = json.loads(version_response().body)
    assert (version["major"], version["minor"], version["gitVersion"]) == ("1", "36", "v1.36.0")
