"""Normalization of built-in objects to kube-apiserver's form: as if decoded into its Go types and encoded again.

:func:`decode` checks JSON types, drops and reports unknown fields, normalizes times and quantities, drops empty fields
that kube-apiserver does not write, and adds the zero fields that it does write (``resources: {}``, ``firstTimestamp:
null``). :func:`zero` returns the form of an absent struct. A converter (a closure) is compiled for each type when it is
first needed.

The key ``x-envtest-wire`` of the shipped tables specifies when a field is written: ``always`` (also when zero), ``set``
(unless null), ``nonempty`` (unless zero or empty), ``nonzero`` (a struct, unless all of it is zero) or
``never`` (a field whose feature gate is off: a client owns it, but :func:`disabled_dropper` drops it before it is
stored).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Container
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

from envtest.apimachinery.objects import format_time
from envtest.builtins.catalog import plain_name, schema_of
from envtest.builtins.go_names import field_in_go, named_type
from envtest.formats.go_time import MICRO, RFC3339, time_problem
from envtest.schema.quantity import QuantityError, canonical, rounded_to_milli
from envtest.schema.schema_node import Schema

__all__ = [
    "ConversionError",
    "DecodeError",
    "EmbeddedTypeError",
    "WrongTypeError",
    "decode",
    "disabled_dropper",
    "encode",
    "wrap_integers",
    "zero",
]

Convert: TypeAlias = Callable[[Any, str, list[str]], Any]
"""Converts the value at a path and appends unknown fields to the list. Raises :class:`DecodeError`."""

_INT = {"int32": 2**31, "int64": 2**63}
_RFC3339 = re.compile(r"(\d{4})(-\d\d-\d\dT\d\d:\d\d:\d\d)([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_CALENDAR_YEARS = 400
"""The number of years after which the calendar repeats."""
_MICRO_DIGITS = 7  # including the decimal point
_GO_KINDS = {
    bool: "bool",
    str: "string",
    list: "slice",
    dict: "map",
    int: "int64",
    float: "float64",
}
_JSON_TYPE_NAMES = {
    bool: "bool",
    str: "string",
    list: "array",
    dict: "object",
    int: "number",
    float: "number",
}


class DecodeError(ValueError):
    """Raised if a value does not fit its type, so that the object cannot be decoded.

    ``str()`` is the message of Go's JSON decoder, ``converted`` that of apimachinery's converter for unstructured
    objects, which decodes strategic merge patches and applied objects. ``path`` is the field, which the message need
    not contain.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path

    first: WrongTypeError | None = None
    """An earlier error, with which the decoder of JSON went on; the converter reports it instead of this one."""

    @property
    def converted(self) -> str:
        """Return the message of the converter for unstructured objects."""
        return str(self) if self.first is None else self.first.converted


class ConversionError(DecodeError):
    """A value that its type accepts, and that kube-apiserver cannot convert to its internal type."""


class EmbeddedTypeError(DecodeError):
    """An embedded resource whose apiVersion or kind is not a string; it does not prevent an apply from decoding."""


