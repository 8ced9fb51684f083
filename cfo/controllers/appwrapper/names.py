"""Labels, annotations and conditions of AppWrappers, identical to the Go operator's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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

OWN_CONDITIONS: Final = (QUOTA_RESERVED, RESOURCES_DEPLOYED, PODS_READY, UNHEALTHY, DELETING_RESOURCES, VALIDATED)
"""The conditions that this controller writes; all other conditions are written by other clients."""


def is_managed_here(wrapper: Mapping[str, Any]) -> bool:
    """Return whether ``spec.managedBy`` assigns the AppWrapper to this controller."""
    return ((wrapper.get("spec") or {}).get("managedBy") or CONTROLLER_NAME) == CONTROLLER_NAME
