"""What validating and mutating admission policies share: bindings, parameters, variables and conditions.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/generic``. A policy without a binding has no effect. Each binding
applies the policy to the requests that it matches, once for each parameter that it refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from envtest.admission.conditions import (
    Expression,
    ExpressionError,
    MatchConditions,
    OutOfBudgetError,
    request_variables,
)
from envtest.admission.matching import NAMESPACES, Matcher, Rule, label_selector, request_namespace
from envtest.admission.review import admission_request
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.registry.storage_version import from_storage
from envtest.schema.cel import Budget
from envtest.schema.cel_authorizer import AuthorizationCheck
from envtest.storage import Store

__all__ = [
    "Binding",
    "ConfigurationError",
    "Evaluation",
    "MatchResources",
    "Policy",
    "PolicySource",
    "is_exempt",
    "policy_variables",
]

_REVIEW_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_MISSING_KEY: Final = "no such key: "
_BUDGET: Final = 10_000_000
"""What the expressions of a policy may cost for a request, a binding and a parameter."""


class ConfigurationError(Exception):
    """Raised if a policy or binding cannot be evaluated; the policy's failurePolicy decides about the request."""


class MatchResources:
    """``MatchResources`` of a policy's constraints or of a binding."""

    def __init__(self, resources: Mapping[str, Any] | None) -> None:
        resources = resources or {}
        self.namespaces = label_selector(resources.get("namespaceSelector"))
        self.objects = label_selector(resources.get("objectSelector"))
        self.rules = [Rule(rule) for rule in resources.get("resourceRules") or ()]
        self.excluded = [Rule(rule) for rule in resources.get("excludeResourceRules") or ()]
        self.equivalent = resources.get("matchPolicy", "Equivalent") == "Equivalent"

    def match(
        self, matcher: Matcher, ctx: RequestContext, obj: Object, old: Object | None
    ) -> ResourceInfo | None:
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


class Policy:
    """The compiled part of a policy that both kinds have."""

    def __init__(self, policy: Object) -> None:
        spec = policy.get("spec") or {}
        self.name: str = policy["metadata"]["name"]
        self.resources = MatchResources(spec.get("matchConstraints"))
        self.ignores_failure = spec.get("failurePolicy") == "Ignore"
        self.conditions = MatchConditions(
            spec.get("matchConditions") or (), ignore_errors=self.ignores_failure
        )
        self.variables = [
            (each["name"], Expression(each["expression"])) for each in spec.get("variables") or ()
        ]
        self.param_kind: Mapping[str, str] | None = spec.get("paramKind")


class Binding:
    """A compiled binding."""

    def __init__(self, binding: Object) -> None:
        spec = binding.get("spec") or {}
        self.name: str = binding["metadata"]["name"]
        self.policy: str = spec.get("policyName", "")
        self.param_ref: Mapping[str, Any] | None = spec.get("paramRef")
        self.resources = MatchResources(spec.get("matchResources"))
        self.actions: Sequence[str] = spec.get("validationActions") or ()


P = TypeVar("P", bound=Policy)


class Bound(NamedTuple, Generic[P]):
    """A policy with its bindings."""

    policy: P
    bindings: list[Binding]


