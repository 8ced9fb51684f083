"""What the user should know before an operator is removed."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from cfo.config.model import LeaderElection
from cfo.console.doctor.facts import is_go_deployment, read_installation
from cfo.console.doctor.installer import migration_remedy
from cfo.console.lease_holder import living_holder
from cfo.console.uninstall.stored_objects import MAX_NAMED, installed_elsewhere
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    Client,
    NamespacedName,
    Object,
    key_of,
    namespace_of,
)
from cfo.runtime.objects import LEASE
from cfo.version import CONFIG_MAP_NAME, __version__


async def notes_on_removal(client: Client, namespace: str) -> list[str]:
    """Return what the user should know before the operator in ``namespace`` is removed, as far as it can be read."""
    notes: list[str] = []
    installation = await read_installation(client, namespace)
    if is_go_deployment(installation.deployment, __version__):
        remedy = migration_remedy(installation.deployment)
        notes.append(f"namespace {namespace} has the Go operator; {remedy}")
    if await client.get(CONFIG_MAP, NamespacedName(namespace, CONFIG_MAP_NAME), live=True):
        command = ["kubectl", "-n", namespace, "get", "configmap", CONFIG_MAP_NAME, "-o", "yaml"]
        notes.append(f"the ConfigMap is removed; to save its settings: {shlex.join(command)}")
    signs = await _unproven_operators(client, namespace)
    if signs:
        more = f", and {len(signs) - MAX_NAMED} more" if len(signs) > MAX_NAMED else ""
        notes.append(
            f"{'; '.join(signs[:MAX_NAMED])}{more}: users can create these; if it is an operator of yours, what it "
            "needs is removed as well, unless you apply its manifests again first"
        )
    return notes


async def _unproven_operators(client: Client, namespace: str) -> list[str]:
    """Describe what shows an operator in another namespace that no administrator has to have installed.

    It can be an operator outside the cluster, or one whose permissions and webhooks another installation has taken.
    """
    now = datetime.now(UTC)
    proven = {namespace, *await installed_elsewhere(client, namespace)}

    def deployment_sign(deployment: Object) -> str | None:
        if namespace_of(deployment) in proven:
            return None
        return f"Deployment {key_of(deployment)} exists"

    def lease_sign(lease: Object) -> str | None:
        holder = living_holder(lease, now)
        if not holder or namespace_of(lease) in proven:
            return None
        return f"Lease {key_of(lease)} is held by {holder}"

    by_name = f"metadata.name={DEPLOYMENT_NAME}"
    signs = await client.select(DEPLOYMENT, deployment_sign, field_selector=by_name)
    by_name = f"metadata.name={LeaderElection().resource_name}"
    signs += await client.select(LEASE, lease_sign, field_selector=by_name)
    return sorted(signs)
