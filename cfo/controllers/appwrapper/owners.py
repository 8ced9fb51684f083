"""Reads the owners of pods by uid, from the cache or else from the API server.

Users choose each field of an owner reference. So what is known of an owner is remembered by all that names it: a pod
with its uid and another name or kind must not decide about the pods that it controls.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final, NamedTuple, Self

import msgspec
import structlog

from cfo.api.appwrapper.kinds import KNOWN_KINDS, known_kind
from cfo.api.appwrapper.names import APPWRAPPER
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

RETRY_PAUSE: Final = timedelta(seconds=30)
"""After which time an owner is read again that could not be read, and a kind that the API server refuses to show."""

_NO_SUCH_OBJECT: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED)
"""The answers for names that no object can have, and for kinds of which no objects are stored."""

_STARTING: Final = timedelta(seconds=90)
"""For how long a refusal may be that of an API server that starts: it refuses all until it has read the roles."""

_MEMORY: Final = timedelta(hours=1)
"""For how long it is remembered that a kind could not be read."""

_MAX_REMEMBERED: Final = 1000
"""Of how many kinds and namespaces that is remembered: anyone can name kinds."""

_BETWEEN: Final = (("apps", "ReplicaSet"), (APPWRAPPER.group, APPWRAPPER.kind))
"""Groups and kinds that can control pods of components, and are no components."""


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


def owner_of(obj: Object) -> Owner | None:
    """Return the controller of an object; ``None`` if it has none."""
    reference = controller_of(obj)
    if reference is None:
        return None
    gvk = GVK.parse(reference.get("apiVersion") or "", reference.get("kind") or "")
    return Owner(gvk, reference.get("name") or "", reference.get("uid") or "")


class OwnerUnknown(Exception):
    """An owner cannot be read before the time ``until``."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"not known before {until}")
        self.until = until


class ForeignOwner(Exception):
    """An owner cannot belong to an AppWrapper: its kind is not served, or cannot be read."""


class _Failures(msgspec.Struct, frozen=True):
    """When objects of a kind in a namespace could not be read: first, and last.

    ``is_refused``: the API server refused to show them. ``is_unserved``: it does not serve the kind.
    """

    first: datetime
    last: datetime
    is_refused: bool = False
    is_unserved: bool = False


class OwnerReads:
    """Reads the owners of pods.

    Anyone can create pods, with many owners and any kinds. If one cannot be read, the next request for its kind is sent
    after 30 seconds. If the API server does not serve the kind, or has refused to show it for 90 seconds, the owner
    belongs to no AppWrapper, unless pods of components descend from such objects.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._failures: dict[tuple[str, GVK], _Failures] = {}  # the oldest first

    async def read(self, namespace: str, owner: Owner) -> Object | None:
        """Return ``owner``, at least its metadata; ``None`` if it does not exist.

        Raises :class:`OwnerUnknown` and :class:`ForeignOwner`.
        """
        gvk, name, uid = owner
        key = NamespacedName(namespace, name)
        cached = self._client.cached(gvk, key)
        if cached is not None and uid_of(cached.object) == uid:
            return cached.object
        known = self._failures.get((key.namespace, gvk))
        if known is not None and self._clock.now() < known.last + RETRY_PAUSE:
            raise _error_of(gvk, known)
        try:
            # The cache may lag. The rest of an object can be of any size and depth.
            obj = await self._client.get_metadata(gvk, key)
        except ValueError as error:
            raise ForeignOwner from error
        except (APIError, TransportError, DiscoveryIncomplete, UnknownKind) as error:
            if isinstance(error, APIError) and error.code in _NO_SUCH_OBJECT:
                raise ForeignOwner from error
            raise _error_of(gvk, self._add_failure(key.namespace, gvk, error)) from error
        self._failures.pop((key.namespace, gvk), None)
        return obj if obj is not None and uid_of(obj) == uid else None

    def _add_failure(self, namespace: str, gvk: GVK, error: Exception) -> _Failures:
        """Remember that a kind cannot be read, and report a missing permission once."""
        now = self._clock.now()
        self._forget_old(now)
        before = self._failures.pop((namespace, gvk), None)
        is_refused = isinstance(error, Forbidden)
        was_refused = before is not None and before.is_refused
        if is_refused and not was_refused and _is_of_components(gvk):
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

    def _forget_old(self, now: datetime) -> None:
        while self._failures:
            oldest = next(iter(self._failures))
            is_old = now >= self._failures[oldest].last + _MEMORY
            if not is_old and len(self._failures) < _MAX_REMEMBERED:
                return
            del self._failures[oldest]


def _error_of(gvk: GVK, failures: _Failures) -> OwnerUnknown | ForeignOwner:
    """Return what is known of an owner of a kind that could not be read."""
    lasts = failures.last - failures.first >= _STARTING
    is_foreign = failures.is_unserved or (failures.is_refused and lasts)
    if is_foreign and not _is_of_components(gvk):
        return ForeignOwner()
    return OwnerUnknown(failures.last + RETRY_PAUSE)


def _is_of_components(gvk: GVK) -> bool:
    """Return whether pods of components descend from objects of a kind, which the operator must be able to read."""
    return (gvk.group, gvk.kind) in _BETWEEN or known_kind(gvk) in KNOWN_KINDS
