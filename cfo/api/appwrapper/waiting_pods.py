"""Names of pods in the message of a condition: of each cause that only the Events of pods explain, it names one pod."""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = re.compile(r" \(Pod ([a-z0-9.-]{1,253})\)")

_MAX_NAMED: Final = 2
"""As many causes as a message has."""


def cause_with_pod(cause: str, pod: str) -> str:
    """Return ``cause`` with the name of a pod that waits because of it."""
    return f"{cause} (Pod {pod})"


def named_pods(message: str) -> list[str]:
    """Return the names of pods that :func:`cause_with_pod` has written to ``message``."""
    return _NAMED.findall(message)[:_MAX_NAMED]
