"""``x-kubernetes-validations``: the CEL rules of custom resources.

:func:`compile_rules` returns the check of a schema's rules on an object; :func:`prepare_rule` compiles one rule and
reports its errors when a CRD is written. Semantics and messages follow apiextensions' ``schema/cel``: rules that use
``oldSelf`` run only when there is an old value, and errors of unchanged values are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from envtest.apimachinery.field_errors import (
    OMIT,
    FieldError,
    duplicate,
    forbidden,
    go_json,
    go_quote,
    invalid,
    required,
)
from envtest.schema.cel import (
    Budget,
    BudgetError,
    CELCompileError,
    CELError,
    CELProgramError,
    CELType,
    Program,
    check_syntax,
    compile_expression,
)
from envtest.schema.cel_cost import estimate_cost
from envtest.schema.cel_errors import without_escapes
from envtest.schema.cel_literals import check_literals
from envtest.schema.cel_macros import COST_EXCEEDED
from envtest.schema.cel_sizes import Sized
from envtest.schema.cel_types import RESERVED_WORDS, check_types, escape_keywords
from envtest.schema.cel_values import Adapter, Unreadable, adapter
from envtest.schema.schema_node import Schema

__all__ = ["Rules", "compile_rules", "has_rules", "prepare_rule"]


class Rules(Protocol):
    """The check of an object against the old one (``None`` on creation); ``has_old`` is true when there is one.

    Errors of unchanged values are only passed to ``warn``.
    """

    def __call__(
        self, value: Any, old: Any, has_old: bool, warn: Callable[[str], None] = ...
    ) -> list[FieldError]:
        """Return the errors."""


_SCALARS: dict[str, CELType] = {
    "boolean": "bool",
    "integer": "int",
    "number": "double",
    "string": "string",
}
_MAX_MESSAGE_BYTES = 5 * 1024
_OBJECT_BUDGET = 10_000_000
"""What the evaluation of all rules on one object may cost."""

_STOPPED = "no further validation rules will be run"
_NO_BUDGET = f"validation failed due to running out of cost budget, {_STOPPED}"
_NO_MESSAGE_BUDGET = (
    f"messageExpression evaluation failed due to running out of cost budget, {_STOPPED}"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule, or its compile errors."""

    raw: Mapping[str, Any]
    program: Program | None = None
    message: Program | None = None
    uses_old: bool = False
    error: str = ""
    message_error: str = ""
    path: str = ""
    cost: int = 0
    """The estimated cost of the expression, if it was asked for."""

    message_cost: int = 0

    @property
    def text(self) -> str:
        """The message of the rule in errors."""
        return (self.raw.get("message") or self.raw.get("rule") or "").strip()

    @property
    def optional_old(self) -> bool:
        """Whether ``oldSelf`` is an optional value, so that the rule also runs on creation."""
        return bool(self.raw.get("optionalOldSelf"))


def has_rules(raw: Any) -> bool:
    """Report whether any part of a schema has rules; reads the JSON form without creating nodes."""
    if not isinstance(raw, Mapping):
        return False
    if raw.get("x-kubernetes-validations"):
        return True
    if any(has_rules(inner) for inner in (raw.get("properties") or {}).values()):
        return True
    if any(has_rules(inner) for inner in raw.get("allOf") or ()):
        return True
    return has_rules(raw.get("items")) or has_rules(raw.get("additionalProperties"))


def _ignore(_: str) -> None:
    """Drop a warning."""


def compile_rules(schema: Schema, *, resource_root: bool = True) -> Rules | None:
    """Return the check of a schema's rules; ``None`` when it has none."""
    if not has_rules(schema.raw):
        return None
    check = _node(schema, schema.raw, resource_root)

    def rules(
        value: Any, old: Any, has_old: bool, warn: Callable[[str], None] = _ignore
    ) -> list[FieldError]:
        findings = _Findings(Budget(_OBJECT_BUDGET), [], warn)
        # Without a budget, the rest of the object is not checked.
        with suppress(_StoppedError):
            check(value, old, _Correlation(has_old and value == old, has_old), "", findings)
        return findings.errors

    return rules


