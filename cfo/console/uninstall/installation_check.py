"""Checks, before anything is removed, that there is an operator to remove, and that no other one needs or runs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from cfo.config.model import LeaderElection
from cfo.console.lease_holder import living_holder
from cfo.console.namespaces import has_namespace, no_namespace
from cfo.console.operator_namespaces import operator_namespaces
from cfo.console.uninstall.kept import unguarded
from cfo.console.uninstall.stored_objects import (
    MAX_NAMED,
    STATE,
    deleted_namespaces,
    foreign_kinds,
    installed_elsewhere,
    keys_with_finalizer,
    list_keys,
    list_objects,
    named,
    namespaces_in,
    removable_crds,
    stored_objects,
)
from cfo.console.watched_bindings import SELECTOR
from cfo.features import KINDS
from cfo.runtime import (
    GVK,
    POD,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    name_of,
    namespace_of,
)
from cfo.runtime.objects import CLUSTER_ROLE_BINDING, LEASE
from cfo.runtime.webhook import owner_of

_MAX_HOSTNAME = 63
"""Characters of a pod's hostname, with which the identity of its operator begins."""

_NAMESPACE_OF_RUN = "default"
"""The namespace of ``cfo run`` in the documentation, in which tenants have no permissions."""

NOTHING: Final = "the cluster has no operator and none of its finalizers"


class UninstallRefused(Exception):
    """:func:`.uninstall` must not run; the message is one line."""


async def check_installation(
    client: Client,
    namespace: str,
    *,
    is_named: bool = False,
    leftovers: bool = False,
    delete_crds: bool = False,
) -> str:
    """Check that an operator of ``namespace`` is installed, at least in part, and that no other one runs.

    This requires an object of the installation in the namespace, or a cluster-scoped object that refers to it. With
    ``leftovers``, neither is required, unless a cluster-scoped object refers to another namespace that exists. With
    ``delete_crds``, none may refer to another one that exists. Returns why there is nothing to remove; empty if there
    can be something. There is nothing if the cluster has no operator, and none of its finalizers and, with
    ``delete_crds``, of its CRDs; or if the user has named the namespace (``is_named``), as in a second run, and only
    another one has an operator. Raises :class:`UninstallRefused`, :class:`.InvalidInput` if the named namespace does
    not exist, and :class:`cfo.runtime.client.errors.APIError`.
    """
    is_installed = False
    elsewhere = ""
    abandoned = ""
    stored = await stored_objects(client, namespace)
    deleted = await deleted_namespaces(client, stored)
    for obj in stored:
        namespaces = namespaces_in(obj)
        is_installed = is_installed or namespace in (namespace_of(obj), *namespaces)
        left = (namespaces & deleted) - {namespace}
        if left and not abandoned:
            abandoned = (
                f"{obj['kind']} {name_of(obj)} belongs to an operator in namespace {min(left)}, which does not exist; "
                f"remove what it left with: cfo uninstall --namespace {shlex.quote(min(left))}"
            )
        others = namespaces - {namespace} - deleted
        if others and not elsewhere:
            elsewhere = (
                f"{obj['kind']} {name_of(obj)} belongs to an operator in namespace {min(others)}"
            )
    installed = await installed_elsewhere(client, namespace)
    if installed and not elsewhere:
        elsewhere = f"an administrator has installed an operator in namespace {min(installed)}"
    if is_named and not is_installed and not leftovers:
        if not await has_namespace(client, namespace):
            raise no_namespace(namespace, "--namespace")
        if abandoned:
            raise UninstallRefused(abandoned)
        if elsewhere and not delete_crds:
            left_behind = await _state_text(client, namespace)
            return f"namespace {namespace} has no operator; {elsewhere}{left_behind}"
    if elsewhere and not is_installed:
        raise UninstallRefused(
            f"{elsewhere}, not {namespace}; --namespace has to be the namespace of the operator"
        )
    if elsewhere and delete_crds:
        raise UninstallRefused(f"{elsewhere}, which needs the CRDs; uninstall without --crds")
    if not is_installed and not leftovers:
        if abandoned:
            raise UninstallRefused(abandoned)
        remains = await _remains(client, namespace, stored, delete_crds=delete_crds)
        if not remains:
            parts = [NOTHING + await _state_elsewhere(client, namespace)]
            parts += await unguarded(client)
            return "; it has ".join(parts)
        raise UninstallRefused(
            f"namespace {namespace} has no operator, but {remains}; --namespace selects another one, and --leftovers "
            "removes what an operator left behind"
        )
    await _check_leases(client, namespace, stored, has_others=bool(elsewhere))
    return ""