class PolicySource(Generic[P]):
    """The policies of one kind that have bindings, compiled again after a change."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        policies: GroupResource,
        bindings: GroupResource,
        compile_policy: Callable[[Object], P],
    ) -> None:
        self._store = store
        self._registry = registry
        self._policies = policies
        self._bindings = bindings
        self._compile = compile_policy
        self._revision: tuple[int, int] | None = None
        self._bound: list[Bound[P]] = []

    def bound(self) -> Sequence[Bound[P]]:
        """Return the policies that have bindings, by name."""
        revision = (self._store.changes(self._policies), self._store.changes(self._bindings))
        if revision != self._revision:
            self._revision = revision
            bindings: dict[str, list[Binding]] = {}
            for record in self._store.list(self._bindings):
                binding = Binding(record.obj())
                bindings.setdefault(binding.policy, []).append(binding)
            policies = (
                record for record in self._store.list(self._policies) if record.name in bindings
            )
            self._bound = [
                Bound(self._compile(record.obj()), bindings[record.name]) for record in policies
            ]
        return self._bound

    def check(self, policy: Policy) -> None:
        """Check that the kind of the policy's parameters is served. Raises ConfigurationError."""
        if policy.param_kind is not None:
            self._parameter_info(policy.param_kind)

    def _parameter_info(self, kind: Mapping[str, str]) -> ResourceInfo:
        group, _, version = kind["apiVersion"].rpartition("/")
        info = self._registry.by_kind(group, version, kind["kind"])
        if info is None:
            text = f"{group}/{version}, Kind={kind['kind']}"
            raise ConfigurationError(f"failed to find resource referenced by paramKind: '{text}'")
        return info

    async def parameters(
        self, policy: Policy, binding: Binding, ctx: RequestContext
    ) -> list[Object | None]:
        """Return the parameters of a binding; ``[None]`` when it uses none. Raises ConfigurationError."""
        reference = binding.param_ref
        if policy.param_kind is None or reference is None:
            return [None]
        info = self._parameter_info(policy.param_kind)
        namespace = ""
        if info.namespaced:
            namespace = reference.get("namespace") or ctx.namespace
            if not namespace:
                why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                raise ConfigurationError(why)
        elif reference.get("namespace"):
            raise ConfigurationError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        records = self._parameter_records(info, reference, namespace)
        found: list[Object | None] = [await from_storage(info, record) for record in records]
        if not found and reference.get("parameterNotFoundAction") != "Allow":
            raise ConfigurationError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return found

    def _parameter_records(
        self, info: ResourceInfo, reference: Mapping[str, Any], namespace: str
    ) -> Iterator[Any]:
        if reference.get("name"):
            record = self._store.get(info.storage, namespace, reference["name"])
            return iter(()) if record is None else iter((record,))
        selector = label_selector(reference.get("selector"))
        return (
            record
            for record in self._store.list(info.storage, namespace)
            if selector.matches(record.labels)
        )


def is_exempt(matcher: Matcher, ctx: RequestContext) -> bool:
    """Report whether policies skip the request: for their own configurations and for reviews."""
    return matcher.is_exempt(ctx) or (ctx.info.group in _REVIEW_GROUPS and not ctx.subresource)


async def policy_variables(
    store: Store, ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo
) -> dict[str, Any]:
    """Return the variables of expressions; ``obj`` and ``old`` are in the version of ``info``, the matched resource."""
    variables = request_variables(admission_request(ctx, obj, old, info), ctx)
    namespace = request_namespace(ctx, obj)
    if namespace and ctx.info.resource != NAMESPACES:
        record = store.get(NAMESPACES, "", namespace)
        variables["namespaceObject"] = record.obj() if record is not None else None
    return variables


class Evaluation:
    """Evaluates expressions of a policy over ``inputs``, which get the policy's ``variables``.

    Variables are evaluated in order; each can use the earlier ones. One that fails is undefined, and an expression that
    uses it fails with its error. If all cost more than a policy's budget, the remaining expressions fail.
    """

    def __init__(
        self,
        variables: Iterable[tuple[str, Expression]],
        inputs: Mapping[str, Any],
        check: AuthorizationCheck,
    ) -> None:
        self._check = check
        self._budget = Budget(_BUDGET)
        self._composed: dict[str, Any] = {}
        self._failures: dict[str, str] = {}
        self._inputs = {**inputs, "variables": self._composed}
        for name, expression in variables:
            try:
                self._composed[name] = self.evaluate(expression)
            except ExpressionError as error:
                self._failures[name] = (
                    f'composited variable "{name}" fails to evaluate: {error.reason}'
                )

    def evaluate(self, expression: Expression) -> Any:
        """Return the value of an expression. Raises ExpressionError."""
        try:
            return expression.evaluate(self._inputs, self._check, self._budget)
        except OutOfBudgetError:
            raise
        except ExpressionError as error:
            failure = self._failures.get(error.reason.removeprefix(_MISSING_KEY))
            if failure is None:
                raise
            raise ExpressionError.of(expression.source, failure) from error
