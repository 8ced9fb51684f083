"""Which changes of a CRD are breaking."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from cfo.runtime import NamespacedName, breaking_changes, custom_resource_definition
from test.support.website import Website, WebsiteBeta

CRD = custom_resource_definition(Website, WebsiteBeta, conversion_service=NamespacedName("a", "b"))


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the CRD with ``value`` at ``path``; ``...`` removes the key."""
    crd = deepcopy(CRD)
    node: Any = crd
    if path.startswith("@"):
        node = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    *parents, last = path.removeprefix("@").split("/")
    for step in parents:
        node = node[int(step)] if step.isdigit() else node["properties"][step[1:]] if step[0] == "." else node[step]
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
    ("@.spec/.note/format", "date-time", "v1.spec.note: the format was narrowed from none to date-time"),
    ("@.spec/.replicas/minimum", 1, "v1.spec.replicas: minimum was narrowed from 0 to 1"),
    ("@.spec/.replicas/exclusiveMinimum", True, "v1.spec.replicas: minimum was narrowed from 0 to 0"),
    ("@.spec/.ports/items/.number/maximum", 9, "v1.spec.ports[].number: maximum was narrowed from 65535 to 9"),
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
