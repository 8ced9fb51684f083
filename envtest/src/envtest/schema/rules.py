"""``x-kubernetes-validations``: CEL rules of custom resources.

:func:`compile_rules` gives what a schema's rules say of an object; :func:`rule_problems` what is wrong with a rule
itself when a definition is written. Semantics and words are those of apiextensions' ``schema/cel``: rules that use
``oldSelf`` run only where there is an old value to compare with, and errors of unchanged values are let pass.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from envtest.field_errors import OMIT, FieldError, duplicate, forbidden, go_json, invalid, required
from envtest.schema.cel import CELCompileError, CELError, Kind, Program, compile_expression
from envtest.schema.cel_types import check_types, escape
from envtest.schema.formats import parse_duration
from envtest.schema.node import Schema
from envtest.schema.validation import json_type

__all__ = ["Rules", "compile_rules", "has_rules", "prepare_rule"]

Rules: TypeAlias = Callable[[Any, Any, bool], list[FieldError]]
"""Checks an object against an old one (``None`` on creation); the flag says whether there is an old one."""

Adapter: TypeAlias = Callable[[Any], Any]

_SCALARS: dict[str, Kind] = {"boolean": "bool", "integer": "int", "number": "double", "string": "string"}
_LONGEST_MESSAGE = 5 * 1024


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule, or why it cannot be."""

    raw: Mapping[str, Any]
    program: Program | None = None
    message: Program | None = None
    uses_old: bool = False
    error: str = ""
    message_error: str = ""
    path: str = ""

    @property
    def text(self) -> str:
        """How errors name the rule."""
        return (self.raw.get("message") or self.raw.get("rule") or "").strip()

    @property
    def optional_old(self) -> bool:
        """Whether ``oldSelf`` is an optional value, so that the rule also runs on creation."""
        return bool(self.raw.get("optionalOldSelf"))


def has_rules(raw: Any) -> bool:
    """Whether a schema or anything below it has rules; reads the JSON form, makes no nodes."""
    if not isinstance(raw, Mapping):
        return False
    if raw.get("x-kubernetes-validations"):
        return True
    if any(has_rules(inner) for inner in (raw.get("properties") or {}).values()):
        return True
    if any(has_rules(inner) for inner in raw.get("allOf") or ()):
        return True
    return has_rules(raw.get("items")) or has_rules(raw.get("additionalProperties"))


def compile_rules(schema: Schema, *, resource_root: bool = True) -> Rules | None:
    """The rules of a schema; ``None`` where it has none."""
    if not has_rules(schema.raw):
        return None
    check = _node(schema, schema.raw, resource_root)

    def rules(value: Any, old: Any, has_old: bool) -> list[FieldError]:
        errors: list[FieldError] = []
        check(value, old, _Standing(has_old and value == old, has_old), "", errors)
        return errors

    return rules


@dataclass(frozen=True, slots=True)
class _Standing:
    """Whether a value is what it was: ``same`` is about itself or the nearest ancestor that has a counterpart."""

    same: bool
    correlated: bool


_Check: TypeAlias = Callable[[Any, Any, _Standing, str, list[FieldError]], None]


def _node(schema: Schema, raw: Mapping[str, Any], root: bool) -> _Check:
    """The check of a node: its rules (those of ``raw``, which may be an ``allOf`` branch), then what is below."""
    own = [prepare_rule(rule, schema, resource_root=root) for rule in raw.get("x-kubernetes-validations") or ()]
    adapt = _adapter(schema) if own else None
    kind = schema.type
    branches = [_node(schema, branch, root) for branch in raw.get("allOf") or () if has_rules(branch)]
    fields = {
        name: inner
        for name, inner in (raw.get("properties") or {}).items()
        if name in schema.properties and has_rules(inner)
    }
    additional = raw.get("additionalProperties")
    entries = additional if has_rules(additional) and schema.additional is not None else None
    items = raw.get("items") if has_rules(raw.get("items")) and schema.items is not None else None
    below: dict[str, _Check] = {}

    def inner(key: str, node: Schema | None, content: Mapping[str, Any]) -> _Check:
        check = below.get(key)
        if check is None:
            check = below[key] = _node(node or schema, content, bool(node and node.embedded))
        return check

    def check(value: Any, old: Any, standing: _Standing, path: str, errors: list[FieldError]) -> None:
        if value is None:
            return
        if own:
            _run(own, value, old, adapt, kind, standing.same, path, errors)
        for branch in branches:
            branch(value, old, _Standing(False, standing.correlated), path, errors)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for name, item in value.items():
                if name in fields:
                    below_path = f"{path}.{name}" if path else name
                    step = _step(standing, before, name, item, root=path == "")
                    inner(name, schema.properties[name], fields[name])(item, before.get(name), step, below_path, errors)
                elif entries is not None:
                    step = _step(standing, before, name, item, root=False)
                    inner("*", schema.additional, entries)(item, before.get(name), step, f"{path}[{name}]", errors)
        elif isinstance(value, list) and items is not None:
            matches = _counterparts(schema, old)
            for position, item in enumerate(value):
                match = matches.get(_key(schema, item))
                step = _Standing(item == match, True) if match is not None else _Standing(standing.same, False)
                inner("[]", schema.items, items)(item, match, step, f"{path}[{position}]", errors)

    return check


