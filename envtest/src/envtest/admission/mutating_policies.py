"""MutatingAdmissionPolicies: CEL expressions that change the objects of requests, applied through bindings.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/mutating``. The changes have no owner in ``managedFields``. The
policies run before the mutating webhooks. kube-apiserver does not define their order among each other; here they run in
the reverse order of their names, so that a test does not rely on the alphabetical order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from envtest.admission.chain import Invocations, Reinvocation
from envtest.admission.conditions import ExpressionError, authorization_check
from envtest.admission.lifecycle import display_name
from envtest.admission.matching import Matcher
from envtest.admission.mutations import Mutation, MutationError, mutation_of
from envtest.admission.policy_bindings import (
    Binding,
    ConfigurationError,
    Evaluation,
    Policy,
    PolicySource,
    is_exempt,
    policy_variables,
)
from envtest.admission.versions import convert, decode_patched
from envtest.apply.schema_types import ObjectType
from envtest.apply.trackers import Trackers
from envtest.auth.rbac import Authorizer
from envtest.context import RequestContext
from envtest.errors import GroupResource, StatusError, forbidden, internal_error
from envtest.objects import Object
from envtest.registry import Registry, ResourceInfo
from envtest.schema.cel_authorizer import AuthorizationCheck
from envtest.storage import Store

__all__ = ["BINDINGS", "POLICIES", "MutatingPolicies"]

_GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = GroupResource(_GROUP, "mutatingadmissionpolicies")
BINDINGS: Final = GroupResource(_GROUP, "mutatingadmissionpolicybindings")
_STEP: Final = "MutatingAdmissionPolicy"


class _Policy(Policy):
    def __init__(self, policy: Object) -> None:
        super().__init__(policy)
        spec = policy.get("spec") or {}
        self.mutations = [mutation_of(each) for each in spec.get("mutations") or ()]
        self.reinvocable = spec.get("reinvocationPolicy") == "IfNeeded"


class _Invocation(NamedTuple):
    """One policy with one binding and one parameter; ``info`` is the resource that the policy matched."""

    policy: _Policy
    binding: Binding
    parameter: Object | None
    info: ResourceInfo

    @property
    def key(self) -> str:
        metadata = (self.parameter or {}).get("metadata") or {}
        parts = (self.policy.name, self.binding.name, metadata.get("namespace") or "", metadata.get("name") or "")
        return "/".join(parts)

    def denial(self, message: str) -> str:
        return f"policy '{self.policy.name}' with binding '{self.binding.name}' denied request: {message}"


class _Denials:
    """The errors of the policies whose failurePolicy is not ``Ignore``; the first decides about the response."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._reason = ""

    def add(self, policy: Policy, message: str, reason: str = "Forbidden") -> None:
        if not policy.ignores_failure:
            self._reason = self._reason or reason
            self._messages.append(message)

    def raise_first(self, ctx: RequestContext, obj: Object) -> None:
        """Raise StatusError if there is an error."""
        if self._messages:
            causes = [{"message": message} for message in self._messages]
            error = forbidden(ctx.info.resource, display_name(ctx, obj), "", causes=causes)
            raise StatusError(403, self._reason, self._messages[0], error.details)


