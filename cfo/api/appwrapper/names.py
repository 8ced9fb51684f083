"""The kind of AppWrappers, its phases, and labels that the Go operator and Kueue use."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from cfo.runtime import GVK

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

ANNOTATION_PREFIX: Final = "workload.codeflare.dev.appwrapper/"
"""The prefix of the annotations with which a user sets periods, limits and exit codes."""

APPWRAPPER_LABEL: Final = "workload.codeflare.dev/appwrapper"
"""The name of the AppWrapper to which a component or pod belongs."""

QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""The LocalQueue that admits an AppWrapper."""

USER_LABEL: Final = "workload.codeflare.dev/user"
"""The user who created an AppWrapper; set only at admission."""

USER_ID_LABEL: Final = "workload.codeflare.dev/userid"
"""The uid of that user, if the authenticator provided one."""