def _step(standing: _Standing, before: Mapping[str, Any], name: str, item: Any, *, root: bool) -> _Standing:
    if root and name in ("apiVersion", "kind"):
        return _Standing(False, False)
    if standing.correlated and name in before:
        return _Standing(item == before[name], True)
    return _Standing(standing.same, False)


def _counterparts(schema: Schema, old: Any) -> dict[str, Any]:
    if schema.list_type != "map" or not isinstance(old, list):
        return {}
    return {_key(schema, item): item for item in old}


def _key(schema: Schema, item: Any) -> str:
    return go_json([item.get(key) for key in schema.list_map_keys]) if isinstance(item, dict) else ""


def _run(
    rules: list[Rule],
    value: Any,
    old: Any,
    adapt: Adapter | None,
    kind: str,
    same: bool,
    path: str,
    errors: list[FieldError],
) -> None:
    where = path or "<nil>"
    variables: dict[str, Any] = {"self": adapt(value) if adapt else value}
    before = adapt(old) if adapt and old is not None else old
    for rule in rules:
        if rule.error:
            errors.append(invalid(where, kind, f"rule compile error: {rule.error}"))
            continue
        if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
            continue
        given = dict(variables)
        if rule.uses_old:
            given |= {"has__": old is not None, "old__": before} if rule.optional_old else {"oldSelf": before}
        try:
            holds = rule.program.evaluate(given)
        except CELError as error:
            text = str(error)
            if text.startswith("no such overload"):
                detail = (
                    f"'{text}': call arguments did not match a supported operator, function or macro signature for "
                    f"rule: {rule.text}"
                )
            else:
                detail = f"{text} evaluating rule: {rule.text}"
            errors.append(invalid(where, kind, detail))
            continue
        if holds is True or (same and not rule.uses_old):
            continue
        place = (f"{path}{rule.path}" if path else rule.path.removeprefix(".")) if rule.path else where
        shown = OMIT if kind in ("object", "array") else value
        errors.append(_failure(rule, place, shown, _message(rule, given)))


def _message(rule: Rule, variables: Mapping[str, Any]) -> str:
    fallback = (rule.raw.get("message") or "").strip() or f"failed rule: {rule.text}"
    if rule.message is None:
        return fallback
    try:
        text = rule.message.evaluate(variables)
    except CELError:
        return fallback
    text = text.strip() if isinstance(text, str) else ""
    if not text or "\n" in text or len(text.encode()) > _LONGEST_MESSAGE:
        return fallback
    return text


def _failure(rule: Rule, path: str, value: Any, detail: str) -> FieldError:
    match rule.raw.get("reason"):
        case "FieldValueForbidden":
            return forbidden(path, detail)
        case "FieldValueRequired":
            return required(path, detail)
        case "FieldValueDuplicate":
            return duplicate(path, value)._replace(detail="")
        case _:
            return invalid(path, value, detail)


def prepare_rule(raw: Mapping[str, Any], schema: Schema, *, resource_root: bool) -> Rule:
    """Compiles a rule of a node; what is wrong with it stands in ``error`` and ``message_error``."""
    source = (raw.get("rule") or "").strip()
    if not source:
        return Rule(raw)
    optional = bool(raw.get("optionalOldSelf"))
    program, error = _compiled(source, schema, optional, resource_root, "bool")
    message, message_error = None, ""
    expression = (raw.get("messageExpression") or "").strip()
    if expression and not error:
        message, message_error = _compiled(expression, schema, optional, resource_root, "string")
    uses_old = _uses_old(source, schema) or _uses_old(expression, schema)
    path = _normal_path(raw.get("fieldPath") or "")
    return Rule(raw, None if error else program, message, uses_old, error, message_error, path)


