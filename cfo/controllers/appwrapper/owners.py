"""Reads the owners of pods by uid, from the cache or else from the API server.

Users choose each field of an owner reference. So what is known of an owner is remembered by all that names it: a pod
with its uid and another name or kind must not decide about the pods that it controls.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, NamedTuple, Self

import msgspec
import structlog

from cfo.api.appwrapper.kinds import KNOWN_KINDS, known_kind
from cfo.runtime import (
    GVK,
    APIError,
    Client,
    Clock,
    DiscoveryIncomplete,
    Forbidden,
    NamespacedName,
    Object,
    TransportError,
    UnknownKind,
    controller_of,
    uid_of,
)
from cfo.runtime.cache import OwnerReference
from cfo.runtime.client import missing_rule

_log = structlog.get_logger(__name__)

MAX_DEPTH: Final = 8
"""The maximum number of owners between a pod and its AppWrapper."""

_RETRY_SECONDS: Final = 30.0
"""After how many seconds an owner is read again that could not be read, and a kind that is refused."""

_NO_SUCH_OBJECT: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED)
"""The answers for names that no object can have, and for kinds of which no objects are stored."""

_STARTING_SECONDS: Final = 90.0
"""For how many seconds an API server that starts may refuse all, until it has read the roles."""

_MEMORY_SECONDS: Final = 3600.0
"""For how many seconds it is remembered that a kind could not be read."""

_MAX_REMEMBERED: Final = 1000
"""Of how many kinds and namespaces that is remembered: anyone can name kinds."""

_REPLICA_SET: Final = GVK("apps", "v1", "ReplicaSet")
"""The kind that controls the pods of Deployments."""


class Owner(NamedTuple):
    """An object that controls a pod or another owner, as an owner reference names it."""

    gvk: GVK
    name: str
    uid: str

    @classmethod
    def of(cls, reference: OwnerReference) -> Self:
        """Return the owner that a pod's reference names."""
        gvk = GVK.parse(reference.api_version, reference.kind)
        return cls(gvk, reference.name, reference.uid)


class OwnerState(Enum):
    """What is known of an owner."""

    EXISTS = auto()
    LOST = auto()
    """No object with its name has its uid."""
    FOREIGN = auto()
    """It cannot belong to an AppWrapper: its kind is not served, or cannot be read."""
    UNKNOWN = auto()
    """It cannot be read now."""


class OwnerAnswer(msgspec.Struct, frozen=True):
    """What is known of an owner, and, if it exists, its ``controller``.

    ``read_again_at``: when an owner that is not known is read again, in seconds of the monotonic clock.
    """

    state: OwnerState
    controller: Owner | None = None
    read_again_at: float | None = None


class _Failures(msgspec.Struct, frozen=True):
    """When objects of a kind in a namespace could not be read: first, and last, in seconds of the monotonic clock.

    ``is_refused``: the API server refused to show them. ``is_unserved``: it does not serve the kind.
    """

    first: float
    last: float
    is_refused: bool = False
    is_unserved: bool = False


_LOST: Final = OwnerAnswer(OwnerState.LOST)
_FOREIGN: Final = OwnerAnswer(OwnerState.FOREIGN)


class OwnerReads:
    """Reads the owners of pods.

    Anyone can create pods, with many owners and any kinds. If one cannot be read, the next request for its kind is sent
    after 30 seconds. If the API server does not serve the kind, or has refused to show it for 90 seconds, the owner
    belongs to no AppWrapper, unless pods of components descend from such objects.
    """

    def __init__(self, client: Client, clock: Clock, own_kinds: Iterable[GVK]) -> None:
        """``own_kinds`` are those that this operator reconciles: their objects can be components, or create them."""
        self._client = client
        self._clock = clock
        self._own_kinds = frozenset((gvk.group, gvk.kind) for gvk in own_kinds)
        self._failures: dict[tuple[str, GVK], _Failures] = {}  # the oldest first

    async def read(self, namespace: str, owner: Owner) -> OwnerAnswer:
        """Return what is known of an owner of pods in ``namespace``."""
        gvk, name, uid = owner
        key = NamespacedName(namespace, name)
        cached = self._client.cached(gvk, key)
        if cached is not None and uid_of(cached.object) == uid:
            return _existing(cached.object)
        known = self._failures.get((namespace, gvk))
        if known is not None and self._clock.monotonic() < known.last + _RETRY_SECONDS:
            return self._answer_after(gvk, known)
        try:
            # The cache may lag. The rest of an object can be of any size and depth.
            obj = await self._client.get_metadata(gvk, key)
        except ValueError:
            return _FOREIGN
        except (APIError, TransportError, DiscoveryIncomplete, UnknownKind) as error:
            if isinstance(error, APIError) and error.code in _NO_SUCH_OBJECT:
                return _FOREIGN
            return self._answer_after(gvk, self._add_failure(namespace, gvk, error))
        self._failures.pop((namespace, gvk), None)
        if obj is None or uid_of(obj) != uid:
            return _LOST
        return _existing(obj)

    def _answer_after(self, gvk: GVK, failures: _Failures) -> OwnerAnswer:
        """Return what is known of an owner of a kind that could not be read."""
        lasts = failures.last - failures.first >= _STARTING_SECONDS
        is_foreign = failures.is_unserved or (failures.is_refused and lasts)
        if is_foreign and not self._is_of_components(gvk):
            return _FOREIGN
        return OwnerAnswer(OwnerState.UNKNOWN, read_again_at=failures.last + _RETRY_SECONDS)

    def _is_of_components(self, gvk: GVK) -> bool:
        """Return whether pods of components descend from objects of a kind, which the operator must be able to read."""
        is_own = (gvk.group, gvk.kind) in self._own_kinds
        return is_own or gvk.same_kind(_REPLICA_SET) or known_kind(gvk) in KNOWN_KINDS

    def _add_failure(self, namespace: str, gvk: GVK, error: Exception) -> _Failures:
        """Remember that a kind cannot be read, and report a missing permission once."""
        now = self._clock.monotonic()
        self._forget_old(now)
        before = self._failures.pop((namespace, gvk), None)
        is_refused = isinstance(error, Forbidden)
        was_refused = before is not None and before.is_refused
        if is_refused and not was_refused and self._is_of_components(gvk):
            _log.warning(
                "Permission denied, will retry",
                kind=gvk.kind,
                namespace=namespace,
                missing_rule=missing_rule(error),
            )
        failures = _Failures(
            first=before.first if before is not None and is_refused == was_refused else now,
            last=now,
            is_refused=is_refused,
            is_unserved=isinstance(error, UnknownKind),
        )
        self._failures[namespace, gvk] = failures
        return failures

    def _forget_old(self, now: float) -> None:
        while self._failures:
            oldest = next(iter(self._failures))
            is_old = now >= self._failures[oldest].last + _MEMORY_SECONDS
            if not is_old and len(self._failures) < _MAX_REMEMBERED:
                return
            del self._failures[oldest]


def _existing(obj: Object) -> OwnerAnswer:
    reference = controller_of(obj)
    if reference is None:
        return OwnerAnswer(OwnerState.EXISTS)
    gvk = GVK.parse(reference.get("apiVersion") or "", reference.get("kind") or "")
    controller = Owner(gvk, reference.get("name") or "", reference.get("uid") or "")
    return OwnerAnswer(OwnerState.EXISTS, controller)
