"""The types of the conditions that this operator adds to the status of a RayCluster."""

from __future__ import annotations

from typing import Final

__all__ = ["CONDITION_TYPES", "EXPOSED", "MUTUAL_TLS", "NETWORK_POLICIES"]

EXPOSED: Final = "ray.openshift.ai/Exposed"
"""The dashboard is reachable from outside; the message has its URL, and the address of the Ray client."""
MUTUAL_TLS: Final = "ray.openshift.ai/MutualTLS"
"""The nodes authenticate each other with certificates of a CA, whose end of validity is in the message."""
NETWORK_POLICIES: Final = "ray.openshift.ai/NetworkPolicies"
"""NetworkPolicies isolate the pods; the message names them and who created them."""

CONDITION_TYPES: Final = frozenset({EXPOSED, MUTUAL_TLS, NETWORK_POLICIES})
