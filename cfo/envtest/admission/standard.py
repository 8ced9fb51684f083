"""The admission chain of a control plane: which plugins there are, and in which order they see a request."""

from __future__ import annotations

from cfo.envtest.auth.escalation import check_escalation
from cfo.envtest.auth.rbac import RBAC_GROUP, RBACAuthorizer
from cfo.envtest.context import RequestContext
from cfo.envtest.errors import GroupResource
from cfo.envtest.registry import Registry
from cfo.envtest.storage import Store
from cfo.runtime.objects import Object

from .chain import AdmissionChain, Plugin
from .lifecycle import NamespaceLifecycle
from .matching import Matcher
from .policies import ValidatingPolicies
from .serviceaccount import ServiceAccountPlugin
from .settings import (
    DefaultClass,
    DefaultTolerationSeconds,
    Priority,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from .webhook_client import WebhookClient
from .webhooks import MUTATING, VALIDATING, HookSource, MutatingWebhooks, ValidatingWebhooks

__all__ = ["standard_chain"]

_MUTATING_POLICIES = GroupResource("admissionregistration.k8s.io", "mutatingadmissionpolicies")


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
    plugins: list[Plugin] = [NamespaceLifecycle(store)]
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
    mutating = MutatingWebhooks(HookSource(store, MUTATING), matcher, webhooks, authorizer)
    validating = ValidatingWebhooks(HookSource(store, VALIDATING), matcher, webhooks, authorizer)
    policies = ValidatingPolicies(store, registry, matcher, authorizer)
    return AdmissionChain(plugins, [mutating], [policies, validating], last=[_NoEscalation(authorizer)])
