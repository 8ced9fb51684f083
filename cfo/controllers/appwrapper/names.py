"""Labels, finalizer, annotations, and the conditions of AppWrappers with their reasons: the Go operator's words."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ANNOTATION_PREFIX",
    "APPWRAPPER_LABEL",
    "CONTROLLER_NAME",
    "DELETING_RESOURCES",
    "FIELD_MANAGER",
    "FINALIZER",
    "OWN_CONDITIONS",
    "PODS_READY",
    "QUOTA_RESERVED",
    "RESOURCES_DEPLOYED",
    "UNHEALTHY",
]

FIELD_MANAGER: Final = "codeflare-operator"
"""Who writes AppWrappers' status and components."""

CONTROLLER_NAME: Final = "workload.codeflare.dev/appwrapper-controller"
"""What ``spec.managedBy`` says of AppWrappers that are this controller's (or it says nothing)."""

FINALIZER: Final = "workload.codeflare.dev/finalizer"
"""Holds an AppWrapper whose components may exist."""

APPWRAPPER_LABEL: Final = "workload.codeflare.dev/appwrapper"
"""The AppWrapper (by name) that a component or a pod belongs to."""

ANNOTATION_PREFIX: Final = "workload.codeflare.dev.appwrapper/"
"""What the annotations begin with by which a user sets periods, limits and exit codes."""

QUOTA_RESERVED: Final = "QuotaReserved"
"""Whether the AppWrapper uses, or may use, what its queue gave it. (Kueue frees the quota when this is false.)"""

RESOURCES_DEPLOYED: Final = "ResourcesDeployed"
"""Whether components exist, or may exist. Of a component: whether it exists."""

PODS_READY: Final = "PodsReady"
"""Whether as many pods run, or have succeeded, as there should be."""

UNHEALTHY: Final = "Unhealthy"
"""Whether something is wrong; the reason says what."""

DELETING_RESOURCES: Final = "DeletingResources"
"""Whether components are being deleted. Since when it is true, the clock of the forceful deletion runs."""

OWN_CONDITIONS: Final = (QUOTA_RESERVED, RESOURCES_DEPLOYED, PODS_READY, UNHEALTHY, DELETING_RESOURCES)
"""The conditions that this controller writes; those of others are theirs."""
