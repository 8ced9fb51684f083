"""What the operator and the pods of a RayCluster agree on about certificates: the CA's lifetime, and requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from cfo.api.raycluster.cluster import pod_groups_of
from cfo.runtime import Object, annotations_of
from cfo.runtime.objects import parse_time

CA_LIFETIME: Final = timedelta(days=3650)
"""The lifetime of a CA certificate of the operator; it is renewed when a third remains."""

RENEWAL_ANNOTATION: Final = "ray.openshift.ai/ca-renewal-due"
"""On the Secret, when its certificate is created: when it is due for renewal (RFC 3339)."""

SIGNER_NAME: Final = "ray.openshift.ai/raycluster-node"
"""``spec.signerName`` of the CertificateSigningRequests that the operator signs."""

CERTIFICATE_USAGES: Final = ("digital signature", "server auth", "client auth")
"""``spec.usages`` of these requests: Ray nodes are servers and clients of each other."""

REQUEST_VOLUME: Final = "cert-request-vol"
"""The injected volume with the token of the pod, which authenticates its requests."""


def recorded_renewal(secret: Object) -> datetime | None:
    """Return the time in :data:`RENEWAL_ANNOTATION` of a Secret; ``None`` if it is missing or invalid."""
    try:
        return parse_time(annotations_of(secret).get(RENEWAL_ANNOTATION))
    except ValueError:
        return None


def requests_certificates(cluster: Mapping[str, Any]) -> bool:
    """Return whether pods of ``cluster`` request their certificates, which its pod templates determine."""
    for group in pod_groups_of(cluster):
        volumes = group.pod.get("volumes") or ()
        if any(volume.get("name") == REQUEST_VOLUME for volume in volumes):
            return True
    return False
