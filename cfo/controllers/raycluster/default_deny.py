"""Maintains NetworkPolicies of whole namespaces that admit nothing to Ray pods until a RayCluster's own policies exist.

Kubernetes applies a NetworkPolicy that exists before a pod from the pod's first instant. The policies of a RayCluster
are created at the same time as its pods, so only a policy that is older than the RayCluster leaves no gap. The
administrator selects namespaces by their labels. Each selected namespace gets the policy, whether it has RayClusters or
not, and keeps it until it is no longer selected or the setting is removed.

The policy has no owner reference: the namespace's deletion deletes it. A policy of that name without our label belongs
to another client and is left unchanged; an Event on it reports this.
"""

from __future__ import annotations

from cfo.api.raycluster.names import DEFAULT_DENY_LABEL, DEFAULT_DENY_NAME, FIELD_MANAGER
from cfo.config.network import DefaultDenyConfiguration
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.raycluster.policies import desired_default_deny
from cfo.controllers.raycluster.watches import CHILD_CHANGED
from cfo.runtime import (
    NAMESPACE,
    NETWORK_POLICY,
    Builder,
    EnqueueRequestsFromMapFunc,
    Manager,
    NamespacedName,
    Object,
    Reader,
    Request,
    Result,
    labels_of,
)
from cfo.runtime.client import Child, Outcome, Update, reconcile_children
from cfo.runtime.objects import new_object


class DefaultDenyReconciler:
    """Creates, restores and deletes the policy of one namespace, which the request names.

    ``namespaces`` reads the metadata of the selected namespaces (``None``: none is selected).
    """

    name = "raycluster-default-deny"

    def __init__(self, manager: Manager, namespaces: Reader | None) -> None:
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._events = manager.events(self.name)
        self._namespaces = namespaces

    async def reconcile(self, request: Request) -> Result:
        """Bring the policy of one namespace up to date."""
        meta = self._namespaces.meta(request) if self._namespaces is not None else None
        if meta is not None and meta.deletion_timestamp:
            return Result()
        child = decide_policy(request.name, is_selected=meta is not None)
        namespace = new_object(NAMESPACE, request.name)
        results = await reconcile_children(self._client, namespace, [child])
        results.raise_errors()
        for result in results:
            if result.outcome is Outcome.TAKEN and result.obj is not None:
                self._report(result.obj)
        return Result(requeue_after=results.retry_after)

    def _report(self, policy: Object) -> None:
        self._events.event(
            policy,
            "Warning",
            "NameTaken",
            f"The operator does not create its own NetworkPolicy {DEFAULT_DENY_NAME} in this namespace, because this "
            f"one does not have the label {DEFAULT_DENY_LABEL}: until the policies of a new RayCluster exist, all "
            "clients that this NetworkPolicy and others admit can reach its pods",
        )


def decide_policy(namespace: str, *, is_selected: bool) -> Child:
    """Return the policy of a namespace, which exists while the namespace is selected."""
    if not is_selected:
        key = NamespacedName(namespace, DEFAULT_DENY_NAME)
        return Child.absent(NETWORK_POLICY, key, belongs=_is_ours)
    return Child.present(
        desired_default_deny(namespace),
        # An apply would keep rules that another client added, because the desired policy has no rules to own.
        update=Update.REPLACE,
        belongs=_is_ours,
        has_owner_reference=False,
    )


def _is_ours(policy: Object) -> bool:
    return DEFAULT_DENY_LABEL in labels_of(policy)


def setup(manager: Manager, config: DefaultDenyConfiguration) -> None:
    """Add the controller to ``manager``. Without a selector it only deletes the policies of an earlier configuration.

    It does not start before the selected namespaces are known, so a missing permission deletes nothing.
    """
    selector = config.namespace_selector
    namespaces: Reader | None = None
    builder = Builder(manager, DefaultDenyReconciler.name)
    if selector is not None:
        namespaces = manager.cache.informer(
            NAMESPACE, label_selector=selector, metadata_only=True
        ).reader
        builder.for_(NAMESPACE, label_selector=selector, metadata_only=True)
    policies = EnqueueRequestsFromMapFunc(
        lambda policy: [Request("", policy.namespace)] if policy.name == DEFAULT_DENY_NAME else []
    )
    builder.watches(NETWORK_POLICY, policies, CHILD_CHANGED, max_bytes=MAX_CACHED_BYTES)
    builder.complete(DefaultDenyReconciler(manager, namespaces))
