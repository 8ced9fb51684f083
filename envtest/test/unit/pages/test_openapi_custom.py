"""Custom resources in the OpenAPI documents; the expectations are recorded from a real kube-apiserver 1.36."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.crd.crd_controller import published_schema
from envtest.pages.openapi_custom import (
    V2_PARAMETERS,
    custom_definitions,
    custom_operations,
    custom_operations_v2,
    custom_schemas,
)
from envtest.registry.resource import ResourceInfo, Strategy, Subresource

PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}
NAME = "io.k8s-sig.machine.v1alpha2.Oven"
ROOT = "/apis/machine.k8s-sig.io/v1alpha2"
ITEM = f"{ROOT}/namespaces/{{namespace}}/ovens/{{name}}"


def resource(schema: dict[str, Any] | None = None, **fields: Any) -> ResourceInfo:
    described = {"kind": "Oven", "plural": "ovens", "namespaced": True, **fields}
    return ResourceInfo(
        group="machine.k8s-sig.io",
        version="v1alpha2",
        singular="oven",
        strategy=Strategy(),
        schema=published_schema(schema or {"type": "object"}),
        is_crd=True,
        **described,
    )


def operation_ids(info: ResourceInfo) -> dict[str, str]:
    return {
        operation["operationId"]: operation["description"]
        for item in custom_operations(info).values()
        for method, operation in item.items()
        if method != "parameters"
    }


def test_operations_of_a_namespaced_resource_with_subresources() -> None:
    scale = Subresource("scale", kind="Scale", group="autoscaling", version="v1")
    info = resource(subresources={"status": Subresource("status"), "scale": scale})
    assert operation_ids(info) == {
        "listMachineK8sSigIoV1alpha2NamespacedOven": "list objects of kind Oven",
        "createMachineK8sSigIoV1alpha2NamespacedOven": "create an Oven",
        "deleteMachineK8sSigIoV1alpha2CollectionNamespacedOven": "delete collection of Oven",
        "readMachineK8sSigIoV1alpha2NamespacedOven": "read the specified Oven",
        "replaceMachineK8sSigIoV1alpha2NamespacedOven": "replace the specified Oven",
        "patchMachineK8sSigIoV1alpha2NamespacedOven": "partially update the specified Oven",
        "deleteMachineK8sSigIoV1alpha2NamespacedOven": "delete an Oven",
        "readMachineK8sSigIoV1alpha2NamespacedOvenStatus": "read status of the specified Oven",
        "replaceMachineK8sSigIoV1alpha2NamespacedOvenStatus": "replace status of the specified Oven",
        "patchMachineK8sSigIoV1alpha2NamespacedOvenStatus": (
            "partially update status of the specified Oven"
        ),
        "readMachineK8sSigIoV1alpha2NamespacedOvenScale": "read scale of the specified Oven",
        "replaceMachineK8sSigIoV1alpha2NamespacedOvenScale": "replace scale of the specified Oven",
        "patchMachineK8sSigIoV1alpha2NamespacedOvenScale": (
            "partially update scale of the specified Oven"
        ),
        "listMachineK8sSigIoV1alpha2OvenForAllNamespaces": "list objects of kind Oven",
    }
    body = custom_operations(info)[f"{ITEM}/scale"]["put"]["requestBody"]["content"]
    reference = {"$ref": "#/components/schemas/io.k8s.api.autoscaling.v1.Scale"}
    assert body["application/yaml"] == {"schema": reference}


@pytest.mark.parametrize(
    ("kind", "article"),
    [("Things", "create Things"), ("Class", "create a Class"), ("Image", "create an Image")],
)
def test_article_of_a_kind(kind: str, article: str) -> None:
    described = operation_ids(resource(kind=kind, namespaced=False))
    assert described[f"createMachineK8sSigIoV1alpha2{kind}"] == article


def test_list_operation_in_v2() -> None:
    paths = custom_operations_v2(resource())
    everywhere = paths[f"{ROOT}/ovens"]
    assert everywhere["get"] == {
        "description": "list objects of kind Oven",
        "consumes": ["application/json", "application/yaml"],
        "produces": ["application/json", "application/yaml"],
        "schemes": ["https"],
        "tags": ["machineK8sSigIo_v1alpha2"],
        "operationId": "listMachineK8sSigIoV1alpha2OvenForAllNamespaces",
        "responses": {
            "200": {"description": "OK", "schema": {"$ref": f"#/definitions/{NAME}List"}},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": "list",
        "x-kubernetes-group-version-kind": {
            "group": "machine.k8s-sig.io",
            "version": "v1alpha2",
            "kind": "Oven",
        },
    }
    assert {"$ref": "#/parameters/limit-1NfNmdNH"} in everywhere["parameters"]


def test_patch_operation_in_v2_refers_to_shared_parameters() -> None:
    item = custom_operations_v2(resource())[ITEM]
    patch = item["patch"]
    references = {each["$ref"] for each in patch["parameters"] if "$ref" in each}
    assert references == {
        "#/parameters/body-78PwaGsr",
        "#/parameters/fieldManager-7c6nTn1T",
        "#/parameters/force-tOGGb0Yi",
    }
    named = {each["name"] for each in patch["parameters"] if "name" in each}
    assert named == {"dryRun", "fieldValidation"}
    assert patch["consumes"] == [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
    ]
    assert item["parameters"][0]["description"] == "name of the Oven"


def test_every_reference_to_a_parameter_can_be_resolved() -> None:
    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(each) for each in value.values()))
        if isinstance(value, list):
            return set().union(*(references(each) for each in value))
        return set()

    found = references(custom_operations_v2(resource()))
    shared = {each.removeprefix("#/parameters/") for each in found if "/parameters/" in each}
    assert shared == V2_PARAMETERS.keys()


def test_delete_has_an_optional_body() -> None:
    delete = custom_operations(resource())[ITEM]["delete"]
    assert "required" not in delete["requestBody"]
    assert sorted(delete["responses"]) == ["200", "202", "401"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", **PRESERVE, "properties": {"x": {}}}, PRESERVE),
        ({"type": "array", **PRESERVE, "items": {"type": "string"}}, PRESERVE),
        ({"type": "string", **PRESERVE}, {"type": "string", **PRESERVE}),
        ({"type": "array"}, {}),
        ({"type": "integer", "default": 3}, {"type": "integer"}),
        ({"x-kubernetes-int-or-string": True}, {"x-kubernetes-int-or-string": True}),
        (
            {"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]},
            {"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]},
        ),
        (
            {"type": "object", "nullable": True, "properties": {"x": {}}, "description": "d"},
            {"description": "d"},
        ),
        (
            {
                "type": "object",
                "required": ["x", "y"],
                "properties": {"x": {"nullable": True}, "y": {}},
            },
            {"type": "object", "required": ["y"], "properties": {"x": {}, "y": {}}},
        ),
        (
            {
                "type": "object",
                "required": ["x"],
                "additionalProperties": {"type": "string", "nullable": True},
            },
            {"type": "object", "additionalProperties": {}},
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True, **PRESERVE},
            {"x-kubernetes-embedded-resource": True, **PRESERVE},
        ),
    ],
)
def test_fields_in_v2(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    info = resource({"type": "object", "properties": {"a": schema}})
    assert custom_definitions(info)[NAME]["properties"]["a"] == expected


def test_root_with_unknown_fields_has_no_fields_in_v2() -> None:
    info = resource({"type": "object", "description": "An oven.", **PRESERVE})
    assert custom_definitions(info)[NAME] == {
        "type": "object",
        "x-kubernetes-group-version-kind": [
            {"group": "machine.k8s-sig.io", "version": "v1alpha2", "kind": "Oven"}
        ],
    }


@pytest.mark.parametrize(
    ("schema", "added"),
    [
        ({}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (
            {"anyOf": [{"pattern": "a"}]},
            {"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, {}),
        ({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}, {}),
    ],
)
def test_integer_or_string_is_spelled_out(schema: dict[str, Any], added: dict[str, Any]) -> None:
    value = {"x-kubernetes-int-or-string": True, **schema}
    info = resource({"type": "object", "properties": {"a": value}})
    assert custom_schemas(info)[NAME]["properties"]["a"] == {**value, **added}


def test_embedded_resource_has_the_fields_of_all_objects() -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, **PRESERVE}
    info = resource({"type": "object", "properties": {"template": embedded}})
    template = custom_schemas(info)[NAME]["properties"]["template"]
    assert template["required"] == ["kind", "apiVersion"]
    assert sorted(template["properties"]) == ["apiVersion", "kind", "metadata"]


def test_list_and_object_name_the_selectable_fields() -> None:
    info = resource(selectable_fields=(".spec.size",))
    for schemas in (custom_schemas(info), custom_definitions(info)):
        for name in (NAME, f"{NAME}List"):
            assert schemas[name]["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.size"}]
    assert custom_schemas(info)[f"{NAME}List"]["description"] == "OvenList is a list of Oven"
