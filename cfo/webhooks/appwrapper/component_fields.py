"""Warns of what a component contains that its kind does not have, or that KubeRay does not do as it is written.

The CRD of AppWrappers accepts any component. The API server drops such a field only when the component is created,
which can be long after, if the AppWrapper waits for quota. Pod templates are not checked here: validation refuses those
with unknown fields. The kinds are those of a known release, and a newer one can have more fields, so these are no
errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path as FilePath
from typing import Final

import msgspec

from cfo.api.appwrapper.kinds import RAY_SPECS, STATEFUL_SET, kind_of, suspension_of
from cfo.api.appwrapper.paths import value_or_none
from cfo.api.builtin_types import (
    ReleasedTypes,
    kubernetes_types,
    nearest_field,
    read_types,
    type_problems,
)
from cfo.api.raycluster.names import RAY_CLUSTER, name_warnings
from cfo.api.raycluster.spec_warnings import warnings_without_requests
from cfo.api.reading import text
from cfo.runtime import DEPLOYMENT, GVK, JOB, Object, name_of
from cfo.runtime.objects.field import Path

_MAX_WARNINGS: Final = 10
_MAX_PATH: Final = 300
_BUILTIN_SPECS: Final = {
    DEPLOYMENT: "DeploymentSpec",
    STATEFUL_SET: "StatefulSetSpec",
    JOB: "JobSpec",
}
_RAY_CLUSTER_SPEC: Final = "RayClusterSpec"


def component_warnings(templates: Sequence[Object], components: Path) -> list[str]:
    """Return the warnings about the ``templates`` of all components, at most 10; ``components`` is their path."""
    found = (
        _field_warnings(template, components.index(index).child("template"))
        for index, template in enumerate(templates)
    )
    return list(islice(chain.from_iterable(found), _MAX_WARNINGS))


def _field_warnings(template: Object, path: Path) -> Iterator[str]:
    gvk = kind_of(template)
    suspension = suspension_of(template)
    if suspension:
        yield (
            f"{path}.{suspension}: a suspended component has no pods, so the AppWrapper is reset, and then fails; "
            "suspend the AppWrapper instead"
        )
    known = _spec_type(gvk)
    if known is None:
        return
    if gvk in RAY_SPECS:
        yield from _ray_warnings(template, path)
    field = RAY_SPECS.get(gvk, "template.spec")
    spec = value_or_none(template, field)
    if spec is None:
        return
    where = str(path.child(*field.split(".")[1:]))
    for problem in type_problems(spec, known.name, known.table.types, path=where):
        name = text(problem.path, _MAX_PATH)
        if problem.expected:
            yield f"{name}: must be {problem.expected}, or the component cannot be created"
        else:
            nearest = nearest_field(problem, known.table.types)
            suggestion = f"; did you mean {nearest}?" if nearest else ""
            yield f"{name}: unknown field in {known.table.release}, whose value the API server drops{suggestion}"


class _SpecType(msgspec.Struct, frozen=True):
    """The type of the spec of a component, and the table that has it."""

    name: str
    table: ReleasedTypes


def _spec_type(gvk: GVK) -> _SpecType | None:
    """Return the type of the spec of a kind, or ``None`` if no table has it."""
    if gvk in RAY_SPECS:
        return _SpecType(_RAY_CLUSTER_SPEC, _ray_types())
    if gvk in _BUILTIN_SPECS:
        return _SpecType(_BUILTIN_SPECS[gvk], kubernetes_types())
    return None


def _ray_warnings(template: Object, path: Path) -> Iterator[str]:
    """Yield the warnings about the RayCluster in a component, with its own paths."""
    field = RAY_SPECS[kind_of(template)]
    if kind_of(template) == RAY_CLUSTER:
        for warning in name_warnings(name_of(template), ""):
            yield f"{path}.{warning}"
    for warning in warnings_without_requests({"spec": value_or_none(template, field)}):
        yield f"{path.child(*field.split('.')[1:])}{warning.removeprefix('spec')}"


@cache
def _ray_types() -> ReleasedTypes:
    """Return the types of the spec of a RayCluster, which ``hack/generate/ray_types.py`` writes."""
    return read_types(FilePath(__file__).parents[2] / "api" / "raycluster" / "types.json")
