"""OpenAPI documents, as far as clients use them to explain, validate, diff and apply."""

from __future__ import annotations

import asyncio
from typing import Any

from envtest.api_client import APIClient

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "A widget.",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {
                                        "type": "string",
                                        "description": "How big it is.",
                                        "nullable": True,
                                    },
                                    "any": {"x-kubernetes-int-or-string": True},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


async def establish(api: APIClient) -> None:
    assert (
        await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
    ).code == 201
    await api.until("/apis/example.com/v1/widgets", 200)


async def document(api: APIClient, path: str) -> Any:
    index = (await api.get("/openapi/v3")).body["paths"]
    response = await api.get(index[path]["serverRelativeURL"])
    assert response.code == 200
    return response


def kinds(schema: dict[str, Any]) -> set[str]:
    return {each["kind"] for each in schema.get("x-kubernetes-group-version-kind") or ()}


async def test_every_group_version_has_a_document(api: APIClient) -> None:
    index = (await api.get("/openapi/v3")).body["paths"]
    assert {
        "api/v1",
        "apis/apps/v1",
        "apis/batch/v1",
        "apis/apiextensions.k8s.io/v1",
    } <= index.keys()
    response = await document(api, "apis/apps/v1")
    schemas = response.body["components"]["schemas"]
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert "Deployment" in kinds(deployment)
    referenced = deployment["properties"]["spec"]["allOf"][0]["$ref"].rpartition("/")[2]
    assert schemas[referenced]["required"] == ["selector", "template"]
    assert "/apis/apps/v1/namespaces/{namespace}/deployments/{name}" in response.body["paths"]


async def test_document_with_hash_is_immutable_and_has_an_etag(api: APIClient) -> None:
    response = await document(api, "apis/apps/v1")
    assert "immutable" in response.headers["Cache-Control"]
    tag = response.headers["Etag"]
    again = await api.get("/openapi/v3/apis/apps/v1", headers={"If-None-Match": tag})
    assert again.code == 304


async def test_custom_resource_schemas_are_published(api: APIClient) -> None:
    await establish(api)
    async with asyncio.timeout(120):
        while "apis/example.com/v1" not in (await api.get("/openapi/v3")).body["paths"]:
            pass
    schemas = (await document(api, "apis/example.com/v1")).body["components"]["schemas"]
    (widget,) = [schema for schema in schemas.values() if "Widget" in kinds(schema)]
    assert widget["description"] == "A widget."
    assert set(widget["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert widget["properties"]["spec"]["properties"]["size"]["description"] == "How big it is."
    assert {"WidgetList"} <= {kind for schema in schemas.values() for kind in kinds(schema)}


async def test_openapi_v2_document_has_definitions(api: APIClient) -> None:
    body = (await api.get("/openapi/v2")).body
    assert body["swagger"] == "2.0"
    pod = body["definitions"]["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert pod["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"


async def test_patch_operation_lists_dry_run_parameter(api: APIClient) -> None:
    """kubectl checks that the document lists the parameter before it sends a dry run."""
    patch = (await document(api, "api/v1")).body["paths"][
        "/api/v1/namespaces/{namespace}/pods/{name}"
    ]["patch"]
    assert {"dryRun", "fieldValidation"} <= {each["name"] for each in patch["parameters"]}
