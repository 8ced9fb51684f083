"""How Jobs recognize their pods."""

from __future__ import annotations

from typing import Final

JOB_UID_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
"""The labels with the uid of a Job. Selectors of Jobs have the first one, or the second one before Kubernetes 1.27."""
