"""Validation of custom resources against their schema, with the messages of kube-openapi's validator.

Each node is compiled to one closure when an object first contains it. Errors name the field relative to the validated
value; :func:`validate` adds a prefix. On updates an error is ignored when the value that has it is unchanged
(ratcheting, KEP-4008).

Quirks of kube-openapi's validator are reproduced: a composite error (``oneOf`` ...) has no field and shows as
``<nil>``, the value in the error for a short list is its length, and the error for a number outside the range of its
format contains no value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from envtest.apimachinery.field_errors import (
    FieldError,
    go_json,
    go_quote,
    invalid,
    not_supported_string,
    required,
    too_long,
    too_many,
    type_invalid,
)
from envtest.formats.go_integers import as_int64, is_int64
from envtest.schema.formats import format_check
from envtest.schema.patterns import PatternError, compile_pattern
from envtest.schema.schema_node import Schema

__all__ = ["Check", "Problem", "compile_validator", "json_type", "validate"]


class Problem(NamedTuple):
    """An error, and the path of the value that has it (a missing field is one level below)."""

    node: str
    error: FieldError


Check: TypeAlias = Callable[[Any, str, list[Problem]], None]
"""Checks a value at a path; appends its errors to the list."""

_NO_FIELD = "<nil>"
_INTEGER_FORMATS = frozenset({"int32", "int64"})
_NUMBER_FORMATS = frozenset({"float", "double"})
_VALUE_FORMAT = {"integer": "int64", "number": "float64"}
_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "float": (-3.4028235677973366e38, 3.4028235677973366e38),  # what is rounded to a float32
}


def validate(
    check: Check, value: Any, *, prefix: str = "", schema: Schema | None = None, old: Any = None
) -> list[FieldError]:
    """Return the errors of ``value``, with ``prefix`` before the fields.

    With ``schema`` and ``old``, errors of unchanged values are left out.
    """
    problems: list[Problem] = []
    check(value, "", problems)
    if not problems:
        return []
    if old is not None and schema is not None:
        unchanged = list(_unchanged(schema, value, old, "", root=True))
        problems = [problem for problem in problems if not _is_inside(problem.node, unchanged)]
    return [_with_prefix(problem.error, prefix) for problem in problems]


def _with_prefix(error: FieldError, prefix: str) -> FieldError:
    if error.field in ("", _NO_FIELD):
        return error._replace(field=prefix or _NO_FIELD)
    return error._replace(field=f"{prefix}.{error.field}") if prefix else error


def json_type(value: Any) -> str:
    """Return the JSON type of a value, with the name that schemas use."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "null"


def compile_validator(schema: Schema) -> Check:
    """Return the check of a node and everything below it."""
    types: tuple[str, ...] = ()
    if schema.int_or_string:
        types = ("integer", "string")
    elif schema.type:
        types = (schema.type,)
    kinds = frozenset(types)
    type_names = ",".join(types)
    format_name = _supported_format(schema, types)
    enum = schema.enum
    nullable = schema.nullable
    composite = _composite(schema.raw)
    string_format = format_name if "string" in kinds or not kinds else ""
    text = _string_check(schema.raw, string_format)
    number = _number_check(schema.raw, types, format_name)
    listing = _list_check(schema)
    mapping = _map_check(schema)

    def check(value: Any, path: str, problems: list[Problem]) -> None:
        if value is None:
            if kinds and not nullable:
                problems.append(Problem(path, _wrong_type(path, type_names, "null")))
            if enum:
                problems.append(Problem(path, not_supported_string(path, None, _enum_values(enum))))
            return
        kind = json_type(value)
        if kind not in kinds and (kinds or format_name):
            _check_type(value, kind, path, problems)
        if composite is not None:
            composite(value, path, problems)
        if kind == "string":
            if text is not None:
                text(value, path, problems)
        elif kind == "object":
            mapping(value, path, problems)
        elif kind == "array":
            listing(value, path, problems)
        elif kind != "boolean" and number is not None:
            number(value, path, problems)
        if enum and not any(_equals_item(value, item) for item in enum):
            problems.append(Problem(path, not_supported_string(path, value, _enum_values(enum))))

    def _check_type(value: Any, kind: str, path: str, problems: list[Problem]) -> None:
        whole = kind == "number" and float(value).is_integer() and abs(value) <= _MAX_WHOLE_FLOAT
        if (whole and "integer" in kinds) or (kind == "integer" and "number" in kinds):
            return
        if format_name and kind not in ("string", "array"):
            if _VALUE_FORMAT.get(kind) != format_name:
                problems.append(
                    Problem(path, _wrong_type(path, format_name, _VALUE_FORMAT.get(kind, "")))
                )
            return
        if format_name and not kinds & {"number", "integer"}:
            return
        if kinds:
            problems.append(Problem(path, _wrong_type(path, type_names, kind)))

    return check


