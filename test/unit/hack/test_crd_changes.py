"""Which changes of a CRD are breaking."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from cfo.runtime import custom_resource_definition
from hack.release.crd_changes import breaking_changes
from test.support.website import Website, WebsiteBeta

CRD = custom_resource_definition(Website, WebsiteBeta)


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the CRD with ``value`` at ``path``; ``...`` removes the key."""
    crd = deepcopy(CRD)
    node: Any = crd
    if path.startswith("@"):
        node = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    *parents, last = path.removeprefix("@").split("/")
    for step in parents:
        node = (
            node[int(step)]
            if step.isdigit()
            else node["properties"][step[1:]]
            if step[0] == "."
            else node[step]
        )
    if value is ...:
        del node[last]
    elif isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value
    return crd


def test_unchanged_crd_has_no_breaking_changes() -> None:
    assert breaking_changes(CRD, deepcopy(CRD)) == []


BREAKING = [
    ("spec/scope", "Cluster", "spec.scope: changed from Namespaced to Cluster"),
    ("spec/names/plural", "sites", "spec.names.plural: changed from websites to sites"),
    ("spec/names/shortNames", [], "spec.names.shortNames: ws was removed"),
    ("spec/versions", CRD["spec"]["versions"][:1], "v1beta1: the version was removed"),
    ("spec/versions/1/served", False, "v1beta1: the version is no longer served"),
    ("spec/versions/0/subresources", {"status": {}}, "v1: the subresource scale was removed"),
    ("@.spec/properties/note", ..., "v1.spec.note: the field was removed"),
    ("@.spec/.note/type", "integer", "v1.spec.note: the type was narrowed from string to integer"),
    ("@.spec/.note/enum", ["a"], "v1.spec.note: an enum was added: a"),
    ("@.spec/.note/pattern", "a", "v1.spec.note: pattern was changed from None to a"),
    ("@.spec/.note/maxLength", 5, "v1.spec.note: maxLength 5 was added"),
    (
        "@.spec/.note/format",
        "date-time",
        "v1.spec.note: the format was narrowed from none to date-time",
    ),
    ("@.spec/.replicas/minimum", 1, "v1.spec.replicas: minimum was narrowed from 0 to 1"),
    (
        "@.spec/.replicas/exclusiveMinimum",
        True,
        "v1.spec.replicas: minimum was narrowed from 0 to 0",
    ),
    (
        "@.spec/.ports/items/.number/maximum",
        9,
        "v1.spec.ports[].number: maximum was narrowed from 65535 to 9",
    ),
    ("@.spec/required", ["html", "note"], "v1.spec.note: the field is now required"),
    (
        "@.spec/.hosts/x-kubernetes-list-type",
        "atomic",
        "v1.spec.hosts: x-kubernetes-list-type was changed from set to atomic",
    ),
    (
        "@.spec/x-kubernetes-validations",
        [{"rule": "self.replicas < 5"}],
        "v1.spec: a validation rule was added: self.replicas < 5",
    ),
    (
        "@.status/.conditions/items/.status/enum",
        ["True", "False"],
        "v1.status.conditions[].status: values were removed from the enum: Unknown",
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), BREAKING)
def test_breaking_change_is_reported(path: str, value: Any, message: str) -> None:
    assert message in breaking_changes(CRD, changed(path, value))


COMPATIBLE = [
    ("@.spec/.replicas/minimum", ...),
    ("@.spec/.replicas/type", "number"),
    ("@.spec/.replicas/format", "int64"),
    ("@.spec/.note/minLength", 0),
    ("@.spec/required", []),
    ("@.spec/required", ["html", "replicas"]),  # has a default
    ("@.spec/properties/new", {"type": "string"}),
    ("@.spec/x-kubernetes-validations", []),
    ("@.status/.conditions/items/.status/enum", ["True", "False", "Unknown", "Other"]),
    ("@.spec/.note/description", "New."),
    ("spec/names/shortNames", ["ws", "site"]),
]


@pytest.mark.parametrize(("path", "value"), COMPATIBLE)
def test_compatible_change_is_not_reported(path: str, value: Any) -> None:
    assert breaking_changes(CRD, changed(path, value)) == []


def test_numbers_that_become_integers_are_narrowed() -> None:
    before = changed("@.spec/.replicas/type", "number")
    assert breaking_changes(before, CRD) == [
        "v1.spec.replicas: the type was narrowed from integer or number to integer"
    ]