async def _remains(
    client: Client, namespace: str, stored: Sequence[Object], *, delete_crds: bool
) -> str:
    """Describe what there is of an operator in a cluster without its manifests; empty if there is nothing.

    It can be the operator itself, if other tools installed it, or what one outside the cluster left in ``namespace``.
    ``stored`` are objects of an installation that refer to no namespace, such as webhook configurations with a URL.
    Only Leases in ``namespace`` and in :func:`.operator_namespaces` count: users can create others.
    """
    bindings = await list_objects(client, CLUSTER_ROLE_BINDING)
    for where in sorted({namespace} | operator_namespaces(bindings, stored)):
        key = NamespacedName(where, LeaderElection().resource_name)
        holder = living_holder(await client.get(LEASE, key, live=True) or {}, datetime.now(UTC))
        if holder:
            return f"Lease {key} is held by {holder}"
    for obj in stored:
        return f"{obj['kind']} {name_of(obj)} exists"
    foreign = await foreign_kinds(client)
    for kind in KINDS:
        for gvk, finalizer in kind.finalizers().items():
            if gvk in foreign:
                continue
            keys = await keys_with_finalizer(client, gvk, finalizer)
            if keys:
                return f"{named(gvk, keys)} with the finalizer {finalizer} exist"
        for left in kind.leftovers():
            for key in await list_keys(client, left.gvk, label_selector=left.label):
                if left.name in ("", key.name):
                    return f"{left.gvk.kind} {key} exists"
    state = await _state_in(client, namespace)
    if state:
        return f"it contains {_named_state(state)}"
    if delete_crds:
        crds = sorted(await removable_crds(client))
        if crds:
            return f"CustomResourceDefinition {crds[0]} exists"
    return ""


async def _state_in(client: Client, namespace: str) -> list[GVK]:
    """Return the kinds of the objects in ``namespace`` with the names that an operator uses."""
    return [
        gvk
        for gvk, name in STATE.items()
        if await client.get(gvk, NamespacedName(namespace, name), live=True) is not None
    ]


def _named_state(kinds: Iterable[GVK]) -> str:
    return ", ".join(f"{gvk.kind} {STATE[gvk]}" for gvk in kinds)


async def _state_text(client: Client, namespace: str) -> str:
    """Describe what an operator left in ``namespace``, and how it is deleted; empty if there is nothing."""
    state = await _state_in(client, namespace)
    if not state:
        return ""
    words = ["kubectl", "--namespace", namespace, "delete"]
    words += [f"{gvk.kind.lower()}/{STATE[gvk]}" for gvk in state]
    return (
        f"; {namespace} contains {_named_state(state)}: if cfo run left them there, "
        f"{shlex.join(words)}"
    )


async def _state_elsewhere(client: Client, namespace: str) -> str:
    """Describe what other namespaces contain with the names that operators use; empty if there is nothing.

    ``cfo run`` leaves these objects in its namespace. It is no reason to fail, because any user can create them. Those
    in the namespace for which ``cfo run`` is documented come first, so that no number of others hides them.
    """
    found: list[tuple[bool, str]] = []
    for gvk, name in STATE.items():
        with suppress(Forbidden):
            keys = await list_keys(client, gvk, field_selector=f"metadata.name={name}")
            found += (
                (key.namespace != _NAMESPACE_OF_RUN, f"{gvk.kind} {key}")
                for key in keys
                if key.namespace != namespace
            )
    if not found:
        return ""
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    names = ", ".join(described for _, described in sorted(found)[:MAX_NAMED])
    remedy = "if cfo run left them there, --namespace and --leftovers remove them"
    return f"; other namespaces contain {names}{more}: {remedy}"


async def _check_leases(
    client: Client, namespace: str, stored: Iterable[Object], *, has_others: bool
) -> None:
    """Raise :class:`UninstallRefused` if an operator runs that is not a pod of the Deployment in ``namespace``.

    It renews the Lease in the namespace, or serves the webhooks from outside the cluster, which are kept if there is
    another installation (``has_others``).
    """
    leases = {NamespacedName(namespace, LeaderElection().resource_name)}
    for obj in stored:
        owner = owner_of(obj, "", "")
        if owner is None or owner.lease is None or namespaces_in(obj) or has_others:
            continue
        leases.add(owner.lease)
    pods = await list_keys(client, POD, namespace=namespace, label_selector=SELECTOR)
    identities = tuple(f"{pod.name[:_MAX_HOSTNAME]}_" for pod in pods)
    for key in sorted(leases):
        lease = await client.get(LEASE, key, live=True)
        holder = living_holder(lease or {}, datetime.now(UTC))
        if holder and not holder.startswith(identities):
            raise UninstallRefused(
                f"Lease {key} is held by {holder}; stop that operator, which would create its objects again"
            )
