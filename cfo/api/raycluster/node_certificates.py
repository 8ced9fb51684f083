"""What the pods of a RayCluster and the operator agree on when pods request their certificates with the Kubernetes API.

The names in a node's certificate belong to the pod, not to its template: its addresses and, for a head, the names of
the head's Service and the client's host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.raycluster.naming import client_host, head_service_name
from cfo.runtime import Object, namespace_of

__all__ = [
    "CERTIFICATE_USAGES",
    "REQUEST_VOLUME",
    "SIGNER_NAME",
    "all_head_host_names",
    "head_host_names",
    "head_service_host",
    "is_host_name",
    "requests_certificates",
]

SIGNER_NAME: Final = "ray.openshift.ai/raycluster-node"
"""``spec.signerName`` of the CertificateSigningRequests that the operator signs."""

CERTIFICATE_USAGES: Final = ("digital signature", "server auth", "client auth")
"""``spec.usages`` of these requests: Ray nodes are servers and clients of each other."""

REQUEST_VOLUME: Final = "cert-request-vol"
"""The injected volume with the token of the pod, which authenticates its requests."""

_HOST: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


def is_host_name(name: str) -> bool:
    """Return whether ``name`` can be a host name; in particular, no such name has a meaning for a shell."""
    return len(name) <= 253 and _HOST.fullmatch(name) is not None


def head_service_host(cluster: Mapping[str, Any]) -> str:
    """Return the name of the head's Service with namespace, by which clients in the Kubernetes cluster verify it."""
    return f"{head_service_name(cluster)}.{namespace_of(cluster)}.svc"


def head_host_names(cluster: Mapping[str, Any], domain: str) -> list[str]:
    """Return the host names of the head of ``cluster``: the client's host in ``domain``, unless empty, and its Service.

    Strings that are not host names are left out, because the names become part of a shell command, and because clients
    could not reach the head through them.
    """
    names = [client_host(cluster, domain)] if domain else []
    return [name for name in (*names, head_service_host(cluster)) if is_host_name(name)]


def all_head_host_names(cluster: Mapping[str, Any], domain: str) -> list[str]:
    """Return :func:`head_host_names`, and the shorter and longer names of the head's Service.

    Workers get the longest one from KubeRay (``FQ_RAY_IP``); its suffix is Kubernetes' default cluster domain.
    """
    service, host = head_service_name(cluster), head_service_host(cluster)
    others = (service, f"{service}.{namespace_of(cluster)}", f"{host}.cluster.local")
    return [*head_host_names(cluster, domain), *(name for name in others if is_host_name(name))]


def requests_certificates(cluster: Mapping[str, Any]) -> bool:
    """Return whether pods of ``cluster`` request their certificates, which its pod templates determine."""
    return any(
        volume.get("name") == REQUEST_VOLUME
        for template in _templates(cluster)
        for volume in (template.get("spec") or {}).get("volumes") or ()
    )


def _templates(cluster: Mapping[str, Any]) -> Iterator[Object]:
    spec = cluster.get("spec") or {}
    for group in (spec.get("headGroupSpec"), *(spec.get("workerGroupSpecs") or ())):
        yield (group or {}).get("template") or {}