class _MessageError(Exception):
    """Raised if the message of a rule costs too much; no further rules are evaluated."""


class _StoppedError(Exception):
    """Raised if no further rules of an object are evaluated; the reason is in the errors."""


@dataclass(frozen=True, slots=True)
class _Findings:
    """The errors of an object's rules, what receives those in unchanged values, and what remains of their budget."""

    budget: Budget
    errors: list[FieldError]
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Correlation:
    """The relation of a value to the old object.

    ``correlated`` is true when it has an old value. ``unchanged`` compares it with its old value, or compares the
    nearest ancestor that has one.
    """

    unchanged: bool
    correlated: bool


_Check: TypeAlias = Callable[[Any, Any, _Correlation, str, _Findings], None]


def _node(schema: Schema, raw: Mapping[str, Any], root: bool) -> _Check:
    """Return the check of a node: the rules in ``raw`` (the node or an ``allOf`` branch), then its children."""
    own = [
        prepare_rule(rule, schema, resource_root=root)
        for rule in raw.get("x-kubernetes-validations") or ()
    ]
    adapt = adapter(schema) if own else None
    kind = schema.type
    branches = [
        _node(schema, branch, root) for branch in raw.get("allOf") or () if has_rules(branch)
    ]
    fields = {
        name: inner
        for name, inner in (raw.get("properties") or {}).items()
        if name in schema.properties and has_rules(inner)
    }
    additional = raw.get("additionalProperties")
    entries = additional if has_rules(additional) and schema.additional is not None else None
    items = raw.get("items") if has_rules(raw.get("items")) and schema.items is not None else None
    children: dict[str, _Check] = {}

    def inner(key: str, node: Schema | None, content: Mapping[str, Any]) -> _Check:
        check = children.get(key)
        if check is None:
            check = _node(node or schema, content, bool(node and node.embedded))
            children[key] = check
        return check

    def check(
        value: Any, old: Any, correlation: _Correlation, path: str, findings: _Findings
    ) -> None:
        if value is None:
            return
        if own:
            _run(own, value, old, adapt, kind, correlation.unchanged, path, findings)
        for branch in branches:
            branch(value, old, _Correlation(False, correlation.correlated), path, findings)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for name, item in value.items():
                if name in fields:
                    item_path = f"{path}.{name}" if path else name
                    step = _step(correlation, before, name, item, root=path == "")
                    inner(name, schema.properties[name], fields[name])(
                        item, before.get(name), step, item_path, findings
                    )
                elif entries is not None:
                    step = _step(correlation, before, name, item, root=False)
                    inner("*", schema.additional, entries)(
                        item, before.get(name), step, f"{path}[{name}]", findings
                    )
        elif isinstance(value, list) and items is not None:
            matches = _old_items(schema, old)
            for position, item in enumerate(value):
                match = matches.get(_key(schema, item))
                step = (
                    _Correlation(item == match, True)
                    if match is not None
                    else _Correlation(correlation.unchanged, False)
                )
                inner("[]", schema.items, items)(item, match, step, f"{path}[{position}]", findings)

    return check


def _step(
    correlation: _Correlation, before: Mapping[str, Any], name: str, item: Any, *, root: bool
) -> _Correlation:
    if root and name in ("apiVersion", "kind"):
        return _Correlation(False, False)
    if correlation.correlated and name in before:
        return _Correlation(item == before[name], True)
    return _Correlation(correlation.unchanged, False)


def _old_items(schema: Schema, old: Any) -> dict[str, Any]:
    if schema.list_type != "map" or not isinstance(old, list):
        return {}
    return {_key(schema, item): item for item in old}


def _key(schema: Schema, item: Any) -> str:
    return (
        go_json([item.get(key) for key in schema.list_map_keys]) if isinstance(item, dict) else ""
    )


