"""Finds the operator of a migration, and the operators and webhooks that would revert or reject it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from cfo.checks.findings import MIGRATION_FROM_ODH
from cfo.config.model import LeaderElection
from cfo.console.doctor.facts import find_namespace, is_go_deployment
from cfo.console.doctor.installer import is_of_open_data_hub
from cfo.console.doctor.other_operators import configuration_of
from cfo.console.lease_holder import living_holder
from cfo.console.namespaces import has_namespace
from cfo.console.operator_namespaces import (
    bound_namespaces,
    operator_namespaces,
    raycluster_webhooks,
)
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.runtime import (
    DEPLOYMENT,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    name_of,
    namespace_of,
)
from cfo.runtime.objects import (
    CLUSTER_ROLE_BINDING,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.version import __version__

_LEASE_NAME: Final = LeaderElection().resource_name
"""The name of the Lease of both operators, unless the configuration sets another one."""


async def find_operator(client: Client) -> str:
    """Return the namespace of the operator: that of the webhooks, or the only one that has a ClusterRoleBinding.

    The default namespace if neither is known, as before the first installation.
    """
    serving = await find_namespace(client)
    if serving:
        return serving
    bound: set[str] = set()
    with suppress(Forbidden):
        bound = bound_namespaces(await client.list(CLUSTER_ROLE_BINDING, live=True))
    existing = [namespace for namespace in sorted(bound) if await has_namespace(client, namespace)]
    return existing[0] if len(existing) == 1 else DEFAULT_NAMESPACE


async def obstacles(
    client: Client,
    namespace: str,
    migrated: str,
    *,
    is_takeover: bool = False,
    has_taken_over: bool = False,
) -> list[str]:
    """Return the operators, also in ``namespace``, and webhooks that would revert the migration.

    ``migrated``: the namespace of the RayClusters, empty for all. An operator that reconciles only others does not
    revert it, unless it serves the webhooks.

    ``is_takeover``: the migration is the start of this operator, for which neither its own Deployments are obstacles,
    nor registered webhooks, which it takes over: without them, RayClusters could be created unprotected until then.
    ``has_taken_over``: this operator manages the RayClusters already, so a Lease can be its own.
    """
    configurations: list[Object] = []
    for gvk in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        configurations += await client.list(gvk, live=True)
    bindings = await client.list(CLUSTER_ROLE_BINDING, live=True)
    deployments: list[Object] = []
    leases: list[Object] = []
    serving = operator_namespaces([], configurations)
    for where in sorted({namespace} | operator_namespaces(bindings, configurations)):
        if where not in serving and not await _reconciles(client, where, migrated):
            continue
        deployment = await client.get(DEPLOYMENT, NamespacedName(where, DEPLOYMENT_NAME), live=True)
        if is_takeover and deployment is not None and not is_go_deployment(deployment, __version__):
            continue
        deployments += [deployment] if deployment is not None else []
        if has_taken_over:
            continue
        lease = await client.get(LEASE, NamespacedName(where, _LEASE_NAME), live=True)
        leases += [lease] if lease is not None else []
    return list(
        find_obstacles(
            deployments, leases, () if is_takeover else configurations, datetime.now(UTC)
        )
    )


async def _reconciles(client: Client, operator_namespace: str, migrated: str) -> bool:
    """Return whether an operator may reconcile RayClusters in the namespace ``migrated`` (empty: in any)."""
    if not migrated:
        return True
    configuration = await configuration_of(client, operator_namespace)
    if configuration is None:
        return True
    watched = configuration.watch_namespaces
    return not watched or migrated in watched


def find_obstacles(
    deployments: Iterable[Object],
    leases: Iterable[Object],
    webhook_configurations: Iterable[Object],
    now: datetime,
) -> Iterator[str]:
    """Yield one line for each operator and webhook that would revert or reject the migration, with its remedy.

    The webhook of a running operator injects its entries again and rejects their removal. Without its server, it
    rejects every change, because it fails closed. Both must be removed before RayClusters are changed.

    ``deployments`` and ``leases`` are those with the operator's names in :func:`.operator_namespaces`.
    """
    for deployment in deployments:
        wanted = (deployment.get("spec") or {}).get("replicas", 1)
        existing = (deployment.get("status") or {}).get("replicas", 0)
        if wanted or existing:
            namespace = namespace_of(deployment)
            name = name_of(deployment)
            remedy = f"kubectl -n {namespace} scale deployment {name} --replicas 0"
            if is_of_open_data_hub(deployment):
                remedy = (
                    "set spec.components.codeflare.managementState of the DataScienceCluster to Removed, or Open Data "
                    f"Hub applies it again; {MIGRATION_FROM_ODH}"
                )
            yield f"Deployment {namespace}/{name} is running; stop it: {remedy}"
    for lease in leases:
        holder = living_holder(lease, now)
        if holder:
            yield f"Lease {namespace_of(lease)}/{name_of(lease)} is held by {holder}; stop that operator"
    for configuration in webhook_configurations:
        for webhook in raycluster_webhooks(configuration):
            kind = str(configuration["kind"]).lower()
            yield (
                f"webhook {webhook['name']} is registered; remove it: "
                f"kubectl delete {kind} {name_of(configuration)}"
            )
