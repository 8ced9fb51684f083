"""How Jobs recognize their pods."""

from __future__ import annotations

from typing import Final

from cfo.runtime import GVK
from cfo.runtime.cache import OwnerReference

JOB_UID_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
"""The labels with the uid of a Job. Selectors of Jobs have the first one, or the second one before Kubernetes 1.27."""


def controller_uid(controller: OwnerReference | None, *kinds: GVK) -> str:
    """Return the uid of a pod's ``controller`` if that has one of these kinds, in any version; else empty.

    A reference with the uid of a Job and another kind is no proof: any user may write it, also where only the Job
    controller may write references to Jobs.
    """
    if controller is None:
        return ""
    found = GVK.parse(controller.api_version, controller.kind)
    return controller.uid if any(map(found.same_kind, kinds)) else ""
