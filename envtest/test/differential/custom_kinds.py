"""Random CRDs with structural schemas, and a valid object of each."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

from envtest.schema.schema_node import Schema
from test.differential.samples import Sample

__all__ = ["custom_sample"]

OLD_VERSION = "v1beta1"
"""The name of the second version of some kinds."""
RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("self.size <= 100", {"message": "size is too large"}),
    ("self.size >= 0 || self.name == 'x'", {"messageExpression": "'not with ' + self.name"}),
    (
        "!has(self.mode) || self.mode != 'Off' || self.size == 0",
        {"reason": "FieldValueForbidden", "fieldPath": ".mode"},
    ),
    ("self.size >= oldSelf.size", {"message": "size cannot shrink"}),
    ("!has(self.parts) || self.parts.all(p, p.name != 'bad')", {}),
    ("!has(self.labels) || self.labels.all(k, k.size() < 20)", {"reason": "FieldValueDuplicate"}),
    ("self.name.matches('^[a-z]*$')", {}),
)


def custom_sample(rng: Random, name: str) -> tuple[dict[str, Any], Sample]:
    """Return a random CRD, whose names contain ``name``, and a sample of its kind."""
    spec, value = _spec(rng)
    status = {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer", "format": "int32"},
            "selector": {"type": "string"},
            "phase": {"type": "string", "enum": ["Ready", "Failed"]},
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object",
                    "required": ["type", "status"],
                    "properties": {
                        "type": {"type": "string"},
                        "status": {"type": "string"},
                        "lastTransitionTime": {"type": "string", "format": "date-time"},
                    },
                },
            },
        },
    }
    schema = {
        "type": "object",
        "properties": {"spec": spec, "status": status},
        **rng.choice(({}, {"required": ["spec"]})),
    }
    subresources: dict[str, Any] = {}
    if rng.random() < 0.7:
        subresources["status"] = {}
    if rng.random() < 0.5:
        subresources["scale"] = {
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": _columns(rng),
    }
    if rng.random() < 0.4:
        version["selectableFields"] = [{"jsonPath": ".spec.name"}]
    versions = [version]
    if rng.random() < 0.4:
        versions.append(_old_version(rng, version))
    namespaced = rng.random() < 0.8
    plural = f"k{name.replace('-', '')}s"
    kind = plural.capitalize()[:-1]
    group = f"{plural}.example.com"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {
                "plural": plural,
                "singular": plural[:-1],
                "kind": kind,
                "listKind": f"{kind}List",
            },
            "versions": versions,
        },
    }
    obj = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "x", "labels": {"app": "a"}},
        "spec": value,
        "status": {
            "replicas": 1,
            "selector": "app=a",
            "phase": "Ready",
            "conditions": [
                {"type": "A", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
            ],
        },
    }
    sample = Sample(
        root=f"/apis/{group}/v1",
        plural=plural,
        namespaced=namespaced,
        verbs=("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"),
        subresources=tuple(subresources),
        schema=Schema(schema),
        obj=obj,
        other_root=f"/apis/{group}/{OLD_VERSION}" if len(versions) > 1 else "",
    )
    return crd, sample


def _old_version(rng: Random, version: dict[str, Any]) -> dict[str, Any]:
    """Return a version with other columns and subresources, one field of the spec less, and one of another type."""
    old = deepcopy(version)
    old |= {"name": OLD_VERSION, "storage": False, "additionalPrinterColumns": _columns(rng)}
    # equal fields in all versions, with different schemas, are rejected
    old.pop("selectableFields", None)
    if rng.random() < 0.5:
        old |= {"deprecated": True, **rng.choice(({}, {"deprecationWarning": "use v1"}))}
    if rng.random() < 0.3:
        old["subresources"] = {}
    spec = old["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec.pop("x-kubernetes-validations", None)
    fields = spec["properties"]
    extra = sorted(fields.keys() - {"size", "name"})
    fields.pop(rng.choice(extra))
    fields["added"] = {"type": "string", "default": "old"}
    return old


def _spec(rng: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a spec and a valid value: size and name always, other fields by chance."""
    fields: dict[str, tuple[dict[str, Any], Any]] = {
        "mode": ({"type": "string", "enum": ["On", "Off", "Auto"], "default": "Auto"}, "On"),
        "port": ({"x-kubernetes-int-or-string": True, "default": 80}, "http"),
        "ratio": ({"type": "number", "minimum": 0, "maximum": 1, "exclusiveMaximum": True}, 0.5),
        "step": ({"type": "integer", "format": "int64", "multipleOf": 5}, 10),
        "flag": ({"type": "boolean", "default": True}, False),
        "time": ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05Z"),
        "address": (
            {
                "type": "string",
                "format": rng.choice(
                    ("ipv4", "ipv6", "cidr", "uri", "duration", "byte", "uuid", "email", "hostname")
                ),
            },
            None,
        ),
        "nothing": ({"type": "string", "nullable": True, "default": "d"}, None),
        "labels": (
            {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 5},
                "maxProperties": 3,
            },
            {"a": "b"},
        ),
        "free": (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            {"any": [1, {"a": None}]},
        ),
        "embedded": (
            {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}},
        ),
        "tags": (
            {
                "type": "array",
                "x-kubernetes-list-type": "set",
                "maxItems": 4,
                "items": {"type": "string", "pattern": "^[a-z]+$"},
            },
            ["a", "b"],
        ),
        "args": (
            {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "minItems": 1,
                "items": {"type": "integer", "minimum": 1},
            },
            [1, 2],
        ),
        "parts": (
            {
                "type": "array",
                "maxItems": 5,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name", "protocol"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string", "minLength": 1, "maxLength": 10},
                        "protocol": {"type": "string", "default": "TCP"},
                        "count": {
                            "type": "integer",
                            "format": "int32",
                            "default": 1,
                            "maximum": 10,
                        },
                    },
                },
            },
            [{"name": "a"}, {"name": "a", "protocol": "UDP", "count": 2}],
        ),
        "settings": (
            {
                "type": "object",
                "default": {},
                "x-kubernetes-map-type": rng.choice(("granular", "atomic")),
                "properties": {
                    "level": {"type": "integer", "default": 3},
                    "note": {"type": "string"},
                },
            },
            {"note": "n"},
        ),
        "choice": (
            {
                "type": "object",
                "properties": {"one": {"type": "string"}, "two": {"type": "integer"}},
                rng.choice(("oneOf", "anyOf")): [{"required": ["one"]}, {"required": ["two"]}],
            },
            {"one": "a"},
        ),
        "limited": (
            {
                "type": "object",
                "minProperties": 1,
                "properties": {
                    "a": {"type": "string", "maxLength": 3},
                    "b": {"type": "integer", "not": {"enum": [3]}},
                },
            },
            {"a": "x"},
        ),
    }
    chosen = rng.sample(list(fields), k=rng.randrange(4, 10))
    properties: dict[str, Any] = {
        "size": {"type": "integer", "format": "int32", "minimum": -5, "default": 1},
        "name": {"type": "string", "maxLength": 30},
    }
    value: dict[str, Any] = {"size": 2, "name": "abc"}
    for key in chosen:
        properties[key], example = fields[key]
        if example is not None:
            value[key] = example
    spec: dict[str, Any] = {"type": "object", "required": ["name"], "properties": properties}
    possible = [rule for rule in RULES if properties.keys() >= set(_mentioned(rule))]
    rules = rng.sample(possible, k=rng.randrange(min(3, len(possible)) + 1))
    if rules:
        spec["x-kubernetes-validations"] = [{"rule": rule, **more} for rule, more in rules]
    return spec, value


def _mentioned(rule: tuple[str, dict[str, Any]]) -> list[str]:
    return [word for word in ("mode", "parts", "labels") if f"self.{word}" in rule[0]]


def _columns(rng: Random) -> list[dict[str, Any]]:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Name", "type": "string", "jsonPath": ".spec.name", "priority": 1},
        {
            "name": "Ready",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="A")].status',
        },
        {"name": "Tags", "type": "string", "jsonPath": ".spec.tags[*]"},
        {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
        {"name": "Time", "type": "date", "jsonPath": ".spec.time"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
        {"name": "Parts", "type": "string", "jsonPath": ".spec.parts"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return rng.sample(columns, k=rng.randrange(5))
