"""Who holds the Lease of an operator, for commands that must not run while an operator does.

A Lease contains the time of its last renewal, by the clock of its holder. Any user who can create a Lease chooses that
time and the duration, so neither a time far ahead of our clock nor a duration of years keeps a Lease valid.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cfo.api.reading import number, path, time_of
from cfo.runtime import Object
from cfo.runtime.process import printable

_MAX_HOLDER: Final = 200
_MAX_AHEAD: Final = timedelta(hours=1)
"""More than the clock of an operator is ahead of ours."""
_DEFAULT_SECONDS: Final = 15
_MAX_SECONDS: Final = 3600
"""The longest time for which a Lease is valid without a renewal; operators renew theirs within seconds."""


def living_holder(lease: Object, now: datetime) -> str:
    """Return the holder of ``lease`` for a message; empty if it has none, or it is not valid at ``now``.

    A Lease whose time cannot be read counts as renewed, because commands change nothing while an operator runs.
    """
    holder = path(lease, "spec", "holderIdentity")
    if not holder:
        return ""
    seconds = number(path(lease, "spec", "leaseDurationSeconds")) or _DEFAULT_SECONDS
    duration = timedelta(seconds=min(seconds, _MAX_SECONDS))
    is_known = _renewal_time(lease) is not None
    if is_known and not is_renewed(lease, duration, now):
        return ""
    return printable(str(holder), _MAX_HOLDER)


def is_renewed(lease: Object, period: timedelta, now: datetime) -> bool:
    """Return whether ``lease`` was renewed within the ``period`` before ``now``.

    A time that is far ahead of our clock, or that cannot be read, is no renewal.
    """
    renewed = _renewal_time(lease)
    return renewed is not None and -_MAX_AHEAD <= now - renewed <= period


def _renewal_time(lease: Object) -> datetime | None:
    return time_of(path(lease, "spec", "renewTime"))