def _run(
    rules: list[Rule],
    value: Any,
    old: Any,
    adapt: Adapter | None,
    kind: str,
    unchanged: bool,
    path: str,
    findings: _Findings,
) -> None:
    field = path or "<nil>"
    errors = findings.errors
    budget = findings.budget
    if budget.remaining == 0:
        errors.append(invalid(field, kind, _NO_BUDGET))
        raise _StoppedError
    variables: dict[str, Any] = {"self": adapt(value) if adapt else value}
    before = adapt(old) if adapt and old is not None else old
    for rule in rules:
        if rule.error:
            errors.append(invalid(field, kind, f"rule compile error: {rule.error}"))
            continue
        if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
            continue
        used = [variables["self"], before] if rule.uses_old else [variables["self"]]
        unreadable = next((each for each in used if isinstance(each, Unreadable)), None)
        if unreadable is not None:
            detail = f"{unreadable.error} evaluating rule: {rule.text}"
            errors.append(invalid(field, kind, detail))
            continue
        inputs = dict(variables)
        if rule.uses_old and rule.optional_old:
            inputs["has__"] = old is not None
            # kube-apiserver does not convert an old object or list that is optional.
            inputs["old__"] = old if isinstance(old, (dict, list)) else before
        elif rule.uses_old:
            inputs["oldSelf"] = before
        try:
            holds = rule.program.evaluate(inputs, budget)
        except BudgetError:
            errors.append(invalid(field, kind, _NO_BUDGET))
            raise _StoppedError from None
        except CELError as error:
            text = str(error)
            if text.startswith("no such overload"):
                detail = (
                    f"'{text}': call arguments did not match a supported operator, function or macro signature for "
                    f"rule: {rule.text}"
                )
            elif text.startswith(COST_EXCEEDED):
                why = f"{_STOPPED} due to call cost exceeds limit"
                errors.append(invalid(field, kind, f"'{text}': {why} for rule: {rule.text}"))
                raise _StoppedError from None
            else:
                detail = f"{text} evaluating rule: {rule.text}"
            errors.append(invalid(field, kind, detail))
            continue
        if holds is True:
            continue
        rule_field = field
        if rule.path:
            rule_field = f"{path}{rule.path}" if path else rule.path.removeprefix(".")
        bad_value = OMIT if kind in ("object", "array") else value
        try:
            message = _message(rule, inputs, budget)
        except _MessageError as error:
            errors.append(invalid(rule_field, kind, str(error)))
            raise _StoppedError from None
        failure = _failure(rule, rule_field, bad_value, message)
        if unchanged and not rule.uses_old:
            findings.warn(str(failure))
        else:
            errors.append(failure)


def _message(rule: Rule, variables: Mapping[str, Any], budget: Budget) -> str:
    """Return the message of a failed rule. Raises _MessageError if the expression for it costs too much."""
    fallback = (rule.raw.get("message") or "").strip() or f"failed rule: {rule.text}"
    if rule.message is None:
        return fallback
    try:
        text = rule.message.evaluate(variables, budget)
    except BudgetError:
        raise _MessageError(_NO_MESSAGE_BUDGET) from None
    except CELError as error:
        if str(error) == COST_EXCEEDED:
            source = go_quote(rule.raw["messageExpression"])
            why = f"{_STOPPED} due to call cost exceeds limit for messageExpression: {source}"
            raise _MessageError(why) from None
        return fallback
    text = text.strip() if isinstance(text, str) else ""
    if not text or "\n" in text or len(text.encode()) > _MAX_MESSAGE_BYTES:
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


def prepare_rule(
    raw: Mapping[str, Any], schema: Schema, *, resource_root: bool, sized: Sized | None = None
) -> Rule:
    """Compile a rule of a node; the result has its errors in ``error`` and ``message_error``.

    With the type of the node in ``sized``, the costs of the expressions are estimated too.
    """
    source = (raw.get("rule") or "").strip()
    if not source:
        return Rule(raw)
    optional = bool(raw.get("optionalOldSelf"))
    node = _Node(schema, optional, resource_root, sized)
    program, error, cost = _compile(source, node, "bool")
    message = None
    message_error = ""
    message_cost = 0
    expression = (raw.get("messageExpression") or "").strip()
    if expression and not error:
        message, message_error, message_cost = _compile(expression, node, "string")
    uses_old = _uses_old(source, schema) or _uses_old(expression, schema)
    path = _field_path(raw.get("fieldPath") or "")
    return Rule(
        raw=raw,
        program=program,
        message=message,
        uses_old=uses_old,
        error=error,
        message_error=message_error,
        path=path,
        cost=cost,
        message_cost=message_cost,
    )


