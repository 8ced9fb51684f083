"""Whether a stack is not too large, and its spec has only known fields with the correct JSON types.

The size is checked before anything else reads the stack.
The template is merged into each application, so what is rendered can be far larger than the stack: a template of 1 MB
in 100 applications makes 100 MB. All other work on a stack is linear in the counted values, so the limits bound it.

The CRD preserves unknown fields, because existing stacks contain fields of older charts. A field whose name is almost
that of a known one is certainly a mistake, and an error: the original accepts it and ignores it. Other unknown fields
are reported as warnings. Parts of pods can have only fields that Kubernetes knows: others would make each write fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path as FilePath
from typing import Any, Final

import orjson

from cfo.api.builtin_types import TypeProblem, TypeTable, builtin_types, nearest_name, type_problems
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import (
    MAX_ERRORS,
    OMIT,
    Path,
    forbidden,
    invalid,
    too_many,
    type_invalid,
)

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

_MAX_UNKNOWN: Final = 50
"""The maximum number of different unknown fields; the search for the nearest known one makes each expensive."""
_MAX_NAME: Final = 64

_OPEN_TYPES: Final = frozenset({"GatewayConfig", "ReaderConfig"})
"""Types with further fields, whose values are scalars."""

_DEAD_FIELDS: Final[Mapping[tuple[str, str], str]] = {
    ("ApplicationTemplate", "replicas"): "use replicaCount",
    ("Gateway", "replicas"): "use replicaCount",
    ("ApplicationTemplate", "service"): "applications have no Service; use gateway.service",
    ("ApplicationTemplate", "ingress"): "applications have no Ingress; use gateway.ingress",
    (
        "ApplicationTemplate",
        "exportPrometheusMetrics",
    ): "only the gateway has metrics; use gateway.exportPrometheusMetrics",
    ("Scaling", "minReplicaCount"): "use scaling.spec.minReplicaCount",
    ("Scaling", "maxReplicaCount"): "use scaling.spec.maxReplicaCount",
    ("Scaling", "triggers"): "use scaling.spec.triggers",
    ("Gateway", "scaling"): "the gateway is not scaled; use gateway.replicaCount",
    ("Gateway", "readerConfig"): "the gateway has no reader; use applicationTemplate.readerConfig",
}
"""Fields of older charts or of Deployments, which never had an effect, or no longer have one."""

_TOO_MANY_UNKNOWN: Final = f"must have at most {_MAX_UNKNOWN} different unknown fields"


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


@dataclass(slots=True)
class FieldReport:
    """The result of :func:`check_fields`. Only if ``is_typed``, the other checks can rely on the JSON types."""

    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_typed: bool = True

    def reject(self, error: FieldError) -> None:
        """Add an error because of which the other checks cannot rely on the JSON types."""
        self.errors.append(error)
        self.is_typed = False


@cache
def stack_types() -> TypeTable:
    """Return the types of a stack's spec, and the built-in types that they refer to."""
    own: dict[str, dict[str, str]] = orjson.loads(
        FilePath(__file__).parents[1].joinpath("types.json").read_bytes()
    )
    return {**builtin_types(), **own}


def check_fields(spec: Mapping[str, Any]) -> FieldReport:
    """Check the fields of ``spec``, whose size must have been limited (:func:`limit_errors`)."""
    report = FieldReport()
    unknown: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    types = stack_types()
    for problem in type_problems(spec, "InferenceStackSpec", types, path="spec", null_items=False):
        is_open = problem.type_name in _OPEN_TYPES
        if problem.expected:
            report.reject(
                type_invalid(problem.path, _shown(problem.value), f"must be {problem.expected}")
            )
        elif is_open and isinstance(problem.value, dict | list):
            expected = "must be a string, a number, true or false; write a list as a string"
            report.reject(type_invalid(problem.path, OMIT, expected))
        else:
            name = problem.path.rpartition(".")[2]
            unknown[is_open].add((problem.type_name, name))
            if len(unknown[is_open]) <= _MAX_UNKNOWN:
                _report_unknown(problem, name, report)
            elif not is_open:
                report.reject(
                    replace(too_many("spec", None, _MAX_UNKNOWN), detail=_TOO_MANY_UNKNOWN)
                )
                break  # the rest is not checked
        if len(report.errors) > MAX_ERRORS:
            report.is_typed = False
            break
    if not report.is_typed:
        return report
    for name, application in (spec.get("applications") or {}).items():
        if application is None:
            at = f"spec.applications[{name}]"
            report.reject(type_invalid(at, OMIT, "must be an object; {} for the template's values"))
    return report


def _report_unknown(problem: TypeProblem, name: str, report: FieldReport) -> None:
    path = problem.path
    type_name = problem.type_name
    is_open = type_name in _OPEN_TYPES
    reason = _DEAD_FIELDS.get((type_name, name))
    if reason:
        report.warnings.append(f"{path}: has no effect: {reason}")
        return
    nearest = _nearest(name, type_name)
    if nearest:
        text = f"unknown field, did you mean {nearest}?"
        if is_open:  # a parameter of the reader that we do not know might have such a name
            report.warnings.append(f"{path}: {text}")
        else:
            report.errors.append(forbidden(path, text))
        return
    if is_open:
        return
    if type_name in builtin_types():
        report.errors.append(forbidden(path, f"unknown field of {type_name}"))
        return
    place = _misplaced(name, type_name)
    if place:
        report.warnings.append(f"{path}: unknown field, has no effect; did you mean {place}?")
    else:
        report.warnings.append(f"{path}: unknown field, has no effect")


def _nearest(name: str, type_name: str) -> str:
    return "" if len(name) > _MAX_NAME else _nearest_to_short(name, type_name)


@lru_cache(maxsize=256)
def _nearest_to_short(name: str, type_name: str) -> str:
    return nearest_name(name, stack_types()[type_name])


def _misplaced(name: str, type_name: str) -> str:
    """Return the path of the field ``name`` one level below ``type_name``."""
    types = stack_types()
    for parent, shape in types[type_name].items():
        if name in types.get(shape, {}) and shape not in builtin_types():
            return f"{parent}.{name}"
    return ""


def _shown(value: Any) -> Any:
    """Return ``value`` if a message can contain it: a scalar that is not long."""
    if isinstance(value, str) and len(value) <= _MAX_NAME:
        return value
    if isinstance(value, bool | int | float):
        return value
    return OMIT
