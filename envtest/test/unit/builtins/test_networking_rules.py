"""Validation of Ingresses, ingress classes, and the subjects of role bindings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from envtest.builtins.addresses import AddressStrategy
from envtest.builtins.catalog import all_resources
from envtest.builtins.networking import IngressClassStrategy, IngressStrategy
from envtest.builtins.rbac import BindingStrategy
from envtest.builtins.strategy import BuiltinStrategy
from envtest.schema.shaping import copy_json

RESOURCES = {each.kind: each for each in all_resources() if each.group.endswith(".k8s.io")}
CONTEXT = SimpleNamespace(subresource="")
SERVICE = {"service": {"name": "s", "port": {"number": 80}}}


def errors(
    strategy: type[BuiltinStrategy],
    kind: str,
    obj: dict[str, Any],
    old: dict[str, Any] | None = None,
) -> list[str]:
    made = strategy(RESOURCES[kind])
    for each in (obj, old):
        if each is not None:
            each.setdefault("metadata", {"name": "a"})
            made.default(each)
    return [str(each) for each in made.check(obj, old, CONTEXT)]  # type: ignore[arg-type]


def path_errors(**path: Any) -> list[str]:
    """Return the errors of an Ingress with this path, without the path of the field."""
    rule = {
        "http": {
            "paths": [{"path": "/", "pathType": "Exact", "backend": SERVICE, **copy_json(path)}]
        }
    }
    found = errors(IngressStrategy, "Ingress", {"spec": {"rules": [rule]}})
    return [each.removeprefix("spec.rules[0].http.paths[0].") for each in found]


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("Exact", "/a/b", []),
        (
            "Exact",
            "a//b/..",
            [
                'path: Invalid value: "a//b/..": must be an absolute path',
                "path: Invalid value: \"a//b/..\": must not contain '//'",
                "path: Invalid value: \"a//b/..\": cannot end with '/..'",
            ],
        ),
        ("Prefix", "", ['path: Invalid value: "": must be an absolute path']),
        ("ImplementationSpecific", "/a//b", []),
        ("ImplementationSpecific", "a", ['path: Invalid value: "a": must be an absolute path']),
    ],
)
def test_path_of_an_ingress_is_validated(kind: str, path: str, expected: list[str]) -> None:
    assert path_errors(pathType=kind, path=path) == expected


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ({"apiGroup": "a.io", "kind": "Bucket", "name": "b"}, []),
        ({}, ["backend.resource.kind: Required value", "backend.resource.name: Required value"]),
        (
            {"apiGroup": "Bad_", "kind": "a/b", "name": ".."},
            [
                'backend.resource.apiGroup: Invalid value: "Bad_": a lowercase RFC 1123 subdomain must consist of',
                "backend.resource.kind: Invalid value: \"a/b\": may not contain '/'",
                "backend.resource.name: Invalid value: \"..\": may not be '..'",
            ],
        ),
    ],
)
def test_resource_backend_of_an_ingress_is_validated(
    resource: dict[str, Any], expected: list[str]
) -> None:
    found = path_errors(backend={"resource": resource})
    assert len(found) == len(expected), found
    assert all(map(str.startswith, found, expected)), found


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"scope": "Namespace", "namespace": "n"}, []),
        (
            {"scope": "Namespace"},
            ["namespace: Required value: `parameters.scope` is set to 'Namespace'"],
        ),
        (
            {"scope": "Namespace", "namespace": ""},
            ['namespace: Invalid value: "": a lowercase RFC 1123 label must'],
        ),
        ({"namespace": ""}, ["namespace: Forbidden: `parameters.scope` is set to 'Cluster'"]),
        (
            {"scope": "X", "namespace": ""},
            ['scope: Unsupported value: "X": supported values: "Cluster", "Namespace"'],
        ),
    ],
)
def test_scope_of_the_parameters_of_an_ingress_class(
    parameters: dict[str, Any], expected: list[str]
) -> None:
    spec = {"controller": "a.io/b", "parameters": {"kind": "K", "name": "n", **parameters}}
    found = errors(IngressClassStrategy, "IngressClass", {"spec": spec})
    assert len(found) == len(expected), found
    assert all(
        each.startswith(f"spec.parameters.{start}")
        for each, start in zip(found, expected, strict=True)
    ), found


def test_address_belongs_to_one_object() -> None:
    old, new = ({"spec": {"parentRef": {"resource": "services", "name": name}}} for name in "ab")
    assert errors(AddressStrategy, "IPAddress", new, old) == [
        (
            'spec.parentRef: Invalid value: {"Group":"","Resource":"services","Namespace":"","Name":"b"}: '
            "field is immutable"
        )
    ]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ({"kind": "ServiceAccount", "name": "a.b", "namespace": "n"}, []),
        ({"kind": "User", "name": "Bad_:x"}, []),
        (
            {"kind": "ServiceAccount", "name": "Bad_:x", "namespace": "n"},
            [
                'subjects[0].name: Invalid value: "Bad_:x": a lowercase RFC 1123 subdomain must consist of'
            ],
        ),
        (
            {"kind": "ServiceAccount", "name": "", "namespace": "n"},
            ["subjects[0].name: Required value"],
        ),
    ],
)
def test_subject_of_a_binding_is_validated(subject: dict[str, Any], expected: list[str]) -> None:
    role = {"kind": "ClusterRole", "name": "view"}
    found = errors(BindingStrategy, "ClusterRoleBinding", {"roleRef": role, "subjects": [subject]})
    assert len(found) == len(expected), found
    assert all(map(str.startswith, found, expected)), found
