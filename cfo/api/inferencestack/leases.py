"""The Leases of stack operators: an operator holds one that is named after its major version while it reconciles."""

from __future__ import annotations

from typing import Final

from cfo.api.inferencestack.names import MANAGED_BY

LEASE_LABELS: Final = {"app.kubernetes.io/part-of": MANAGED_BY}
LEASE_SELECTOR: Final = f"app.kubernetes.io/part-of={MANAGED_BY}"

MAX_LEASE_BYTES: Final = 4 << 10
"""The maximum size of a cached Lease; larger ones are not those of operators."""


def lease_name(operator_version: str) -> str:
    """Return the Lease name for an operator of this major version."""
    return f"{MANAGED_BY}-{operator_version}"


VERSIONS: Final = {lease_name(f"v{major}"): f"v{major}" for major in range(10)}
"""The major versions whose Leases the manifests allow, by the name of the Lease."""
