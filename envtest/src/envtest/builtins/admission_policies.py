"""Strategies of ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings.

Follows ``pkg/apis/admissionregistration/validation`` of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import (
    dns_1035_label,
    dns_subdomain,
    path_segment,
    qualified_name,
)
from envtest.apimachinery.objects import Object
from envtest.apimachinery.repetition import repeated_positions
from envtest.builtins.admissionregistration import (
    compile_error,
    condition_errors,
    expression_errors,
    rule_errors,
)
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import condition_errors as status_condition_errors
from envtest.builtins.string_validation import label_selector_errors
from envtest.registry.resource import RequestContext
from envtest.schema.cel import CELCompileError, CELType
from envtest.schema.cel_types import RESERVED_WORDS

__all__ = ["PolicyBindingStrategy", "PolicyStrategy"]

_ACTIONS: Final = ("Audit", "Deny", "Warn")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MUTATED_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_PATCHES: Final[Mapping[str, tuple[str, CELType]]] = {
    "ApplyConfiguration": ("applyConfiguration", "Object"),
    "JSONPatch": ("jsonPatch", "list(JSONPatch)"),
}
"""The field with the expression for each patch type, and the type of its value."""

_MAX_AUDIT_ANNOTATIONS: Final = 20
_MAX_AUDIT_EXPRESSION: Final = 5 * 1024
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)


class PolicyStrategy(BuiltinStrategy):
    """Strategy of ValidatingAdmissionPolicy and MutatingAdmissionPolicy."""

    has_qualified_finalizers = False
    status_creates = True

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the failure policy ``Fail`` and the match policy ``Equivalent``."""
        spec = obj["spec"]
        spec.setdefault("failurePolicy", "Fail")
        _constraint_defaults(spec.get("matchConstraints"))

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the match constraints and expressions."""
        if ctx.subresource == "status":
            yield from _status_errors(obj.get("status") or {})
            return
        spec = obj["spec"]
        mutates = self.resource.kind.startswith("Mutating")
        if spec.get("failurePolicy") not in ("Fail", "Ignore"):
            yield not_supported(
                "spec.failurePolicy", spec.get("failurePolicy") or "", ("Fail", "Ignore")
            )
        has_params = spec.get("paramKind") is not None
        if has_params:
            yield from _param_kind_errors(spec["paramKind"], "spec.paramKind")
        yield from _constraint_errors(
            spec.get("matchConstraints"), "spec.matchConstraints", mutates=mutates
        )
        conditions = spec.get("matchConditions") or ()
        if old is None or _condition_inputs(old) != _condition_inputs(obj):
            yield from condition_errors(conditions, "spec.matchConditions", params=has_params)
        variables: dict[str, CELType] = {}
        for position, variable in enumerate(spec.get("variables") or ()):
            yield from _variable_errors(
                variable, f"spec.variables[{position}]", variables, params=has_params
            )
        # Without variables, also invalid ones, only expressions of mutating policies can name them.
        declared = variables if spec.get("variables") or mutates else None
        environment = {"params": has_params, "variables": declared}
        if mutates:
            yield from _mutations_errors(spec, environment)
        else:
            yield from _validations_errors(obj, spec, environment)


def _status_errors(status: Mapping[str, Any]) -> Iterator[FieldError]:
    for position, warning in enumerate(
        (status.get("typeChecking") or {}).get("expressionWarnings") or ()
    ):
        path = f"status.typeChecking.expressionWarnings[{position}]"
        if not warning.get("warning"):
            yield required(f"{path}.warning")
        if not (warning.get("fieldRef") or "").strip():
            yield required(f"{path}.fieldRef")
    yield from status_condition_errors(status.get("conditions") or (), "status.conditions")


def _condition_inputs(policy: Object) -> tuple[Any, Any]:
    return policy["spec"].get("matchConditions"), policy["spec"].get("paramKind")


def _param_kind_errors(kind: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    api_version = kind.get("apiVersion") or ""
    name = kind.get("kind") or ""
    group, _, version = api_version.rpartition("/")
    if not api_version:
        yield required(f"{path}.apiVersion")
    elif api_version.count("/") > 1:
        yield invalid(
            f"{path}.apiVersion", api_version, f"unexpected GroupVersion string: {api_version}"
        )
    else:
        if group:
            problems = dns_subdomain(group)
            if problems:
                yield invalid(f"{path}.apiVersion", group, ",".join(problems))
        problems = dns_1035_label(version)
        if not version:
            yield invalid(f"{path}.apiVersion", api_version, "version must be specified")
        elif problems:
            yield invalid(f"{path}.apiVersion", version, ",".join(problems))
    problems = dns_1035_label(name.lower())
    if not name:
        yield required(f"{path}.kind")
    elif problems:
        text = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        yield invalid(f"{path}.kind", name, text)


def _mutated_operation_errors(
    rules: Sequence[Mapping[str, Any]], path: str
) -> Iterator[FieldError]:
    """Yield the errors of operations that a mutating policy or its binding cannot match."""
    for rule in rules:
        for operation in rule.get("operations") or ():
            if operation not in _MUTATED_OPERATIONS:
                yield not_supported(
                    f"{path}.resourceRules.operations", operation, _MUTATED_OPERATIONS
                )


def _constraint_errors(
    constraints: Mapping[str, Any] | None, path: str, *, mutates: bool
) -> Iterator[FieldError]:
    if constraints is None:
        yield required(path)
        return
    yield from _match_errors(constraints, path)
    rules = constraints.get("resourceRules") or ()
    if not rules:
        yield required(f"{path}.resourceRules")
    if mutates:
        yield from _mutated_operation_errors(rules, path)


def _match_errors(resources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of ``MatchResources``."""
    policy = resources.get("matchPolicy")
    if policy not in ("Equivalent", "Exact"):
        yield not_supported(f"{path}.matchPolicy", policy or "", ("Equivalent", "Exact"))
    for name in ("namespaceSelector", "objectSelector"):
        yield from label_selector_errors(resources.get(name), f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for position, rule in enumerate(resources.get(name) or ()):
            field_path = f"{path}.{name}[{position}]"
            names = rule.get("resourceNames") or ()
            seen: set[str] = set()
            for number, each in enumerate(names):
                for problem in path_segment(each):
                    yield invalid(f"{field_path}.resourceNames[{number}]", each, problem)
                if each in seen:
                    yield duplicate(f"{field_path}.resourceNames[{number}]", each)
                seen.add(each)
            yield from rule_errors(rule, field_path)


def _variable_errors(
    variable: Mapping[str, Any], path: str, variables: dict[str, CELType], *, params: bool
) -> Iterator[FieldError]:
    """Yield the errors of a variable and add its type to ``variables``; it can use those before it."""
    from envtest.schema.cel_admission import check_expression  # lazy: few tests store expressions

    name = variable.get("name") or ""
    expression = variable.get("expression") or ""
    if not name.strip():
        yield required(f"{path}.name", "name is not specified")
    elif not _IDENTIFIER.fullmatch(name) or name in RESERVED_WORDS:
        yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
    kind: CELType = "dyn"
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
        return
    try:
        kind = check_expression(expression, params=params, variables=variables)
    except CELCompileError as error:
        yield compile_error(error, f"{path}.expression", expression)
    if _IDENTIFIER.fullmatch(name):
        variables[name] = kind


def _mutations_errors(
    spec: Mapping[str, Any], environment: Mapping[str, Any]
) -> Iterator[FieldError]:
    mutations = spec.get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for position, mutation in enumerate(mutations):
        yield from _mutation_errors(mutation, f"spec.mutations[{position}]", environment)
    policy = spec.get("reinvocationPolicy") or ""
    if not policy:
        yield required("spec.reinvocationPolicy")
    elif policy not in ("IfNeeded", "Never"):
        yield not_supported("spec.reinvocationPolicy", policy, ("IfNeeded", "Never"))


def _mutation_errors(
    mutation: Mapping[str, Any], path: str, environment: Mapping[str, Any]
) -> Iterator[FieldError]:
    patch_type = mutation.get("patchType") or ""
    if not patch_type:
        yield required(f"{path}.patchType")
        return
    if patch_type not in _PATCHES:
        yield not_supported(f"{path}.patchType", patch_type, sorted(_PATCHES))
        return
    for other, (field, kind) in _PATCHES.items():
        patch = mutation.get(field)
        if other != patch_type:
            if patch is not None:
                yield invalid(
                    f"{path}.{field}",
                    f"{{{field}}}",
                    f"must not be specified when patchType is {patch_type}",
                )
            continue
        if patch is None:
            yield required(f"{path}.{field}", f"must be specified when patchType is {patch_type}")
            continue
        expression = patch.get("expression") or ""
        if expression.strip():
            field_path = f"{path}.{field}.expression"
            yield from expression_errors(
                expression, field_path, (kind,), patches=True, **environment
            )
        else:
            yield required(f"{path}.{field}.expression")


def _validations_errors(
    obj: Object, spec: Mapping[str, Any], environment: Mapping[str, Any]
) -> Iterator[FieldError]:
    validations = spec.get("validations") or ()
    annotations = spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        text = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", text)
        yield required("spec.auditAnnotations", text)
    for position, validation in enumerate(validations):
        yield from _validation_errors(validation, f"spec.validations[{position}]", environment)
    if len(annotations) > _MAX_AUDIT_ANNOTATIONS:
        text = f"must not have more than {_MAX_AUDIT_ANNOTATIONS} auditAnnotations"
        yield invalid("spec.auditAnnotations", list(annotations), text)
    keys: set[str] = set()
    name = obj["metadata"].get("name") or ""
    for position, annotation in enumerate(annotations[:_MAX_AUDIT_ANNOTATIONS]):
        path = f"spec.auditAnnotations[{position}]"
        yield from _annotation_errors(annotation, path, name, environment)
        key = annotation.get("key") or ""
        if key in keys:
            yield duplicate(f"{path}.key", key)
        keys.add(key)


def _validation_errors(
    validation: Mapping[str, Any], path: str, environment: Mapping[str, Any]
) -> Iterator[FieldError]:
    expression = validation.get("expression") or ""
    if expression.strip():
        yield from expression_errors(expression, f"{path}.expression", ("bool",), **environment)
    else:
        yield required(f"{path}.expression", "expression is not specified")
    message_expression = validation.get("messageExpression") or ""
    if message_expression.strip():
        field_path = f"{path}.messageExpression"
        yield from expression_errors(
            message_expression, field_path, ("string",), authorizer=False, **environment
        )
    elif message_expression:
        yield invalid(
            f"{path}.messageExpression", message_expression, "must be non-empty if specified"
        )
    message = validation.get("message") or ""
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)