def _uses_old(source: str, schema: Schema) -> bool:
    """Whether an expression needs ``oldSelf``: one that does not compiles without it."""
    if "oldSelf" not in source:
        return False
    try:
        compile_expression(source, {"self": _kind(schema)})
    except CELCompileError:
        return True
    return False


_WRONG_KIND = {
    "bool": "cel expression must evaluate to a bool",
    "string": "messageExpression must evaluate to a string",
}


def _compiled(source: str, schema: Schema, optional: bool, root: bool, wanted: Kind) -> tuple[Program | None, str]:
    """The program, or what is wrong with it; types are checked with the schema, values are evaluated without."""
    kind, schemas, others = _kind(schema), {"self": schema}, {}
    variables: dict[str, Kind] = {"self": kind}
    if optional:
        schemas["old__"], others["has__"] = schema, "bool"
        variables |= {"has__": "bool", "old__": kind}
        text = f"cel.bind(oldSelf, has__ ? optional.of(old__) : optional.none(), {source})"
    else:
        schemas["oldSelf"] = schema
        variables["oldSelf"] = kind
        text = source
    try:
        found = check_types(text, schemas, others, resource_root=root)
        program = compile_expression(text, variables)
    except CELCompileError as error:
        return None, f"compilation failed: {error}"
    return (program, "") if found in (wanted, "dyn") else (None, _WRONG_KIND[wanted])


def _normal_path(path: str) -> str:
    """``.spec['a.b']`` as field errors write it: ``.spec.a.b``."""
    return path.strip().replace("['", ".").replace("']", "")


def _kind(schema: Schema, *, nested: bool = False) -> Kind:
    """The static type of a node's value; moments inside of other values are what JSON has, of no static type."""
    if schema.int_or_string or schema.is_schemaless:
        return "dyn"
    if schema.type == "string" and schema.format in ("date-time", "date", "duration", "byte"):
        return "dyn" if nested else {"duration": "duration", "byte": "bytes"}.get(schema.format, "timestamp")
    if schema.type == "array":
        return f"list({_kind(schema.items, nested=True)})" if schema.items is not None else "list(dyn)"
    if schema.type == "object":
        if schema.additional is not None and not schema.properties:
            return f"map(string, {_kind(schema.additional, nested=True)})"
        return "map(string, dyn)"
    kind = _SCALARS.get(schema.type, "dyn")
    return "dyn" if schema.nullable and nested else kind


def _adapter(schema: Schema, *, nested: bool = False) -> Adapter | None:
    """What makes a node's JSON value fit its static type; ``None`` where it does already."""
    if schema.type == "number":
        return lambda value: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if schema.type == "string" and not nested:
        return _moment_adapter(schema.format)
    if schema.type == "array" and schema.items is not None:
        item = _adapter(schema.items, nested=True)
        return (
            None
            if item is None
            else lambda value: [item(each) for each in value] if json_type(value) == "array" else value
        )
    if schema.type == "object":
        return _object_adapter(schema)
    return None


def _object_adapter(schema: Schema) -> Adapter | None:
    if schema.additional is not None and not schema.properties:
        entry = _adapter(schema.additional, nested=True)
        if entry is None:
            return None
        return lambda value: {name: entry(item) for name, item in value.items()} if isinstance(value, dict) else value
    parts = {name: _adapter(node, nested=True) for name, node in schema.properties.items()}
    names = {name: escape(name) for name in parts}
    if not any(parts.values()) and all(name == escaped for name, escaped in names.items()):
        return None

    def adapt(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        out = {}
        for name, item in value.items():
            part = parts.get(name)
            out[names.get(name) or name] = part(item) if part and item is not None else item
        return out

    return adapt


def _moment_adapter(format_name: str) -> Adapter | None:
    """What makes a text a value of its format; a text that is none stays one, for expressions to fail on."""
    read = _READERS.get(format_name)
    if read is None:
        return None

    def adapt(value: Any) -> Any:
        try:
            return read(value)
        except (ValueError, TypeError):
            return value

    return adapt


def _moment(value: str) -> datetime:
    parsed = datetime.fromisoformat(value)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _span(value: str) -> timedelta:
    return timedelta(microseconds=(parse_duration(value) or 0) / 1000)


_READERS: dict[str, Callable[[Any], Any]] = {
    "date": _moment,
    "date-time": _moment,
    "duration": _span,
    "byte": partial(base64.b64decode, validate=True),
}
