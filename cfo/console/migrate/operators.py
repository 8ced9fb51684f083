"""Finds operators and webhooks that would revert or reject the migration of RayClusters. Everything here is pure.

The webhook of a running operator injects its entries again and rejects their removal. Without its server, it rejects
every change, because it fails closed. Both must be removed before RayClusters are changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cfo.runtime import Object, name_of, namespace_of

__all__ = ["LEASE_NAME", "find_obstacles"]

LEASE_NAME: Final = "codeflare-operator-lock"
"""The name of the Lease of both operators, unless the configuration sets another one."""

_WEBHOOK_SUFFIX: Final = "raycluster.ray.openshift.ai"
_RESOURCES: Final = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


def find_obstacles(
    deployments: Iterable[Object], leases: Iterable[Object], webhook_configurations: Iterable[Object], now: datetime
) -> list[str]:
    """Return one line for each operator and webhook, with the command that stops or removes it.

    ``deployments`` and ``leases`` are those with the operator's names, of all namespaces.
    """
    return [
        *_deployments(deployments),
        *_leases(leases, now),
        *_webhooks(webhook_configurations),
    ]


def _deployments(deployments: Iterable[Object]) -> Iterator[str]:
    for deployment in deployments:
        wanted = (deployment.get("spec") or {}).get("replicas", 1)
        existing = (deployment.get("status") or {}).get("replicas", 0)
        if wanted or existing:
            namespace, name = namespace_of(deployment), name_of(deployment)
            yield (
                f"Deployment {namespace}/{name} is running; stop it: "
                f"kubectl -n {namespace} scale deployment {name} --replicas 0"
            )


def _leases(leases: Iterable[Object], now: datetime) -> Iterator[str]:
    for lease in leases:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") and not _is_expired(spec, now):
            yield (
                f"Lease {namespace_of(lease)}/{name_of(lease)} is held by {spec['holderIdentity']}; stop that operator"
            )


def _is_expired(spec: Mapping[str, Any], now: datetime) -> bool:
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime")))
    except ValueError:
        return False
    if renewed.tzinfo is None:
        renewed = renewed.replace(tzinfo=UTC)
    return renewed + timedelta(seconds=int(spec.get("leaseDurationSeconds") or 15)) < now


def _webhooks(configurations: Iterable[Object]) -> Iterator[str]:
    for configuration in configurations:
        for webhook in configuration.get("webhooks") or ():
            name = str(webhook.get("name") or "")
            if name.endswith(_WEBHOOK_SUFFIX):
                resource = str(configuration.get("kind")).lower()
                yield (
                    f"webhook {name} is registered; remove it: kubectl delete {resource} {name_of(configuration)}"
                    if resource in _RESOURCES
                    else f"webhook {name} is registered"
                )