def _annotation_errors(
    annotation: Mapping[str, Any], path: str, policy: str, environment: Mapping[str, Any]
) -> Iterator[FieldError]:
    key = annotation.get("key") or ""
    if policy:
        for problem in qualified_name(f"{policy}/{key}"):
            yield invalid(f"{path}.key", f"{policy}/{key}", problem)
    else:
        yield invalid(f"{path}.key", key, "requires metadata.name be non-empty")
    expression = annotation.get("valueExpression") or ""
    if not expression.strip():
        yield required(f"{path}.valueExpression", "valueExpression is not specified")
    elif len(expression.strip()) > _MAX_AUDIT_EXPRESSION:
        yield required(
            f"{path}.valueExpression", f"must not exceed {_MAX_AUDIT_EXPRESSION} bytes in length"
        )
    else:
        yield from expression_errors(
            expression, f"{path}.valueExpression", ("string", "null_type"), **environment
        )


class PolicyBindingStrategy(BuiltinStrategy):
    """Strategy of ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding."""

    has_qualified_finalizers = False

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the match policy ``Equivalent``."""
        _constraint_defaults(obj["spec"].get("matchResources"))

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the policy name, the parameters, the match resources and the validation actions."""
        spec = obj["spec"]
        if not spec.get("policyName"):
            yield required("spec.policyName")
        if spec.get("policyName"):
            for problem in dns_subdomain(spec["policyName"]):
                yield invalid("spec.policyName", spec["policyName"], problem)
        if spec.get("paramRef") is not None:
            yield from _param_ref_errors(spec["paramRef"], "spec.paramRef")
        if spec.get("matchResources") is not None:
            yield from _match_errors(spec["matchResources"], "spec.matchResources")
            if self.resource.kind.startswith("Mutating"):
                rules = spec["matchResources"].get("resourceRules") or ()
                yield from _mutated_operation_errors(rules, "spec.matchResources")
        if not self.resource.kind.startswith("Validating"):
            return
        actions = spec.get("validationActions") or ()
        if not actions:
            yield required("spec.validationActions", "at least one validation action is required")
        repeated = repeated_positions(actions)
        for position, action in enumerate(actions):
            if action not in _ACTIONS:
                yield not_supported(f"spec.validationActions[{position}]", action, _ACTIONS)
            if position in repeated:
                yield duplicate(f"spec.validationActions[{position}]", action)
        if "Deny" in actions and "Warn" in actions:
            text = (
                "must not contain both Deny and Warn (repeating the same validation failure information in the API "
                "response and headers serves no purpose)"
            )
            yield invalid("spec.validationActions", list(actions), text)


def _param_ref_errors(reference: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = reference.get("name") or ""
    selector = reference.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name:
        for problem in path_segment(name):
            yield invalid(f"{path}.name", name, problem)
    if selector is not None:
        yield from label_selector_errors(selector, f"{path}.selector")
    if name and selector is not None:
        yield forbidden(f"{path}.name", exclusive)
        yield forbidden(f"{path}.selector", exclusive)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction") or ""
    if not action:
        yield required(f"{path}.parameterNotFoundAction")
    elif action not in ("Allow", "Deny"):
        yield not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"))


def _constraint_defaults(constraints: Object | None) -> None:
    if constraints is None:
        return
    constraints.setdefault("matchPolicy", "Equivalent")
    constraints.setdefault("namespaceSelector", {})
    constraints.setdefault("objectSelector", {})
    for name in ("resourceRules", "excludeResourceRules"):
        for rule in constraints.get(name) or ():
            rule.setdefault("scope", "*")
