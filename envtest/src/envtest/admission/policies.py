"""ValidatingAdmissionPolicies: CEL expressions that decide which writes are allowed, applied through bindings.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/validating``. A binding defines the action on failure (``Deny``,
``Warn``, ``Audit``) and the parameters of the policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from envtest.admission.conditions import (
    Expression,
    ExpressionError,
    OutOfBudgetError,
    authorization_check,
)
from envtest.admission.matching import Matcher
from envtest.admission.namespace_lifecycle import display_name
from envtest.admission.policy_bindings import (
    Binding,
    ConfigurationError,
    Evaluation,
    Policy,
    PolicySource,
    is_exempt,
    policy_variables,
)
from envtest.admission.versions import convert
from envtest.apimachinery.errors import GroupResource, StatusError, forbidden
from envtest.apimachinery.objects import Object
from envtest.auth.rbac import Authorizer
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext
from envtest.schema.cel_authorizer import AuthorizationCheck
from envtest.storage import Store

__all__ = ["BINDINGS", "POLICIES", "ValidatingPolicies"]

_GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = GroupResource(_GROUP, "validatingadmissionpolicies")
BINDINGS: Final = GroupResource(_GROUP, "validatingadmissionpolicybindings")
_CODES: Final = {
    "Forbidden": 403,
    "Unauthorized": 401,
    "RequestEntityTooLarge": 413,
    "Invalid": 422,
}
_FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"


class _Failure(NamedTuple):
    message: str
    reason: str
    validation: int


class _Validation:
    def __init__(self, index: int, validation: Mapping[str, Any]) -> None:
        self.index = index
        self.expression = Expression(validation["expression"])
        self.message: str = (validation.get("message") or "").strip()
        message_expression = validation.get("messageExpression")
        self.message_expression = Expression(message_expression) if message_expression else None
        self.reason: str = validation.get("reason") or ""

    def failure(self, evaluation: Evaluation) -> _Failure | None:
        """Return the failure when the validation is not true, else ``None``. Raises ExpressionError."""
        if evaluation.evaluate(self.expression) is True:
            return None
        message = self.message or f"failed expression: {self.expression.source}"
        if self.message_expression is not None:
            try:
                text = evaluation.evaluate(self.message_expression)
            except OutOfBudgetError as error:
                text = f"failed messageExpression: {error}"
            except ExpressionError:
                text = ""
            if isinstance(text, str) and text.strip() and "\n" not in text.strip():
                message = text.strip()
        return _Failure(message, self.reason, self.index)


class _Policy(Policy):
    def __init__(self, policy: Object) -> None:
        super().__init__(policy)
        spec = policy.get("spec") or {}
        self.validations = [
            _Validation(index, each) for index, each in enumerate(spec.get("validations") or ())
        ]
        self.annotations = [
            (each["key"], Expression(each["valueExpression"]))
            for each in spec.get("auditAnnotations") or ()
        ]


class ValidatingPolicies:
    """All policies with their bindings, as a step of the admission chain."""

    def __init__(
        self, store: Store, registry: Registry, matcher: Matcher, authorizer: Authorizer
    ) -> None:
        self._store = store
        self._matcher = matcher
        self._authorizer = authorizer
        self._source = PolicySource(
            store, registry, policies=POLICIES, bindings=BINDINGS, compile_policy=_Policy
        )

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Evaluate all bound policies: raise StatusError, warn or add audit annotations as the bindings require."""
        bound = self._source.bound()
        if not bound or is_exempt(self._matcher, ctx):
            return
        check = authorization_check(self._authorizer, ctx.user)
        denied: StatusError | None = None
        for policy, bindings in bound:
            info = policy.resources.match(self._matcher, ctx, obj, old)
            if info is None:
                continue
            try:
                self._source.check(policy)
            except ConfigurationError as error:
                if not policy.ignores_failure:
                    subject = f"ValidatingAdmissionPolicy '{policy.name}'"
                    message = f"{subject} denied request: failed to configure policy: {error}"
                    denied = denied or _denied(ctx, obj, message, "")
                continue
            new_version = await convert(ctx.info, info, obj)
            old_version = await convert(ctx.info, info, old) if old else old
            variables = await policy_variables(self._store, ctx, new_version, old_version, info)
            for binding in bindings:
                if binding.resources.match(self._matcher, ctx, obj, old) is None:
                    continue
                for failure in await self._evaluate(policy, binding, ctx, variables, check):
                    denial = self._enforce(policy, binding, ctx, obj, failure)
                    denied = denied or denial
        if denied is not None:
            raise denied

    async def _evaluate(
        self,
        policy: _Policy,
        binding: Binding,
        ctx: RequestContext,
        variables: Mapping[str, Any],
        check: AuthorizationCheck,
    ) -> list[_Failure]:
        failures: list[_Failure] = []
        try:
            parameters = await self._source.parameters(policy, binding, ctx)
        except ConfigurationError as error:
            return (
                []
                if policy.ignores_failure
                else [_Failure(f"failed to configure binding: {error}", "", -1)]
            )
        for parameter in parameters:
            inputs = {**variables, "params": parameter}
            if policy.conditions:
                decision = policy.conditions.evaluate(inputs, check)
                if decision.error:
                    failures.append(_Failure(decision.error, "", -1))
                if not decision.matches:
                    continue
            evaluation = Evaluation(policy.variables, inputs, check)
            failures += _validation_failures(policy, evaluation)
            _record_annotations(policy, ctx, evaluation)
        return failures

    def _enforce(
        self, policy: _Policy, binding: Binding, ctx: RequestContext, obj: Object, failure: _Failure
    ) -> StatusError | None:
        subject = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        denied = None
        if "Deny" in binding.actions:
            denied = _denied(
                ctx, obj, f"{subject} denied request: {failure.message}", failure.reason
            )
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


def _validation_failures(policy: _Policy, evaluation: Evaluation) -> list[_Failure]:
    """Return the failures of a policy's validations; that of the budget replaces all others."""
    failures: list[_Failure] = []
    for validation in policy.validations:
        try:
            failure = validation.failure(evaluation)
        except OutOfBudgetError as error:
            return [] if policy.ignores_failure else [_Failure(str(error), "", 0)]
        except ExpressionError as error:
            if not policy.ignores_failure:
                failures.append(_Failure(str(error), "", validation.index))
            continue
        if failure is not None:
            failures.append(failure)
    return failures


def _record_annotations(policy: _Policy, ctx: RequestContext, evaluation: Evaluation) -> None:
    for key, expression in policy.annotations:
        try:
            value = evaluation.evaluate(expression)
        except ExpressionError:
            continue
        if isinstance(value, str) and value.strip():
            ctx.audit[f"{policy.name}/{key}"] = value.strip()


def _denied(ctx: RequestContext, obj: Object, message: str, reason: str) -> StatusError:
    error = forbidden(
        ctx.info.resource, display_name(ctx, obj), message, causes=[{"message": message}]
    )
    reason = reason or "Invalid"
    return StatusError(_CODES.get(reason, 422), reason, error.message, error.details)
