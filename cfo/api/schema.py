"""Converts pydantic models to the structural schemas of CRDs.

Pydantic generates JSON Schema. A structural schema is a stricter dialect (no ``$ref``, no ``null`` type, one type per
node; see `the rules`_). The field types defined here add the metadata that the dialect requires: formats, list types,
embedded resources.

.. _the rules: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from cfo.runtime import Object

__all__ = [
    "ATOMIC",
    "APIModel",
    "Condition",
    "Conditions",
    "EmbeddedResource",
    "Int32",
    "Int64",
    "Quantity",
    "custom_resource_definition",
    "without_defaults",
]


class APIModel(BaseModel):
    """Base class of API types and their parts: camelCase on the wire, unknown fields are preserved."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")


Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]

_DECIMAL = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY = rf"^(\+|-)?{_DECIMAL}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_DECIMAL}))?$"
Quantity = Annotated[int | str, Field(json_schema_extra={"pattern": _QUANTITY, "x-kubernetes-int-or-string": True})]
"""A number, or a string such as 500m or 4Gi. A string that is not a quantity is rejected."""

ATOMIC = Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
"""Annotation of a list that is replaced as a whole when it is applied."""

EmbeddedResource = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}),
]
"""A whole object of any kind; the schema does not describe its fields."""

_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CONDITION_TYPE = rf"^({_LABEL}(\.{_LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"


class Condition(APIModel):
    """One aspect of an object's state, as `metav1.Condition`_ defines it.

    .. _metav1.Condition: https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#Condition
    """

    last_transition_time: Annotated[
        str,
        Field(json_schema_extra={"format": "date-time"}, description="Last time the status of the condition changed."),
    ]
    message: Annotated[
        str, Field(json_schema_extra={"maxLength": 32768}, description="Human-readable details of the last transition.")
    ]
    observed_generation: Annotated[
        int | None,
        Field(
            json_schema_extra={"format": "int64", "minimum": 0},
            description="The metadata.generation that the condition is based on.",
        ),
    ] = None
    reason: Annotated[
        str,
        Field(
            json_schema_extra={"maxLength": 1024, "minLength": 1, "pattern": _REASON},
            description="Reason of the last transition, in CamelCase.",
        ),
    ]
    status: Annotated[
        str, Field(json_schema_extra={"enum": ["True", "False", "Unknown"]}, description="Status of the condition.")
    ]
    type: Annotated[
        str,
        Field(
            json_schema_extra={"maxLength": 316, "pattern": _CONDITION_TYPE},
            description="Type of the condition, in CamelCase.",
        ),
    ]


Conditions = Annotated[
    list[Condition],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


def custom_resource_definition(
    model: type[APIModel],
    *,
    group: str,
    version: str,
    kind: str,
    plural: str,
    short_names: Sequence[str] = (),
    printer_columns: Sequence[dict[str, Any]] = (),
    scale: Mapping[str, str] | None = None,
) -> Object:
    """Return the CRD of a namespaced kind with one version and a status subresource, with objects of type ``model``.

    ``model`` has the fields ``spec`` and ``status``; apiVersion, kind and metadata are added here. ``scale`` has the
    paths of the scale subresource, if the kind has one.
    """
    schema: Object = orjson.loads(_encoded_schema(model))
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **schema["properties"],
    }
    served: dict[str, Any] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    if scale is not None:
        served["subresources"]["scale"] = dict(scale)
    if printer_columns:
        served["additionalPrinterColumns"] = list(printer_columns)
    names: dict[str, Any] = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    if short_names:
        names["shortNames"] = list(short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


@cache
def _encoded_schema(model: type[APIModel]) -> bytes:
    """Return the structural schema of ``model`` as JSON: generating it takes 100 ms, and callers change their copy."""
    return orjson.dumps(_structural(model.model_json_schema(by_alias=True), {}))


def without_defaults(schema: Object) -> Object:
    """Return a structural ``schema`` without defaults, so that unset fields of objects stay unset."""
    result = {key: value for key, value in schema.items() if key != "default"}
    if properties := schema.get("properties"):
        result["properties"] = {name: without_defaults(child) for name, child in properties.items()}
    for key in ("additionalProperties", "items"):
        if key in schema:
            result[key] = without_defaults(schema[key])
    return result


_BOUNDS = {f"{bound}{quantity}" for bound in ("min", "max") for quantity in ("Items", "Length", "Properties", "imum")}
_PRESERVED = {"description", "enum", "format", "nullable", "pattern", "required", "type"} | _BOUNDS


def _structural(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema ``node`` in the structural dialect; its references are resolved in ``definitions``."""
    definitions = node.get("$defs") or definitions
    if reference := node.get("$ref"):
        target = definitions[reference.rpartition("/")[2]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if node.get("x-kubernetes-int-or-string"):
        return {key: value for key, value in node.items() if key in _PRESERVED or key.startswith("x-kubernetes-")} | {
            "anyOf": [{"type": "integer"}, {"type": "string"}]
        }
    if options := node.get("anyOf"):
        (present,) = (option for option in options if option.get("type") != "null")
        return _structural({**present, **{key: value for key, value in node.items() if key != "anyOf"}}, definitions)
    result = {key: value for key, value in node.items() if key in _PRESERVED or key.startswith("x-kubernetes-")}
    if "const" in node:
        result["enum"] = [node["const"]]
    if node.get("default") is not None:
        result["default"] = node["default"]
    if properties := node.get("properties"):
        result["properties"] = {name: _structural(child, definitions) for name, child in properties.items()}
    elif isinstance(values := node.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(values, definitions)
    if "items" in node:
        result["items"] = _structural(node["items"], definitions)
    return result