def _uses_old(source: str, schema: Schema) -> bool:
    """Report whether an expression needs ``oldSelf``, that is, does not compile without it."""
    if "oldSelf" not in source:
        return False
    try:
        compile_expression(escape_keywords(source), {"self": _kind(schema)})
    except CELCompileError:
        return True
    return False


_KIND_ERRORS = {
    "bool": "cel expression must evaluate to a bool",
    "string": "messageExpression must evaluate to a string",
}


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a schema, as the expressions of one rule see it."""

    schema: Schema
    has_optional_old: bool
    is_resource: bool
    sized: Sized | None


def _compile(source: str, node: _Node, expected: CELType) -> tuple[Program | None, str, int]:
    """Return the program, the error and the estimated cost of an expression.

    Types are checked against the schema, values are evaluated without it.
    """
    schema = node.schema
    given = source
    source = escape_keywords(given)
    kind = _kind(schema)
    schemas = {"self": schema}
    others = {}
    variables: dict[str, CELType] = {"self": kind}
    if node.has_optional_old:
        schemas["old__"] = schema
        others["has__"] = "bool"
        variables |= {"has__": "bool", "old__": kind}
        text = f"cel.bind(oldSelf, has__ ? optional.of(old__) : optional.none(), {source})"
    else:
        schemas["oldSelf"] = schema
        variables["oldSelf"] = kind
        text = source
    try:
        check_syntax(given)
        if node.has_optional_old and "bind" in source:
            # kube-apiserver does not have the macro that is used here; without it, a rule cannot use it either.
            unbound = {"oldSelf": "dyn"}
            check_types(source, {"self": schema}, unbound, resource_root=node.is_resource)
        checked = check_types(
            text,
            schemas,
            others,
            resource_root=node.is_resource,
            bindings=node.has_optional_old,
        )
        check_literals(checked, text, dynamic_matches=True)
        program = compile_expression(text, variables, bindings=node.has_optional_old)
    except CELProgramError as error:
        return None, f"program instantiation failed: {error}", 0
    except CELCompileError as error:
        return None, f"compilation failed: {_as_written(str(error), given, source)}", 0
    if checked.kind not in (expected, "dyn"):
        return None, _KIND_ERRORS[expected], 0
    cost = 0
    if node.sized is not None:
        escaped = frozenset(f"__{word}__" for word in RESERVED_WORDS) if source != given else ()
        unsized = frozenset(word for word in escaped if word not in given)
        cost = estimate_cost(checked, node.sized, unsized=unsized, is_bound=node.has_optional_old)
    return program, "", cost


def _as_written(problem: str, given: str, escaped: str) -> str:
    """Return a compile error about an expression with escaped fields as one about the expression that was given."""
    if given == escaped or any(f"__{word}__" in given for word in RESERVED_WORDS):
        return problem
    return without_escapes(problem, RESERVED_WORDS)


def _field_path(path: str) -> str:
    """Return a path such as ``.spec['a.b']`` in the form of field errors: ``.spec.a.b``."""
    return path.strip().replace("['", ".").replace("']", "")


def _kind(schema: Schema, *, nested: bool = False) -> CELType:
    """Return the static type of a node's value; the types of nested times, durations and bytes are dynamic."""
    if schema.int_or_string or schema.is_schemaless:
        return "dyn"
    if schema.type == "string" and schema.format in ("date-time", "date", "duration", "byte"):
        return (
            "dyn"
            if nested
            else {"duration": "duration", "byte": "bytes"}.get(schema.format, "timestamp")
        )
    if schema.type == "array":
        return (
            f"list({_kind(schema.items, nested=True)})" if schema.items is not None else "list(dyn)"
        )
    if schema.type == "object":
        if schema.additional is not None and not schema.properties:
            return f"map(string, {_kind(schema.additional, nested=True)})"
        return "map(string, dyn)"
    kind = _SCALARS.get(schema.type, "dyn")
    return "dyn" if schema.nullable and nested else kind
