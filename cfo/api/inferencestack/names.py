"""Names, labels and annotations of the objects of an InferenceStack.

Names, and the labels in selectors, equal those of the original operator's Helm chart, so that its objects can be
adopted: selectors of Deployments are immutable. Source: ``_helpers.tpl`` of the chart ``inference-stack``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cfo.api.inferencestack.kinds import PERSISTENT_VOLUME_CLAIM
from cfo.runtime import Object, annotations_of, name_of

CHART_NAME: Final = "inference-stack"
GATEWAY: Final = "gateway"
"""The component of the gateway, and the suffix of its objects; an application cannot have this name."""
APPLICATION_PREFIX: Final = "application-"
"""The prefix of an application's component."""
CONFIG_KEY: Final = "config.yaml"
"""The only key of each ConfigMap."""
GATEWAY_INTERNAL_PORT: Final = 3005
"""The port of the gateway's Service to which applications and KEDA connect."""

COMPONENT_LABEL: Final = "app.kubernetes.io/component"
NAME_LABEL: Final = "app.kubernetes.io/name"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "inference-stack-operator"
"""The value of the label :data:`MANAGED_BY_LABEL` of every object of a stack."""
FIELD_MANAGER: Final = MANAGED_BY
"""The field manager of all writes. It is the same for all major versions, so that one can take over from another."""
CLAIMS_FIELD_MANAGER: Final = f"{MANAGED_BY}-claims"
"""The field manager of the condition ``Claimed``, which the operator of another version can write."""
CHART_LABEL: Final = "helm.sh/chart"
"""Label of objects that Helm created: name and version of the chart."""
HELM_LABELS: Final = (CHART_LABEL, "app.kubernetes.io/version", MANAGED_BY_LABEL)
"""Labels that Helm sets on pod templates; changing them would restart all pods, so adopted ones are kept."""

# Reasons of the condition Degraded for objects that could not be written.
RECONCILE_ERROR: Final = "ReconcileError"
NAME_TAKEN: Final = "NameTaken"
HOST_NOT_FREE: Final = "HostNotFree"
DELETING: Final = "Deleting"
"""An object of a deleted stack with the same name still exists."""

_PREFIX: Final = "inference-stack-operator"
CONFIG_HASH: Final = f"{_PREFIX}/config-hash"
"""Annotation of pod templates: the hash of the ConfigMap, so that a change of the configuration restarts the pods."""
ADOPTED_CONFIG_HASH: Final = f"{_PREFIX}/adopted-config-hash"
"""Annotation of a ConfigMap that Helm created, and label of its Deployment: the hash of the content when it was
adopted. Pods without :data:`CONFIG_HASH` run with that content."""
AUTOSCALED: Final = f"{_PREFIX}/autoscaled"
"""Label of a Deployment whose number of replicas an autoscaler sets."""
KEPT_REPLICAS: Final = f"{_PREFIX}/kept-replicas"
"""Label of a Deployment: the number of replicas that was taken over from an autoscaler, or that a suspended
Deployment had."""
KEPT_FOR_REPLICA_COUNT: Final = f"{_PREFIX}/kept-for-replica-count"
"""Label of a Deployment: the ``replicaCount`` at that time. :data:`KEPT_REPLICAS` applies until it changes."""
SCALED_BY_OTHERS: Final = f"{_PREFIX}/scaled-by-others"
"""Label of a Deployment whose number of replicas an autoscaler sets that does not belong to the stack: the
``replicaCount`` when this was noticed. Until ``replicaCount`` changes, the number is not written."""
RETAINED: Final = f"{_PREFIX}/retained"
"""Annotation of a PersistentVolumeClaim that must not have an owner, so that it outlives its stack."""

PAUSE_ANNOTATION: Final = f"{MANAGED_BY}/pause-reconcile"
"""Annotation of a stack: with the value ``true``, only its status is written."""

HELM_RELEASE_NAME: Final = "meta.helm.sh/release-name"
"""Annotation of objects that Helm created: the name of the release, which is the name of the stack."""

HELM_FINALIZERS: Final = (
    "uninstall-helm-release",
    "helm.sdk.operatorframework.io/uninstall-release",
)
"""Finalizers of the original operator and of operator-sdk's; without that operator, they block the deletion."""

_MAX_NAME = 63


class StackNames(msgspec.Struct, frozen=True):
    """The names of the objects of one stack. ``fullname`` is the prefix of all names."""

    stack: str
    fullname: str
    name_label: str
    service_account: str

    @property
    def gateway(self) -> str:
        """The name of all objects of the gateway."""
        return f"{self.fullname}-{GATEWAY}"

    def application(self, application: str) -> str:
        """Return the name of the objects of an application."""
        return f"{self.fullname}-{application}"

    def cache(self, application: str) -> str:
        """Return the name of the PersistentVolumeClaim with an application's models."""
        return f"{self.application(application)}-models"

    def selector(self, component: str) -> dict[str, str]:
        """Return the labels by which the Deployment or Service of ``component`` selects pods."""
        return {COMPONENT_LABEL: component, NAME_LABEL: self.name_label, INSTANCE_LABEL: self.stack}

    def labels(self, component: str = "") -> dict[str, str]:
        """Return the labels of a ``component``'s object, or of the ServiceAccount, which belongs to none."""
        labels = {
            NAME_LABEL: self.name_label,
            INSTANCE_LABEL: self.stack,
            MANAGED_BY_LABEL: MANAGED_BY,
        }
        return {COMPONENT_LABEL: component, **labels} if component else labels


def _cut(name: str) -> str:
    return name[:_MAX_NAME].removesuffix("-")


def names_of(stack: Object) -> StackNames:
    """Return the names of the objects of ``stack``. The spec must have been validated (:mod:`.validation`)."""
    spec: Mapping[str, Any] = stack.get("spec") or {}
    chart_name = spec.get("nameOverride") or CHART_NAME
    fullname = spec.get("fullnameOverride") or ""
    if not fullname:
        fullname = (
            name_of(stack) if chart_name in name_of(stack) else f"{name_of(stack)}-{chart_name}"
        )
    fullname = _cut(fullname)
    account: Mapping[str, Any] = spec.get("serviceAccount") or {}
    default_account = fullname if account.get("create", True) else "default"
    return StackNames(
        name_of(stack), fullname, _cut(chart_name), account.get("name") or default_account
    )


def is_retained(obj: Object) -> bool:
    """Return whether ``obj`` must outlive its stack: it gets no owner reference, and is not pruned.

    Only volumes are retained: users set the annotations of other objects.
    """
    return (
        obj.get("kind") == PERSISTENT_VOLUME_CLAIM.kind
        and annotations_of(obj).get(RETAINED) == "true"
    )
