"""Checks the query parameter ``timeout``, as apiserver's ``request_deadline.go`` does.

No request here takes long enough to reach a timeout, but an invalid duration is rejected, before authentication.
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
    """Raise StatusError (400) if ``text`` is not a duration, unless the request is long-running."""
    if not text or attributes.verb in _LONG_VERBS or attributes.subresource in _LONG_SUBRESOURCES:
        return
    problem = _duration_problem(text)
    if problem:
        raise bad_request(f"invalid timeout specified in the request URL - time: {problem}")


def _duration_problem(text: str) -> str:
    """Return the error of Go's ``time.ParseDuration``, or an empty string."""
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
