"""The objects of an installation that exist, and the namespaces to which they refer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Final, TypeVar

from cfo.config.model import LeaderElection
from cfo.console.counts import counted
from cfo.console.lease_holder import living_holder
from cfo.console.namespaces import has_namespace
from cfo.console.operator_namespaces import bound_namespaces, namespaces_of_services
from cfo.console.watched_bindings import SELECTOR
from cfo.features import KINDS
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.names import SERVICE_ACCOUNT
from cfo.manifests.overlays import COMPONENTS, bundled_crds, render
from cfo.operator import WEBHOOK_SECRET_NAME
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    SECRET,
    Client,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    gvk_of,
    has_finalizer,
    key_of,
    name_of,
    namespace_of,
)
from cfo.runtime.objects import (
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.version import CONFIG_MAP_NAME

T = TypeVar("T")

STATE: Final = {
    SECRET: WEBHOOK_SECRET_NAME,
    LEASE: LeaderElection().resource_name,
    CONFIG_MAP: CONFIG_MAP_NAME,
}
"""The objects that an operator creates in its namespace, by kind."""

MAX_NAMED = 5
"""How many objects a line about several of one kind names."""


def named(gvk: GVK, keys: Sequence[NamespacedName], maximum: int = MAX_NAMED) -> str:
    """Return the number of objects, and the names of the first ones, at most ``maximum``."""
    names = [str(key) for key in sorted(keys)[:maximum]]
    if len(keys) > maximum:
        names.append("...")
    return f"{counted(len(keys), gvk.kind)} ({', '.join(names)})"


def own_kinds() -> list[GVK]:
    """Return the kinds whose CRDs belong to an installation."""
    return kinds_of({name_of(crd) for crd in bundled_crds()})


async def removable_crds(client: Client) -> set[str]:
    """Return the names of the CRDs that belong only to this installation.

    One without the labels of the manifests is that of another one, and some are shared with other operators.
    """
    keys = await list_keys(client, CUSTOM_RESOURCE_DEFINITION, label_selector=SELECTOR)
    return {key.name for key in keys} & {name_of(crd) for crd in bundled_crds()}


async def foreign_kinds(client: Client) -> set[GVK]:
    """Return the kinds of the installation whose CRD lacks the labels of the manifests.

    Another operator may have installed it, such as one for AppWrappers, which sets the same finalizer as this one.
    """
    labelled = await removable_crds(client)
    return {gvk for gvk in own_kinds() if gvk not in kinds_of(labelled)}


def kinds_of(crds: Collection[str]) -> list[GVK]:
    """Return the kinds of the installation that have one of these CRDs, by their names."""
    defined = {
        (crd["spec"]["group"], crd["spec"]["names"]["kind"])
        for crd in bundled_crds()
        if name_of(crd) in crds
    }
    return [gvk for kind in KINDS for gvk in kind.gvks if (gvk.group, gvk.kind) in defined]


async def list_objects(client: Client, gvk: GVK, **options: str) -> list[Object]:
    """Return the objects that ``options`` select; none if their kind is not served."""
    try:
        return await client.list(gvk, live=True, **options)
    except (UnknownKind, NotFound):
        return []


async def select_objects(
    client: Client, gvk: GVK, select: Callable[[Object], T | None], **options: str
) -> list[T]:
    """Return what ``select`` returns for the metadata of each object; objects of tenants do not fit into memory."""
    try:
        return await client.select(gvk, select, metadata_only=True, **options)
    except (UnknownKind, NotFound):
        return []


async def list_keys(client: Client, gvk: GVK, **options: str) -> list[NamespacedName]:
    """Return the keys of the objects that ``options`` select; none if their kind is not served."""
    return await select_objects(client, gvk, key_of, **options)


async def keys_with_finalizer(client: Client, gvk: GVK, finalizer: str) -> list[NamespacedName]:
    """Return the keys of the objects that have ``finalizer``."""

    def key_with_finalizer(obj: Object) -> NamespacedName | None:
        return key_of(obj) if has_finalizer(obj, finalizer) else None

    return await select_objects(client, gvk, key_with_finalizer)


async def stored_objects(client: Client, namespace: str) -> list[Object]:
    """Return the objects of an installation in ``namespace`` that exist, without Namespace and CRDs.

    Cluster-scoped objects have the same names in all installations, except for those of an additional operator in the
    namespace, and the ClusterRoleBindings of others, which are found by their labels.
    """
    found: dict[tuple[GVK, NamespacedName], Object] = {}
    for obj in [*first_objects(namespace), *additional_objects(namespace)]:
        if obj["kind"] in ("Namespace", "CustomResourceDefinition"):
            continue
        with suppress(UnknownKind):
            stored = await client.get(gvk_of(obj), key_of(obj), live=True)
            if stored is not None:
                found[gvk_of(obj), key_of(obj)] = stored
    for binding in await list_objects(client, CLUSTER_ROLE_BINDING, label_selector=SELECTOR):
        accounts = {subject.get("name") for subject in binding.get("subjects") or ()}
        if accounts == {SERVICE_ACCOUNT}:
            found.setdefault((CLUSTER_ROLE_BINDING, key_of(binding)), binding)
    return list(found.values())


@cache
def first_objects(namespace: str) -> Sequence[Object]:
    """Return all objects that an operator in ``namespace`` can have that is not an additional one.

    They are rendered once, and callers do not change them.
    """
    return render(namespace=namespace, components=COMPONENTS, watch_namespaces=[namespace])


@cache
def additional_objects(namespace: str) -> Sequence[Object]:
    """Return the ClusterRoles and ClusterRoleBindings that only an additional operator in ``namespace`` has.

    They are rendered once, and callers do not change them.
    """
    of_all = {name_of(obj) for obj in first_objects(namespace)}
    part = {"watchNamespaces": [namespace]}
    objects = render(namespace=namespace, components=COMPONENTS, part=part)
    return [
        obj for obj in objects if not namespace_of(obj) and name_of(obj) not in {namespace, *of_all}
    ]


def namespaces_in(obj: Object) -> set[str]:
    """Return the namespaces to which a cluster-scoped object of an installation refers."""
    references: list[Object] = []
    if obj["kind"] == "ClusterRoleBinding":
        references += obj.get("subjects") or ()
    for webhook in obj.get("webhooks") or ():
        references.append((webhook.get("clientConfig") or {}).get("service") or {})
    return {item["namespace"] for item in references if item.get("namespace")}


async def deleted_namespaces(client: Client, stored: Iterable[Object]) -> set[str]:
    """Return the namespaces to which cluster-scoped objects in ``stored`` refer and that do not exist.

    One that the user is not allowed to read counts as existing.
    """
    referenced: set[str] = set()
    for obj in stored:
        referenced |= namespaces_in(obj)
    return {name for name in sorted(referenced) if not await has_namespace(client, name)}


async def installed_elsewhere(client: Client, namespace: str) -> set[str]:
    """Return the other namespaces with an operator that an administrator has installed, under any names.

    OLM generates the names of ClusterRoleBindings and webhook configurations. A ClusterRoleBinding can be left of an
    operator that was removed, so a Deployment or a Lease that is renewed must exist as well.
    """
    found = bound_namespaces(await list_objects(client, CLUSTER_ROLE_BINDING))
    for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        for configuration in await list_objects(client, kind):
            found |= namespaces_of_services(configuration)
    return {name for name in sorted(found - {namespace}) if await _has_operator(client, name)}


async def _has_operator(client: Client, namespace: str) -> bool:
    """Return whether ``namespace`` has the Deployment of an operator, or a Lease that is renewed."""
    deployment = NamespacedName(namespace, DEPLOYMENT_NAME)
    if await client.get(DEPLOYMENT, deployment, live=True) is not None:
        return True
    key = NamespacedName(namespace, LeaderElection().resource_name)
    lease = await client.get(LEASE, key, live=True)
    return lease is not None and living_holder(lease, datetime.now(UTC)) != ""
