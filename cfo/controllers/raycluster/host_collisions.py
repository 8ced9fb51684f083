"""Chooses the host of an Ingress or a route when other objects claim the same host.

Ingresses, HTTPRoutes and TLSRoutes *claim* hosts. HTTPRoutes also claim the paths below ``/ray/``, at which the
dashboards of all RayClusters are if they share one host.

A RayCluster's *address* is ``<name>-<namespace>``; the names of its hosts and of its ClusterRoleBinding contain it. It
is not unique: ``a-b`` in ``c`` and ``a`` in ``b-c`` have the same address. Such clusters are called *colliding*. The
oldest of them normally gets the plain name, and every other one a name with a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import msgspec

from cfo.api.raycluster.names import RAY_CLUSTER, digest
from cfo.runtime import Entry, Informer, NamespacedName, Object, Reader, key_of, name_of, namespace_of, uid_of

_CLAIM = "claim"
DASHBOARD_PATHS = "/ray/"
"""The prefix of the paths of dashboards that share one host; CodeFlare SDK expects it."""
_DNS_LABEL_LIMIT = 63


class _Path(msgspec.Struct):
    value: str = ""


class _Match(msgspec.Struct):
    path: _Path | None = None


class _Rule(msgspec.Struct):
    host: str = ""
    matches: list[_Match] | None = None


class _Spec(msgspec.Struct):
    hostnames: list[str] | None = None
    rules: list[_Rule] | None = None


class _Claimant(msgspec.Struct):
    """The fields of Ingresses, HTTPRoutes and TLSRoutes that claim hosts and paths."""

    spec: _Spec | None = None


_decoder = msgspec.json.Decoder(_Claimant)


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
    others = [clusters.entry(other) for other in clusters_at_address(clusters, address_of(cluster)) if other != key]
    return [
        entry.object()
        for entry in others
        if entry is not None and not entry.meta.is_deleting and (entry.meta.creation_timestamp, entry.key) < age
    ]


# --- Claims of Ingresses and routes -----------------------------------------------------------------------------------


def add_host_index(claimants: Informer) -> None:
    """Add the index that :class:`HostClaims` reads to an informer of Ingresses, HTTPRoutes or TLSRoutes."""
    claimants.add_index(_CLAIM, claims_of)


def claims_of(claimant: Entry) -> list[str]:
    """Return the hosts of an Ingress, an HTTPRoute or a TLSRoute, and the paths of dashboards in an HTTPRoute.

    A path below that of a dashboard claims the dashboard: a Gateway sends the requests to the longest matching path.
    """
    spec = _decoder.decode(claimant.raw).spec
    if spec is None:
        return []
    rules = spec.rules or ()
    paths = [match.path.value for rule in rules for match in rule.matches or () if match.path is not None]
    return [
        *(rule.host for rule in rules if rule.host),
        *(spec.hostnames or ()),
        *dict.fromkeys(_dashboard_of(path) for path in paths if path.startswith(DASHBOARD_PATHS)),
    ]


def _dashboard_of(path: str) -> str:
    """Return the first parts of ``path``: the prefix, a namespace and a name."""
    return "/".join(path.split("/", 4)[:4]).rstrip("/")


class _Holder(NamedTuple):
    """An object that claims a host."""

    kind: str
    entry: Entry

    def __str__(self) -> str:
        return f"{self.kind} {self.entry.key}"


class HostClaims:
    """Looks up which objects claim a host.

    ``informers`` returns the informers of the kinds that are served at the moment, each with the index of
    :func:`add_host_index`.
    """

    def __init__(self, informers: Callable[[], Iterable[Informer]]) -> None:
        self._informers = informers

    def of(self, claim: str) -> list[_Holder]:
        """Return the objects that claim a host or a path."""
        return [
            _Holder(informer.gvk.kind, entry)
            for informer in self._informers()
            for entry in informer.reader.entries(index=(_CLAIM, claim))
        ]

    def of_cluster(self, cluster: Object, kind: str, key: NamespacedName) -> list[Entry]:
        """Return the object of this kind and key, and objects of other kinds that have the key and the same owner."""
        found = ((informer.gvk.kind, informer.reader.entry(key)) for informer in self._informers())
        return [
            entry
            for found_kind, entry in found
            if entry is not None and (found_kind == kind or _is_owned_by(entry, cluster))
        ]


@dataclass(frozen=True, slots=True)
class CandidateHosts:
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


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The suffix of the chosen host (empty for the plain one), or ``None`` when every candidate is taken.

    ``reason`` and ``message`` describe the Warning Event to record, if any.
    """

    suffix: str | None
    reason: str = ""
    message: str = ""


