"""Converts pydantic models to the structural schemas of CRDs.

Pydantic generates JSON Schema. A structural schema is a stricter dialect (no ``$ref``, no ``null`` type, one type per
node; see `the rules`_). What the dialect cannot express raises :class:`SchemaError`, so no constraint is dropped.

.. _the rules: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

import orjson
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cfo.runtime.objects.errors import SchemaError
from cfo.runtime.objects.parsers import format_duration
from cfo.runtime.objects.resource.model import VALIDATIONS, APIModel, check_fields
from cfo.runtime.objects.unstructured import Object

_PRESERVED: Final = frozenset(
    {
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "nullable",
        "pattern",
        "required",
        "type",
    }
)
"""The keys that both dialects have with the same meaning."""

_FIELDS_OF_SELF: Final = re.compile(r"\b(?:self|oldSelf)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)")
"""What a CEL rule reads of its value."""

_PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
_LIMITS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
"""Constraints that pydantic leaves in the schemas of strings, such as durations; those of numbers have other names."""

_UNSUPPORTED: Final = {
    "allOf": "an intersection of types",
    "contains": "a constraint on one item",
    "not": "a negation",
    "oneOf": "a union of types",
    "patternProperties": "a pattern of keys",
    "prefixItems": "a tuple",
    "propertyNames": "a type of keys with constraints",
}


def structural_schema(model: type[BaseModel]) -> Object:
    """Return the structural schema of ``model``; the caller owns the result.

    Raises :class:`SchemaError` for a field that has no structural schema.
    """
    schema: Object = orjson.loads(_encoded_schema(model))
    return schema


@cache
def _encoded_schema(model: type[BaseModel]) -> bytes:
    """Return the structural schema of ``model`` as JSON: generating it takes 100 ms, and callers change their copy."""
    converter = _Converter(model.model_json_schema(by_alias=True, schema_generator=_Generator))
    return orjson.dumps(converter.convert(converter.document, (), is_model=True))


def without_defaults(schema: Object) -> Object:
    """Return a structural ``schema`` without defaults, so that unset fields of objects stay unset."""
    result = {key: value for key, value in schema.items() if key != "default"}
    properties = schema.get("properties")
    if properties:
        result["properties"] = {name: without_defaults(child) for name, child in properties.items()}
    for key in ("additionalProperties", "items"):
        if key in schema:
            result[key] = without_defaults(schema[key])
    return result


class _Generator(GenerateJsonSchema):
    """Generates JSON Schema with the durations of Go, and checks the fields of all classes."""

    def encode_default(self, dft: Any) -> Any:
        """Return the default of a field as JSON."""
        return super().encode_default(_with_go_durations(dft))

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a class, whose types that are defined later than the class are checked."""
        model = schema["cls"]
        if issubclass(model, APIModel):
            check_fields(model)
        return super().model_schema(schema)


