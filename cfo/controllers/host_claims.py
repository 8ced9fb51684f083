"""Which Ingresses, HTTPRoutes and TLSRoutes claim a host, for the controllers that must not take one of another owner.

HTTPRoutes also claim the paths below ``/ray/``, at which the dashboards of all RayClusters are if they share one host.

An object that is not cached, because of its size or the number of others, claims its hosts as well. The index has up to
1,000 such objects of a namespace. If there are more, the claims of the namespace are not known
(:meth:`HostClaims.unknown`).

An operator for some namespaces has a second informer for each kind, with the claims in all others
(:data:`OTHER_NAMESPACES`). Its events never name an owner, so no object of another operator is reconciled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from cfo.api.gateway import HTTP_ROUTE
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.runtime import Entry, Informer, NamespacedName, Object, namespace_of, uid_of
from cfo.runtime.manager import SelectionKeywords

DASHBOARD_PATHS: Final = "/ray/"
"""The prefix of the paths of dashboards that share one host; CodeFlare SDK expects it."""

OTHER_NAMESPACES: Final[SelectionKeywords] = {
    "other_namespaces": True,
    "fields": ("spec.hostnames", "spec.rules"),
    "max_bytes": MAX_CACHED_BYTES,
}
"""The selection of claims outside the namespaces of an operator: only metadata, hosts and paths are kept."""

_CLAIM: Final = "claim"


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


def add_host_index(claimants: Informer) -> None:
    """Add the index that :class:`HostClaims` reads to an informer of Ingresses, HTTPRoutes or TLSRoutes."""
    claimants.add_index(_CLAIM, claims_of, left_out=True)


def claims_of(claimant: Entry) -> list[str]:
    """Return the hosts of an Ingress, an HTTPRoute or a TLSRoute, and the paths of dashboards in an HTTPRoute.

    A path below that of a dashboard claims the dashboard: a Gateway sends the requests to the longest matching path.
    """
    return _claims(_decoder.decode(claimant.raw))


def claims_in(obj: Object) -> list[str]:
    """Return the same for an object that is not cached. Raises :class:`ValueError` if it has wrong JSON types."""
    return _claims(msgspec.convert(obj, _Claimant))


def _claims(claimant: _Claimant) -> list[str]:
    spec = claimant.spec
    if spec is None:
        return []
    rules = spec.rules or ()
    paths = [
        match.path.value for rule in rules for match in rule.matches or () if match.path is not None
    ]
    return [
        *(rule.host for rule in rules if rule.host),
        *(spec.hostnames or ()),
        *dict.fromkeys(_dashboard_of(path) for path in paths if path.startswith(DASHBOARD_PATHS)),
    ]


def _dashboard_of(path: str) -> str:
    """Return the first parts of ``path``: the prefix, a namespace and a name."""
    return "/".join(path.split("/", 4)[:4]).rstrip("/")


class Holder(msgspec.Struct, frozen=True):
    """An object that claims a host."""

    kind: str
    entry: Entry

    def __str__(self) -> str:
        return f"{self.kind} {self.entry.key}"


class HostClaims:
    """Looks up which objects claim a host.

    ``informers`` returns the informers of the kinds that are served at the moment, each with the index of
    :func:`add_host_index`, and ``others`` those of :data:`OTHER_NAMESPACES`.
    """

    def __init__(
        self,
        informers: Callable[[], Iterable[Informer]],
        others: Callable[[], Iterable[Informer]] = lambda: (),
    ) -> None:
        self._informers = informers
        self._others = others

    def of(self, claim: str) -> Iterator[Holder]:
        """Yield the objects that claim a host or a path: thousands, if a tenant wants to."""
        for informer in (*self._informers(), *self._others()):
            for entry in informer.reader.entries(index=(_CLAIM, claim)):
                yield Holder(informer.gvk.kind, entry)

    def unknown(self, claim: str, trusted: str = "") -> str:
        """Return what may claim a host or a path without being known, for messages; empty if everything is known.

        Objects of the namespace ``trusted`` do not count.
        """
        for informer in (*self._informers(), *self._others()):
            kind = informer.gvk.kind
            if claim.startswith("/") and kind != HTTP_ROUTE.kind:
                continue
            for namespace in informer.reader.unindexed:
                if namespace != trusted:
                    return f"one of the {kind} objects in namespace {namespace}, which are too many to be checked"
        return ""

    def unreadable(self) -> str:
        """Return which objects of other namespaces are not listed, for messages; empty if there are none."""
        for informer in self._others():
            if not informer.has_synced and not informer.is_not_served:
                return f"one of the {informer.gvk.kind} objects in other namespaces, which cannot be read"
        return ""

    def of_owner(self, owner: Object, kind: str, key: NamespacedName) -> list[Entry]:
        """Return the object of this kind and key, and objects of other kinds that have the key and the same owner."""
        found = ((informer.gvk.kind, informer.reader.entry(key)) for informer in self._informers())
        return [
            entry
            for found_kind, entry in found
            if entry is not None
            and (found_kind == kind or is_controlled_in_namespace(entry, owner))
        ]


def controller_uid(claimant: Entry) -> str:
    """Return the uid of the controller of an object; empty if it has none."""
    return claimant.meta.controller.uid if claimant.meta.controller is not None else ""


def is_controlled_in_namespace(claimant: Entry, owner: Object) -> bool:
    """Return whether ``owner`` is the controller of an object."""
    # clients of other namespaces can write the uid into their objects
    return claimant.namespace == namespace_of(owner) and controller_uid(claimant) == uid_of(owner)
