"""The maximum size of a stack, checked before anything else reads it.

The template is merged into each application, so what is rendered can be far larger than the stack: a template of 1 MB
in 100 applications makes 100 MB. All other work on a stack is linear in the counted values, so these limits bound it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import OMIT, Path, invalid, too_many, type_invalid

__all__ = ["MAX_APPLICATIONS", "MAX_DEPTH", "MAX_WEIGHT", "limit_errors"]

MAX_APPLICATIONS: Final = 100
"""The maximum number of applications. Each of them has at least two objects."""

MAX_DEPTH: Final = 32
"""The maximum number of nested maps and lists."""

MAX_KEY: Final = 317
"""The maximum length of a key: that of the longest qualified name, such as a label's. Messages contain keys."""

MAX_WEIGHT: Final = 50_000
"""The maximum number of values of the stack with the template in each application; a string counts as one value for
each 100 characters."""

_SPEC: Final = Path("spec")
_CHARACTERS: Final = 100


def limit_errors(stack: Object) -> list[FieldError]:
    """Return an error if ``stack`` exceeds a limit, or its spec or applications are not maps."""
    spec = stack.get("spec")
    if spec is None:
        return []
    if not isinstance(spec, dict):
        return [type_invalid(_SPEC, OMIT, "must be an object")]
    applications = spec.get("applications")
    if applications is not None and not isinstance(applications, dict):
        return [type_invalid(_SPEC.child("applications"), OMIT, "must be an object")]
    count = len(applications or {})
    if count > MAX_APPLICATIONS:
        return [too_many(_SPEC.child("applications"), count, MAX_APPLICATIONS)]
    try:
        weight = _weight(spec) + count * _weight(spec.get("applicationTemplate"))
    except _LimitExceeded as exceeded:
        return [invalid(_SPEC, OMIT, str(exceeded))]
    if weight > MAX_WEIGHT:
        detail = f"must have at most {MAX_WEIGHT} values, with the template in each of the {count} applications"
        return [invalid(_SPEC, OMIT, detail)]
    return []


class _LimitExceeded(Exception):
    """A value is nested too deeply, or has a key that is too long."""


def _weight(value: Any) -> int:
    """Return the weight of ``value``, or any number above :data:`MAX_WEIGHT`; reads not much more than that."""
    weight = 0
    pending = [(value, 1)]
    while pending and weight <= MAX_WEIGHT:
        item, depth = pending.pop()
        weight += 1
        if isinstance(item, str):
            weight += len(item) // _CHARACTERS
        elif isinstance(item, Mapping | list):
            if depth > MAX_DEPTH:
                raise _LimitExceeded(f"must have at most {MAX_DEPTH} levels")
            if len(item) > MAX_WEIGHT:
                return len(item)
            if isinstance(item, Mapping):
                if any(len(key) > MAX_KEY for key in item):
                    raise _LimitExceeded(f"must not have keys of more than {MAX_KEY} characters")
                item = list(item.values())
            pending += [(child, depth + 1) for child in item]
    return weight
