"""The conditions that the operator adds to the status of a RayCluster, and the reasons of problems in them."""

from __future__ import annotations

from typing import Final

EXPOSED: Final = "ray.openshift.ai/Exposed"
"""The dashboard is reachable from outside; the message has its URL, and the address of the Ray client."""
MUTUAL_TLS: Final = "ray.openshift.ai/MutualTLS"
"""The nodes authenticate each other with certificates of a CA, whose end of validity is in the message."""
NETWORK_POLICIES: Final = "ray.openshift.ai/NetworkPolicies"
"""NetworkPolicies isolate the pods; the message names them and who created them."""

CONDITION_TYPES: Final = frozenset({EXPOSED, MUTUAL_TLS, NETWORK_POLICIES})

HEAD_SERVICE_NAME_INVALID: Final = "HeadServiceNameInvalid"
HOST_TOO_LONG: Final = "HostTooLong"
NOT_INJECTED: Final = "NotInjected"
"""The webhook did not add mutual TLS to a RayCluster, although it is enabled."""
MISSING_ROLE: Final = "MissingRole"
"""The operator lacks an optional role; it is the cause of other problems, so it precedes them."""

LASTING_REASONS: Final = frozenset(
    {
        "AuthenticationProxyMissing",
        "BackendTLSUnavailable",
        "CertificateRequestsDisabled",
        "FailedToReconcile",
        "GatewayAPIUnavailable",
        HEAD_SERVICE_NAME_INVALID,
        HOST_TOO_LONG,
        "HostShared",
        "HostTaken",
        "IngressDomainMissing",
        "IngressTLSUnavailable",
        MISSING_ROLE,
        "NameTaken",
        "OAuthUnavailable",
        "OIDCSecretMissing",
        "PortRefused",
        "ProfileNotMet",
        "RayTokenDisabled",
        "RayTokenNotRequired",
        "RayTokenUnverified",
    }
)
"""Reasons of Warning Events that each reconcile finds again while their cause exists; so long, a condition has them."""
