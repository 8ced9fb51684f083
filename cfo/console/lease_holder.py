"""Who holds the Lease of an operator, for commands that must not run while an operator does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cfo.api.reading import time_of
from cfo.runtime import Object
from cfo.runtime.process import printable

_MAX_HOLDER = 200


def living_holder(lease: Object, now: datetime) -> str:
    """Return the holder of ``lease`` for a message; empty if it has none, or it has expired at ``now``.

    A Lease whose time cannot be read counts as renewed.
    """
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity") or _is_expired(spec, now):
        return ""
    return printable(str(spec["holderIdentity"]), _MAX_HOLDER)


def _is_expired(spec: Mapping[str, Any], now: datetime) -> bool:
    renewed = time_of(spec.get("renewTime"))
    duration = timedelta(seconds=spec.get("leaseDurationSeconds") or 15)
    return renewed is not None and renewed + duration < now