class MutatingPolicies:
    """All policies with their bindings, as a step of the admission chain."""

    def __init__(self, store: Store, registry: Registry, matcher: Matcher, authorizer: Authorizer) -> None:
        self._store = store
        self._matcher = matcher
        self._authorizer = authorizer
        self._types = Trackers(registry)
        self._source = PolicySource(store, registry, policies=POLICIES, bindings=BINDINGS, compile_policy=_Policy)

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None, reinvocation: Reinvocation) -> Object:
        """Return the object after all policies that match the request. Raises StatusError to reject the request."""
        if ctx.operation == "DELETE" or not self._source.bound() or is_exempt(self._matcher, ctx):
            return obj
        denials = _Denials()
        invocations = await self._invocations(ctx, obj, old, denials)
        if invocations:
            obj = await self._run(invocations, ctx, obj, old, reinvocation, denials)
        denials.raise_first(ctx, obj)
        return obj

    async def _invocations(
        self, ctx: RequestContext, obj: Object, old: Object | None, denials: _Denials
    ) -> list[_Invocation]:
        """Return the policies to invoke; they are selected before the first of them changes the object."""
        found: list[_Invocation] = []
        for policy, bindings in reversed(self._source.bound()):
            info = policy.resources.match(self._matcher, ctx, obj, old)
            if info is None:
                continue
            try:
                self._source.check(policy)
            except ConfigurationError as error:
                message = f'policy "{policy.name}" denied request: failed to configure policy: {error}'
                denials.add(policy, message)
                continue
            for binding in bindings:
                if binding.resources.match(self._matcher, ctx, obj, old) is None:
                    continue
                try:
                    parameters = await self._source.parameters(policy, binding, ctx)
                except ConfigurationError as error:
                    invocation = _Invocation(policy, binding, None, info)
                    denials.add(policy, invocation.denial(f"failed to configure binding: {error}"))
                    continue
                found += (_Invocation(policy, binding, parameter, info) for parameter in parameters)
        return found

    async def _run(
        self,
        invocations: list[_Invocation],
        ctx: RequestContext,
        obj: Object,
        old: Object | None,
        reinvocation: Reinvocation,
        denials: _Denials,
    ) -> Object:
        state = reinvocation.step(_STEP)
        if reinvocation.second_round:
            state.require_if_changed(obj)
        check = authorization_check(self._authorizer, ctx.user)
        for invocation in invocations:
            obj = await self._invoke(invocation, ctx, obj, old, reinvocation, state, check, denials)
        state.record_output(obj)
        return obj

    async def _invoke(
        self,
        invocation: _Invocation,
        ctx: RequestContext,
        obj: Object,
        old: Object | None,
        reinvocation: Reinvocation,
        state: Invocations,
        check: AuthorizationCheck,
        denials: _Denials,
    ) -> Object:
        policy, info = invocation.policy, invocation.info
        current = await convert(ctx.info, info, obj)
        old_version = await convert(ctx.info, info, old) if old else old
        if policy.conditions:
            decision = policy.conditions.evaluate(await self._inputs(ctx, current, old_version, invocation), check)
            if decision.error:
                denials.add(policy, invocation.denial(decision.error), "Invalid")
            if not decision.matches:
                return obj
        if reinvocation.second_round and invocation.key not in state.pending:
            return obj
        changed = False
        for mutation in policy.mutations:
            if not current:
                break
            inputs = await self._inputs(ctx, current, old_version, invocation)
            evaluation = Evaluation(policy.variables, inputs, check)
            try:
                current = self._mutate(mutation, ctx, info, current, evaluation)
                changed = True
            except (ExpressionError, MutationError) as error:
                denials.add(policy, invocation.denial(str(error)), "Invalid")
        if changed:
            obj = await convert(info, ctx.info, current)
            reinvocation.requested = True
            state.require()
        if policy.reinvocable:
            state.invoked.add(invocation.key)
            if changed:
                state.require()
        return obj

    async def _inputs(
        self, ctx: RequestContext, obj: Object, old: Object | None, invocation: _Invocation
    ) -> Mapping[str, Any]:
        variables = await policy_variables(self._store, ctx, obj, old, invocation.info)
        return {**variables, "params": invocation.parameter}

    def _mutate(
        self, mutation: Mutation, ctx: RequestContext, info: ResourceInfo, obj: Object, evaluation: Evaluation
    ) -> Object:
        mutated = mutation.apply(obj, self._type_of(info, ctx.subresource), evaluation)
        if mutated is obj:
            return obj
        unknown = decode_patched(ctx, info, mutated)
        if unknown and mutation.strict and not info.is_crd:
            raise internal_error(f"strict decoding error: {', '.join(unknown)}")
        return mutated

    def _type_of(self, info: ResourceInfo, subresource: str) -> ObjectType:
        return self._types.scale_type if subresource == "scale" else self._types.type_of(info)