def _equals_item(value: Any, item: Any) -> bool:
    """Return whether a value equals an item of an enum, as kube-openapi compares them.

    It converts the value to the type of the item first: 1.5 equals 1, and 65, which is a character, equals "A".
    """
    if isinstance(value, bool) or isinstance(item, bool):
        return value is item
    if isinstance(value, float) and isinstance(item, int):
        return _truncated(value) == item
    if isinstance(value, int) and isinstance(item, float):
        return float(value) == item
    if isinstance(value, int) and isinstance(item, str):
        return _character(value) == item
    return bool(value == item)


def _truncated(value: float) -> int:
    return int(value) if is_int64(value) else -(2**63)


def _character(number: int) -> str:
    is_valid = 0 <= number <= sys.maxunicode and not 0xD800 <= number <= 0xDFFF
    return chr(number) if is_valid else "\ufffd"


_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_MAX_WHOLE_FLOAT = 2**53 - 1
"""The largest float that is an integer for kube-apiserver."""
_TOLERANCE = 1e-9


def _supported_format(schema: Schema, types: Sequence[str]) -> str:
    """Return the format if kube-apiserver checks it for this type, else an empty string."""
    kind = types[0] if len(types) == 1 else ""
    if kind == "integer":
        return schema.format if schema.format in _INTEGER_FORMATS else ""
    if kind == "number":
        return schema.format if schema.format in _NUMBER_FORMATS else ""
    if kind in ("", "string"):
        return schema.format if format_check(schema.format) is not None else ""
    return ""


def _wrong_type(path: str, expected: str, actual: str) -> FieldError:
    return type_invalid(path, actual, f'{path} in body must be of type {expected}: "{actual}"')


def _enum_values(enum: Sequence[Any]) -> list[str]:
    return [item if isinstance(item, str) else go_json(item) for item in enum]


def _string_check(raw: Mapping[str, Any], format_name: str) -> Check | None:
    max_length = raw.get("maxLength")
    min_length = raw.get("minLength")
    pattern = raw.get("pattern")
    has_format = format_check(format_name) if format_name else None
    if max_length is None and min_length is None and not pattern and has_format is None:
        return None
    try:
        matches = compile_pattern(pattern) if pattern else None
    except PatternError:
        matches = None

    def check(value: str, path: str, problems: list[Problem]) -> None:
        if max_length is not None and len(value) > max_length:
            problems.append(Problem(path, too_long(path, value, max_length)))
        elif min_length is not None and len(value) < min_length:
            detail = f"{path} in body should be at least {min_length} chars long"
            problems.append(Problem(path, invalid(path, value, detail)))
        elif matches is not None and not matches(value):
            problems.append(
                Problem(path, invalid(path, value, f"{path} in body should match '{pattern}'"))
            )
        if has_format is not None and not has_format(value):
            detail = f"{path} in body must be of type {format_name}: {go_quote(value)}"
            problems.append(Problem(path, type_invalid(path, value, detail)))

    return check


