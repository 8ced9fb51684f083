"""Finds the operators and webhooks that would revert or reject a migration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cfo.api.reading import path
from cfo.config.model import LeaderElection
from cfo.console.lease_holder import living_holder
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.runtime import DEPLOYMENT, Client, Object, name_of, namespace_of
from cfo.runtime.objects import (
    CLUSTER_ROLE_BINDING,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)

_LEASE_NAME: Final = LeaderElection().resource_name
"""The name of the Lease of both operators, unless the configuration sets another one."""
_WEBHOOK_SUFFIX: Final = "raycluster.ray.openshift.ai"


async def obstacles(client: Client, namespace: str, *, with_webhooks: bool = True) -> list[str]:
    """Return the operators, also in ``namespace``, and webhooks that would revert the migration.

    ``with_webhooks``: whether registered webhooks are obstacles. They are none for this operator, which takes them over
    when it starts: without them, RayClusters could be created unprotected until then.
    """
    deployments = await client.list(
        DEPLOYMENT, field_selector=f"metadata.name={DEPLOYMENT_NAME}", live=True
    )
    leases = await client.list(LEASE, field_selector=f"metadata.name={_LEASE_NAME}", live=True)
    configurations: list[Object] = []
    for gvk in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        configurations += await client.list(gvk, live=True)
    bindings = await client.list(CLUSTER_ROLE_BINDING, live=True)
    own = {namespace} | operator_namespaces(deployments, bindings, configurations)
    return list(
        find_obstacles(
            [each for each in deployments if namespace_of(each) in own],
            [each for each in leases if namespace_of(each) in own],
            configurations if with_webhooks else (),
            datetime.now(UTC),
        )
    )


def operator_namespaces(
    deployments: Iterable[Object],
    bindings: Iterable[Object],
    webhook_configurations: Iterable[Object],
) -> set[str]:
    """Return the namespaces of operators.

    They have the Service of a webhook, or a Deployment whose ServiceAccount has a ClusterRoleBinding. Users can create
    Deployments and Leases with the operator's names in their own namespaces, but neither of these.
    """
    accounts: set[tuple[Any, Any]] = set()
    for binding in bindings:
        for subject in binding.get("subjects") or ():
            if subject.get("kind") == "ServiceAccount":
                accounts.add((subject.get("namespace"), subject.get("name")))
    found: set[str] = set()
    for deployment in deployments:
        account = path(deployment, "spec", "template", "spec", "serviceAccountName") or "default"
        if (namespace_of(deployment), account) in accounts:
            found.add(namespace_of(deployment))
    for configuration in webhook_configurations:
        for webhook in _webhooks_of(configuration):
            found.add(str(path(webhook, "clientConfig", "service", "namespace")))
    return found


def find_obstacles(
    deployments: Iterable[Object],
    leases: Iterable[Object],
    webhook_configurations: Iterable[Object],
    now: datetime,
) -> Iterator[str]:
    """Yield one line for each operator and webhook that would revert or reject the migration, with its remedy.

    The webhook of a running operator injects its entries again and rejects their removal. Without its server, it
    rejects every change, because it fails closed. Both must be removed before RayClusters are changed.

    ``deployments`` and ``leases`` are those with the operator's names in :func:`operator_namespaces`.
    """
    for deployment in deployments:
        wanted = (deployment.get("spec") or {}).get("replicas", 1)
        existing = (deployment.get("status") or {}).get("replicas", 0)
        if wanted or existing:
            namespace = namespace_of(deployment)
            name = name_of(deployment)
            yield (
                f"Deployment {namespace}/{name} is running; stop it: "
                f"kubectl -n {namespace} scale deployment {name} --replicas 0"
            )
    for lease in leases:
        holder = living_holder(lease, now)
        if holder:
            yield f"Lease {namespace_of(lease)}/{name_of(lease)} is held by {holder}; stop that operator"
    for configuration in webhook_configurations:
        for webhook in _webhooks_of(configuration):
            kind = str(configuration["kind"]).lower()
            yield (
                f"webhook {webhook['name']} is registered; remove it: "
                f"kubectl delete {kind} {name_of(configuration)}"
            )


def _webhooks_of(configuration: Object) -> Iterator[Mapping[str, Any]]:
    """Yield the webhooks for RayClusters of either operator."""
    for webhook in configuration.get("webhooks") or ():
        if str(webhook.get("name")).endswith(_WEBHOOK_SUFFIX):
            yield webhook
