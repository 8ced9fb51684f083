"""ValidatingAdmissionPolicies: CEL expressions that decide which writes are allowed, applied through bindings.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/validating``. A policy without a binding has no effect; the
binding defines the action on failure (``Deny``, ``Warn``, ``Audit``) and the parameters of the policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.admission.conditions import (
    Expression,
    ExpressionError,
    MatchConditions,
    authorization_check,
    request_variables,
)
from envtest.admission.lifecycle import display_name
from envtest.admission.matching import NAMESPACES, Matcher, Rule, label_selector, request_namespace
from envtest.admission.review import admission_request
from envtest.admission.versions import convert
from envtest.auth.rbac import Authorizer
from envtest.context import RequestContext
from envtest.errors import GroupResource, StatusError, forbidden
from envtest.objects import Object
from envtest.registry import Registry, ResourceInfo
from envtest.schema.cel_authorizer import AuthorizationCheck
from envtest.storage import Store
from envtest.storage_version import from_storage

__all__ = ["BINDINGS", "POLICIES", "ValidatingPolicies"]

_GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = GroupResource(_GROUP, "validatingadmissionpolicies")
BINDINGS: Final = GroupResource(_GROUP, "validatingadmissionpolicybindings")
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
_REVIEW_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"


class _ConfigurationError(Exception):
    """Raised if a binding cannot be evaluated; the policy's failurePolicy decides whether the request is rejected."""


class _Failure(NamedTuple):
    message: str
    reason: str
    validation: int


class _Resources:
    """``MatchResources`` of a policy's constraints or of a binding."""

    def __init__(self, resources: Mapping[str, Any] | None) -> None:
        resources = resources or {}
        self.namespaces = label_selector(resources.get("namespaceSelector"))
        self.objects = label_selector(resources.get("objectSelector"))
        self.rules = [Rule(rule) for rule in resources.get("resourceRules") or ()]
        self.excluded = [Rule(rule) for rule in resources.get("excludeResourceRules") or ()]
        self.equivalent = resources.get("matchPolicy", "Equivalent") == "Equivalent"

    def match(self, matcher: Matcher, ctx: RequestContext, obj: Object, old: Object | None) -> ResourceInfo | None:
        """Return the resource that a rule matched, ``None`` when the request does not match."""
        if not matcher.object_matches(obj, old, self.objects):
            return None
        if not matcher.namespace_matches(ctx, obj, self.namespaces):
            return None
        if matcher.match_rules(ctx, obj, self.excluded, equivalent=self.equivalent) is not None:
            return None
        if not self.rules:
            return ctx.info
        match = matcher.match_rules(ctx, obj, self.rules, equivalent=self.equivalent)
        return None if match is None else match.info


class _Validation:
    def __init__(self, index: int, validation: Mapping[str, Any]) -> None:
        self.index = index
        self.expression = Expression(validation["expression"])
        self.message: str = (validation.get("message") or "").strip()
        message_expression = validation.get("messageExpression")
        self.message_expression = Expression(message_expression) if message_expression else None
        self.reason: str = validation.get("reason") or ""

    def failure(self, variables: Mapping[str, Any], check: AuthorizationCheck) -> _Failure | None:
        """Return the failure when the validation is not true, else ``None``. Raises ExpressionError."""
        if self.expression.evaluate(variables, check) is True:
            return None
        message = self.message or f"failed expression: {self.expression.source}"
        if self.message_expression is not None:
            try:
                text = self.message_expression.evaluate(variables, check)
            except ExpressionError:
                text = ""
            if isinstance(text, str) and text.strip() and "\n" not in text.strip():
                message = text.strip()
        return _Failure(message, self.reason, self.index)


class _Policy:
    """A compiled policy."""

    def __init__(self, policy: Object) -> None:
        spec = policy.get("spec") or {}
        self.name: str = policy["metadata"]["name"]
        self.resources = _Resources(spec.get("matchConstraints"))
        self.ignores_failure = spec.get("failurePolicy") == "Ignore"
        self.conditions = MatchConditions(spec.get("matchConditions") or (), ignore_errors=self.ignores_failure)
        self.variables = [(each["name"], Expression(each["expression"])) for each in spec.get("variables") or ()]
        self.validations = [_Validation(index, each) for index, each in enumerate(spec.get("validations") or ())]
        self.annotations = [
            (each["key"], Expression(each["valueExpression"])) for each in spec.get("auditAnnotations") or ()
        ]
        self.param_kind: Mapping[str, str] | None = spec.get("paramKind")


