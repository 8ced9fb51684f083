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
from msgspec.structs import replace

from cfo.api.raycluster.addresses import has_valid_labels
from cfo.api.raycluster.conditions import HOST_TOO_LONG
from cfo.api.raycluster.names import RAY_CLUSTER, SECRET_DIGITS, digest
from cfo.api.reserved_hosts import RESERVED_HOST_PREFIXES
from cfo.controllers.host_claims import (
    DASHBOARD_PATHS,
    Holder,
    HostClaims,
    Waiting,
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

_MAX_EXAMINED: Final = 100
"""How many objects with the host of a cluster are examined, and how many hosts of an object: usually one, and users can
create thousands."""


# --- Clusters with the same address -----------------------------------------------------------------------------------


def address_of(cluster: Mapping[str, Any]) -> str:
    """Return the address of ``cluster``."""
    return f"{name_of(cluster)}-{namespace_of(cluster)}"


def clusters_at_address(clusters: Reader, address: str) -> Collection[NamespacedName]:
    """Return the clusters with this address, also those that the cache leaves out."""
    return [key for key in _names_at(address) if clusters.may_exist(key)]


def _names_at(address: str) -> Iterator[NamespacedName]:
    # Other clients choose the hosts of their Ingresses, and a host can consist of hyphens.
    first = max(0, len(address) - _DNS_LABEL_LIMIT - 1)  # a namespace has at most 63 characters
    for at in range(first, len(address)):
        if address[at] == "-":
            yield NamespacedName(address[at + 1 :], address[:at])


def older_colliding_clusters(clusters: Reader, cluster: Mapping[str, Any]) -> list[Object]:
    """Return the metadata of clusters with the address of ``cluster`` that are older and not being deleted."""
    key = key_of(cluster)
    age = (cluster["metadata"].get("creationTimestamp") or "", key)
    older: list[Object] = []
    for other in clusters_at_address(clusters, address_of(cluster)):
        entry = clusters.entry(other) if other != key else None
        if entry is None or entry.meta.is_deleting:
            continue
        if (entry.meta.creation_timestamp, entry.key) < age:
            older.append(entry.metadata_object())
    return older


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
        if claim.startswith((DASHBOARD_PATHS, *RESERVED_HOST_PREFIXES))
    )
    for claim in islice(claims, _MAX_EXAMINED):
        if claim.startswith(DASHBOARD_PATHS):
            namespace, _, name = claim.removeprefix(DASHBOARD_PATHS).partition("/")
            key = NamespacedName(namespace, name)
            if clusters.may_exist(key):
                yield key
            continue
        label = claim.removesuffix(f".{domain}")
        for prefix in RESERVED_HOST_PREFIXES:
            if label.startswith(prefix):
                yield from clusters_at_address(clusters, label.removeprefix(prefix))


# --- The choice of a host ---------------------------------------------------------------------------------------------


class CandidateHosts(msgspec.Struct, frozen=True):
    """The hosts that an Ingress or a route of a cluster can have: the plain one, or one with a hash.

    ``hashed`` has ``suffix``, a hash of the name and namespace. ``unguessable`` has ``secret_suffix``, a hash of the
    uid, so that no one could claim it before the cluster existed. A path below :data:`DASHBOARD_PATHS` is unique among
    clusters, so it has no variants.
    """

    plain: str
    hashed: str = ""
    suffix: str = ""
    unguessable: str = ""
    secret_suffix: str = ""

    @classmethod
    def of(cls, cluster: Object, domain: str, host_of: Callable[[Object, str, str], str]) -> Self:
        """Return the hosts of ``cluster`` below ``domain``; ``host_of`` is a function of the naming module."""
        suffix = digest(str(key_of(cluster)))
        secret_suffix = digest(uid_of(cluster), SECRET_DIGITS)
        return cls(
            host_of(cluster, domain, ""),
            host_of(cluster, domain, suffix),
            suffix,
            host_of(cluster, domain, secret_suffix),
            secret_suffix,
        )

    def with_suffix(self, suffix: str) -> str:
        """Return the host with this suffix, the plain host if it is empty."""
        if not suffix:
            return self.plain
        return self.hashed if suffix == self.suffix else self.unguessable

    @property
    def noun(self) -> str:
        """What the candidates are, for messages."""
        return "path" if self.plain.startswith("/") else "host"


