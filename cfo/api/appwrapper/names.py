"""Labels of AppWrappers and of what they wrap, as the Go operator and Kueue know them."""

from __future__ import annotations

from typing import Final

__all__ = ["QUEUE_NAME_LABEL", "USER_ID_LABEL", "USER_LABEL"]

QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""The LocalQueue that admits an AppWrapper."""

USER_LABEL: Final = "workload.codeflare.dev/user"
"""Who created an AppWrapper; written at admission alone."""

USER_ID_LABEL: Final = "workload.codeflare.dev/userid"
"""The uid of that user, if the authenticator gave one."""
