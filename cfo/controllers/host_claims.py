"""Which Ingresses, HTTPRoutes and TLSRoutes claim a host, for the controllers that must not take one of another owner.

HTTPRoutes also claim the paths below ``/ray/``, at which the dashboards of all RayClusters are if they share one host.

An object that is not cached, because of its size or the number of others, claims its hosts as well. The index has up to
1,000 such objects of a namespace. If there are more, the claims of the namespace are not known
(:meth:`HostClaims.unknown`).

A client can change the hosts of its objects all the time. So a change enqueues owners in other namespaces only after
:data:`FOREIGN_DELAY`, once for all changes in that time, and with a low priority.

An operator for some namespaces has a second informer for each kind, with the claims in all others
(:data:`OTHER_NAMESPACES`). Its events never name an owner, so no object of another operator is reconciled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from cfo.api.gateway import HTTP_ROUTE
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.runtime import (
    GVK,
    Channel,
    Entry,
    Informer,
    NamespacedName,
    Object,
    namespace_of,
    uid_of,
)
from cfo.runtime.controller import LOW_PRIORITY
from cfo.runtime.manager import SelectionKeywords

DASHBOARD_PATHS: Final = "/ray/"
"""The prefix of the paths of dashboards that share one host; CodeFlare SDK expects it."""

OTHER_NAMESPACES: Final[SelectionKeywords] = {
    "other_namespaces": True,
    "fields": ("spec.hostnames", "spec.rules"),
    "max_bytes": MAX_CACHED_BYTES,
}
"""The selection of claims outside the namespaces of an operator: only metadata, hosts and paths are kept."""

MAX_WAITING: Final = 1000
"""How many objects of a namespace can wait for hosts; more are reconciled after some minutes."""

FOREIGN_DELAY: Final = 5.0
"""Seconds until a change of hosts enqueues the owners in other namespaces that use them or wait for them."""

_SPACING: Final = 0.05
"""Seconds between the owners that one change enqueues, so that they do not keep all workers busy at the same time."""

_PLACES: Final = 100
"""After this number of owners, the next ones are enqueued together with the first ones."""

_CLAIM: Final = "claim"

Key = TypeVar("Key")


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


def enqueue_foreign(channel: Channel, owners: Iterable[NamespacedName]) -> None:
    """Enqueue owners after a change of the hosts of an object in another namespace, one after the other.

    The first one waits for :data:`FOREIGN_DELAY`, and none twice as long.
    """
    for number, owner in enumerate(owners):
        channel.enqueue(
            [owner],
            priority=LOW_PRIORITY,
            after=FOREIGN_DELAY + number % _PLACES * _SPACING,
            reason="the hosts of an object in another namespace changed",
        )


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


class Waiting(NamedTuple):
    """An object, such as an Ingress, that is not written as its owner wants, because another object has its host."""

    owner: GVK
    key: NamespacedName
    kind: str
    name: str


class WaitingHosts:
    """Which objects wait for the host of another one, so that its change or deletion enqueues their owners at once."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, NamespacedName], set[Waiting]] = {}
        self._holders: dict[Waiting, tuple[str, NamespacedName]] = {}
        self._of_owners: dict[tuple[GVK, NamespacedName], set[Waiting]] = {}
        self._numbers: Counter[str] = Counter()

    def set(self, waiting: Waiting, holder: Holder | None) -> bool:
        """Record for which object ``waiting`` waits, ``None`` if for none; return whether its events will be noticed.

        They are not if the namespace has :data:`MAX_WAITING` others.
        """
        self._forget(waiting)
        namespace = waiting.key.namespace
        if holder is None or self._numbers[namespace] >= MAX_WAITING:
            return False
        place = (holder.kind, holder.entry.key)
        self._waiting.setdefault(place, set()).add(waiting)
        self._of_owners.setdefault((waiting.owner, waiting.key), set()).add(waiting)
        self._holders[waiting] = place
        self._numbers[namespace] += 1
        return True

    def take(self, kind: str, key: NamespacedName) -> list[Waiting]:
        """Return what waits for an object that changed or was deleted, and forget that it does."""
        found = sorted(self._waiting.get((kind, key), ()))
        for waiting in found:
            self._forget(waiting)
        return found

    def forget(self, owner: GVK, key: NamespacedName) -> None:
        """Forget the objects of an owner that was deleted."""
        for waiting in list(self._of_owners.get((owner, key), ())):
            self._forget(waiting)

    def _forget(self, waiting: Waiting) -> None:
        place = self._holders.pop(waiting, None)
        if place is None:
            return
        _discard(self._waiting, place, waiting)
        _discard(self._of_owners, (waiting.owner, waiting.key), waiting)
        namespace = waiting.key.namespace
        self._numbers[namespace] -= 1
        if not self._numbers[namespace]:
            del self._numbers[namespace]


def _discard(sets: dict[Key, set[Waiting]], key: Key, waiting: Waiting) -> None:
    """Remove an element from a set, and a set that is empty."""
    found = sets[key]
    found.discard(waiting)
    if not found:
        del sets[key]


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
        self.waiting = WaitingHosts()

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
