"""ValidatingAdmissionPolicies: CEL expressions that say which writes are allowed, bound to where they apply.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/validating``. A policy without a binding does nothing; a binding
says what happens on failure (``Deny``, ``Warn``, ``Audit``) and with which parameters the policy runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.auth.rbac import Authorizer
from envtest.context import RequestContext
from envtest.errors import GroupResource, StatusError, forbidden
from envtest.objects import Object
from envtest.registry import Registry, ResourceInfo
from envtest.schema.cel_authorizer import Answer
from envtest.storage import Store
from envtest.storage_version import from_storage

from .conditions import Expression, ExpressionError, MatchConditions, asking, request_variables
from .lifecycle import described_name
from .matching import NAMESPACES, Matcher, Rule, label_selector, request_namespace
from .review import admission_request
from .versions import converted

__all__ = ["BINDINGS", "POLICIES", "ValidatingPolicies"]

_GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = GroupResource(_GROUP, "validatingadmissionpolicies")
BINDINGS: Final = GroupResource(_GROUP, "validatingadmissionpolicybindings")
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
_REVIEW_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"


class _ConfigurationError(Exception):
    """A binding cannot be put to work; the policy's failurePolicy says what that means."""


class _Failure(NamedTuple):
    message: str
    reason: str
    validation: int


class _Resources:
    """``MatchResources``: of a policy's constraints, or a binding's."""

    def __init__(self, resources: Mapping[str, Any] | None) -> None:
        resources = resources or {}
        self.namespaces = label_selector(resources.get("namespaceSelector"))
        self.objects = label_selector(resources.get("objectSelector"))
        self.rules = [Rule(rule) for rule in resources.get("resourceRules") or ()]
        self.excluded = [Rule(rule) for rule in resources.get("excludeResourceRules") or ()]
        self.equivalent = resources.get("matchPolicy", "Equivalent") == "Equivalent"

    def match(self, matcher: Matcher, ctx: RequestContext, obj: Object, old: Object | None) -> ResourceInfo | None:
        """The resource as the rules name it, ``None`` where the request is not concerned."""
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
        written = validation.get("messageExpression")
        self.written = Expression(written) if written else None
        self.reason: str = validation.get("reason") or ""

    def failure(self, variables: Mapping[str, Any], answer: Answer) -> _Failure | None:
        """Raises ExpressionError."""
        if self.expression.evaluate(variables, answer) is True:
            return None
        message = self.message or f"failed expression: {self.expression.source}"
        if self.written is not None:
            try:
                text = self.written.evaluate(variables, answer)
            except ExpressionError:
                text = ""
            if isinstance(text, str) and text.strip() and "\n" not in text.strip():
                message = text.strip()
        return _Failure(message, self.reason, self.index)