class WrongTypeError(DecodeError):
    """A JSON value of a type that its Go type does not accept.

    As in Go's decoder, the message names the innermost struct, then all fields without positions and keys of maps; the
    structs add both while the exception passes them.
    """

    def __init__(self, value: Any, expected: str, path: str, *, is_struct: bool = False) -> None:
        super().__init__("", path)
        self._value = value
        self.expected = expected
        self._named = expected
        self._is_struct = is_struct
        self._struct = ""
        self._fields: list[str] = []
        self._own_message = ""

    def enter(self, type_name: str, field: str) -> None:
        """Add a field that leads to the value, and the type that has it; the innermost is the first."""
        if not self._fields:
            self._struct = type_name.rpartition(".")[2]
            self._named = named_type(type_name, field, self.expected)
        self._fields.insert(0, field_in_go(type_name, field))

    @property
    def is_final(self) -> bool:
        """Whether a type that decodes itself returned the error, which ends the decoding."""
        return bool(self._own_message)

    def end(self) -> None:
        """Mark the error as that of a type that decodes itself; the converter does not know the fields around it."""
        self._own_message = str(self)

    def __str__(self) -> str:
        word = _JSON_TYPE_NAMES.get(type(self._value), "value")
        if word == "number" and self.expected in ("uint8", "int32", "int64"):
            word = f"number {self._value}"
        where = f"struct field {self._struct}.{'.'.join(self._fields)}" if self._fields else "value"
        return f"json: cannot unmarshal {word} into Go {where} of type {self._named}"

    @property
    def number(self) -> float | None:
        """The value if it is a float, whose text in the message may differ from that in the body."""
        return self._value if isinstance(self._value, float) else None

    @property
    def is_overflow(self) -> bool:
        """Whether the value is a whole number with more bits than the field has, which the converter cuts."""
        is_integer = self.expected in ("int32", "int64") and not self.is_final
        return is_integer and _is_whole(self._value)

    @property
    def converted(self) -> str:
        """See :attr:`DecodeError.converted`."""
        if self.first is not None:
            return self.first.converted
        if self._own_message:
            return self._own_message
        found = _GO_KINDS.get(type(self._value), "invalid")
        if self._is_struct:
            return f"cannot restore struct from: {found}"
        for prefix, kind in (("[]", "slice"), ("map[", "map")):
            if self.expected.startswith(prefix):
                return f"cannot restore {kind} from {found}"
        is_number = self.expected in ("int32", "int64", "float64")
        if (is_number and found in ("int64", "float64")) or (found, self.expected) == (
            "int64",
            "string",
        ):
            return f"cannot convert {found} to {self.expected}"
        return f"unrecognized type: {self.expected}"


def decode(type_name: str, obj: Any) -> tuple[Any, list[str]]:
    """Return ``obj`` (JSON) in kube-apiserver's form, and the paths of its unknown fields, in order.

    Raises :class:`DecodeError` if a value has the wrong JSON type or cannot be parsed (a time, a quantity).
    """
    unknown: list[str] = []
    return _converter(type_name)(obj, "", unknown), unknown