class HostChoice(msgspec.Struct, frozen=True):
    """The suffix of the chosen host (empty for the plain one), or ``None`` when every candidate is taken.

    ``reason`` and ``message`` describe the Warning Event to record, if any. ``host`` is the host that it is about, if
    other clients can change the message. ``is_watched``: a change of the object that has the host enqueues the cluster.
    """

    suffix: str | None
    reason: str = ""
    message: str = ""
    host: str = ""
    is_watched: bool = False


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
    clusters claim the plain one. It never gets a host that another client's object already has. While the claims of a
    namespace are not known, both of these hosts count as taken, and it gets the unguessable one. So no client can hide
    a claim, and none can take the hosts of all clusters. The same applies while an operator for some namespaces cannot
    read the claims in others, except to paths, which have no unguessable variant: Roles in its namespaces are enough.

    :attr:`HostClaims.waiting` gets the object that has the host.
    """
    choice, holder = _choose(claims, clusters, cluster, kind, key, hosts)
    waiting = Waiting(RAY_CLUSTER, key_of(cluster), kind, key.name)
    return replace(choice, is_watched=claims.waiting.set(waiting, holder))


def _choose(
    claims: HostClaims,
    clusters: Reader,
    cluster: Object,
    kind: str,
    key: NamespacedName,
    hosts: CandidateHosts,
) -> tuple[HostChoice, Holder | None]:
    """Return the choice, and the object because of which it is not the plain host, or not without a Warning."""
    claimants = _Claimants(claims, cluster, kind, key)
    older = older_colliding_clusters(clusters, cluster) if hosts.hashed else []
    own_hosts = claimants.own_hosts()
    if hosts.plain in own_hosts and not claimants.is_claimed_by_any(hosts.plain, older):
        return _keep(claimants, hosts, hosts.plain, "")
    # The hash is of this cluster's name and namespace, so only users can let an object of an older one have it.
    if hosts.hashed and hosts.hashed in own_hosts:
        return _keep(claimants, hosts, hosts.hashed, hosts.suffix)
    if hosts.unguessable and hosts.unguessable in own_hosts:
        return _keep(claimants, hosts, hosts.unguessable, hosts.secret_suffix)
    holder = claimants.first_other(hosts.plain)
    unknown = claims.unknown(hosts.plain)
    if not unknown and hosts.unguessable:
        unknown = claims.unreadable()
    if holder is None and not older:
        if unknown:
            return _take_unguessable(
                claimants, hosts, hosts.plain, f"may be used by {unknown}"
            ), None
        return _use(claimants, hosts.plain, ""), None
    blocker = claimants.first_foreign(hosts.plain)
    if blocker is not None or not hosts.hashed:
        return _take_none(claimants, hosts, str(blocker or holder)), blocker or holder
    if unknown:
        return _take_unguessable(claimants, hosts, hosts.plain, f"may be used by {unknown}"), None
    # Users can compute the hash, and own a namespace and a RayCluster for it.
    claimant = claimants.first_other(hosts.hashed)
    if claimant is not None:
        return _take_unguessable(claimants, hosts, hosts.hashed, f"is used by {claimant}"), None
    used_by = holder or f"RayCluster {key_of(older[0])}"
    return _take_hashed(claimants, hosts, str(used_by)), None


# The verdicts.


def _keep(
    claimants: _Claimants, hosts: CandidateHosts, host: str, suffix: str
) -> tuple[HostChoice, Holder | None]:
    other = claimants.first_other(host)
    if other is None:
        return _use(claimants, host, suffix), None
    noun = hosts.noun
    message = (
        f"{claimants.subject}: {noun} {host} is also used by {other}, which does not belong to this RayCluster. "
        f"Requests to the {noun} may go there. Remove the {noun} from that {other.kind}"
    )
    return HostChoice(suffix, "HostShared", message, host), other


def _use(claimants: _Claimants, host: str, suffix: str) -> HostChoice:
    """Return the choice of a host that no other object claims."""
    if host.startswith("/") or has_valid_labels(host):
        return HostChoice(suffix)
    message = f"{claimants.subject}: host {host} has a label longer than 63 characters, which DNS cannot resolve"
    return HostChoice(suffix, HOST_TOO_LONG, message)


def _take_hashed(claimants: _Claimants, hosts: CandidateHosts, used_by: str) -> HostChoice:
    message = f"{claimants.subject}: host {hosts.plain} is used by {used_by}, so {hosts.hashed} is used instead"
    return HostChoice(hosts.suffix, "HostTaken", message, hosts.hashed)


def _take_unguessable(
    claimants: _Claimants, hosts: CandidateHosts, host: str, why: str
) -> HostChoice:
    """Return the choice of the host that no one knew before; ``why`` is why ``host`` cannot be used."""
    if not hosts.unguessable:
        message = f"{claimants.subject} is not created: {hosts.noun} {host} {why}"
        return HostChoice(None, "HostTaken", message, host)
    message = (
        f"{claimants.subject}: {hosts.noun} {host} {why}, so {hosts.unguessable} is used instead"
    )
    return HostChoice(hosts.secret_suffix, "HostTaken", message, hosts.unguessable)


def _take_none(claimants: _Claimants, hosts: CandidateHosts, used_by: str) -> HostChoice:
    message = f"{claimants.subject} is not created: {hosts.noun} {hosts.plain} is used by {used_by}"
    return HostChoice(None, "HostTaken", message, hosts.plain)


class _Claimants:
    """The objects that claim a host which the object ``key`` (``kind``) of ``cluster`` could have.

    Of the objects that claim a host, no more are examined than necessary: each tenant can create thousands.
    """

    def __init__(self, claims: HostClaims, cluster: Object, kind: str, key: NamespacedName) -> None:
        self._claims = claims
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self.subject: Final = f"{kind} {key.name}"
        """The object, for messages."""

    def own_hosts(self) -> set[str]:
        """Return the hosts that the object has, or an object of another kind that it replaces."""
        hosts: set[str] = set()
        for entry in self._claims.of_owner(self._cluster, self._kind, self._key):
            hosts.update(claims_of(entry))
        return hosts

    def first_other(self, host: str) -> Holder | None:
        """Return an object with the host that does not belong to the cluster."""
        return next(self._others(host), None)

    def first_foreign(self, host: str) -> Holder | None:
        """Return an object with the host that belongs neither to the cluster nor to a colliding one."""
        for other in islice(self._others(host), _MAX_EXAMINED):
            if not _is_of_colliding_cluster(other.entry, self._cluster):
                return other
        return None

    def is_claimed_by_any(self, host: str, clusters: Collection[Object]) -> bool:
        """Return whether an object of one of ``clusters`` has the host."""
        if not clusters:
            return False
        owners = {(namespace_of(cluster), uid_of(cluster)) for cluster in clusters}
        namespaces = {namespace_of(cluster) for cluster in clusters}
        holders = (each for each in self._claims.of(host) if each.entry.namespace in namespaces)
        for holder in islice(holders, _MAX_EXAMINED):
            if (holder.entry.namespace, controller_uid(holder.entry)) in owners:
                return True
        return False

    def _others(self, host: str) -> Iterator[Holder]:
        """Yield the objects that do not belong to the cluster; behind the first hundred, all count as others."""
        for number, holder in enumerate(self._claims.of(host)):
            if number >= _MAX_EXAMINED or not self._is_own(holder):
                yield holder

    def _is_own(self, holder: Holder) -> bool:
        if holder.kind == self._kind and holder.entry.key == self._key:
            return True
        return is_controlled_in_namespace(holder.entry, self._cluster)


def _is_of_colliding_cluster(claimant: Entry, cluster: Object) -> bool:
    owner = claimant.meta.controller
    if owner is None or owner.kind != RAY_CLUSTER.kind:
        return False
    return f"{owner.name}-{claimant.key.namespace}" == address_of(cluster)
