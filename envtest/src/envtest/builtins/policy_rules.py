"""Validation of admission policies and their bindings: what they match, their parameters and expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.builtins.admission_rules import CONDITION_VARIABLES, expression_errors, rule_errors
from envtest.builtins.string_validation import label_selector_errors
from envtest.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from envtest.metadata import dns_1035_label, dns_subdomain, path_segment, qualified_name

__all__ = [
    "match_resources_errors",
    "param_kind_errors",
    "param_ref_errors",
    "policy_variables",
    "validation_errors",
    "variable_errors",
]

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED: Final = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_LITERAL: Final = re.compile(r"""[rR]?(?:\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_VARIABLE: Final = re.compile(r"(?<![\w.])variables\s*\.\s*([A-Za-z_]\w*)")
_MAX_ANNOTATIONS: Final = 20
_MAX_VALUE_EXPRESSION: Final = 5 * 1024


def policy_variables(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of the expressions of a policy; ``params`` only exists with a ``paramKind``."""
    names = ("namespaceObject", "variables", *(("params",) if spec.get("paramKind") is not None else ()))
    return {**CONDITION_VARIABLES, **dict.fromkeys(names, "dyn")}


def match_resources_errors(resources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of ``matchConstraints`` or ``matchResources``."""
    if resources.get("matchPolicy") not in ("Equivalent", "Exact"):
        yield not_supported(f"{path}.matchPolicy", resources.get("matchPolicy") or "", ("Equivalent", "Exact"))
    for name in ("namespaceSelector", "objectSelector"):
        yield from label_selector_errors(resources.get(name), f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for position, rule in enumerate(resources.get(name) or ()):
            rule_path = f"{path}.{name}[{position}]"
            names = rule.get("resourceNames") or ()
            seen: set[str] = set()
            for index, each in enumerate(names):
                for problem in path_segment(each):
                    yield invalid(f"{rule_path}.resourceNames[{index}]", each, problem)
                if each in seen:
                    yield duplicate(f"{rule_path}.resourceNames[{index}]", each)
                seen.add(each)
            yield from rule_errors(rule, rule_path)


def param_kind_errors(kind: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a reference to the kind of the parameters."""
    text = kind.get("apiVersion") or ""
    group, _, version = text.rpartition("/")
    if not text:
        yield required(f"{path}.apiVersion")
    elif "/" in group:
        yield invalid(f"{path}.apiVersion", text, f"unexpected GroupVersion string: {text}")
    else:
        if problems := dns_subdomain(group) if group else []:
            yield invalid(f"{path}.apiVersion", group, ",".join(problems))
        if not version:
            yield invalid(f"{path}.apiVersion", text, "version must be specified")
        elif problems := dns_1035_label(version):
            yield invalid(f"{path}.apiVersion", version, ",".join(problems))
    name = kind.get("kind") or ""
    if not name:
        yield required(f"{path}.kind")
    elif problems := dns_1035_label(name.lower()):
        text = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        yield invalid(f"{path}.kind", name, text)


def param_ref_errors(reference: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a binding's reference to parameters, by name or selector."""
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    for problem in path_segment(name) if name else ():
        yield invalid(f"{path}.name", name, problem)
    if name and selector is not None:
        yield forbidden(f"{path}.name", both)
        yield forbidden(f"{path}.selector", both)
    yield from label_selector_errors(selector, f"{path}.selector")
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction") or ""
    if not action:
        yield required(f"{path}.parameterNotFoundAction")
    elif action not in ("Deny", "Allow"):
        yield not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"))


def _policy_expression_errors(
    expression: str, path: str, variables: Mapping[str, str], declared: Sequence[str], kinds: Sequence[str] = ()
) -> Iterator[FieldError]:
    """Yield the errors of an expression that can use the variables ``declared`` by its policy."""
    for name in _VARIABLE.findall(_LITERAL.sub("''", expression)):
        if name not in declared:
            yield invalid(path, expression, f"compilation failed: undefined field '{name}'")
            return
    yield from expression_errors(expression, path, variables, kinds=kinds)


def variable_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of a policy's variables, each of which can use those before it."""
    declared: list[str] = []
    for position, variable in enumerate(spec.get("variables") or ()):
        path, name = f"spec.variables[{position}]", variable.get("name") or ""
        expression = variable.get("expression") or ""
        if not name.strip():
            yield required(f"{path}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
            yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
        if not expression.strip():
            yield required(f"{path}.expression", "expression is not specified")
        else:
            yield from _policy_expression_errors(expression, f"{path}.expression", policy_variables(spec), declared)
        declared.append(name)


def validation_errors(spec: Mapping[str, Any], policy: str) -> Iterator[FieldError]:
    """Yield the errors of the variables, validations and audit annotations of the ValidatingAdmissionPolicy."""
    validations, audits = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not audits:
        text = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", text)
        yield required("spec.auditAnnotations", text)
    yield from variable_errors(spec)
    variables = policy_variables(spec)
    declared = [each.get("name") or "" for each in spec.get("variables") or ()]
    for position, validation in enumerate(validations):
        yield from _validation_errors(validation, f"spec.validations[{position}]", variables, declared)
    if len(audits) > _MAX_ANNOTATIONS:
        yield invalid(
            "spec.auditAnnotations", list(audits), f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"
        )
    seen: set[str] = set()
    for position, audit in enumerate(audits):
        path, name = f"spec.auditAnnotations[{position}]", audit.get("key") or ""
        for problem in qualified_name(f"{policy}/{name}"):
            yield invalid(f"{path}.key", f"{policy}/{name}", problem)
        expression = audit.get("valueExpression") or ""
        if not expression.strip():
            yield required(f"{path}.valueExpression", "valueExpression is not specified")
        elif len(expression.strip()) > _MAX_VALUE_EXPRESSION:
            yield required(f"{path}.valueExpression", "must not exceed 5kb in length")
        else:
            field_path = f"{path}.valueExpression"
            yield from _policy_expression_errors(
                expression, field_path, variables, declared, kinds=("string", "null_type")
            )
        if name in seen:
            yield duplicate(f"{path}.key", name)
        seen.add(name)


def _validation_errors(
    validation: Mapping[str, Any], path: str, variables: Mapping[str, str], declared: Sequence[str]
) -> Iterator[FieldError]:
    expression = validation.get("expression") or ""
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from _policy_expression_errors(
            expression.strip(), f"{path}.expression", variables, declared, kinds=("bool",)
        )
    source = validation.get("messageExpression") or ""
    if source.strip():
        yield from _policy_expression_errors(
            source, f"{path}.messageExpression", variables, declared, kinds=("string",)
        )
    elif source:
        yield invalid(f"{path}.messageExpression", source, "must be non-empty if specified")
    message, reason = validation.get("message") or "", validation.get("reason")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)
