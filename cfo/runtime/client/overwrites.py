"""Notices that another client overwrites a child again and again, as a second operator with other settings does.

Each of the two corrects what the other one wrote, so both write without end, and none of them fails. The same content
that is written to an object three times within a minute proves that it was overwritten twice. It is reported, and still
corrected: a NetworkPolicy that is not corrected would let a tenant open pods.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec
import orjson
import structlog

from cfo.runtime.objects.unstructured import Object, key_of, uid_of
from cfo.runtime.process.clock import Clock, SystemClock

OVERWRITE_WINDOW: Final = 60.0
"""Seconds within which an object must be overwritten twice; also the shortest time between two reports."""

_WRITES: Final = 3

_log = structlog.get_logger(__name__)


class _Writes(msgspec.Struct):
    """How often the same content was written to an object since a time in monotonic seconds."""

    digest: bytes
    since: float
    count: int = 1


class Overwrites:
    """Remembers the last writes to at most ``size`` existing objects."""

    def __init__(self, size: int = 1024, clock: Clock | None = None) -> None:
        self._size = size
        self._clock = clock or SystemClock()
        self._writes: OrderedDict[str, _Writes] = OrderedDict()
        self._logged_at: float | None = None
        self.count: Callable[[str], None] = lambda _kind: None
        """Called with the kind of each object that is reported."""

    def __len__(self) -> int:
        return len(self._writes)

    def wrote(self, obj: Object, desired: Object) -> bool:
        """Record that ``desired`` was written to ``obj``; return whether to report it, at most once a minute.

        One line a minute is logged for all objects together.
        """
        try:
            digest = hashlib.sha256(orjson.dumps(desired, option=orjson.OPT_SORT_KEYS)).digest()
        except orjson.JSONEncodeError:  # nested too deeply
            return False
        uid = uid_of(obj)
        now = self._clock.monotonic()
        known = self._writes.get(uid)
        if known is None or known.digest != digest or now - known.since > OVERWRITE_WINDOW:
            self._writes[uid] = _Writes(digest, now)
            self._writes.move_to_end(uid)
            if len(self._writes) > self._size:
                self._writes.popitem(last=False)
            return False
        known.count += 1
        if known.count != _WRITES:
            return False
        self.count(obj["kind"])
        self._log(obj, now)
        return True

    def _log(self, obj: Object, now: float) -> None:
        if self._logged_at is not None and now - self._logged_at < OVERWRITE_WINDOW:
            return
        self._logged_at = now
        _log.error(
            "Objects are overwritten by another client again and again, and corrected each time",
            kind=obj["kind"],
            object=str(key_of(obj)),
            hint="if it is another operator, delete one of the two",
        )
