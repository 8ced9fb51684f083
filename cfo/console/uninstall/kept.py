"""What an uninstallation keeps, and how it is deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from cfo.console.uninstall.stored_objects import list_keys, named, removable_crds
from cfo.console.watched_bindings import SELECTOR
from cfo.features import OPTIONAL_ROLES
from cfo.manifests import guardrails, job_pod_policy
from cfo.runtime import GVK, Client, Object, gvk_of, key_of, name_of
from cfo.runtime.objects import CUSTOM_RESOURCE_DEFINITION


async def kept_crds(client: Client, objects: Iterable[Object], namespace: str) -> list[str]:
    """Describe which CRDs of ``objects``, an installation in ``namespace``, exist, and how they are deleted."""
    own = {key_of(obj) for obj in objects if gvk_of(obj) == CUSTOM_RESOURCE_DEFINITION}
    keys = [key for key in await list_keys(client, CUSTOM_RESOURCE_DEFINITION) if key in own]
    removable = await removable_crds(client)
    only_ours = [key for key in keys if key.name in removable]
    shared = [key for key in keys if key.name not in removable]
    lines: list[str] = []
    if only_ours:
        command = f"cfo uninstall --namespace {namespace} --crds --leftovers"
        crds = named(CUSTOM_RESOURCE_DEFINITION, only_ours, len(own))
        lines.append(f"{crds} with their objects; to delete both: {command}")
    if shared:
        crds = named(CUSTOM_RESOURCE_DEFINITION, shared, len(own))
        lines.append(f"{crds} with their objects, because another operator may need them")
    return lines


async def unguarded(client: Client) -> list[str]:
    """Describe the objects outside namespaces that only an operator deletes, and how they are deleted without one."""
    lines: list[str] = []
    for role in OPTIONAL_ROLES:
        if role.retained is None:
            continue
        gvk = role.retained.gvk
        label = role.retained.label
        keys = await list_keys(client, gvk, label_selector=label)
        if keys:
            lines.append(
                f"{named(gvk, keys)}, which objects of users need and no operator deletes any more; after these "
                f"objects, delete them: kubectl delete {gvk.kind.lower()} --selector {label}"
            )
    return lines


async def kept_guardrails(client: Client) -> list[str]:
    """Describe what ``cfo manifests --tenant`` has created in namespaces of tenants, and how it is deleted."""
    names: dict[GVK, set[str]] = defaultdict(set)
    for obj in [*guardrails.namespaced(), *job_pod_policy.policies()]:
        names[gvk_of(obj)].add(name_of(obj))
    found: list[str] = []
    for gvk, own in names.items():
        keys = await list_keys(client, gvk, label_selector=SELECTOR)
        kept = [key for key in keys if key.name in own]
        if kept:
            found.append(named(gvk, kept))
    if not found:
        return []
    kinds = ",".join(gvk.kind.lower() for gvk in names)
    command = f"kubectl delete {kinds} --all-namespaces --selector {SELECTOR}"
    return [
        f"{', '.join(found)} of cfo manifests --tenant, with the labels of their namespaces; to delete them: {command}"
    ]