def _number_check(raw: Mapping[str, Any], types: Sequence[str], format_name: str) -> Check | None:
    kind = types[0] if len(types) == 1 else ""
    is_integer = kind == "integer"
    bounds = _RANGES.get(format_name or ("int64" if is_integer else ""))
    type_name = f"{kind} with format {format_name}" if format_name else f"{kind} (default format)"
    factor = raw.get("multipleOf")
    maximum = raw.get("maximum")
    minimum = raw.get("minimum")
    exclusive_minimum = bool(raw.get("exclusiveMinimum"))
    exclusive_maximum = bool(raw.get("exclusiveMaximum"))
    if bounds is None and factor is None and maximum is None and minimum is None:
        return None

    def fits(value: float, prefix: str, path: str, problems: list[Problem]) -> bool:
        """Return whether the schema's type has a value or a bound; append the error of one that it does not have."""
        if bounds is None:
            return True
        if bounds[0] <= value <= bounds[1] and (not is_integer or _is_int64(value)):
            return True
        detail = f"{prefix} value must be of type {type_name} in {path}"
        problems.append(Problem(path, FieldError("FieldValueInvalid", _NO_FIELD, "", detail)))
        return False

    def comparable(
        value: float, bound: float, prefix: str, path: str, problems: list[Problem]
    ) -> tuple[float, float]:
        """Return a value and a bound, which is a float in Go, as Go compares them: both as integers, or as floats."""
        bound = float(bound)
        if fits(bound, prefix, path, problems):
            return (value, _truncated(bound)) if isinstance(value, int) else (value, bound)
        return float(value), bound

    def check(value: float, path: str, problems: list[Problem]) -> None:
        fits(value, "Checked", path, problems)
        if factor is not None:
            number, limit = comparable(value, factor, "MultipleOf", path, problems)
            _check_multiple(number, limit, path, problems)
        if maximum is not None:
            number, limit = comparable(value, maximum, "Maximum boundary", path, problems)
            if number > limit or (exclusive_maximum and number == limit):
                relation = "less than" if exclusive_maximum else "less than or equal to"
                detail = f"{path} in body should be {relation} {_format_number(limit)}"
                problems.append(Problem(path, invalid(path, number, detail)))
        if minimum is not None:
            number, limit = comparable(value, minimum, "Minimum boundary", path, problems)
            if number < limit or (exclusive_minimum and number == limit):
                relation = "greater than" if exclusive_minimum else "greater than or equal to"
                detail = f"{path} in body should be {relation} {_format_number(limit)}"
                problems.append(Problem(path, invalid(path, number, detail)))

    return check


def _is_int64(value: float) -> bool:
    return is_int64(value) if isinstance(value, int) else as_int64(value) is not None


def _check_multiple(value: float, factor: float, path: str, problems: list[Problem]) -> None:
    if factor <= 0:
        detail = f"factor MultipleOf declared for {path} must be positive: {_format_number(factor)}"
        problems.append(Problem(path, invalid(path, factor, detail)))
    elif not _is_multiple(value, factor):
        detail = f"{path} in body should be a multiple of {_format_number(factor)}"
        problems.append(Problem(path, invalid(path, value, detail)))


def _is_multiple(value: float, factor: float) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    ratio = 1 / factor * value if factor < 1 else value / factor
    if not abs(ratio) <= _MAX_WHOLE_FLOAT:  # or not a number
        return False
    whole = round(ratio)
    return ratio == whole or (whole != 0 and abs(ratio - whole) < _TOLERANCE * abs(ratio + whole))


def _format_number(number: float) -> str:
    """Format a bound like Go's ``%v``."""
    return FieldError("", "", number).body[2:]


def _list_check(schema: Schema) -> Check:
    minimum = schema.raw.get("minItems")
    maximum = schema.raw.get("maxItems")
    items: list[Check | None] = []

    def check(value: list[Any], path: str, problems: list[Problem]) -> None:
        if not items:
            item_check = compile_validator(schema.items) if schema.items is not None else None
            items.append(item_check)
        inner = items[0]
        if inner is not None:
            for position, item in enumerate(value):
                inner(item, f"{path}[{position}]", problems)
        size = len(value)
        if minimum is not None and size < minimum:
            detail = f"{path} in body should have at least {minimum} items"
            problems.append(Problem(path, invalid(path, size, detail)))
        if maximum is not None and size > maximum:
            problems.append(Problem(path, too_many(path, size, maximum)))

    return check


def _map_check(schema: Schema) -> Check:
    minimum = schema.raw.get("minProperties")
    maximum = schema.raw.get("maxProperties")
    required_names = schema.required
    properties = schema.properties
    children: dict[str, Check] = {}

    def check(value: dict[str, Any], path: str, problems: list[Problem]) -> None:
        prefix = f"{path}." if path else ""
        for name, item in value.items():
            inner = children.get(name)
            if inner is None:
                if name in properties:
                    inner = compile_validator(properties[name])
                    children[name] = inner
                elif schema.additional is not None:
                    inner = children.get("") or children.setdefault(
                        "", compile_validator(schema.additional)
                    )
                else:
                    continue
            inner(item, prefix + name, problems)
        problems += [
            Problem(path, required(prefix + name)) for name in required_names if name not in value
        ]
        if minimum is not None and len(value) < minimum:
            detail = f"{path} in body should have at least {minimum} properties"
            problems.append(Problem(path, invalid(path, len(value), detail)))
        if maximum is not None and len(value) > maximum:
            problems.append(Problem(path, too_many(path, len(value), maximum)))

    return check