def wrap_integers(schema: Schema, value: Any) -> Any:
    """Return a value, changed in place, whose integers have overflowed as in Go, which converts them.

    Fields of 32 bits have the lowest 32 bits; a number with more than 64 bits is a float, which becomes the least
    integer with 64 bits.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            node = schema.field(name)
            if node is not None:
                value[name] = wrap_integers(node, item)
    elif isinstance(value, list) and schema.items is not None:
        for position, item in enumerate(value):
            value[position] = wrap_integers(schema.items, item)
    elif schema.type == "integer" and _is_whole(value):
        number = int(value)
        if not -(2**63) <= number < 2**63:
            number = -(2**63)
        if schema.format == "int32":
            number = (number + 2**31) % 2**32 - 2**31
        return number
    return value


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def encode(type_name: str, obj: Any) -> Any:
    """Return ``obj``, which is already valid, normalized again after defaults were set."""
    return _converter(type_name)(obj, "", [])


@cache
def zero(type_name: str) -> Any:
    """Return an absent value of a type as kube-apiserver writes it. Callers must copy it before changing it."""
    return _zero_of(schema_of(type_name))


_DROPPED_IF_EMPTY = frozenset({"io.k8s.api.core.v1.Lifecycle"})
"""Types whose objects kube-apiserver drops if they contain only fields of disabled features."""

_KEPT_IF_EMPTY = frozenset({("io.k8s.api.autoscaling.v2.HPAScalingRules", "policies")})
"""Lists that are omitted if they are empty, but get their default only if they are absent; no valid object has them."""

Drop: TypeAlias = Callable[[Any], None]
"""Removes the disabled fields of a value, in place."""


@cache
def disabled_dropper(type_name: str) -> Drop | None:
    """Return the function that removes the fields of disabled features; ``None`` if the type has none."""
    return _dropper(schema_of(type_name), ())


def _dropper(schema: Schema, parents: tuple[str, ...]) -> Drop | None:
    """Return the function for one node; ``parents`` are the types around it, because types may be recursive."""
    if schema.ref and schema.ref in parents:
        return None
    around = (*parents, schema.ref)
    if schema.items is not None:
        return _each_dropper(_dropper(schema.items, around), list)
    if schema.additional is not None:
        return _each_dropper(_dropper(schema.additional, around), dict)
    disabled = []
    whole = set()
    nested: dict[str, Drop] = {}
    for name, node in schema.properties.items():
        if node.raw.get("x-envtest-wire") == "never":
            disabled.append(name)
            continue
        below = _dropper(node, around)
        if below is not None:
            nested[name] = below
        if plain_name(node.ref) in _DROPPED_IF_EMPTY:
            whole.add(name)
    if not disabled and not nested:
        return None

    def drop(value: Any) -> None:
        if not isinstance(value, dict):
            return
        for name in disabled:
            value.pop(name, None)
        for name, below in nested.items():
            inner = value.get(name)
            if not inner:
                continue
            below(inner)
            if name in whole and not inner:
                del value[name]

    return drop


def _each_dropper(drop: Drop | None, kind: type[list[Any]] | type[dict[str, Any]]) -> Drop | None:
    """Return the function that applies ``drop`` to all values of a list or a map."""
    if drop is None:
        return None
    drop_item = drop

    def drop_all(value: Any) -> None:
        if not isinstance(value, kind):
            return
        items = value.values() if isinstance(value, dict) else value
        for item in items:
            drop_item(item)

    return drop_all


@cache
def _converter(type_name: str) -> Convert:
    special = _SPECIAL.get(type_name.rpartition(".")[2])
    if special is not None:
        return special
    return _struct(schema_of(type_name))


def _convert_of(schema: Schema) -> Convert:
    """Return the converter of a field; converters of named types are compiled on first use: types may be recursive."""
    if schema.ref:
        name = schema.ref
        special = _SPECIAL.get(name.rpartition(".")[2])
        if special is not None:
            return special
        if schema.properties:
            return lambda value, path, unknown: _converter(name)(value, path, unknown)
    if schema.properties:
        return _struct(schema)
    match schema.type:
        case "array":
            return _list(schema)
        case "object":
            return _map(schema) if schema.additional is not None else _any_value
        case "string":
            return _bytes if schema.format == "byte" else _string
        case "integer":
            return _integer(_INT.get(schema.format, 2**63), schema.format or "int64")
        case "number":
            return _number
        case "boolean":
            return _boolean
    return _any_value


_EXACT_PACKAGES = ("io.k8s.api.node.", "io.k8s.api.resource.")
"""The packages whose resource lists have no defaults, and so keep fractions of a thousandth."""


def _struct(schema: Schema) -> Convert:
    fields: dict[str, Convert] = {}
    omitted: dict[str, Container[Any] | None] = {}
    always: dict[str, Any] = {}
    package = plain_name(schema.ref).rpartition(".")[0]
    for name, node in schema.properties.items():
        fields[name] = _convert_of(node)
        if _is_resource_list(node) and not package.startswith(_EXACT_PACKAGES):
            fields[name] = _map(node, _resource_quantity)
        wire = node.raw.get("x-envtest-wire", "set")
        if wire == "always":
            always[name] = _zero_of(node)
        # An empty managedFields list is a request to reset field ownership, and must not be dropped, unless it is in
        # a template.
        is_kept = name == "managedFields" or (plain_name(schema.ref), name) in _KEPT_IF_EMPTY
        omitted[name] = None if is_kept else _omitted_values(node, wire)
    empty_as_zero = {
        name
        for name in always
        if schema.properties[name].type in ("array", "object")
        and not schema.properties[name].properties
        and not schema.properties[name].ref.endswith(".RawExtension")
        and plain_name(schema.ref).startswith("io.k8s.api.")
    }
    nested = {name: value for name, value in always.items() if isinstance(value, dict) and value}
    go_type = _go_type(schema)
    type_name = plain_name(schema.ref)

    def convert(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            if value is None:
                return _new_zero(always, nested)
            raise WrongTypeError(value, go_type, path, is_struct=True)
        out: dict[str, Any] = {}
        prefix = f"{path}." if path else ""
        members = iter(value.items())
        try:
            for name, item in members:
                field = fields.get(name)
                if field is None:
                    unknown.append(prefix + name)
                    continue
                if item is None:
                    continue
                item = field(item, prefix + name, unknown)
                if name in empty_as_zero and not item:
                    continue
                dropped = omitted[name]
                if dropped is None:
                    is_kept = name != "managedFields" or bool(item) or path == "metadata"
                else:
                    is_kept = item not in dropped or (item is False and False not in dropped)
                if is_kept:
                    out[name] = item
        except WrongTypeError as error:
            error.enter(type_name, name)
            for other, item in members:
                try:
                    _decode_rest(fields.get(other), item, prefix + other, error)
                except WrongTypeError as final:
                    final.enter(type_name, other)
                    raise
            raise
        for name, item in always.items():
            if name not in out:
                out[name] = _fresh(item, nested=name in nested)
        return out

    return convert


def _decode_rest(convert: Convert | None, value: Any, path: str, first: WrongTypeError) -> None:
    """Decode a value after one of a wrong type. Raises the error of a type that decodes itself.

    Go's decoder goes on after a wrong type, and reports the first one at the end, but such an error ends it.
    ``convert`` is ``None`` for an unknown field.
    """
    if convert is None or value is None or first.is_final:
        return
    try:
        convert(value, path, [])
    except DecodeError as error:
        if isinstance(error, WrongTypeError) and not error.is_final:
            return
        error.first = first
        raise


def _new_zero(always: dict[str, Any], nested: dict[str, Any]) -> dict[str, Any]:
    return {name: _fresh(item, nested=name in nested) for name, item in always.items()}


def _fresh(item: Any, *, nested: bool) -> Any:
    """Return a value that no other object has; only dicts are mutable."""
    if nested:
        return _copy(item)
    return {} if item == {} else item


def _copy(value: Any) -> Any:
    return {name: _copy(item) for name, item in value.items()} if isinstance(value, dict) else value


def _omitted_values(node: Schema, wire: str) -> Container[Any] | None:
    """Return the values of a field that are not written, or ``None`` if all are written."""
    if wire == "nonzero":
        return (None, _zero_of(node))
    if wire == "nonempty" and node.type == "array":
        return ([],)
    if wire == "nonempty" and node.type == "object":
        return ({},)
    if wire == "nonempty":
        return ("", 0, False)
    return None


def _zero_of(node: Schema) -> Any:
    """Return the form of an absent field: ``null`` unless its type holds a value rather than a pointer."""
    special = _ZEROS.get(node.ref.rpartition(".")[2])
    if special is not None:
        return special[0]
    if not node.properties:
        return node.raw.get("default") if node.type not in ("array", "object") else None
    if "x-envtest-wire" in node.raw and "default" not in node.raw:
        return None
    written = {
        name: inner
        for name, inner in node.properties.items()
        if inner.raw.get("x-envtest-wire") == "always"
    }
    return {name: _zero_of(inner) for name, inner in written.items()}


def _plain_zero(node: Schema) -> Any:
    """Return the value that ``null`` means as an item of a list or map."""
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(node.type)


def _go_type(node: Schema) -> str:
    """Return the Go type of a field; named strings and maps are shown as their underlying type."""
    if node.ref:
        return ".".join(plain_name(node.ref).split(".")[-2:])
    if node.type == "array":
        return f"[]{_go_type(node.items) if node.items is not None else 'interface {}'}"
    if node.additional is not None:
        return f"map[string]{_go_type(node.additional)}"
    if node.type == "integer":
        return node.format or "int64"
    if node.type == "string" and node.format == "byte":
        return "[]uint8"
    return {"string": "string", "number": "float64", "boolean": "bool"}.get(
        node.type, "interface {}"
    )


def _list(schema: Schema) -> Convert:
    items = _convert_of(schema.items) if schema.items is not None else _any_value
    node = schema.items

    def convert(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, list):
            raise WrongTypeError(value, _go_type(schema), path)
        members = iter(enumerate(value))
        try:
            return [
                items(item, f"{path}[{position}]", unknown)
                if item is not None
                else _null_item(node)
                for position, item in members
            ]
        except WrongTypeError as error:
            for position, item in members:
                _decode_rest(items, item, f"{path}[{position}]", error)
            raise

    return convert


def _null_item(node: Schema | None) -> Any:
    if node is None:
        return None
    special = _ZEROS.get(node.ref.rpartition(".")[2])
    if special is not None:
        return special[0]
    return _copy(zero(node.ref)) if node.ref and node.properties else _plain_zero(node)


def _map(schema: Schema, values: Convert | None = None) -> Convert:
    """Return the converter of a map; ``values`` replaces the converter of its values."""
    node = schema.additional
    if values is None:
        values = _convert_of(node) if node is not None else _any_value
    convert_value = values

    def convert(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise WrongTypeError(value, _go_type(schema), path)
        members = iter(value.items())
        try:
            return {
                name: convert_value(item, f"{path}.{name}", unknown)
                if item is not None
                else _null_item(node)
                for name, item in members
            }
        except WrongTypeError as error:
            for name, item in members:
                _decode_rest(convert_value, item, f"{path}.{name}", error)
            raise

    return convert


def _any_value(value: Any, path: str, unknown: list[str]) -> Any:
    return value


def _string(value: Any, path: str, unknown: list[str]) -> Any:
    if not isinstance(value, str):
        raise WrongTypeError(value, "string", path)
    return value


def _bytes(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, list):  # Go decodes it as the numbers of the bytes
        return base64.b64encode(bytes([_byte(each, path) for each in value])).decode()
    if not isinstance(value, str):
        raise WrongTypeError(value, "[]uint8", path)
    try:
        return base64.b64encode(
            base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
        ).decode()
    except (binascii.Error, ValueError):
        message = f"illegal base64 data at input byte {_bad_base64(value)}"
        raise DecodeError(message, path) from None


def _byte(value: Any, path: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 256:
        raise WrongTypeError(value, "uint8", path)
    return value


def _bad_base64(text: str) -> int:
    """Return the offset at which Go's decoder reports the error."""
    count = 0
    for position, character in enumerate(text):
        if character in "\r\n":
            continue
        if character == "=":
            rest = text[position + 1 :].lstrip("\r\n")
            if count % 4 < 2 or (count % 4 == 2 and rest[:1] not in ("", "=")):
                return position
            expected = 1 if count % 4 == 2 else 0
            return len(text) if len(rest) < expected else position + 1 + expected
        if not (character.isascii() and (character.isalnum() or character in "+/")):
            return position
        count += 1
    return len(text) - count % 4