class _Policy:
    """A policy, compiled."""

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
    """All policies with their bindings, as a step of the chain."""

    def __init__(self, store: Store, registry: Registry, matcher: Matcher, authorizer: Authorizer) -> None:
        self._store = store
        self._registry = registry
        self._matcher = matcher
        self._authorizer = authorizer
        self._seen: tuple[int, int] | None = None
        self._bound: list[tuple[_Policy, list[_Binding]]] = []

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Raises StatusError when a policy denies; warns and annotates where a binding asks for that."""
        self._refresh()
        if not self._bound or self._matcher.exempt(ctx) or (ctx.info.group in _REVIEW_GROUPS and not ctx.subresource):
            return
        answer = asking(self._authorizer, ctx.user)
        denied: StatusError | None = None
        for policy, bindings in self._bound:
            info = policy.resources.match(self._matcher, ctx, obj, old)
            if info is None:
                continue
            variables = await self._variables(ctx, obj, old, info)
            for binding in bindings:
                if binding.resources.match(self._matcher, ctx, obj, old) is None:
                    continue
                for failure in await self._failures(policy, binding, ctx, variables, answer):
                    denied = self._act(policy, binding, ctx, obj, failure) or denied
        if denied is not None:
            raise denied

    def _refresh(self) -> None:
        now = (self._store.changes(POLICIES), self._store.changes(BINDINGS))
        if now == self._seen:
            return
        self._seen = now
        bindings: dict[str, list[_Binding]] = {}
        for record in self._store.list(BINDINGS):
            binding = _Binding(record.obj())
            bindings.setdefault(binding.policy, []).append(binding)
        policies = [_Policy(record.obj()) for record in self._store.list(POLICIES)]
        self._bound = [(policy, bindings[policy.name]) for policy in policies if policy.name in bindings]

    async def _variables(
        self, ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo
    ) -> dict[str, Any]:
        new_version = await converted(ctx.info, info, obj)
        old_version = await converted(ctx.info, info, old) if old else old
        variables = request_variables(admission_request(ctx, new_version, old_version, info), ctx)
        namespace = request_namespace(ctx, obj)
        if namespace and ctx.info.resource != NAMESPACES:
            record = self._store.get(NAMESPACES, "", namespace)
            variables["namespaceObject"] = record.obj() if record is not None else None
        return variables

    async def _failures(
        self,
        policy: _Policy,
        binding: _Binding,
        ctx: RequestContext,
        variables: Mapping[str, Any],
        answer: Answer,
    ) -> list[_Failure]:
        failures: list[_Failure] = []
        try:
            parameters = [each async for each in self._parameters(policy, binding, ctx)]
        except _ConfigurationError as error:
            return [] if policy.ignores_failure else [_Failure(f"failed to configure binding: {error}", "", -1)]
        for parameter in parameters:
            seen = {**variables, "params": parameter}
            if policy.conditions:
                decision = policy.conditions.evaluate(seen, answer)
                if decision.error:
                    failures.append(_Failure(decision.error, "", -1))
                if not decision.matches:
                    continue
            seen["variables"] = _composed(policy, seen, answer)
            for validation in policy.validations:
                try:
                    failure = validation.failure(seen, answer)
                except ExpressionError as error:
                    failure = None if policy.ignores_failure else _Failure(str(error), "", validation.index)
                if failure is not None:
                    failures.append(failure)
            _annotate(policy, ctx, seen, answer)
        return failures

    async def _parameters(self, policy: _Policy, binding: _Binding, ctx: RequestContext) -> Any:
        if policy.param_kind is None:
            yield None
            return
        group, _, version = policy.param_kind["apiVersion"].rpartition("/")
        info = self._registry.by_kind(group, version, policy.param_kind["kind"])
        if info is None:
            what = f"{group}/{version}, Kind={policy.param_kind['kind']}"
            raise _ConfigurationError(f"failed to find resource referenced by paramKind: '{what}'")
        reference = binding.param_ref or {}
        namespace = (reference.get("namespace") or ctx.namespace) if info.namespaced else ""
        found = False
        for record in self._referenced(info, reference, namespace):
            found = True
            yield await from_storage(info, record)
        if not found and reference.get("parameterNotFoundAction") != "Allow":
            raise _ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")

    def _referenced(self, info: ResourceInfo, reference: Mapping[str, Any], namespace: str) -> Iterator[Any]:
        if reference.get("name"):
            record = self._store.get(info.storage, namespace, reference["name"])
            return iter([record] if record is not None else [])
        selector = label_selector(reference.get("selector"))
        return (record for record in self._store.list(info.storage, namespace) if selector.matches(record.labels))

    def _act(
        self, policy: _Policy, binding: _Binding, ctx: RequestContext, obj: Object, failure: _Failure
    ) -> StatusError | None:
        where = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        denied = None
        if "Deny" in binding.actions:
            denied = _denial(ctx, obj, f"{where} denied request: {failure.message}", failure.reason)
        if "Warn" in binding.actions:
            ctx.warn(f"Validation failed for {where}: {failure.message}")
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


def _composed(policy: _Policy, seen: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """The policy's ``variables``: each may use those before it; one that fails is absent, and fails its users."""
    composed: dict[str, Any] = {}
    for name, expression in policy.variables:
        try:
            composed[name] = expression.evaluate({**seen, "variables": composed}, answer)
        except ExpressionError:
            continue
    return composed


def _annotate(policy: _Policy, ctx: RequestContext, seen: Mapping[str, Any], answer: Answer) -> None:
    for key, expression in policy.annotations:
        try:
            value = expression.evaluate(seen, answer)
        except ExpressionError:
            continue
        if isinstance(value, str) and value.strip():
            ctx.audit[f"{policy.name}/{key}"] = value.strip()


def _denial(ctx: RequestContext, obj: Object, message: str, reason: str) -> StatusError:
    refusal = forbidden(ctx.info.resource, described_name(ctx, obj), message, causes=[{"message": message}])
    reason = reason or "Invalid"
    return StatusError(_CODES.get(reason, 422), reason, refusal.message, refusal.details)
