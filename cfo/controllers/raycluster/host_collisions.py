"""Chooses the host of an Ingress or a route when other objects claim the same host.

Ingresses, HTTPRoutes and TLSRoutes *claim* hosts (:mod:`cfo.controllers.host_claims`).

A RayCluster's *address* is ``<name>-<namespace>``; the names of its hosts and of its ClusterRoleBinding contain it. It
is not unique: ``a-b`` in ``c`` and ``a`` in ``b-c`` have the same address. Such clusters are called *colliding*. The
oldest of them normally gets the plain name, and every other one a name with a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Self

import msgspec

from cfo.api.raycluster.names import RAY_CLUSTER, digest
from cfo.controllers.host_claims import (
    DASHBOARD_PATHS,
    Holder,
    HostClaims,
    claims_of,
    controller_uid,
    is_controlled_in_namespace,
)
from cfo.runtime import (
    Entry,
    NamespacedName,
    Object,
    Reader,
    key_of,
    name_of,
    namespace_of,
    on_update,
    uid_of,
)

_DNS_LABEL_LIMIT = 63
_HOST_PREFIXES = ("ray-dashboard-", "rayclient-")

_MAX_EXAMINED: Final = 100
"""How many objects with the host of a cluster are examined, and how many hosts of an object: usually one, and users can
create thousands."""


# --- Clusters with the same address -----------------------------------------------------------------------------------


def address_of(cluster: Mapping[str, Any]) -> str:
    """Return the address of ``cluster``."""
    return f"{name_of(cluster)}-{namespace_of(cluster)}"


def clusters_at_address(clusters: Reader, address: str) -> Collection[NamespacedName]:
    """Return the existing clusters with this address."""
    return [key for key in _names_at(address) if clusters.contains(key)]


def _names_at(address: str) -> Iterator[NamespacedName]:
    # Other clients choose the hosts of their Ingresses, and a host can consist of hyphens.
    first = max(0, len(address) - _DNS_LABEL_LIMIT - 1)  # a namespace has at most 63 characters
    for at in range(first, len(address)):
        if address[at] == "-":
            yield NamespacedName(address[at + 1 :], address[:at])


def older_colliding_clusters(clusters: Reader, cluster: Mapping[str, Any]) -> list[Object]:
    """Return the clusters with the address of ``cluster`` that are older than it and not being deleted."""
    key = key_of(cluster)
    age = (cluster["metadata"].get("creationTimestamp") or "", key)
    others = [
        clusters.entry(other)
        for other in clusters_at_address(clusters, address_of(cluster))
        if other != key
    ]
    return [
        entry.object()
        for entry in others
        if entry is not None
        and not entry.meta.is_deleting
        and (entry.meta.creation_timestamp, entry.key) < age
    ]


# --- Other objects with hosts of clusters -----------------------------------------------------------------------------

CLAIMS_CHANGED: Final = on_update(
    lambda old, new: (
        old.meta.owner_references != new.meta.owner_references or claims_of(old) != claims_of(new)
    )
)
"""The owners of an object changed, or the hosts or paths that it claims."""


def clusters_of_claims(clusters: Reader, claimant: Entry, domain: str) -> Iterator[NamespacedName]:
    """Yield the clusters that use or request a host, or a path, of ``claimant``.

    Only the first of them are considered, because a user can write those of all clusters into one object. The others
    notice it at their next reconcile.
    """
    claims = (
        claim
        for claim in claims_of(claimant)
        if claim.startswith((DASHBOARD_PATHS, *_HOST_PREFIXES))
    )
    for claim in islice(claims, _MAX_EXAMINED):
        if claim.startswith(DASHBOARD_PATHS):
            namespace, _, name = claim.removeprefix(DASHBOARD_PATHS).partition("/")
            key = NamespacedName(namespace, name)
            yield from (key,) if clusters.contains(key) else ()
            continue
        label = claim.removesuffix(f".{domain}")
        for prefix in _HOST_PREFIXES:
            if label.startswith(prefix):
                yield from clusters_at_address(clusters, label.removeprefix(prefix))


# --- The choice of a host ---------------------------------------------------------------------------------------------


class CandidateHosts(msgspec.Struct, frozen=True):
    """The hosts that an Ingress or a route of a cluster can have: the plain one, or the one with ``suffix``, a hash.

    A path below :data:`DASHBOARD_PATHS` is unique among clusters, so it has no ``hashed`` variant.
    """

    plain: str
    hashed: str = ""
    suffix: str = ""

    @classmethod
    def of(cls, cluster: Object, domain: str, host_of: Callable[[Object, str, str], str]) -> Self:
        """Return the hosts of ``cluster`` below ``domain``; ``host_of`` is a function of the naming module."""
        suffix = digest(str(key_of(cluster)))
        return cls(host_of(cluster, domain, ""), host_of(cluster, domain, suffix), suffix)

    @property
    def noun(self) -> str:
        """What the candidates are, for messages."""
        return "path" if self.plain.startswith("/") else "host"


class HostChoice(msgspec.Struct, frozen=True):
    """The suffix of the chosen host (empty for the plain one), or ``None`` when every candidate is taken.

    ``reason`` and ``message`` describe the Warning Event to record, if any.
    """

    suffix: str | None
    reason: str = ""
    message: str = ""


def choose_host(
    claims: HostClaims,
    clusters: Reader,
    cluster: Object,
    kind: str,
    key: NamespacedName,
    hosts: CandidateHosts,
) -> HostChoice:
    """Choose the host of the object ``key`` of ``cluster``, an Ingress or a route (``kind``).

    An object keeps the host that it has (and a route takes the host of the Ingress that it replaces, and vice versa),
    unless that is the plain one, and an object of an older colliding cluster has it, too. It keeps the host even if an
    object of another client has it: the age of an object does not show since when it has a host. Otherwise it gets the
    plain host when no other object has it and no older cluster claims it, and the hashed one when only colliding
    clusters claim the plain one. It never gets a host that another client's object already has.
    """
    own = [host for entry in claims.of_owner(cluster, kind, key) for host in claims_of(entry)]
    older = older_colliding_clusters(clusters, cluster) if hosts.hashed else []

    def others(host: str) -> Iterator[Holder]:
        for number, holder in enumerate(claims.of(host)):
            is_own = (holder.kind, holder.entry.key) == (kind, key)
            if number >= _MAX_EXAMINED or not (
                is_own or is_controlled_in_namespace(holder.entry, cluster)
            ):
                yield holder

    # Of the objects that claim a host, no more are examined than necessary: each tenant can create thousands.
    older_owners = {(namespace_of(other), uid_of(other)) for other in older}
    older_namespaces = set(map(namespace_of, older))
    for suffix, host in (("", hosts.plain), (hosts.suffix, hosts.hashed)):
        if not host or host not in own:
            continue
        # the hash is of this cluster's name and namespace, so only users can let an object of an older one have it
        candidates = claims.of(host) if older and not suffix else ()
        of_older = (each for each in candidates if each.entry.namespace in older_namespaces)
        if any(
            (each.entry.namespace, controller_uid(each.entry)) in older_owners
            for each in islice(of_older, _MAX_EXAMINED)
        ):
            continue
        other = next(others(host), None)
        if other is None:
            return HostChoice(suffix)
        message = (
            f"{kind} {key.name}: {hosts.noun} {host} is also used by {other}, which does not belong to "
            f"this RayCluster. Requests to the {hosts.noun} may go there. Remove the {hosts.noun} from that "
            f"{other.kind}"
        )
        return HostChoice(suffix, "HostShared", message)
    holder = next(others(hosts.plain), None)
    if holder is None and not older:
        if hosts.noun == "host" and max(map(len, hosts.plain.split("."))) > _DNS_LABEL_LIMIT:
            message = (
                f"{kind} {key.name}: host {hosts.plain} has a label longer than {_DNS_LABEL_LIMIT} characters, "
                "which DNS cannot resolve"
            )
            return HostChoice("", "HostTooLong", message)
        return HostChoice("")
    hashed_holder = next(others(hosts.hashed), None) if hosts.hashed else None
    some = islice(others(hosts.plain), _MAX_EXAMINED)
    foreign = next(
        (each for each in some if not _is_of_colliding_cluster(each.entry, cluster)), None
    )
    if hosts.hashed and foreign is None and hashed_holder is None:
        used_by = holder or f"RayCluster {key_of(older[0])}"
        message = f"{kind} {key.name}: host {hosts.plain} is used by {used_by}, so {hosts.hashed} is used instead"
        return HostChoice(hosts.suffix, "HostTaken", message)
    blocker = foreign or hashed_holder or holder
    message = f"{kind} {key.name} is not created: {hosts.noun} {hosts.plain} is used by {blocker}"
    return HostChoice(None, "HostTaken", message)


def _is_of_colliding_cluster(claimant: Entry, cluster: Object) -> bool:
    owner = claimant.meta.controller
    return (
        owner is not None
        and owner.kind == RAY_CLUSTER.kind
        and f"{owner.name}-{claimant.key.namespace}" == address_of(cluster)
    )
