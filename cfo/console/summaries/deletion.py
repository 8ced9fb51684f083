"""An object whose deletion does not end: its finalizers name who has to act."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from cfo.console.summaries.reading import path, text, time_of
from cfo.console.summaries.summary import Problem
from cfo.runtime import Object

_USUAL: Final = timedelta(minutes=5)


def slow_deletion(obj: Object, now: datetime) -> Iterator[Problem]:
    """Yield a problem if the deletion of ``obj`` was requested more than five minutes before ``now``."""
    requested = time_of(path(obj, "metadata", "deletionTimestamp"))
    finalizers: Any = path(obj, "metadata", "finalizers")
    names = [text(item, 80) for item in finalizers[:5]] if isinstance(finalizers, list) else []
    if requested is not None and names and now - requested > _USUAL:
        yield Problem(
            text(f"Being deleted since {requested:%Y-%m-%d %H:%M} UTC, waiting for {', '.join(names)}"),
            "check that the controllers run which own these finalizers",
        )
