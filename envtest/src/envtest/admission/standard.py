"""The admission chain of a control plane: which plugins there are, and in which order they see a request."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from envtest.auth.escalation import check_escalation
from envtest.auth.rbac import RBAC_GROUP, RBACAuthorizer
from envtest.context import RequestContext
from envtest.errors import GroupResource
from envtest.objects import Object
from envtest.registry import Registry
from envtest.storage import Store

from .chain import AdmissionChain, Mutator, Plugin, Reinvocation, Validator
from .lifecycle import NamespaceLifecycle
from .limits import LimitRanger
from .matching import Matcher
from .serviceaccount import ServiceAccountPlugin
from .settings import (
    DefaultClass,
    DefaultTolerationSeconds,
    Priority,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from .webhook_client import WebhookClient

__all__ = ["standard_chain"]

_QUOTAS = GroupResource("", "resourcequotas")
_GROUP = "admissionregistration.k8s.io"
_MUTATING_POLICIES = GroupResource(_GROUP, "mutatingadmissionpolicies")
_BINDINGS = GroupResource(_GROUP, "validatingadmissionpolicybindings")
_MUTATING_HOOKS = GroupResource(_GROUP, "mutatingwebhookconfigurations")
_VALIDATING_HOOKS = GroupResource(_GROUP, "validatingwebhookconfigurations")


class _NoEscalation(Plugin):
    """Nobody hands out rights that they do not have; judges what is going to be stored."""

    def __init__(self, authorizer: RBACAuthorizer) -> None:
        self._authorizer = authorizer

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Raises StatusError: 403, or 404 for a role that does not exist."""
        if ctx.info.group == RBAC_GROUP and obj and not ctx.subresource:
            check_escalation(self._authorizer, ctx, obj, old)


class _NotFollowed(Plugin):
    """Whoever makes a MutatingAdmissionPolicy is told that nothing follows it here."""

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Warns."""
        if ctx.info.resource == _MUTATING_POLICIES and ctx.operation == "CREATE":
            ctx.warn("this control plane stores MutatingAdmissionPolicies and does not follow them")


class _Step:
    """A step that is made when the first object of a table is stored; until then it has nothing to say.

    Webhooks and policies bring a good part of this package with them, and most tests have none.
    """

    def __init__(self, store: Store, table: GroupResource) -> None:
        self._store = store
        self._table = table

    @property
    def _wanted(self) -> bool:
        return self._store.count(self._table) > 0


class _Mutating(_Step):
    def __init__(self, store: Store, table: GroupResource, make: Callable[[], Mutator]) -> None:
        super().__init__(store, table)
        self._step = cache(make)

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None, rounds: Reinvocation) -> Object:
        return await self._step().mutate(ctx, obj, old, rounds) if self._wanted else obj


class _Validating(_Step):
    def __init__(self, store: Store, table: GroupResource, make: Callable[[], Validator]) -> None:
        super().__init__(store, table)
        self._step = cache(make)

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        if self._wanted:
            await self._step().validate(ctx, obj, old)


def standard_chain(
    store: Store,
    registry: Registry,
    authorizer: RBACAuthorizer,
    webhooks: WebhookClient,
    *,
    service_accounts: bool,
) -> AdmissionChain:
    """kube-apiserver's default chain, as far as it means something without nodes.

    ``service_accounts`` adds the ServiceAccount plugin, which wants default accounts to be made by their controller.
    """
    plugins: list[Plugin] = [NamespaceLifecycle(store), LimitRanger(store)]
    if service_accounts:
        plugins.append(ServiceAccountPlugin(store))
    plugins += [
        TaintNodesByCondition(),
        Priority(store),
        DefaultTolerationSeconds(),
        DefaultClass.storage(store),
        StorageObjectInUseProtection(),
        DefaultClass.ingress(store),
        _NotFollowed(),
    ]
    matcher = Matcher(store, registry)

    def mutating() -> Mutator:
        from .webhooks import HookSource, MutatingWebhooks

        return MutatingWebhooks(HookSource(store, _MUTATING_HOOKS), matcher, webhooks, authorizer)

    def validating() -> Validator:
        from .webhooks import HookSource, ValidatingWebhooks

        return ValidatingWebhooks(HookSource(store, _VALIDATING_HOOKS), matcher, webhooks, authorizer)

    def policies() -> Validator:
        from .policies import ValidatingPolicies

        return ValidatingPolicies(store, registry, matcher, authorizer)

    def quotas() -> Validator:
        from .quota import Quotas

        return Quotas(store)

    return AdmissionChain(
        plugins,
        [_Mutating(store, _MUTATING_HOOKS, mutating)],
        [
            _Validating(store, _BINDINGS, policies),
            _Validating(store, _VALIDATING_HOOKS, validating),
            _Validating(store, _QUOTAS, quotas),
        ],
        last=[_NoEscalation(authorizer)],
    )
