"""Reads the owners of pods by uid, from the cache or else from the API server."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

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
    uid_of,
)
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
"""For how long the refusals of a kind are remembered."""

_BETWEEN: Final = (("apps", "ReplicaSet"), (APPWRAPPER.group, APPWRAPPER.kind))
"""Groups and kinds that can control pods of components, and are no components."""


class OwnerUnknown(Exception):
    """An owner cannot be read before the time ``until``."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"not known before {until}")
        self.until = until


class ForeignOwner(Exception):
    """An owner cannot belong to an AppWrapper: its kind is not served, or cannot be read."""


class _Refusals(msgspec.Struct, frozen=True):
    """When the API server refused to show a kind in a namespace: first, and last."""

    first: datetime
    last: datetime


class OwnerReads:
    """Reads the owners of pods.

    Anyone can create pods with owners of any kind. One that the API server refuses to show is asked for again, once in
    30 seconds for all objects of a kind: if it is a kind of which pods of components descend, as long as that lasts;
    otherwise, the owner belongs to no AppWrapper after 90 seconds.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._refused: dict[tuple[str, GVK], _Refusals] = {}  # the oldest first

    async def read(self, gvk: GVK, key: NamespacedName, uid: str) -> Object | None:
        """Return the object with this uid, at least its metadata; ``None`` if it does not exist.

        Raises :class:`OwnerUnknown` and :class:`ForeignOwner`.
        """
        cached = self._client.cached(gvk, key)
        if cached is not None and uid_of(cached.object) == uid:
            return cached.object
        now = self._clock.now()
        refusals = self._refused.get((key.namespace, gvk))
        if refusals is not None and now < refusals.last + RETRY_PAUSE:
            raise _refused_owner(gvk, refusals, now)
        try:
            # The cache may lag. The rest of an object can be of any size and depth.
            obj = await self._client.get_metadata(gvk, key)
        except ValueError as error:
            raise ForeignOwner from error
        except UnknownKind as error:
            # An API server that starts may not serve a CRD yet.
            if _is_of_components(gvk):
                raise OwnerUnknown(now + RETRY_PAUSE) from error
            raise ForeignOwner from error
        except Forbidden as error:
            refusals = self._add_refusal(key.namespace, gvk, error)
            raise _refused_owner(gvk, refusals, now) from error
        except APIError as error:
            if error.code in _NO_SUCH_OBJECT:
                raise ForeignOwner from error
            raise OwnerUnknown(now + RETRY_PAUSE) from error
        except (TransportError, DiscoveryIncomplete) as error:
            raise OwnerUnknown(now + RETRY_PAUSE) from error
        self._refused.pop((key.namespace, gvk), None)
        return obj if obj is not None and uid_of(obj) == uid else None

    def _add_refusal(self, namespace: str, gvk: GVK, error: Forbidden) -> _Refusals:
        """Remember that the API server refuses to show a kind, and report that once."""
        now = self._clock.now()
        self._forget_old(now)
        before = self._refused.pop((namespace, gvk), None)
        if before is None and _is_of_components(gvk):
            _log.warning(
                "Permission denied, will retry",
                kind=gvk.kind,
                namespace=namespace,
                missing_rule=missing_rule(error),
            )
        refusals = _Refusals(first=before.first if before is not None else now, last=now)
        self._refused[namespace, gvk] = refusals
        return refusals

    def _forget_old(self, now: datetime) -> None:
        while self._refused:
            oldest = next(iter(self._refused))
            if now < self._refused[oldest].last + _MEMORY:
                return
            del self._refused[oldest]


def _refused_owner(gvk: GVK, refusals: _Refusals, now: datetime) -> OwnerUnknown | ForeignOwner:
    """Return what is known of an owner of a kind that the API server refuses to show."""
    if _is_of_components(gvk) or now < refusals.first + _STARTING:
        return OwnerUnknown(refusals.last + RETRY_PAUSE)
    return ForeignOwner()


def _is_of_components(gvk: GVK) -> bool:
    """Return whether pods of components descend from objects of a kind, which the operator must be able to read."""
    return (gvk.group, gvk.kind) in _BETWEEN or known_kind(gvk) in KNOWN_KINDS
