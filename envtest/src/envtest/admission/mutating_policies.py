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
from envtest.admission.matching import Matcher
from envtest.admission.mutations import Mutation, MutationError, mutation_of
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
from envtest.admission.versions import Unconvertible, convert, decode_patched
from envtest.apimachinery.errors import GroupResource, StatusError, forbidden, internal_error
from envtest.apimachinery.objects import Object
from envtest.apply.trackers import Trackers
from envtest.auth.rbac import Authorizer
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext, ResourceInfo
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
        parts = (
            self.policy.name,
            self.binding.name,
            metadata.get("namespace") or "",
            metadata.get("name") or "",
        )
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

    def __init__(
        self, store: Store, registry: Registry, matcher: Matcher, authorizer: Authorizer
    ) -> None:
        self._store = store
        self._matcher = matcher
        self._authorizer = authorizer
        self._types = Trackers(registry)
        self._source = PolicySource(
            store, registry, policies=POLICIES, bindings=BINDINGS, compile_policy=_Policy
        )

    async def mutate(
        self, ctx: RequestContext, obj: Object, old: Object | None, reinvocation: Reinvocation
    ) -> Object:
        """Return the object after all policies that match the request. Raises StatusError to reject the request."""
        if ctx.operation == "DELETE" or not self._source.bound() or is_exempt(self._matcher, ctx):
            return obj
        denials = _Denials()
        invocations = await self._invocations(ctx, obj, old, denials)
        if invocations:
            state = reinvocation.step(_STEP)
            if reinvocation.second_round:
                state.require_if_changed(obj)
            check = authorization_check(self._authorizer, ctx.user)
            requests = [
                _Request(self._store, self._types, ctx, old, check, each, denials)
                for each in invocations
            ]
            obj = await _run(requests, obj, reinvocation, state)
            state.record_output(obj)
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
                message = (
                    f'policy "{policy.name}" denied request: failed to configure policy: {error}'
                )
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
    requests: list[_Request], obj: Object, reinvocation: Reinvocation, state: Invocations
) -> Object:
    """Invoke the policies in order and record which must be invoked again in the second round."""
    changed = False
    for request in requests:
        if not await request.matches(obj):
            continue
        key = request.invocation.key
        policy = request.invocation.policy
        if reinvocation.second_round and key not in state.pending:
            continue
        mutated = await request.mutate(obj)
        if mutated is not None:
            obj = mutated
            changed = True
            state.require()
        if policy.reinvocable:
            state.invoked.add(key)
    if changed:
        reinvocation.requested = True
        state.require()
    return obj


class _Request:
    """The invocation of a policy for one request."""

    def __init__(
        self,
        store: Store,
        types: Trackers,
        ctx: RequestContext,
        old: Object | None,
        check: AuthorizationCheck,
        invocation: _Invocation,
        denials: _Denials,
    ) -> None:
        self.invocation = invocation
        self._store = store
        self._types = types
        self._ctx = ctx
        self._old = old
        self._check = check
        self._denials = denials

    async def matches(self, obj: Object) -> bool:
        """Report whether the match conditions hold; an error denies the request."""
        policy = self.invocation.policy
        if not policy.conditions:
            return True
        current = await convert(self._ctx.info, self.invocation.info, obj)
        decision = policy.conditions.evaluate(await self._inputs(current), self._check)
        if decision.error:
            self._denials.add(policy, self.invocation.denial(decision.error), "Invalid")
        return decision.matches

    async def mutate(self, obj: Object) -> Object | None:
        """Return the object after all mutations, ``None`` when none applied; an error denies the request.

        Raises StatusError when the result of a mutation is not an object of the kind.
        """
        policy = self.invocation.policy
        info = self.invocation.info
        current = await convert(self._ctx.info, info, obj)
        applied = False
        if current:
            for mutation in policy.mutations:
                evaluation = Evaluation(policy.variables, await self._inputs(current), self._check)
                try:
                    current = await self._apply(mutation, current, evaluation)
                    applied = True
                except (ExpressionError, MutationError) as error:
                    self._denials.add(policy, self.invocation.denial(str(error)), "Invalid")
        return await convert(info, self._ctx.info, current) if applied else None

    async def _inputs(self, obj: Object) -> Mapping[str, Any]:
        info = self.invocation.info
        old = await convert(self._ctx.info, info, self._old) if self._old else self._old
        variables = await policy_variables(self._store, self._ctx, obj, old, info)
        return {**variables, "params": self.invocation.parameter}

    async def _apply(self, mutation: Mutation, obj: Object, evaluation: Evaluation) -> Object:
        info = self.invocation.info
        subresource = self._ctx.subresource
        kind = self._types.body_type_of(info, subresource)
        if kind is None:
            why = "There can be a delay between when CustomResourceDefinitions are created and when they are available."
            message = (
                f"Resource kind {obj.get('apiVersion')}, Kind={obj.get('kind')} not found. {why}"
            )
            raise StatusError(503, "ServiceUnavailable", message, {})
        mutated = mutation.apply(obj, kind, evaluation)
        if mutated is obj:
            return obj
        try:
            decoded, unknown = await decode_patched(self._ctx, info, mutated)
        except Unconvertible as error:
            raise internal_error(f"failed to convert object: {error}") from error
        if unknown and mutation.strict and not info.is_crd:
            raise internal_error(f"strict decoding error: {', '.join(unknown)}")
        return decoded
