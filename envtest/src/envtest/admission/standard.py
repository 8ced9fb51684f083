"""The default admission chain of the API server: its plugins and their order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache

from envtest.admission.certificates import CertificatePermission, CertificateSubjectRestriction
from envtest.admission.chain import AdmissionChain, Mutator, Plugin, Reinvocation, Validator
from envtest.admission.claim_resize import PersistentVolumeClaimResize
from envtest.admission.device_access import DeviceAdminAccess
from envtest.admission.limit_ranger import LimitRanger
from envtest.admission.matching import Matcher
from envtest.admission.namespace_lifecycle import NamespaceLifecycle
from envtest.admission.plugin_names import DEFAULT_PLUGINS
from envtest.admission.pod_placement import PodTopologyLabels, RuntimeClass
from envtest.admission.pod_security import PodSecurity
from envtest.admission.serviceaccount import ServiceAccountPlugin
from envtest.admission.settings import (
    DefaultClass,
    DefaultTolerationSeconds,
    Priority,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from envtest.admission.webhook_client import WebhookClient
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.auth.escalation import check_escalation
from envtest.auth.rbac import RBAC_GROUP, RBACAuthorizer
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext
from envtest.storage import Store

__all__ = ["standard_chain"]

_QUOTAS = GroupResource("", "resourcequotas")
_GROUP = "admissionregistration.k8s.io"
_MUTATING_BINDINGS = GroupResource(_GROUP, "mutatingadmissionpolicybindings")
_BINDINGS = GroupResource(_GROUP, "validatingadmissionpolicybindings")
_MUTATING_HOOKS = GroupResource(_GROUP, "mutatingwebhookconfigurations")
_VALIDATING_HOOKS = GroupResource(_GROUP, "validatingwebhookconfigurations")


class _EscalationCheck(Plugin):
    """Rejects RBAC objects that grant permissions which the user does not have; checks the object to be stored."""

    def __init__(self, authorizer: RBACAuthorizer) -> None:
        self._authorizer = authorizer

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check the permissions. Raises StatusError: 403, or 404 for a role that does not exist."""
        if ctx.info.group == RBAC_GROUP and obj and not ctx.subresource:
            check_escalation(self._authorizer, ctx, obj, old)


class _LazyStep:
    """A step that is created when the first object of a resource is stored; until then it does nothing.

    Webhooks and policies import a large part of this package, and most tests use neither.
    """

    def __init__(self, store: Store, table: GroupResource) -> None:
        self._store = store
        self._table = table

    @property
    def _enabled(self) -> bool:
        return self._store.count(self._table) > 0


class _LazyMutator(_LazyStep):
    def __init__(self, store: Store, table: GroupResource, create: Callable[[], Mutator]) -> None:
        super().__init__(store, table)
        self._step = cache(create)

    async def mutate(
        self, ctx: RequestContext, obj: Object, old: Object | None, reinvocation: Reinvocation
    ) -> Object:
        return await self._step().mutate(ctx, obj, old, reinvocation) if self._enabled else obj


class _LazyValidator(_LazyStep):
    def __init__(self, store: Store, table: GroupResource, create: Callable[[], Validator]) -> None:
        super().__init__(store, table)
        self._step = cache(create)

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        if self._enabled:
            await self._step().validate(ctx, obj, old)


def standard_chain(
    store: Store,
    registry: Registry,
    authorizer: RBACAuthorizer,
    webhooks: WebhookClient,
    *,
    enabled: Collection[str] = DEFAULT_PLUGINS,
) -> AdmissionChain:
    """Return kube-apiserver's chain, without the plugins that need nodes to have an effect.

    ``enabled`` names the plugins to run; the ServiceAccount plugin requires a controller that creates default accounts.
    """
    plugins: dict[str, Plugin] = {
        "NamespaceLifecycle": NamespaceLifecycle(store),
        "LimitRanger": LimitRanger(store),
        "ServiceAccount": ServiceAccountPlugin(store),
        "TaintNodesByCondition": TaintNodesByCondition(),
        "Priority": Priority(store),
        "DefaultTolerationSeconds": DefaultTolerationSeconds(),
        "PodSecurity": PodSecurity(store),
        "DefaultStorageClass": DefaultClass.storage(store),
        "PersistentVolumeClaimResize": PersistentVolumeClaimResize(store),
        "StorageObjectInUseProtection": StorageObjectInUseProtection(),
        "RuntimeClass": RuntimeClass(store),
        "PodTopologyLabels": PodTopologyLabels(store),
        "CertificateApproval": CertificatePermission.approval(authorizer),
        "CertificateSigning": CertificatePermission.signing(authorizer),
        "CertificateSubjectRestriction": CertificateSubjectRestriction(),
        "DefaultIngressClass": DefaultClass.ingress(store),
    }
    matcher = Matcher(store, registry)

    def mutating_policies() -> Mutator:
        from envtest.admission.mutating_policies import MutatingPolicies

        return MutatingPolicies(store, registry, matcher, authorizer)

    def mutating() -> Mutator:
        from envtest.admission.webhooks import HookSource, MutatingWebhooks

        return MutatingWebhooks(HookSource(store, _MUTATING_HOOKS), matcher, webhooks, authorizer)

    def validating() -> Validator:
        from envtest.admission.webhooks import HookSource, ValidatingWebhooks

        return ValidatingWebhooks(
            HookSource(store, _VALIDATING_HOOKS), matcher, webhooks, authorizer
        )

    def policies() -> Validator:
        from envtest.admission.policies import ValidatingPolicies

        return ValidatingPolicies(store, registry, matcher, authorizer)

    def quotas() -> Validator:
        from envtest.admission.quota import QuotaAdmission

        return QuotaAdmission(store)

    mutators = {
        "MutatingAdmissionPolicy": _LazyMutator(store, _MUTATING_BINDINGS, mutating_policies),
        "MutatingAdmissionWebhook": _LazyMutator(store, _MUTATING_HOOKS, mutating),
    }
    validators = {
        "ValidatingAdmissionPolicy": _LazyValidator(store, _BINDINGS, policies),
        "ValidatingAdmissionWebhook": _LazyValidator(store, _VALIDATING_HOOKS, validating),
        "ResourceQuota": _LazyValidator(store, _QUOTAS, quotas),
    }
    return AdmissionChain(
        [
            *(plugin for name, plugin in plugins.items() if name in enabled),
            DeviceAdminAccess(store),
        ],
        [mutator for name, mutator in mutators.items() if name in enabled],
        [validator for name, validator in validators.items() if name in enabled],
        final_plugins=[_EscalationCheck(authorizer)],
    )
