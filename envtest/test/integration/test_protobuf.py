"""Protobuf bodies as Go's clients send them: with every field that is not a pointer, however empty."""

from __future__ import annotations

from envtest.api_client import APIClient
from test.support.protobuf import envelope, field

PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}


def go_schema(**fields: bytes) -> bytes:
    """Encode a JSONSchemaProps as Go does; ``fields`` replaces the empty ones, by name."""
    empty = {
        1: "id",
        2: "schema",
        4: "description",
        5: "type",
        6: "format",
        7: "title",
        15: "pattern",
    }
    flags = (10, 12, 18, 37, 39, 40)
    encoded = b"".join(field(number, fields.get(name, b"")) for number, name in empty.items())
    return encoded + b"".join(field(number, 0) for number in flags) + fields.get("more", b"")


def custom_resource_definition(group: str) -> bytes:
    size = go_schema(type=b"integer", more=field(8, field(1, b"3")))
    words = go_schema(type=b"array", more=field(24, field(1, go_schema(type=b"string"))))
    labels = go_schema(
        type=b"object", more=field(30, field(1, 1) + field(2, go_schema(type=b"string")))
    )
    properties = b"".join(
        field(29, field(1, name) + field(2, schema))
        for name, schema in ((b"size", size), (b"words", words), (b"labels", labels))
    )
    version = field(1, b"v1") + field(2, 1) + field(3, 1) + field(7, 0)
    version += field(4, field(1, go_schema(type=b"object", more=properties)))
    names = field(1, b"toys") + field(2, b"") + field(4, b"Toy") + field(5, b"")
    metadata = field(1, f"toys.{group}".encode()) + field(2, b"") + field(8, b"")
    spec = (
        field(1, group.encode())
        + field(3, names)
        + field(4, b"Namespaced")
        + field(7, version)
        + field(10, 0)
    )
    status = field(2, field(1, b"") + field(2, b"") + field(4, b"") + field(5, b"")) + field(4, 0)
    raw = field(1, metadata) + field(2, spec) + field(3, status)
    return envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", raw)


async def test_custom_resource_definitions_are_created_from_protobuf(api: APIClient) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    created = await api.request(
        "POST", path, custom_resource_definition("proto.example.com"), headers=PROTOBUF
    )
    assert created.code == 201, created.body
    assert created.body["spec"]["versions"] == [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer", "default": 3},
                        "words": {"type": "array", "items": {"type": "string"}},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                }
            },
        }
    ]


async def test_api_services_are_created_from_protobuf(api: APIClient) -> None:
    service = field(1, b"default") + field(2, b"wardle")
    spec = field(1, service) + field(2, b"wardle.example.com") + field(3, b"v1") + field(4, 1)
    spec += field(7, 1000) + field(8, 15)
    raw = field(1, field(1, b"v1.wardle.example.com")) + field(2, spec) + field(3, b"")
    body = envelope("apiregistration.k8s.io/v1", "APIService", raw)
    created = await api.request(
        "POST", "/apis/apiregistration.k8s.io/v1/apiservices", body, headers=PROTOBUF
    )
    assert created.code == 201, created.body
    assert created.body["spec"] == {
        "service": {"namespace": "default", "name": "wardle", "port": 443},
        "group": "wardle.example.com",
        "version": "v1",
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
    }
