"""Validates CRD schemas: the OpenAPI v3 subset that Kubernetes allows, and the rules of structural schemas.

The rules and messages follow apiextensions' ``ValidateStructural``, ``ValidateDefaults`` and
``ValidateCustomResourceDefinitionOpenAPISchema``. All functions work on the JSON form and yield errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    forbidden,
    go_json,
    invalid,
    key,
    not_supported,
    not_supported_string,
    required,
)
from envtest.crd.embedded_resources import embedded_resource_errors, embedded_resources
from envtest.crd.list_types import list_and_map_type_errors
from envtest.crd.rule_costs import RuleCosts, child_occurrences, rule_cost
from envtest.schema.cel_rules import compile_rules, prepare_rule
from envtest.schema.cel_sizes import SizedSchemas
from envtest.schema.patterns import PatternError, compile_pattern
from envtest.schema.schema_node import Schema
from envtest.schema.shaping import compile_pruner, copy_json
from envtest.schema.validation import compile_validator, validate

__all__ = ["field_at", "schema_errors"]
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_IDENTITY = ("apiVersion", "kind")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_AT_ROOT_WITH_STATUS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_WITH_STATUS = "at the root of the schema if the status subresource is enabled"
_GO_NAMES = {
    "externalDocs": "ExternalDocs",
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}
_PATH_PART = re.compile(r"[.\[]")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_NOT_IN_BRANCHES = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)


def schema_errors(
    raw: Mapping[str, Any], path: str, *, has_status: bool, is_unchanged: bool = False
) -> list[FieldError]:
    """Return all errors of a version's schema at ``path``.

    ``is_unchanged`` is whether the stored CRD has the same schema; its rules can then exceed the limit of their cost.
    """
    errors: list[FieldError] = []
    if has_status:
        errors += _root_with_status(raw, path)
    if raw.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    is_convertible = not _has_unsupported(raw)
    structural = sorted(_structure(raw, path, "root"), key=str) if is_convertible else []
    is_structural = is_convertible and not structural
    defaults = list(_default_errors(raw, raw, path, root=True)) if is_structural else []
    errors += structural + defaults
    costs = RuleCosts(is_unchanged=is_unchanged)
    checker = _OpenAPI(costs, with_rules=is_structural and not defaults)
    checker.visit(raw, path, root=True)
    return [*errors, *checker.errors, *checker.rule_errors, *costs.total_errors(path)]


def _has_unsupported(raw: Mapping[str, Any]) -> bool:
    """Return whether the schema has words without a place in a structural schema, so that it is not checked as one."""
    if any(raw.get(word) for word in _UNSUPPORTED) or isinstance(raw.get("items"), list):
        return True
    inner = [*(raw.get("properties") or {}).values(), raw.get("items"), raw.get("not")]
    inner.append(raw.get("additionalProperties"))
    for word in ("allOf", "anyOf", "oneOf"):
        inner += raw.get(word) or ()
    return any(_has_unsupported(each) for each in inner if isinstance(each, Mapping))


def _root_with_status(raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    allowed = _AT_ROOT_WITH_STATUS.split()
    for word, value in raw.items():
        if word == "type":
            if value != "object":
                text = f'only "object" is allowed as the type {_WITH_STATUS}'
                yield invalid(f"{path}.type", value, text)
                return
        elif value and _GO_NAMES.get(word, word[0].upper() + word[1:]) not in allowed:
            text = f"only [{' '.join(allowed)}] fields are allowed {_WITH_STATUS}"
            yield invalid(path, Verbatim(go_json(raw)), text)
            return


def _structure(raw: Mapping[str, Any], path: str, level: str) -> Iterator[FieldError]:
    """Yield the violations of the structural schema rules at this node and below."""
    kind = raw.get("type") or ""
    items = raw.get("items")
    properties = raw.get("properties") or {}
    additional = raw.get("additionalProperties")
    embedded = bool(raw.get("x-kubernetes-embedded-resource"))
    preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
    int_or_string = bool(raw.get("x-kubernetes-int-or-string"))
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        yield from _structure(items, f"{path}.items", "item")
    for name, inner in properties.items():
        yield from _structure(inner, key(f"{path}.properties", name), "field")
    if additional is not None and additional is not False:
        if level == "root":
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(additional, Mapping):
            yield from _structure(additional, f"{path}.additionalProperties", "field")
    if int_or_string and preserve:
        text = "must be false if x-kubernetes-int-or-string is true"
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", True, text)
    if int_or_string and embedded:
        text = "must be false if x-kubernetes-int-or-string is true"
        yield invalid(f"{path}.x-kubernetes-embedded-resource", True, text)
    skip_any = raw.get("anyOf") == _INT_OR_STRING
    all_of: Sequence[Mapping[str, Any]] = raw.get("allOf") or ()
    skip_all = bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING
    yield from _branches(raw, path, skip_any=skip_any, skip_all=skip_all)
    yield from _type_rules(
        raw, path, level, kind, embedded=embedded, untyped=int_or_string or preserve
    )
    if embedded and additional is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        yield forbidden(f"{path}.additionalProperties", text)
    if level == "root" or embedded:
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type") != "string":
                field_path = key(f"{path}.properties", name)
                yield invalid(
                    f"{field_path}.type", properties[name].get("type") or "", "must be string"
                )
    if "metadata" in properties:
        field_path = key(f"{path}.properties", "metadata")
        yield from _metadata(
            properties["metadata"], field_path, level, check=level == "root" or embedded
        )
    if embedded and not preserve and not properties:
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", text)


def _type_rules(
    raw: Mapping[str, Any], path: str, level: str, kind: str, *, embedded: bool, untyped: bool
) -> Iterator[FieldError]:
    if embedded and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield required(f"{path}.type", text) if not kind else invalid(f"{path}.type", kind, text)
    elif not kind and not untyped:
        location = {
            "root": "at the root",
            "item": "for specified array items",
            "field": "for specified object fields",
        }
        yield required(f"{path}.type", f"must not be empty {location[level]}")
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")


def _metadata(
    raw: Mapping[str, Any], path: str, level: str, *, check: bool
) -> Iterator[FieldError]:
    if check and raw.get("type") != "object":
        yield invalid(f"{path}.type", raw.get("type") or "", "must be object")
    if level != "root":
        return
    rest = {word for word, value in raw.items() if value not in (None, {}, [], "", False)} - {
        "type",
        "default",
    }
    if set(raw.get("properties") or ()) <= {"name", "generateName"}:
        rest -= {"properties"}
    if rest:
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(path, text)


def _branches(
    raw: Mapping[str, Any], path: str, *, skip_any: bool, skip_all: bool
) -> Iterator[FieldError]:
    for word in ("anyOf", "allOf", "oneOf"):
        if word == "anyOf" and skip_any:
            continue
        for position, branch in enumerate(raw.get(word) or ()):
            skip = skip_all and word == "allOf" and position == 0
            yield from _branch(branch, f"{path}.{word}[{position}]", skip_any=skip)
    if raw.get("not") is not None:
        yield from _branch(raw["not"], f"{path}.not")
    if raw.get("pattern"):
        try:
            compile_pattern(raw["pattern"])
        except PatternError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            yield invalid(f"{path}.pattern", raw["pattern"], text)


def _branch(raw: Mapping[str, Any], path: str, *, skip_any: bool = False) -> Iterator[FieldError]:
    """Yield the errors of a schema below ``anyOf``, ``allOf``, ``oneOf`` or ``not``, which may only restrict values."""
    yield from _branches(raw, path, skip_any=skip_any, skip_all=False)
    if isinstance(raw.get("items"), Mapping):
        yield from _branch(raw["items"], f"{path}.items")
    for name, inner in (raw.get("properties") or {}).items():
        yield from _branch(inner, key(f"{path}.properties", name))
    for word, text in _NOT_IN_BRANCHES:
        if raw.get(word) not in (None, "", False, [], ()):
            yield forbidden(f"{path}.{word}", text)
    if "metadata" in (raw.get("properties") or {}):
        yield forbidden(
            key(f"{path}.properties", "metadata"), "must not be specified in a nested context"
        )


def _default_errors(
    raw: Mapping[str, Any], root_schema: Mapping[str, Any], path: str, *, root: bool = False
) -> Iterator[FieldError]:
    """Yield errors for defaults that the schema itself rejects."""
    if raw.get("default") is not None:
        yield from _one_default(raw, f"{path}.default", root=root)
    for name, inner in (raw.get("properties") or {}).items():
        if root and name == "metadata":
            continue
        yield from _default_errors(inner, root_schema, key(f"{path}.properties", name))
    if isinstance(raw.get("items"), Mapping):
        yield from _default_errors(raw["items"], root_schema, f"{path}.items")
    if isinstance(raw.get("additionalProperties"), Mapping):
        yield from _default_errors(
            raw["additionalProperties"], root_schema, f"{path}.additionalProperties"
        )


def _one_default(raw: Mapping[str, Any], path: str, *, root: bool) -> Iterator[FieldError]:
    """Yield the errors of a default; that of the root must have an apiVersion and a kind."""
    default = raw["default"]
    schema = Schema(raw)
    pruned = copy_json(default)
    unknown: list[str] = []
    compile_pruner(schema, resource_root=root)(pruned, "", unknown)
    if unknown:
        yield invalid(path, default, "must not have unknown fields")
    errors = [
        error
        for embedded_path, embedded in embedded_resources(schema, default, path)
        for error in embedded_resource_errors(embedded, embedded_path)
    ]
    if root and isinstance(default, dict):
        identity = {name: default[name] for name in _IDENTITY if name in default}
        errors += embedded_resource_errors(identity, path)
    errors = errors or validate(compile_validator(schema), default, prefix=path)
    rules = compile_rules(schema, resource_root=False)
    if not errors and rules is not None:
        errors = [
            error._replace(field=path if error.field in ("", "<nil>") else f"{path}.{error.field}")
            for error in rules(default, None, False)
        ]
    yield from errors


class _OpenAPI:
    """Checks each node of a schema; errors of rules are collected separately, because they are reported last."""

    def __init__(self, costs: RuleCosts, *, with_rules: bool) -> None:
        self.errors: list[FieldError] = []
        self.rule_errors: list[FieldError] = []
        self._costs = costs
        self._sizes = SizedSchemas()
        self._with_rules = with_rules

    def visit(
        self,
        raw: Mapping[str, Any],
        path: str,
        *,
        root: bool = False,
        no_defaults: str = "",
        inside_meta: bool = False,
        no_old: str = "",
        rules: bool = True,
        occurrences: int | None = 1,
    ) -> None:
        """Check a node and all nodes below.

        ``no_old`` is the path below which old values cannot be correlated; ``occurrences`` is how many values of the
        node an object can have, ``None`` without a limit.
        """
        before = len(self.errors)
        inner_occurrences = child_occurrences(raw, occurrences)
        self._node(raw, path, no_defaults, inside_meta=inside_meta)
        embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        additional = raw.get("additionalProperties")
        properties = raw.get("properties") or {}
        if additional is not None and properties and additional is not True:
            text = "additionalProperties and properties are mutual exclusive"
            self.errors.append(forbidden(f"{path}.additionalProperties", text))
        if isinstance(additional, Mapping):
            why = (
                "inside additionalProperties applying to object metadata"
                if inside_meta
                else no_defaults
            )
            self.visit(
                additional,
                f"{path}.additionalProperties",
                no_defaults=why,
                no_old=no_old,
                rules=rules,
                occurrences=inner_occurrences,
            )
        for name, inner in properties.items():
            is_meta = (root or embedded) and name in ("metadata", "kind", "apiVersion")
            self.visit(
                inner,
                key(f"{path}.properties", name),
                no_defaults=f"in top-level {name}" if is_meta and root else no_defaults,
                inside_meta=is_meta or inside_meta,
                no_old=no_old,
                rules=rules,
                occurrences=inner_occurrences,
            )
        for word in ("allOf", "oneOf", "anyOf"):
            for position, branch in enumerate(raw.get(word) or ()):
                self.visit(branch, f"{path}.{word}[{position}]", rules=False)
        if raw.get("not") is not None:
            self.visit(raw["not"], f"{path}.not", rules=False)
        if isinstance(raw.get("items"), Mapping):
            lost = no_old or ("" if raw.get("x-kubernetes-list-type") == "map" else path)
            self.visit(
                raw["items"],
                f"{path}.items",
                inside_meta=inside_meta,
                no_old=lost,
                rules=rules,
                occurrences=inner_occurrences,
            )
        self.errors += list_and_map_type_errors(raw, path)
        clean = len(self.errors) == before
        self._rules(
            raw,
            path,
            root=root or embedded,
            no_old=no_old,
            compile_them=clean and rules and self._with_rules,
            occurrences=occurrences,
        )

    def _node(
        self, raw: Mapping[str, Any], path: str, no_defaults: str, *, inside_meta: bool
    ) -> None:
        kind = raw.get("type") or ""
        if kind == "null":
            text = "type cannot be set to null, use nullable as an alternative"
            self.errors.append(not_supported_string(f"{path}.type", kind, _TYPES))
            self.errors.append(forbidden(f"{path}.type", text))
        elif kind and kind not in _TYPES:
            self.errors.append(not_supported_string(f"{path}.type", kind, _TYPES))
        if raw.get("default") is not None and no_defaults:
            self.errors.append(forbidden(f"{path}.default", f"must not be set {no_defaults}"))
        for word in _UNSUPPORTED:
            if raw.get(word):
                self.errors.append(forbidden(f"{path}.{word}", f"{word} is not supported"))
        if isinstance(raw.get("items"), list) and raw["items"]:
            self.errors.append(
                forbidden(f"{path}.items", "items must be a schema object and not an array")
            )
        if inside_meta and raw.get("x-kubernetes-embedded-resource"):
            text = "must not be used inside of resource meta"
            self.errors.append(forbidden(f"{path}.x-kubernetes-embedded-resource", text))
        if raw.get("uniqueItems"):
            text = (
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            )
            self.errors.append(forbidden(f"{path}.uniqueItems", text))
        if raw.get("x-kubernetes-preserve-unknown-fields") is False:
            field_path = f"{path}.x-kubernetes-preserve-unknown-fields"
            self.errors.append(invalid(field_path, False, "must be true or undefined"))

    def _rules(
        self,
        raw: Mapping[str, Any],
        path: str,
        *,
        root: bool,
        no_old: str,
        compile_them: bool,
        occurrences: int | None,
    ) -> None:
        rules: Sequence[Mapping[str, Any]] = raw.get("x-kubernetes-validations") or ()
        schema = Schema(raw)
        for position, rule in enumerate(rules):
            field_path = f"{path}.x-kubernetes-validations[{position}]"
            found = list(_rule_text_errors(rule, schema, field_path))
            self.errors += found
            compile_them = compile_them and not found
        if not compile_them or not rules:
            return
        sized = self._sizes.of(raw, is_resource=root)
        if occurrences is None:
            occurrences = 0 if sized is None else sized.max_occurrences
        for position, rule in enumerate(rules):
            field_path = f"{path}.x-kubernetes-validations[{position}]"
            compiled = prepare_rule(rule, schema, resource_root=root, sized=sized)
            shown = _internal_rule(rule)
            cost = rule_cost(compiled.cost, occurrences)
            self.rule_errors += self._costs.add("rule", f"{field_path}.rule", cost)
            if compiled.error:
                self.rule_errors.append(invalid(f"{field_path}.rule", shown, compiled.error))
            if compiled.message_error:
                text = compiled.message_error.replace(
                    "compilation failed", "messageExpression compilation failed"
                )
                text = text.replace("program instantiation", "messageExpression instantiation")
                self.rule_errors.append(invalid(f"{field_path}.messageExpression", shown, text))
            elif compiled.message is not None:
                self.rule_errors += self._costs.add(
                    "messageExpression", f"{field_path}.messageExpression", compiled.message_cost
                )
            if compiled.uses_old and no_old:
                text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {no_old}"
                self.rule_errors.append(invalid(f"{field_path}.rule", rule.get("rule"), text))
            elif (
                not compiled.uses_old
                and not compiled.error
                and rule.get("optionalOldSelf") is not None
            ):
                text = "may not be set if oldSelf is not used in rule"
                self.rule_errors.append(
                    invalid(f"{field_path}.optionalOldSelf", rule["optionalOldSelf"], text)
                )


def _internal_rule(rule: Mapping[str, Any]) -> Verbatim:
    """Return a rule as Go prints its internal type."""
    names = (
        ("Rule", "rule", ""),
        ("Message", "message", ""),
        ("MessageExpression", "messageExpression", ""),
    )
    rest = (
        ("Reason", "reason", None),
        ("FieldPath", "fieldPath", ""),
        ("OptionalOldSelf", "optionalOldSelf", None),
    )
    return Verbatim(
        "{"
        + ",".join(f'"{go}":{go_json(rule.get(name, zero))}' for go, name, zero in names + rest)
        + "}"
    )


def _rule_text_errors(rule: Mapping[str, Any], schema: Schema, path: str) -> Iterator[FieldError]:
    source = rule.get("rule") or ""
    message = rule.get("message") or ""
    expression = rule.get("messageExpression") or ""
    field = rule.get("fieldPath") or ""
    if not source.strip():
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    elif ("\n" in source.strip() or "\r" in source.strip()) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if expression and not expression.strip():
        yield required(
            f"{path}.messageExpression", "messageExpression must be non-empty if specified"
        )
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        yield not_supported(f"{path}.reason", rule["reason"], _REASONS)
    if field and not field.strip():
        yield invalid(f"{path}.fieldPath", field, "must be non-empty if specified")
    if "\n" in field or "\r" in field:
        yield invalid(f"{path}.fieldPath", field, "must not contain line breaks")
    if field and isinstance(field_at(schema, field), str):
        yield invalid(f"{path}.fieldPath", field, "must be a valid path")


def field_at(schema: Schema, path: str, *, arrays: bool = True) -> Schema | str:
    """Return the node at a simple JSON path (``.spec['a.b'].c``), or the error in the path."""
    node: Schema | None = schema
    rest = path
    while rest:
        if rest.startswith("."):
            end = next((i for i, c in enumerate(rest[1:], 1) if c in ".[]"), len(rest))
            name = rest[1:end]
            rest = rest[end:]
            if not name and not rest:
                return "unexpected end of JSON path"
        elif rest.startswith("["):
            if not arrays:
                return "array notation is not allowed"
            end = rest.find("']")
            if not rest.startswith("['") or end < 0:
                return f"expected single quoted string but got {rest[1:].split(']')[0]}"
            name = rest[2:end]
            rest = rest[end + 2 :]
        else:
            return f"expected [ or . but got: {_PATH_PART.split(rest, maxsplit=1)[0]}"
        if node is None or not (node.properties or node.additional is not None):
            return "does not refer to a valid field"
        node = node.properties.get(name) if node.properties else node.additional
        if node is None:
            return "does not refer to a valid field"
    return node or "does not refer to a valid field"
