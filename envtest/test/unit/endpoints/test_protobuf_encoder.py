"""Encoding of responses in protobuf: what is encoded can be decoded again, for every kind and field."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from envtest.builtins.catalog import all_resources
from envtest.endpoints.protobuf import APIEXTENSIONS, META, decode_body, fields_of, type_of
from envtest.endpoints.protobuf_encoder import encode_body, encode_event
from test.support.protobuf import envelope, field

SAMPLES: dict[str, Any] = {
    "s": "text",
    "i": -7,
    "z": True,
    "d": 1.5,
    "b": "AP8=",
    f"{META}.Time": "2001-09-09T01:46:40Z",
    f"{META}.MicroTime": "0001-01-01T00:00:02.123456Z",
    f"{META}.FieldsV1": {"f:metadata": {"f:labels": {}}},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "500m",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "http",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"kind": "Any", "x": [1]},
    "io.k8s.api.authentication.v1.ExtraValue": ["a", "b"],
    "io.k8s.api.authorization.v1.ExtraValue": ["a", "b"],
    "io.k8s.api.certificates.v1.ExtraValue": ["a", "b"],
    f"{APIEXTENSIONS}.JSON": {"any": None},
    f"{APIEXTENSIONS}.JSONSchemaPropsOrArray": [{"type": "string"}],
    f"{APIEXTENSIONS}.JSONSchemaPropsOrBool": {"type": "string"},
    f"{APIEXTENSIONS}.JSONSchemaPropsOrStringArray": ["a"],
}


def sample(kind: str, parents: tuple[str, ...] = ()) -> Any:
    """Return a value with every field, except in messages that are inside themselves."""
    if kind in SAMPLES:
        return SAMPLES[kind]
    obj: dict[str, Any] = {}
    for name, value_kind, container in fields_of(kind).values():
        if value_kind in (*parents, kind):
            continue
        value = sample(value_kind, (*parents, kind))
        if not name:
            obj |= value
        else:
            obj[name] = [value] if container == "list" else {"a": value} if container else value
    return obj


def kinds() -> set[tuple[str, str]]:
    return {
        (f"{each.group}/{each.version}" if each.group else each.version, each.kind)
        for each in all_resources()
    }


def test_every_field_of_every_kind_survives() -> None:
    for version, kind in sorted(kinds()):
        name = type_of(version, kind)
        assert name is not None
        obj = {**sample(name), "apiVersion": version, "kind": kind}
        assert decode_body(encode_body(obj)) == obj


@pytest.mark.parametrize("kind", ["List", ""])
def test_lists_and_single_objects_of_every_kind_have_messages(kind: str) -> None:
    assert [
        each
        for each in kinds()
        if type_of(each[0], each[1] + kind) is None and each[1] not in UNLISTED
    ] == []


UNLISTED = {
    *(
        "Binding",
        "TokenReview",
        "SelfSubjectReview",
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
    ),
    *("SelfSubjectRulesReview", "SubjectAccessReview"),
}


def test_envelope_and_order_are_those_of_go() -> None:
    metadata = (
        field(1, b"a")
        + field(11, field(1, b"k") + field(2, b"v"))
        + field(11, field(1, b"l") + field(2, b""))
    )
    raw = field(1, metadata) + field(2, field(1, b"key") + field(2, b"value")) + field(4, 1)
    obj = {
        "immutable": True,
        "data": {"key": "value"},
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"labels": {"l": "", "k": "v"}, "name": "a", "creationTimestamp": None},
    }
    assert encode_body(obj) == envelope("v1", "ConfigMap", raw) + field(3, b"") + field(4, b"")


def test_inlined_fields_are_messages() -> None:
    volume = field(1, b"v") + field(2, field(2, field(1, b"Memory")))
    spec = {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}
    encoded = encode_body({"apiVersion": "v1", "kind": "Pod", "spec": spec})
    assert encoded.startswith(envelope("v1", "Pod", field(2, field(1, volume))))


@pytest.mark.parametrize("value", [True, False, {"type": "string"}])
def test_schemas_or_booleans(value: Any) -> None:
    schema = {
        "openAPIV3Schema": {
            "additionalProperties": value,
            "items": {"type": "string"},
            "default": 0,
        }
    }
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {"versions": [{"name": "v1", "schema": schema}]},
    }
    assert decode_body(encode_body(crd)) == crd


def test_events_are_preceded_by_their_length() -> None:
    status = {"apiVersion": "v1", "kind": "Status", "code": 410, "metadata": {}}
    event = encode_event("ERROR", status)
    assert struct.unpack(">I", event[:4])[0] == len(event) - 4
    assert event[4:] == field(1, b"ERROR") + field(2, field(1, encode_body(status)))
    assert decode_body(encode_body(status)) == status
