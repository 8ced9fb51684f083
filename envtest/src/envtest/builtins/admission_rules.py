"""Validation of what webhook configurations and admission policies share: rules, match conditions and expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.field_errors import FieldError, duplicate, invalid, not_supported, required, too_many
from envtest.metadata import qualified_name
from envtest.schema.cel import CELCompileError, compile_expression

__all__ = ["CONDITION_VARIABLES", "condition_errors", "expression_errors", "rule_errors"]

CONDITION_VARIABLES = {"object": "dyn", "oldObject": "dyn", "request": "dyn", "authorizer": "dyn"}
"""The variables of match conditions and their CEL types."""
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def rule_errors(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a rule, which selects requests by operation and resource."""
    for name in ("apiGroups", "apiVersions", "resources"):
        values = rule.get(name) or ()
        field_path = f"{path}.{name}"
        if not values:
            yield required(field_path)
        elif name == "resources":
            yield from _resource_errors(values, field_path)
        elif "*" in values and len(values) > 1:
            noun = "API groups" if name == "apiGroups" else "API versions"
            yield invalid(field_path, list(values), f"if '*' is present, must not specify other {noun}")
        if name == "apiVersions":
            for position, value in enumerate(values):
                if not value:
                    yield required(f"{field_path}[{position}]")
    scope = rule.get("scope")
    if scope is not None and scope not in ("*", "Cluster", "Namespaced"):
        yield not_supported(f"{path}.scope", scope, ("*", "Cluster", "Namespaced"))
    operations = rule.get("operations") or ()
    if not operations:
        yield required(f"{path}.operations")
    if "*" in operations and len(operations) > 1:
        text = "if '*' is present, must not specify other operations"
        yield invalid(f"{path}.operations", list(operations), text)
    for position, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{position}]", operation, _OPERATIONS)


def _resource_errors(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    has_wildcard, every_sub, every_resource = "*" in resources, set(), set()
    for position, each in enumerate(resources):
        field_path = f"{path}[{position}]"
        if not each:
            yield required(field_path)
        if each == "*/*" and len(resources) > 1:
            yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
        resource, slash, sub = each.partition("/")
        if not slash:
            continue
        if sub == "*":
            every_sub.add(resource)
        elif resource in every_sub:
            yield invalid(field_path, each, f"if '{resource}/*' is present, must not specify {each}")
        if resource == "*":
            every_resource.add(sub)
        elif sub in every_resource:
            yield invalid(field_path, each, f"if '*/{sub}' is present, must not specify {each}")
    plain = [each for each in resources if "/" not in each]
    if has_wildcard and plain[-1] != "*":  # kube-apiserver only considers the last one
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), text)


def condition_errors(
    conditions: Sequence[Mapping[str, Any]], path: str, variables: Mapping[str, str] = CONDITION_VARIABLES
) -> Iterator[FieldError]:
    """Yield the errors of match conditions."""
    if len(conditions) > 64:
        yield too_many(path, len(conditions), 64)
    names: set[str] = set()
    for position, condition in enumerate(conditions):
        field_path, name, expression = (
            f"{path}[{position}]",
            condition.get("name") or "",
            condition.get("expression") or "",
        )
        if not expression.strip():
            yield required(f"{field_path}.expression")
        else:
            yield from expression_errors(expression, f"{field_path}.expression", variables, kinds=("bool",))
        if not name:
            yield required(f"{field_path}.name")
        for problem in qualified_name(name) if name else ():
            yield invalid(f"{field_path}.name", name, problem)
        if name and name in names:
            yield duplicate(f"{field_path}.name", name)
        names.add(name)


def expression_errors(
    expression: str, path: str, variables: Mapping[str, str], *, kinds: Sequence[str] = ()
) -> Iterator[FieldError]:
    """Yield the errors of a CEL expression; ``kinds`` are the CEL types that its result can have, empty for any."""
    try:
        program = compile_expression(expression, variables)
    except CELCompileError as error:
        yield invalid(path, expression, f"compilation failed: {error}")
        return
    found = "null_type" if program.kind == "null" else program.kind
    if kinds and found not in (*kinds, "dyn"):
        wanted = kinds[0] if len(kinds) == 1 else f"one of [{' '.join(kinds)}]"
        yield invalid(path, expression, f"must evaluate to {wanted} but got {found}")
