"""Validates that an object has only fields of ``v1.PodSpec``, each with a value of the correct type.

Without this check, a misspelled field would be noticed only by the component's own controller, after the AppWrapper has
consumed quota.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.builtin_types import type_problems
from cfo.api.value_count import has_more_values_than

_MAX_VALUES_IN_SPEC: Final = 10_000
"""The maximum number of values in a pod spec, at all levels. More are not checked one by one."""


def pod_spec_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why ``spec`` is not a PodSpec, each with the path of the field in it."""
    if has_more_values_than(_MAX_VALUES_IN_SPEC, spec):
        yield f"more than {_MAX_VALUES_IN_SPEC} values"
        return
    yield from map(str, type_problems(spec, "PodSpec"))