def choose_host(
    claims: HostClaims, clusters: Reader, cluster: Object, kind: str, key: NamespacedName, hosts: CandidateHosts
) -> HostChoice:
    """Choose the host of the object ``key`` of ``cluster``, an Ingress or a route (``kind``).

    An object keeps the host that it has (and a route takes the host of the Ingress that it replaces, and vice versa),
    unless an object of an older colliding cluster has the same host. It keeps the host even if an object of another
    client has it: the age of an object does not show since when it has a host. Otherwise it gets the plain host when no
    other object has it and no older cluster claims it, and the hashed one when only colliding clusters claim the plain
    one. It never gets a host that another client's object already has.
    """
    own = [host for entry in claims.of_cluster(cluster, kind, key) for host in claims_of(entry)]
    older = older_colliding_clusters(clusters, cluster) if hosts.hashed else []

    def others(host: str) -> list[_Holder]:
        return [
            holder
            for holder in claims.of(host)
            if (holder.kind, holder.entry.key) != (kind, key) and not _is_owned_by(holder.entry, cluster)
        ]

    older_owners = {(namespace_of(other), uid_of(other)) for other in older}
    for suffix, host in (("", hosts.plain), (hosts.suffix, hosts.hashed)):
        if not host or host not in own:
            continue
        holders = others(host)
        if any((holder.entry.key.namespace, _controller_uid(holder.entry)) in older_owners for holder in holders):
            continue
        if not holders:
            return HostChoice(suffix)
        message = (
            f"{kind} {key.name}: {hosts.noun} {host} is also used by {holders[0]}, which does not belong to "
            f"this RayCluster. Requests to the {hosts.noun} may go there. Remove the {hosts.noun} from that "
            f"{holders[0].kind}"
        )
        return HostChoice(suffix, "HostShared", message)
    holders = others(hosts.plain)
    if not holders and not older:
        if hosts.noun == "host" and max(map(len, hosts.plain.split("."))) > _DNS_LABEL_LIMIT:
            message = (
                f"{kind} {key.name}: host {hosts.plain} has a label longer than {_DNS_LABEL_LIMIT} characters, "
                "which DNS cannot resolve"
            )
            return HostChoice("", "HostTooLong", message)
        return HostChoice("")
    hashed_holders = others(hosts.hashed) if hosts.hashed else []
    foreign = [holder for holder in holders if not _is_of_colliding_cluster(holder.entry, cluster)]
    if hosts.hashed and not foreign and not hashed_holders:
        used_by = str(holders[0]) if holders else f"RayCluster {key_of(older[0])}"
        message = f"{kind} {key.name}: host {hosts.plain} is used by {used_by}, so {hosts.hashed} is used instead"
        return HostChoice(hosts.suffix, "HostTaken", message)
    blocker = (foreign or hashed_holders or holders)[0]
    message = f"{kind} {key.name} is not created: {hosts.noun} {hosts.plain} is used by {blocker}"
    return HostChoice(None, "HostTaken", message)


def _controller_uid(claimant: Entry) -> str:
    return claimant.meta.controller.uid if claimant.meta.controller is not None else ""


def _is_owned_by(claimant: Entry, cluster: Object) -> bool:
    # clients of other namespaces can write the uid into their objects
    return claimant.namespace == namespace_of(cluster) and _controller_uid(claimant) == uid_of(cluster)


def _is_of_colliding_cluster(claimant: Entry, cluster: Object) -> bool:
    owner = claimant.meta.controller
    return (
        owner is not None
        and owner.kind == RAY_CLUSTER.kind
        and f"{owner.name}-{claimant.key.namespace}" == address_of(cluster)
    )