class _Binding:
    def __init__(self, binding: Object) -> None:
        spec = binding.get("spec") or {}
        self.name: str = binding["metadata"]["name"]
        self.policy: str = spec.get("policyName", "")
        self.param_ref: Mapping[str, Any] | None = spec.get("paramRef")
        self.resources = _Resources(spec.get("matchResources"))
        self.actions: Sequence[str] = spec.get("validationActions") or ()


class ValidatingPolicies:
    """All policies with their bindings, as a step of the admission chain."""

    def __init__(self, store: Store, registry: Registry, matcher: Matcher, authorizer: Authorizer) -> None:
        self._store = store
        self._registry = registry
        self._matcher = matcher
        self._authorizer = authorizer
        self._compiled_revision: tuple[int, int] | None = None
        self._bound: list[tuple[_Policy, list[_Binding]]] = []

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Evaluate all bound policies: raise StatusError, warn or add audit annotations as the bindings require."""
        self._refresh()
        if (
            not self._bound
            or self._matcher.is_exempt(ctx)
            or (ctx.info.group in _REVIEW_GROUPS and not ctx.subresource)
        ):
            return
        check = authorization_check(self._authorizer, ctx.user)
        denied: StatusError | None = None
        for policy, bindings in self._bound:
            info = policy.resources.match(self._matcher, ctx, obj, old)
            if info is None:
                continue
            variables = await self._variables(ctx, obj, old, info)
            try:
                self._param_info(policy)
            except _ConfigurationError as error:
                if not policy.ignores_failure:
                    subject = f"ValidatingAdmissionPolicy '{policy.name}'"
                    text = f"{subject} denied request: failed to configure policy: {error}"
                    denied = denied or _denied(ctx, obj, text, "")
                continue
            for binding in bindings:
                if binding.resources.match(self._matcher, ctx, obj, old) is None:
                    continue
                for failure in await self._evaluate(policy, binding, ctx, variables, check):
                    enforced = self._enforce(policy, binding, ctx, obj, failure)
                    denied = denied or enforced
        if denied is not None:
            raise denied

    def _refresh(self) -> None:
        revision = (self._store.changes(POLICIES), self._store.changes(BINDINGS))
        if revision == self._compiled_revision:
            return
        self._compiled_revision = revision
        bindings: dict[str, list[_Binding]] = {}
        for record in self._store.list(BINDINGS):
            binding = _Binding(record.obj())
            bindings.setdefault(binding.policy, []).append(binding)
        policies = [_Policy(record.obj()) for record in self._store.list(POLICIES)]
        self._bound = [(policy, bindings[policy.name]) for policy in policies if policy.name in bindings]

    async def _variables(
        self, ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo
    ) -> dict[str, Any]:
        new_version = await convert(ctx.info, info, obj)
        old_version = await convert(ctx.info, info, old) if old else old
        variables = request_variables(admission_request(ctx, new_version, old_version, info), ctx)
        namespace = request_namespace(ctx, obj)
        if namespace and ctx.info.resource != NAMESPACES:
            record = self._store.get(NAMESPACES, "", namespace)
            variables["namespaceObject"] = record.obj() if record is not None else None
        return variables

    async def _evaluate(
        self,
        policy: _Policy,
        binding: _Binding,
        ctx: RequestContext,
        variables: Mapping[str, Any],
        check: AuthorizationCheck,
    ) -> list[_Failure]:
        failures: list[_Failure] = []
        try:
            parameters = [each async for each in self._parameters(policy, binding, ctx)]
        except _ConfigurationError as error:
            return [] if policy.ignores_failure else [_Failure(f"failed to configure binding: {error}", "", -1)]
        for parameter in parameters:
            inputs = {**variables, "params": parameter}
            if policy.conditions:
                decision = policy.conditions.evaluate(inputs, check)
                if decision.error:
                    failures.append(_Failure(decision.error, "", -1))
                if not decision.matches:
                    continue
            inputs["variables"] = _composed_variables(policy, inputs, check)
            for validation in policy.validations:
                try:
                    failure = validation.failure(inputs, check)
                except ExpressionError as error:
                    failure = None if policy.ignores_failure else _Failure(str(error), "", validation.index)
                if failure is not None:
                    failures.append(failure)
            _record_annotations(policy, ctx, inputs, check)
        return failures

    def _param_info(self, policy: _Policy) -> ResourceInfo | None:
        """Return the resource of the parameters, ``None`` if there are none. Raises _ConfigurationError."""
        if policy.param_kind is None:
            return None
        group, _, version = policy.param_kind["apiVersion"].rpartition("/")
        info = self._registry.by_kind(group, version, policy.param_kind["kind"])
        if info is None:
            group_version_kind = f"{group}/{version}, Kind={policy.param_kind['kind']}"
            raise _ConfigurationError(f"failed to find resource referenced by paramKind: '{group_version_kind}'")
        return info

    async def _parameters(self, policy: _Policy, binding: _Binding, ctx: RequestContext) -> Any:
        info = self._param_info(policy)
        if info is None:
            yield None
            return
        reference = binding.param_ref or {}
        namespace = (reference.get("namespace") or ctx.namespace) if info.namespaced else ""
        found = False
        for record in self._parameter_records(info, reference, namespace):
            found = True
            yield await from_storage(info, record)
        if not found and reference.get("parameterNotFoundAction") != "Allow":
            raise _ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")

    def _parameter_records(self, info: ResourceInfo, reference: Mapping[str, Any], namespace: str) -> Iterator[Any]:
        if reference.get("name"):
            record = self._store.get(info.storage, namespace, reference["name"])
            return iter([record] if record is not None else [])
        selector = label_selector(reference.get("selector"))
        return (record for record in self._store.list(info.storage, namespace) if selector.matches(record.labels))

    def _enforce(
        self, policy: _Policy, binding: _Binding, ctx: RequestContext, obj: Object, failure: _Failure
    ) -> StatusError | None:
        subject = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        denied = None
        if "Deny" in binding.actions:
            denied = _denied(ctx, obj, f"{subject} denied request: {failure.message}", failure.reason)
        if "Warn" in binding.actions:
            ctx.warn(f"Validation failed for {subject}: {failure.message}")
        if "Audit" in binding.actions:
            entry = {
                "message": failure.message,
                "policy": policy.name,
                "binding": binding.name,
                "expressionIndex": failure.validation,
                "validationActions": list(binding.actions),
            }
            entries = json.loads(ctx.audit.get(_FAILURES, "[]"))
            ctx.audit[_FAILURES] = json.dumps([*entries, entry], separators=(",", ":"))
        return denied


def _composed_variables(policy: _Policy, inputs: Mapping[str, Any], check: AuthorizationCheck) -> dict[str, Any]:
    """Evaluate the policy's ``variables`` in order; each can use the earlier ones. One that fails stays undefined."""
    composed: dict[str, Any] = {}
    for name, expression in policy.variables:
        try:
            composed[name] = expression.evaluate({**inputs, "variables": composed}, check)
        except ExpressionError:
            continue
    return composed


def _record_annotations(
    policy: _Policy, ctx: RequestContext, inputs: Mapping[str, Any], check: AuthorizationCheck
) -> None:
    for key, expression in policy.annotations:
        try:
            value = expression.evaluate(inputs, check)
        except ExpressionError:
            continue
        if isinstance(value, str) and value.strip():
            ctx.audit[f"{policy.name}/{key}"] = value.strip()


def _denied(ctx: RequestContext, obj: Object, message: str, reason: str) -> StatusError:
    error = forbidden(ctx.info.resource, display_name(ctx, obj), message, causes=[{"message": message}])
    reason = reason or "Invalid"
    return StatusError(_CODES.get(reason, 422), reason, error.message, error.details)
