"""How long the CA of a RayCluster is valid, which the metadata of its Secret shows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cfo.runtime import Object, annotations_of

__all__ = ["CA_LIFETIME", "RENEWAL_ANNOTATION", "recorded_renewal"]

CA_LIFETIME: Final = timedelta(days=3650)
"""The lifetime of a CA certificate of the operator; it is renewed when a third remains."""

RENEWAL_ANNOTATION: Final = "ray.openshift.ai/ca-renewal-due"
"""On the Secret, when its certificate is created: when it is due for renewal (RFC 3339)."""


def recorded_renewal(secret: Object) -> datetime | None:
    """Return the time in :data:`RENEWAL_ANNOTATION` of a Secret; ``None`` if it is missing or invalid."""
    try:
        recorded = datetime.fromisoformat(annotations_of(secret).get(RENEWAL_ANNOTATION, ""))
    except ValueError:
        return None
    return recorded if recorded.tzinfo is not None else None
