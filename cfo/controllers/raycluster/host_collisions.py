"""Chooses an Ingress host when other objects claim the same host.

A RayCluster's *address* is ``<name>-<namespace>``; the names of its hosts and of its ClusterRoleBinding contain it. It
is not unique: ``a-b`` in ``c`` and ``a`` in ``b-c`` have the same address. Such clusters are called *colliding*. The
oldest of them normally gets the plain name, and every other one a name with a hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime import Entry, Informer, NamespacedName, Object, Reader, key_of, name_of, namespace_of, uid_of

__all__ = [
    "CandidateHosts",
    "HostChoice",
    "add_host_index",
    "address_of",
    "choose_host",
    "clusters_at_address",
    "hosts_of",
    "older_colliding_clusters",
]

_HOST = "host"
_DNS_LABEL_LIMIT = 63


class _IngressRule(msgspec.Struct):
    host: str = ""


class _IngressSpec(msgspec.Struct):
    rules: list[_IngressRule] | None = None


class _Ingress(msgspec.Struct):
    spec: _IngressSpec | None = None


_decoder = msgspec.json.Decoder(_Ingress)


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


# --- Hosts of Ingresses -----------------------------------------------------------------------------------------------


def add_host_index(ingresses: Informer) -> None:
    """Add the index that :func:`choose_host` reads to the informer of Ingresses."""
    ingresses.add_index(_HOST, hosts_of)


def hosts_of(ingress: Entry) -> list[str]:
    """Return the hosts in the rules of an Ingress."""
    spec = _decoder.decode(ingress.raw).spec
    return [rule.host for rule in (spec.rules if spec else None) or () if rule.host]


@dataclass(frozen=True, slots=True)
class CandidateHosts:
    """The hosts that an Ingress of a cluster can have: the plain one, or the one with ``suffix``, a hash."""

    plain: str
    hashed: str
    suffix: str


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The suffix of the chosen host (empty for the plain one), or ``None`` when every candidate is taken.

    ``reason`` and ``message`` describe the Warning Event to record, if any.
    """

    suffix: str | None
    reason: str = ""
    message: str = ""


def choose_host(
    ingresses: Reader, clusters: Reader, cluster: Object, key: NamespacedName, hosts: CandidateHosts
) -> HostChoice:
    """Choose the host of the Ingress ``key`` of ``cluster``.

    An Ingress keeps the host that it has, unless the Ingress of an older colliding cluster has the same host. It keeps
    the host even if an Ingress of another client has it: the age of an Ingress does not show since when it has a host.
    Otherwise it gets the plain host when no other Ingress has it and no older cluster claims it, and the hashed one
    when only colliding clusters claim the plain one. It never gets a host that another client's Ingress already has.
    """
    own = ingresses.entry(key)
    older = older_colliding_clusters(clusters, cluster)
    if own is not None:
        older_owners = {(namespace_of(other), uid_of(other)) for other in older}
        for suffix, host in (("", hosts.plain), (hosts.suffix, hosts.hashed)):
            if host not in hosts_of(own):
                continue
            others = _other_ingresses(ingresses, host, key)
            if any((other.key.namespace, _controller_uid(other)) in older_owners for other in others):
                continue
            if not others:
                return HostChoice(suffix)
            message = (
                f"Ingress {key.name}: host {host} is also used by Ingress {others[0].key}, which does not belong to "
                "this RayCluster. Requests to the host may go there. Remove the host from that Ingress"
            )
            return HostChoice(suffix, "HostShared", message)
    holders = _other_ingresses(ingresses, hosts.plain, key)
    if not holders and not older:
        if max(map(len, hosts.plain.split("."))) > _DNS_LABEL_LIMIT:
            message = (
                f"Ingress {key.name}: host {hosts.plain} has a label longer than {_DNS_LABEL_LIMIT} characters, "
                "which DNS cannot resolve"
            )
            return HostChoice("", "HostTooLong", message)
        return HostChoice("")
    hashed_holders = _other_ingresses(ingresses, hosts.hashed, key)
    foreign = [holder for holder in holders if not _is_of_colliding_cluster(holder, cluster)]
    if not foreign and not hashed_holders:
        holder = f"Ingress {holders[0].key}" if holders else f"RayCluster {key_of(older[0])}"
        message = f"Ingress {key.name}: host {hosts.plain} is used by {holder}, so {hosts.hashed} is used instead"
        return HostChoice(hosts.suffix, "HostTaken", message)
    blocker = (foreign or hashed_holders)[0].key
    message = f"Ingress {key.name} is not created: host {hosts.plain} is used by Ingress {blocker}"
    return HostChoice(None, "HostTaken", message)


def _other_ingresses(ingresses: Reader, host: str, key: NamespacedName) -> list[Entry]:
    return [entry for entry in ingresses.entries(index=(_HOST, host)) if entry.key != key]


def _controller_uid(ingress: Entry) -> str:
    return ingress.meta.controller.uid if ingress.meta.controller is not None else ""


def _is_of_colliding_cluster(ingress: Entry, cluster: Object) -> bool:
    owner = ingress.meta.controller
    return (
        owner is not None
        and owner.kind == RAY_CLUSTER.kind
        and f"{owner.name}-{ingress.key.namespace}" == address_of(cluster)
    )
