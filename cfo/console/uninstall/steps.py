"""The steps of an uninstallation, in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from functools import partial
from typing import Final

from cfo.config.model import OperatorConfiguration
from cfo.config.part import Part
from cfo.console.doctor.other_operators import configuration_of
from cfo.console.uninstall.installation_check import NOTHING
from cfo.console.uninstall.kept import kept_crds, kept_guardrails, unguarded
from cfo.console.uninstall.removal import Removal
from cfo.console.uninstall.stored_objects import (
    STATE,
    additional_objects,
    deleted_namespaces,
    first_objects,
    foreign_kinds,
    installed_elsewhere,
    keys_with_finalizer,
    kinds_of,
    list_keys,
    namespaces_in,
    removable_crds,
    select_objects,
    stored_objects,
)
from cfo.console.watched_bindings import ROLE_BINDING, SELECTOR, watched_bindings
from cfo.features import KINDS
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.watched import watched_name
from cfo.runtime import (
    DEPLOYMENT,
    GVK,
    POD,
    Client,
    NamespacedName,
    Object,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
)
from cfo.version import CONFIG_MAP_NAME

_SEPARATE: Final = ("Namespace", "CustomResourceDefinition", "Deployment", "ClusterRoleBinding")
"""The kinds of an installation that are kept, or removed in a step of their own."""

_KEPT: Final = (
    "kept the CRDs, the ClusterRoles for users and the policy of reserved-hosts, which are for all operators; the "
    "uninstallation of the last operator deletes the ClusterRoles and the policy"
)


async def uninstall(
    client: Client,
    namespace: str,
    report: Callable[[str], None],
    *,
    delete_crds: bool = False,
    dry_run: bool = False,
    timeout: float = 120.0,
) -> None:
    """Remove the operator from ``namespace`` and call ``report`` once per step.

    Call :func:`.check_installation` first. With ``delete_crds``, our CRDs and all their objects are deleted as well;
    those that another operator shares, or has installed, such as one for AppWrappers, are kept and reported.
    With ``dry_run``, nothing is changed, and the lines name what would be removed. ``timeout`` is how long, in seconds,
    to wait for the objects of each kind, and again for the operator's pods, to be deleted. If it expires, this is
    reported, and the removal continues. Objects that do not exist are skipped, so the function can be called again.
    If a cluster-scoped object refers to another namespace that exists, or another one has an operator, only what
    belongs to ``namespace``, or to one that does not exist, is removed. Raises :class:`.UninstallIncomplete`, after
    everything else was done, if objects still exist, or keep finalizers that no operator removes, and
    :class:`cfo.runtime.client.errors.APIError`.
    """
    removal = Removal(client, report, dry_run)
    stored = await stored_objects(client, namespace)
    own = {namespace, *await deleted_namespaces(client, stored)}
    others = await installed_elsewhere(client, namespace)
    for obj in stored:
        others |= namespaces_in(obj) - own
    bindings = await watched_bindings(client, own)
    if others:
        await _remove_own_objects(removal, stored, bindings, namespace, own, timeout)
        report(_KEPT)
        for other in sorted(others):
            report(await _advice(client, other))
        await removal.report_orphans(await _parts(client, others), await foreign_kinds(client))
        await removal.conclude()
        return
    objects = first_objects(namespace)
    await _remove_webhooks(removal, objects)
    crds = await removable_crds(client) if delete_crds else set()
    if delete_crds:
        kinds = kinds_of(crds)
        await _remove_custom_objects(removal, client, namespace, kinds, timeout, dry_run=dry_run)
    await removal.delete(DEPLOYMENT, NamespacedName(namespace, DEPLOYMENT_NAME))
    await removal.wait_for_deletion(POD, timeout, namespace=namespace, label_selector=SELECTOR)
    await _remove_finalizers(removal, client)
    await _remove_conditions(removal, client)
    await _remove_leftovers(removal, client)
    for key in bindings:
        await removal.delete(ROLE_BINDING, key)
    await _remove_rest(removal, objects, stored)
    await _remove_state(removal, namespace)
    if delete_crds:
        await _remove_crds(removal, client, objects, crds)
    if not removal.has_found:
        report(f"nothing to remove: {NOTHING}")
    kept = "would keep" if dry_run else "kept"
    if not delete_crds:
        for line in await kept_crds(client, objects, namespace):
            report(f"{kept} {line}")
    for line in [*await unguarded(client), *await kept_guardrails(client)]:
        report(f"{kept} {line}")
    await removal.report_kept_finalizers(await foreign_kinds(client))
    await removal.conclude()


async def _remove_webhooks(removal: Removal, objects: Iterable[Object]) -> None:
    """Remove the webhook configurations of ``objects``."""
    for obj in objects:
        if obj["kind"].endswith("WebhookConfiguration"):
            await removal.delete(gvk_of(obj), key_of(obj))


async def _remove_crds(
    removal: Removal, client: Client, objects: Iterable[Object], own: Collection[str]
) -> None:
    """Remove the CRDs of ``objects`` whose names are in ``own``, and report the others that exist."""
    for obj in objects:
        if obj["kind"] != "CustomResourceDefinition":
            continue
        key = key_of(obj)
        if key.name in own:
            await removal.delete(gvk_of(obj), key)
        elif await client.get_metadata(gvk_of(obj), key) is not None:
            removal.report_kept_crd(key.name)


async def _remove_custom_objects(
    removal: Removal,
    client: Client,
    namespace: str,
    kinds: Collection[GVK],
    timeout: float,
    *,
    dry_run: bool,
) -> None:
    """Remove all objects of ``kinds``; the operator cleans up after them if it still runs in ``namespace``."""
    pods = await list_keys(client, POD, namespace=namespace, label_selector=SELECTOR)
    for gvk in kinds:
        for key in await list_keys(client, gvk):
            await removal.delete(gvk, key)
        if pods:
            await removal.wait_for_deletion(gvk, timeout)
    if not pods and not dry_run:  # no operator removes its finalizers
        await _remove_finalizers(removal, client)
        for gvk in kinds:
            await removal.wait_for_deletion(gvk, timeout)


async def _remove_leftovers(removal: Removal, client: Client) -> None:
    """Remove what an operator leaves behind when its objects are deleted without it."""
    for kind in KINDS:
        for left in kind.leftovers():
            for key in await list_keys(client, left.gvk, label_selector=left.label):
                if left.name in ("", key.name):
                    await removal.delete(left.gvk, key)


async def _remove_rest(
    removal: Removal, objects: Sequence[Object], stored: Iterable[Object]
) -> None:
    """Remove the rest of ``objects``, the last ones first, and the roles and bindings of ``stored``.

    Those are also the ClusterRoles of an additional operator, and all ClusterRoleBindings.
    """
    for obj in reversed(objects):
        if obj["kind"] not in _SEPARATE and not obj["kind"].endswith("WebhookConfiguration"):
            await removal.delete(gvk_of(obj), key_of(obj))
    for obj in stored:
        if obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            await removal.delete(gvk_of(obj), key_of(obj))


async def _remove_finalizers(removal: Removal, client: Client) -> None:
    """Remove our finalizers from all objects, except for those of kinds that another operator may reconcile."""
    foreign = await foreign_kinds(client)
    for kind in KINDS:
        for gvk, finalizer in kind.finalizers().items():
            if gvk in foreign:
                continue
            for key in await keys_with_finalizer(client, gvk, finalizer):
                await removal.remove_finalizer(gvk, key, finalizer)


async def _remove_conditions(removal: Removal, client: Client) -> None:
    """Remove our conditions from objects whose status others write: nothing corrects them any more.

    Only metadata is listed: managedFields show whether the operator has written a status.
    """
    for kind in KINDS:
        has_status = partial(_key_with_status_of, kind.field_managers)
        for gvk, types in kind.conditions().items():
            keys = await select_objects(client, gvk, has_status)
            await removal.remove_conditions(gvk, keys, types)


def _key_with_status_of(managers: Collection[str], obj: Object) -> NamespacedName | None:
    """Return the key of an object if one of the field ``managers`` has written its status."""
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("subresource") == "status" and entry.get("manager") in managers:
            return key_of(obj)
    return None


async def _parts(client: Client, namespaces: Iterable[str]) -> list[Part]:
    """Return the parts of the operators in ``namespaces``; one whose configuration cannot be read has all objects."""
    parts = []
    for namespace in sorted(namespaces):
        configuration = await configuration_of(client, namespace) or OperatorConfiguration()
        parts.append(Part.of(configuration, namespace))
    return parts


async def _advice(client: Client, other: str) -> str:
    """Return what was kept for the operator in the namespace ``other``, and how it gets what this one had taken."""
    kept = f"kept what the operator in namespace {other} needs"
    apply = f"apply its manifests: cfo doctor --namespace {other} prints the command"
    configuration = await configuration_of(client, other)
    if configuration is None or configuration.webhook.enabled is not False:
        return f"{kept}; if it lost webhooks or permissions to this one, {apply}"
    # Otherwise, the manifests would direct the webhooks to an operator that serves none, and nothing would be admitted.
    return (
        f"{kept}; it serves no webhooks: first remove webhook.enabled from its ConfigMap {CONFIG_MAP_NAME} and "
        f"restart it (kubectl rollout restart --namespace {other} deployment/{DEPLOYMENT_NAME}), then {apply}"
    )


async def _remove_own_objects(
    removal: Removal,
    stored: Iterable[Object],
    bindings: Iterable[NamespacedName],
    namespace: str,
    own_namespaces: Set[str],
    timeout: float,
) -> None:
    """Remove what ``stored`` has in ``namespace``, and cluster-scoped objects that refer only to ``own_namespaces``.

    ``bindings`` are the RoleBindings of :func:`.watched_bindings`.
    """
    additional = [(obj["kind"], name_of(obj)) for obj in additional_objects(namespace)]
    roles = _roles_only_of(stored, own_namespaces)
    roles |= {watched_name(name) for name in roles}
    own = [
        obj
        for obj in stored
        if namespace_of(obj) == namespace
        or _refers_only_to(obj, own_namespaces)
        or (obj["kind"], name_of(obj)) in additional
        or (obj["kind"] == "ClusterRole" and name_of(obj) in roles)
    ]
    for obj in own:
        if obj["kind"].endswith("WebhookConfiguration"):
            await removal.delete(gvk_of(obj), key_of(obj))
    await removal.delete(DEPLOYMENT, NamespacedName(namespace, DEPLOYMENT_NAME))
    await removal.wait_for_deletion(POD, timeout, namespace=namespace, label_selector=SELECTOR)
    for key in bindings:
        await removal.delete(ROLE_BINDING, key)
    for obj in own:
        await removal.delete(gvk_of(obj), key_of(obj))
    await _remove_state(removal, namespace)


def _refers_only_to(obj: Object, namespaces: Set[str]) -> bool:
    """Return whether a cluster-scoped object refers to at least one of ``namespaces``, and to no other one."""
    referenced = namespaces_in(obj)
    return bool(referenced) and referenced <= namespaces


def _roles_only_of(stored: Iterable[Object], namespaces: Set[str]) -> set[str]:
    """Return the ClusterRoles that are bound to the operators in ``namespaces``, and to no other one."""
    own: set[str] = set()
    of_others: set[str] = set()
    for obj in stored:
        if obj["kind"] == "ClusterRoleBinding":
            names = own if _refers_only_to(obj, namespaces) else of_others
            names.add(obj["roleRef"]["name"])
    return own - of_others


async def _remove_state(removal: Removal, namespace: str) -> None:
    """Remove what the operator itself created in its namespace."""
    for gvk, name in STATE.items():
        await removal.delete(gvk, NamespacedName(namespace, name))