def _with_go_durations(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, list):
        return [_with_go_durations(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_go_durations(item) for key, item in value.items()}
    return value


class _Converter:
    """Converts the nodes of a JSON Schema ``document``, whose references it resolves."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._definitions: Mapping[str, Any] = document.get("$defs") or {}
        self._open: list[str] = []

    def convert(
        self, node: dict[str, Any], path: tuple[str, ...], *, is_model: bool = False
    ) -> dict[str, Any]:
        """Return ``node`` in the structural dialect; ``path`` is its path, for errors.

        ``is_model``: the node describes a model, whose unknown fields are not part of the schema.
        """
        if "$ref" in node:
            return self._convert_reference(node, path)
        if node.get("x-kubernetes-int-or-string"):
            return _preserved(node) | {"anyOf": [{"type": "integer"}, {"type": "string"}]}
        if node.get("anyOf"):
            present = [option for option in node["anyOf"] if option.get("type") != "null"]
            if len(present) != 1:
                raise _unsupported(path, "a union of types")
            return self.convert(_merged(present[0], node, "anyOf"), path)
        for key, operator in _LIMITS.items():
            if key in node:
                raise SchemaError(
                    f"{_field(path)}: {key}: a limit of this type has no structural schema: "
                    f'use validations(CELRule(rule="self {operator} ..."))'
                )
        for key, description in _UNSUPPORTED.items():
            if key in node:
                raise _unsupported(path, description)

        result = _preserved(node)
        if "const" in node:
            result["enum"] = [node["const"]]
        for bound in ("minimum", "maximum"):
            _convert_exclusive(node, result, bound)
        if node.get("uniqueItems"):
            result.setdefault("x-kubernetes-list-type", "set")
        if node.get("default") is not None:
            result["default"] = node["default"]
        self._convert_children(node, result, path)
        _check_map_keys(result, path)
        _check_rules(result, path)
        if node.get("additionalProperties") is True and not is_model:
            result[_PRESERVE_UNKNOWN] = True
        if not result.get("type"):
            allowed = result.get("enum") or ()
            types = {_type_of(value) for value in allowed}
            if len(types) > 1:
                raise _unsupported(path, "an enum of several types")
            if types:
                result["type"] = types.pop()
            else:
                result[_PRESERVE_UNKNOWN] = True
        return result

    def _convert_children(
        self, node: dict[str, Any], result: dict[str, Any], path: tuple[str, ...]
    ) -> None:
        properties = node.get("properties")
        values = node.get("additionalProperties")
        if properties:
            result["properties"] = {
                name: self.convert(child, (*path, name)) for name, child in properties.items()
            }
        elif isinstance(values, dict):
            result["additionalProperties"] = self.convert(values, (*path, "*"))
        if "items" in node:
            result["items"] = self.convert(node["items"], (*path, "[]"))

    def _convert_reference(self, node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        name = node["$ref"].rpartition("/")[2]
        if name in self._open:
            raise _unsupported(path, f"the type {name}, which contains itself,")
        self._open.append(name)
        try:
            return self.convert(_merged(self._definitions[name], node, "$ref"), path, is_model=True)
        finally:
            self._open.pop()


def _check_map_keys(schema: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """Raise :class:`SchemaError` for a list map whose key is not the wire name of a field in its items."""
    fields = (schema.get("items") or {}).get("properties") or {}
    for key in schema.get("x-kubernetes-list-map-keys") or ():
        if key not in fields:
            raise SchemaError(
                f"{_field(path)}: list_map: {key!r}: must be the camelCase name of a field of the items"
            )


def _check_rules(schema: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """Raise :class:`SchemaError` for a CEL rule that names a field as Python does; the API server would refuse it."""
    for entry in schema.get(VALIDATIONS) or ():
        for key in ("rule", "messageExpression"):
            expression = entry.get(key) or ""
            for found in _FIELDS_OF_SELF.finditer(expression):
                wrong = _snake_case_name(schema, found[1])
                if wrong is not None:
                    raise SchemaError(
                        f"{_field(path)}: CELRule: {key} {expression!r:.200}: the schema has no field {wrong}: must be "
                        f"{to_camel(wrong)}"
                    )


def _snake_case_name(schema: Mapping[str, Any], fields: str) -> str | None:
    """Return the first name in ``fields``, such as ``.spec.config_map``, of a field that has a camelCase name."""
    node = schema
    for name in fields.split(".")[1:]:
        properties = node.get("properties") or {}
        if name not in properties:
            return name if to_camel(name) in properties else None
        node = properties[name]
    return None


def _preserved(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a structural schema has unchanged: the common keys, and Kubernetes' extensions."""
    return {
        key: value
        for key, value in node.items()
        if key in _PRESERVED or key.startswith("x-kubernetes-")
    }


def _merged(base: dict[str, Any], node: dict[str, Any], replaced: str) -> dict[str, Any]:
    """Return ``base`` with the keys of ``node`` except ``replaced``; the CEL rules of both apply."""
    own = {key: value for key, value in node.items() if key != replaced}
    merged = {**base, **own}
    if VALIDATIONS in base and VALIDATIONS in node:
        merged[VALIDATIONS] = [*base[VALIDATIONS], *node[VALIDATIONS]]
    return merged


def _convert_exclusive(node: Mapping[str, Any], result: dict[str, Any], bound: str) -> None:
    """Convert an exclusive bound from a number (JSON Schema) to a flag of the bound (CRDs); the stricter one wins."""
    exclusive_bound = f"exclusive{bound.capitalize()}"
    exclusive = node.get(exclusive_bound)
    if exclusive is None:
        return
    inclusive = node.get(bound)
    if inclusive is not None:
        is_stricter = inclusive > exclusive if bound == "minimum" else inclusive < exclusive
        if is_stricter:
            return
    result[bound] = exclusive
    result[exclusive_bound] = True


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return names.get(type(value), "object")


def _field(path: tuple[str, ...]) -> str:
    return ".".join(path).replace(".[]", "[]") or "the class"


def _unsupported(path: tuple[str, ...], what: str) -> SchemaError:
    return SchemaError(
        f"{_field(path)}: {what} has no structural schema: use one type, a model, or EmbeddedResource"
    )
