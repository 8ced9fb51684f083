"""Notices that another client overwrites a child again and again, as a second operator with other settings does.

Each of the two corrects what the other one wrote, so both write without end, and none of them fails. The same content
that is written for a child three times within a minute proves that it was overwritten or deleted twice. It is reported.
From then on, the next correction is due after one second, and each later one after twice that time, so that the two
write a few times a minute. One of the two is enough.

Who overwrites it does not matter: a user can write as any field manager. So no child is delayed that protects
something. A NetworkPolicy that is not corrected at once would let a tenant open pods.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec
import orjson
import structlog

from cfo.runtime.client.name_checks import WantedName
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.clock import Clock, SystemClock

OVERWRITE_WINDOW: Final = 60.0
"""Seconds within which a child must be overwritten twice, and after which it is forgotten; also the shortest time
between two reports."""

MAX_CORRECTION_DELAY: Final = 30.0
"""The longest time in seconds between two corrections of a child that may wait."""

_FIRST_CORRECTION_DELAY: Final = 1.0
_WRITES: Final = 3

_log = structlog.get_logger(__name__)


class _Writes(msgspec.Struct):
    """How often the same content was written for a child; times are monotonic seconds."""

    digest: bytes
    since: float
    last: float
    count: int = 1
    delay: float = 0.0
    reported_at: float | None = None

    @property
    def is_overwritten(self) -> bool:
        return self.count >= _WRITES


class Overwrites:
    """Remembers the last writes of at most ``size`` children."""

    def __init__(self, size: int = 4096, clock: Clock | None = None) -> None:
        self._size = size
        self._clock = clock or SystemClock()
        self._writes: OrderedDict[WantedName, _Writes] = OrderedDict()
        """The child whose last write is longest ago is the first."""
        self._logged_at: float | None = None
        self.count: Callable[[str], None] = lambda _kind: None
        """Called with the kind of each child that is reported."""

    def __len__(self) -> int:
        return len(self._writes)

    def delay(self, name: WantedName, desired: Object) -> float:
        """Return in how many seconds ``desired`` may be written for a child that can wait; 0 if it may be now."""
        known = self._writes.get(name)
        if known is None or not known.is_overwritten:
            return 0.0
        elapsed = self._clock.monotonic() - known.last
        if elapsed >= known.delay or known.digest != _digest(desired):
            return 0.0
        return known.delay - elapsed

    def wrote(self, name: WantedName, desired: Object) -> bool:
        """Record that ``desired`` was written for a child; return whether to report it, at most once a minute.

        One line a minute is logged for all children together.
        """
        digest = _digest(desired)
        if digest is None:
            return False
        now = self._clock.monotonic()
        self._forget_old(now)
        known = self._writes.get(name)
        if known is None or known.digest != digest or _is_rare(known, now):
            known = _Writes(digest, since=now, last=now)
        else:
            known.count += 1
            known.last = now
        self._writes[name] = known
        self._writes.move_to_end(name)
        if len(self._writes) > self._size:
            self._writes.popitem(last=False)
        if not known.is_overwritten:
            return False
        known.delay = min(max(2 * known.delay, _FIRST_CORRECTION_DELAY), MAX_CORRECTION_DELAY)
        if known.reported_at is not None and now - known.reported_at < OVERWRITE_WINDOW:
            return False
        known.reported_at = now
        self.count(name.gvk.kind)
        self._log(name, now)
        return True

    def _forget_old(self, now: float) -> None:
        while self._writes:
            name, oldest = next(iter(self._writes.items()))
            if now - oldest.last <= OVERWRITE_WINDOW:
                return
            del self._writes[name]

    def _log(self, name: WantedName, now: float) -> None:
        if self._logged_at is not None and now - self._logged_at < OVERWRITE_WINDOW:
            return
        self._logged_at = now
        _log.error(
            "Objects are overwritten by another client again and again, and corrected each time",
            kind=name.gvk.kind,
            object=str(name.key),
            hint="if it is another operator, delete one of the two",
        )


def _is_rare(known: _Writes, now: float) -> bool:
    """Return whether a write at ``now`` does not count with the earlier ones: they are too long ago."""
    return not known.is_overwritten and now - known.since > OVERWRITE_WINDOW


def _digest(desired: Object) -> bytes | None:
    try:
        return hashlib.sha256(orjson.dumps(desired, option=orjson.OPT_SORT_KEYS)).digest()
    except orjson.JSONEncodeError:  # nested too deeply
        return None