STRING, OBJECT = {"type": "string"}, {"type": "object"}
ANY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
RULE = {"rule": "self == oldSelf", "optionalOldSelf": True}
INT_OR_STRING = {"x-kubernetes-int-or-string": True}
BOTH = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
LIST = {"type": "array", "items": STRING}
A, B = {"properties": {"a": STRING}}, {"properties": {"b": STRING}}
EMBEDDED = {**OBJECT, "x-kubernetes-embedded-resource": True}
DEFAULT = {"type": "string", "default": "x"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # types
        (STRING, INT_OR_STRING, ""),
        (STRING, ANY, ""),
        (ANY, STRING, "the type was narrowed from any to string"),
        (INT_OR_STRING, STRING, "the type was narrowed from integer or string to string"),
        (INT_OR_STRING, {**INT_OR_STRING, **BOTH}, ""),
        (
            {"type": "integer"},
            {"type": "integer", "format": "int32"},
            "the format was narrowed from none to int32",
        ),
        ({"type": "integer", "format": "int32"}, {"type": "integer"}, ""),
        ({"type": "string", "nullable": True}, STRING, "null is no longer allowed"),
        # bounds
        ({"type": "integer", "multipleOf": 10}, {"type": "integer", "multipleOf": 5}, ""),
        ({"type": "number", "multipleOf": 0.3}, {"type": "number", "multipleOf": 0.1}, ""),
        (
            {"type": "integer", "multipleOf": 5},
            {"type": "integer", "multipleOf": 10},
            "multipleOf was changed from 5 to 10",
        ),
        (
            {"type": "integer"},
            {"type": "integer", "multipleOf": 2},
            "multipleOf was changed from None to 2",
        ),
        ({**STRING, "pattern": "a"}, STRING, ""),
        ({**STRING, "enum": ["a", "b"]}, STRING, ""),
        ({**LIST, "maxItems": 3}, {**LIST, "maxItems": 4}, ""),
        # combinations
        (STRING, {**STRING, "anyOf": [{"pattern": "a"}]}, "anyOf was added or changed"),
        ({**STRING, "not": {"enum": ["a"]}}, STRING, ""),
        (
            {**STRING, "oneOf": [{"pattern": "a"}]},
            {**STRING, "oneOf": [{"pattern": "b"}]},
            "oneOf was added or changed",
        ),
        # lists and maps
        (LIST, {**LIST, "x-kubernetes-list-type": "atomic"}, ""),
        (
            LIST,
            {**LIST, "x-kubernetes-list-type": "set"},
            "x-kubernetes-list-type was changed from atomic to set",
        ),
        (OBJECT, {**OBJECT, "x-kubernetes-map-type": "granular"}, ""),
        (
            OBJECT,
            {**OBJECT, "x-kubernetes-map-type": "atomic"},
            "x-kubernetes-map-type was changed from granular to atomic",
        ),
        # fields
        ({**OBJECT, **A}, {**OBJECT, **A, "required": ["a"]}, "a: the field is now required"),
        ({**OBJECT, **A, "required": ["a"]}, {**OBJECT, **A, "required": ["a"]}, ""),
        (
            {**OBJECT, "properties": {"a": DEFAULT}, "required": ["a"]},
            {**OBJECT, **A, "required": ["a"]},
            "a: the field is now required",  # its default made it optional
        ),
        ({**OBJECT, **A}, {**OBJECT, "properties": {"a": DEFAULT}, "required": ["a"]}, ""),
        ({**OBJECT, **A}, {**OBJECT, **B}, "a: the field was removed"),
        ({**OBJECT, **A}, {**OBJECT, "additionalProperties": STRING}, ""),
        ({**OBJECT, **A}, {**OBJECT, **B, **ANY}, ""),
        ({**OBJECT, "additionalProperties": STRING}, {**OBJECT, **A, **ANY}, ""),
        (
            {**OBJECT, "additionalProperties": STRING},
            {**OBJECT, "additionalProperties": STRING, "properties": {"a": {"type": "integer"}}},
            "a: the type was narrowed from string to integer",
        ),
        ({**OBJECT, **ANY}, {**OBJECT, **ANY, "properties": {"a": ANY}}, ""),
        (
            {**OBJECT, **ANY},
            {**OBJECT, **ANY, **A},
            "a: the values of a field that was not described are now restricted",
        ),
        (
            {**OBJECT, "additionalProperties": True},
            {**OBJECT, "additionalProperties": STRING},
            "unknown fields are no longer preserved",
        ),
        (
            {**OBJECT, **ANY},
            {**EMBEDDED, **ANY},
            "the value must now be a whole object (x-kubernetes-embedded-resource)",
        ),
        ({**EMBEDDED, **ANY}, {**OBJECT, **ANY}, ""),
        (EMBEDDED, OBJECT, "x-kubernetes-embedded-resource was removed"),
        # rules
        (
            {**STRING, "x-kubernetes-validations": [{"rule": RULE["rule"], "message": "a"}]},
            {**STRING, "x-kubernetes-validations": [{"rule": RULE["rule"], "message": "b"}]},
            "",
        ),
        (
            {**STRING, "x-kubernetes-validations": [{"rule": RULE["rule"]}]},
            {**STRING, "x-kubernetes-validations": [RULE]},
            "a validation rule was added: self == oldSelf",
        ),
    ],
)
def test_change_of_a_field_is_classified(
    old: dict[str, Any], new: dict[str, Any], message: str
) -> None:
    found = breaking_changes(
        changed("@.spec/properties/field", old), changed("@.spec/properties/field", new)
    )
    assert bool(found) is bool(message), found
    if message:
        separator = "." if message.startswith("a: ") else ": "
        assert f"v1.spec.field{separator}{message}" in found


def test_selectable_fields_and_conversions_must_stay() -> None:
    before = changed("spec/versions/0/selectableFields", [{"jsonPath": ".spec.note"}])
    assert breaking_changes(before, CRD) == ["v1: the selectable field .spec.note was removed"]
    assert breaking_changes(CRD, before) == []
    assert breaking_changes(changed("spec/conversion", {"strategy": "Webhook"}), CRD) == [
        "spec.conversion: the webhook that converts between the versions was removed"
    ]


def test_names_that_the_api_server_defaults_are_not_changes() -> None:
    without = changed("spec/names/singular", ...)
    del without["spec"]["names"]["listKind"]
    assert breaking_changes(CRD, without) == breaking_changes(without, CRD) == []
    assert breaking_changes(CRD, changed("spec/names/listKind", "Sites")) == [
        "spec.names.listKind: changed from WebsiteList to Sites"
    ]