def _integer(limit: int, kind: str) -> Convert:
    def convert(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise WrongTypeError(value, kind, path)
        return value

    return convert


def _number(value: Any, path: str, unknown: list[str]) -> Any:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise WrongTypeError(value, "float64", path)
    return value


def _boolean(value: Any, path: str, unknown: list[str]) -> Any:
    if not isinstance(value, bool):
        raise WrongTypeError(value, "bool", path)
    return value


def _quantity(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        value = ""  # not a quantity either
    try:
        text = value.strip() if isinstance(value, str) else repr(value)
        return canonical(text)
    except QuantityError as error:
        raise DecodeError(str(error), path) from None


def _is_resource_list(node: Schema) -> bool:
    return node.additional is not None and node.additional.ref.endswith(".Quantity")


def _resource_quantity(value: Any, path: str, unknown: list[str]) -> Any:
    """Convert a quantity of a resource list, whose default is that it has no fraction of a thousandth."""
    return rounded_to_milli(_quantity(value, path, unknown))


def _int_or_string(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, str):
        return value
    try:
        return _integer(2**31, "int32")(value, path, unknown)
    except WrongTypeError as error:
        error.end()
        raise


def _parse_time(value: Any, path: str, layout: str) -> str:
    """Return a time in UTC, with microseconds in the layout that has them. Raises :class:`DecodeError`."""
    if not isinstance(value, str):
        error = WrongTypeError(value, "string", path)
        error.end()
        raise error
    match = _RFC3339.fullmatch(value)
    if match is not None:
        year, rest, fraction, zone = match.groups()
        if layout != MICRO or len(fraction or "") == _MICRO_DIGITS:
            offset = "+00:00" if zone == "Z" else zone
            digits = f".{fraction[1:]}" if layout == MICRO else ""
            with suppress(ValueError):
                if year == "0000":  # a year of Go, but not of Python
                    moment = datetime.fromisoformat(f"{_CALENDAR_YEARS:04}{rest}{offset}")
                    text = format_time(moment.astimezone(UTC), digits)
                    return f"{int(text[:4]) - _CALENDAR_YEARS:04}{text[4:]}"
                moment = datetime.fromisoformat(year + rest + offset)
                return format_time(moment.astimezone(UTC), digits)
    problem = time_problem(value, layout)
    raise DecodeError(problem or f'parsing time "{value}" as "{layout}": cannot parse', path)


def _time(value: Any, path: str, unknown: list[str]) -> Any:
    return _parse_time(value, path, RFC3339)


def _micro_time(value: Any, path: str, unknown: list[str]) -> Any:
    return _parse_time(value, path, MICRO)


_SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def _schema_or(rest: Callable[[Any, str], Any]) -> Convert:
    """Convert a schema of a CRD, or anything else with ``rest``. Unknown fields of such a schema are not reported."""

    def convert(value: Any, path: str, unknown: list[str]) -> Any:
        try:
            if isinstance(value, dict):
                return _converter(_SCHEMA)(value, path, [])
            return rest(value, path)
        except WrongTypeError as error:
            error.end()
            raise

    return convert


def _bool_only(value: Any, path: str) -> Any:
    if not isinstance(value, bool):
        raise DecodeError("boolean or JSON schema expected", path)
    return value


def _schemas(value: Any, path: str) -> Any:
    if not isinstance(value, list):
        return None
    convert = _converter(_SCHEMA)
    return [convert(each, f"{path}[{position}]", []) for position, each in enumerate(value)]


def _strings(value: Any, path: str) -> Any:
    if not isinstance(value, list):
        return None
    return [_string(each, f"{path}[{position}]", []) for position, each in enumerate(value)]


_SPECIAL: dict[str, Convert] = {
    "JSONSchemaPropsOrArray": _schema_or(_schemas),
    "JSONSchemaPropsOrBool": _schema_or(_bool_only),
    "JSONSchemaPropsOrStringArray": _schema_or(_strings),
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "RawExtension": _any_value,
    "FieldsV1": _any_value,
    "JSON": _any_value,
}
"""The converters of types that have a JSON form different from their Go struct."""

_ZEROS: dict[str, tuple[Any]] = {
    "Time": (None,),
    "MicroTime": (None,),
    "Quantity": ("0",),
    "IntOrString": (0,),
    "RawExtension": (None,),
    "FieldsV1": (None,),
}