def _composite(raw: Mapping[str, Any]) -> Check | None:
    """Return the check of ``anyOf``, ``oneOf``, ``allOf`` and ``not``."""
    any_of = _alternatives(raw.get("anyOf"))
    one_of = _alternatives(raw.get("oneOf"))
    all_of = _alternatives(raw.get("allOf"))
    excluded = [raw["not"]] if raw.get("not") is not None else None
    negated = _alternatives(excluded)
    # these values are valid, so the alternatives are not checked
    valid_types: Container[type] = (int, str) if raw.get("anyOf") == _INT_OR_STRING else ()
    if not (any_of or one_of or all_of or negated):
        return None

    def check(value: Any, path: str, problems: list[Problem]) -> None:
        if any_of and type(value) not in valid_types:
            failures = _failures(any_of, value, path)
            if all(failures):
                problems.append(_composite_error(path, "must validate at least one schema (anyOf)"))
                problems.extend(_best_match(any_of, failures, value))
        if one_of:
            failures = _failures(one_of, value, path)
            valid = sum(1 for failed in failures if not failed)
            if valid != 1:
                found = f"Found {valid} valid alternatives" if valid else "Found none valid"
                problems.append(
                    _composite_error(
                        path, f"must validate one and only one schema (oneOf). {found}"
                    )
                )
                if not valid:
                    problems.extend(_best_match(one_of, failures, value))
        if all_of:
            failures = _failures(all_of, value, path)
            for failed in failures:
                problems.extend(failed)
            if any(failures):
                none = "" if not all(failures) else ". None validated"
                problems.append(
                    _composite_error(path, f"must validate all the schemas (allOf){none}")
                )
        if negated and not _failures(negated, value, path)[0]:
            problems.append(_composite_error(path, "must not validate the schema (not)"))

    return check


Alternatives: TypeAlias = list[tuple[Schema, Check]]


def _alternatives(raw: Sequence[Mapping[str, Any]] | None) -> Alternatives:
    schemas = [Schema(each) for each in raw or ()]
    return [(schema, compile_validator(schema)) for schema in schemas]


def _failures(alternatives: Alternatives, value: Any, path: str) -> list[list[Problem]]:
    found: list[list[Problem]] = []
    for _, check in alternatives:
        problems: list[Problem] = []
        check(value, path, problems)
        found.append(problems)
    return found


def _best_match(
    alternatives: Alternatives, failures: list[list[Problem]], value: Any
) -> list[Problem]:
    """Return the errors of the alternative with the most applicable checks, which the user most likely intended."""
    scores = [_weight(schema, value) for schema, _ in alternatives]
    return failures[scores.index(max(scores))]


def _weight(schema: Schema, value: Any) -> int:
    """Count the checks of a schema that apply to a value."""
    weight = 4 + (2 if schema.type or schema.format else 0)
    if isinstance(value, dict):
        weight += 1
        for name, item in value.items():
            if name in schema.properties:
                weight += _weight(schema.properties[name], item)
            elif schema.additional is not None:
                weight += _weight(schema.additional, item)
    elif isinstance(value, list):
        weight += 2
        if schema.items is not None:
            weight += sum(_weight(schema.items, item) for item in value)
    elif isinstance(value, str):
        weight += 1
    elif not isinstance(value, bool) and value is not None:
        weight += 2
    return weight


def _composite_error(path: str, text: str) -> Problem:
    return Problem(path, FieldError("FieldValueInvalid", _NO_FIELD, "", f'"{path}" {text}'))


def _unchanged(
    schema: Schema, value: Any, old: Any, path: str, *, root: bool = False
) -> Iterator[str]:
    """Yield the paths of unchanged values, outermost only."""
    if value == old and type(value) is type(old):
        yield path
    elif isinstance(value, dict) and isinstance(old, dict):
        for name, item in value.items():
            if name not in old or (root and name in ("apiVersion", "kind")):
                continue
            node = schema.field(name)
            if node is not None:
                below = f"{path}.{name}" if path else name
                yield from _unchanged(node, item, old[name], below)
    elif (
        isinstance(value, list)
        and isinstance(old, list)
        and schema.list_type == "map"
        and schema.items is not None
    ):
        keys = schema.list_map_keys
        before = {_key(item, keys): item for item in old}
        for position, item in enumerate(value):
            match = before.get(_key(item, keys))
            if match is not None:
                yield from _unchanged(schema.items, item, match, f"{path}[{position}]")


def _key(item: Any, keys: Sequence[str]) -> str:
    return go_json([item.get(key) for key in keys]) if isinstance(item, dict) else ""


def _is_inside(path: str, unchanged: Sequence[str]) -> bool:
    return any(
        path == each or each == "" or path.startswith((f"{each}.", f"{each}["))
        for each in unchanged
    )
