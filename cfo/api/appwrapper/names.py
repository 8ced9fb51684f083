"""The kind of AppWrappers, its phases, and the labels and conditions that the Go operator and Kueue use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from cfo.api.reading import items, mapping, path
from cfo.runtime import GVK, find_condition, name_of, uid_of

APPWRAPPER: Final = GVK("workload.codeflare.dev", "v1beta2", "AppWrapper")


class Phase(StrEnum):
    """The phase of an AppWrapper."""

    EMPTY = ""
    SUSPENDED = "Suspended"
    RESUMING = "Resuming"
    RUNNING = "Running"
    RESETTING = "Resetting"
    SUSPENDING = "Suspending"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TERMINATING = "Terminating"


FIELD_MANAGER: Final = "codeflare-operator"
"""The field manager of AppWrapper statuses and components."""

FINALIZER: Final = "workload.codeflare.dev/finalizer"
"""Prevents the deletion of an AppWrapper while its components may exist."""

QUOTA_FINALIZER: Final = "workload.codeflare.dev/quota"
"""Prevents the deletion of the Workload of an AppWrapper while pods may use its quota.

Kueue removes its own finalizer ``kueue.x-k8s.io/resource-in-use``; this one only the operator removes.
"""

APPWRAPPER_UID_LABEL: Final = "workload.codeflare.dev/appwrapper-uid"
"""The uid of the AppWrapper to which a Workload belongs; ``metadata.ownerReferences`` does not outlive an orphaning."""

SELECTOR_ANNOTATION: Final = "workload.codeflare.dev/label-selector"
"""The label selector of the operator that follows a Workload; it does not exist if that has none.

If it does not match the labels of the AppWrapper any more, the AppWrapper has left the operator.
"""

ANNOTATION_PREFIX: Final = "workload.codeflare.dev.appwrapper/"
"""The prefix of the annotations with which a user sets periods, limits and exit codes."""

APPWRAPPER_LABEL: Final = "workload.codeflare.dev/appwrapper"
"""The name of the AppWrapper to which a component or pod belongs."""

USER_LABEL: Final = "workload.codeflare.dev/user"
"""The user who created an AppWrapper; set only at admission."""

USER_ID_LABEL: Final = "workload.codeflare.dev/userid"
"""The uid of that user, if the authenticator provided one."""

CONTROLLER_NAME: Final = "workload.codeflare.dev/appwrapper-controller"
"""The value of ``spec.managedBy`` that selects this controller; so does an unset field."""

QUOTA_RESERVED: Final = "QuotaReserved"
"""Whether the AppWrapper uses, or is allowed to use, its quota. (Kueue frees the quota when this is false.)"""

RESOURCES_DEPLOYED: Final = "ResourcesDeployed"
"""Whether components exist, or may exist. In the status of a component: whether it exists."""

PODS_READY: Final = "PodsReady"
"""Whether the expected number of pods is running or has succeeded."""

UNHEALTHY: Final = "Unhealthy"
"""Whether there is a problem; the reason identifies it."""

DELETING_RESOURCES: Final = "DeletingResources"
"""Whether components are being deleted. The grace period before a forceful deletion starts when this becomes true."""

VALIDATED: Final = "Validated"
"""Whether the webhook validated the AppWrapper; components are created only if this is true or does not exist."""

POD_FAILURE_PREFIX: Final = "A pod cannot start: "
"""How the message of ``PodsReady`` begins if it says why a pod cannot start or cannot be created."""

COMPONENT_SUSPENDED: Final = "ComponentSuspended"
"""The reason in such a message, and before missing pods, if a component is suspended and the AppWrapper is not."""

ANNOTATION_PROBLEM: Final = "; annotation "
"""Precedes each problem with an annotation in the message of ``ResourcesDeployed``."""

NOT_CONTROLLED: Final = "exists, but is not controlled by appwrapper"
"""The problem with a resource that has the name of a component, in the Go operator's words."""

UNKNOWN_FIELDS: Final = "UnknownFields"
"""A component's condition: its object lacks fields of the template that the API server does not know."""

OWN_CONDITIONS: Final = (
    QUOTA_RESERVED,
    RESOURCES_DEPLOYED,
    PODS_READY,
    UNHEALTHY,
    DELETING_RESOURCES,
    VALIDATED,
)
"""The conditions that this controller writes; all other conditions are written by other clients."""

_HASH_LENGTH: Final = 5
_PREFIX_LENGTH: Final = 252 - _HASH_LENGTH
"""The name of a Workload has at most 253 characters: this prefix, a dash, and the hash."""


def is_managed_here(wrapper: Mapping[str, Any]) -> bool:
    """Return whether ``spec.managedBy`` assigns the AppWrapper to this controller."""
    return ((wrapper.get("spec") or {}).get("managedBy") or CONTROLLER_NAME) == CONTROLLER_NAME


def workload_name(wrapper: Mapping[str, Any]) -> str:
    """Return the name of the AppWrapper's Workload."""
    text = "\n".join([APPWRAPPER.kind, APPWRAPPER.group, name_of(wrapper), uid_of(wrapper)])
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    prefix = f"{APPWRAPPER.kind.lower()}-{name_of(wrapper)}"
    return f"{prefix[:_PREFIX_LENGTH]}-{digest}"


def has_quota(wrapper: Mapping[str, Any]) -> bool:
    """Return whether an AppWrapper has quota: from its admission until its resources are deleted, or it has ended.

    Its fields can have any type.
    """
    reserved = find_condition(items(path(wrapper, "status", "conditions")), QUOTA_RESERVED) or {}
    return reserved.get("status") == "True"


def is_idle(wrapper: Mapping[str, Any]) -> bool:
    """Return whether an AppWrapper is suspended, and nothing of it runs. Its fields can have any type."""
    return bool(mapping(wrapper.get("spec")).get("suspend")) and not has_quota(wrapper)
