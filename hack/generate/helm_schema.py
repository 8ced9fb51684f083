"""The JSON schema of the Helm chart's values, with which Helm refuses misspelled and invalid values.

Values that it refuses in ``config``, the operator refuses as well, and exits. Keys that are misspelled, also in their
case, are refused here, while the operator only warns of them, as the Go operator does not even do. The schema does not
limit settings in sections that normalize them. Durations have only a type there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.keys import APPWRAPPER_SETTINGS
from cfo.config.model import OperatorConfiguration
from cfo.config.section import Section, section_model, settings_of, value_layers

Schema = dict[str, Any]

_OPEN: Final = ("config", "resources")
"""The values whose keys are not those of their defaults."""

_LOOKAHEAD: Final = re.compile(r"\(\?=[^()]*\)")
"""A condition in a pattern, which the regular expressions of Go do not have."""

_TYPES: Final[Mapping[Any, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def values_schema(defaults: Mapping[str, Any]) -> Schema:
    """Return the schema of values that have the keys and the types of ``defaults``."""
    properties = {name: _schema_of_default(name, value) for name, value in defaults.items()}
    properties["config"] = _or_null(_section_schema(OperatorConfiguration))
    properties["global"] = {"type": "object"}  # Helm adds it to the values of each chart
    schema = _closed(properties)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


def _schema_of_default(name: str, value: Any) -> Schema:
    if isinstance(value, dict) and value and name not in _OPEN:
        return _closed({key: _schema_of_default(key, item) for key, item in value.items()})
    return {"type": _TYPES[type(value)]}


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _section_schema(section: type[Section]) -> Schema:
    """Return the schema of a section of the configuration; a setting that is null has its default."""
    properties: dict[str, Schema] = {}
    normalizes = "normalized" in vars(section)
    for key, setting in settings_of(section).items():
        is_free = normalizes and section_model(setting.type) is None
        schema = {} if is_free else _value_schema(setting.type)
        properties[key] = _or_null(schema)
    if section is AppWrapperConfiguration:
        properties[APPWRAPPER_SETTINGS] = _or_null(_closed(properties))
    return _closed(properties)


def _or_null(schema: Schema) -> Schema:
    if not schema:  # any value
        return schema
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    types = schema["type"]
    return {**schema, "type": [*types, "null"] if isinstance(types, list) else [types, "null"]}


def _value_schema(annotation: Any) -> Schema:
    """Return the schema of a value, which a setting or one of its elements has; empty if there is none."""
    section = section_model(annotation)
    if section is not None:
        return _section_schema(section)
    layers = value_layers(annotation)
    kind = layers[-1]
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin is Literal:
        return {"enum": [*arguments]}
    if isinstance(kind, type) and issubclass(kind, timedelta):
        return {"type": ["string", "integer"]}
    if kind not in _TYPES and origin not in _TYPES:
        return {}
    schema: Schema = {"type": _TYPES[origin or kind]}
    for layer in layers:
        for item in get_args(layer):
            if isinstance(item, msgspec.Meta):
                schema |= _constraints(item)
    if origin is list:
        schema["items"] = _value_schema(arguments[0])
    if origin is dict:
        schema["additionalProperties"] = _value_schema(arguments[1])
    return schema


def _constraints(meta: msgspec.Meta) -> Schema:
    """Return the constraints of ``meta`` in JSON schema; lengths are those of lists."""
    found: Schema = {}
    if meta.ge is not None:
        found["minimum"] = meta.ge
    if meta.le is not None:
        found["maximum"] = meta.le
    if meta.pattern is not None:
        pattern = _LOOKAHEAD.sub("", meta.pattern)
        found["pattern"] = pattern.replace(r"\A", "^").replace(r"\Z", "$")
    return found
