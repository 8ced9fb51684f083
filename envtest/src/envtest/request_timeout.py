"""The parameter ``timeout`` of requests that end by themselves, as apiserver's ``request_deadline.go`` reads it.

Nothing here takes long enough to be cut off by it; but one that is no duration is refused, before all else.
"""

from __future__ import annotations

import re
from typing import Final

from envtest.auth.attributes import Attributes
from envtest.errors import bad_request

__all__ = ["check_timeout"]

_UNITS: Final = frozenset({"ns", "us", "µs", "μs", "ms", "s", "m", "h"})
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)([^.0-9]*)", re.ASCII)
_LONG_VERBS: Final = frozenset({"watch", "proxy"})
_LONG_SUBRESOURCES: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})


def check_timeout(text: str, attributes: Attributes) -> None:
    """Raises StatusError (400) where ``text`` is no duration, unless the request is one that runs for long."""
    if not text or attributes.verb in _LONG_VERBS or attributes.subresource in _LONG_SUBRESOURCES:
        return
    problem = _duration_problem(text)
    if problem:
        raise bad_request(f"invalid timeout specified in the request URL - time: {problem}")


def _duration_problem(text: str) -> str:
    """What ``time.ParseDuration`` says of a text; empty where it takes it."""
    rest = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if rest == "0":
        return ""
    if not rest:
        return f'invalid duration "{text}"'
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            return f'invalid duration "{text}"'
        unit = part[2]
        if not unit:
            return f'missing unit in duration "{text}"'
        if unit not in _UNITS:
            return f'unknown unit "{unit}" in duration "{text}"'
        position = part.end()
    return ""
