"""Check that an AppWrapper has the counts and JSON types that the other modules of this package rely on.

API servers validate an object against its CRD before they call validating webhooks, but any pod can send requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from cfo.api.appwrapper import MAX_POD_SETS
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import MAX_ERRORS, OMIT, Path, invalid, too_many, type_invalid

__all__ = ["COMPONENTS", "MAX_COMPONENTS", "count_errors", "json_type_errors", "too_many_pod_sets"]

COMPONENTS: Final = Path("spec", "components")

MAX_COMPONENTS: Final = 100
"""The maximum number of components. For each kind in them, the API server is asked for permission; for each component,
the controller reads an object."""

_TYPES: Final[Mapping[type, str]] = {dict: "object", list: "array", str: "string"}
_METADATA: Final = (("name", str), ("generateName", str), ("namespace", str), ("labels", dict), ("annotations", dict))


def count_errors(appwrapper: Object) -> list[FieldError]:
    """Return an error if ``appwrapper`` has more components or declared pod sets than are allowed. Reads no template.

    To be called before any other check of a new AppWrapper, whose work these counts bound.
    """
    components = _list(_dict(appwrapper.get("spec")).get("components"))
    if len(components) > MAX_COMPONENTS:
        return [too_many(COMPONENTS, len(components), MAX_COMPONENTS)]
    declared = sum(len(_list(_dict(component).get("podSets"))) for component in components)
    return [too_many_pod_sets(declared)] if declared > MAX_POD_SETS else []


def json_type_errors(appwrapper: Object) -> list[FieldError]:
    """Return the errors in the JSON types of ``appwrapper``. Of the templates, only the metadata is read."""
    spec = appwrapper.get("spec")
    components = _dict(spec).get("components")
    errors = chain(
        _check(dict, Path("spec"), spec),
        _check(list, COMPONENTS, components),
        chain.from_iterable(
            _component_errors(COMPONENTS.index(index), component) for index, component in enumerate(_list(components))
        ),
    )
    return list(islice(errors, MAX_ERRORS + 1))


def too_many_pod_sets(count: int) -> FieldError:
    """Return the error for an AppWrapper with ``count`` pod sets."""
    return invalid(COMPONENTS, OMIT, f"components contains {count} podspecs; at most {MAX_POD_SETS} are allowed")


def _component_errors(path: Path, component: object) -> Iterator[FieldError]:
    if not isinstance(component, dict):
        yield _not_a(path, "object")
        return
    template, pod_sets = component.get("template"), component.get("podSets")
    metadata = _dict(_dict(template).get("metadata"))
    for name, expected in _METADATA:
        yield from _check(expected, path.child("template", "metadata", name), metadata.get(name))
    path = path.child("podSets")
    yield from _check(list, path, pod_sets)
    for index, pod_set in enumerate(_list(pod_sets)):
        if not isinstance(pod_set, dict):
            yield _not_a(path.index(index), "object")
            continue
        yield from _check(str, path.index(index).child("path"), pod_set.get("path"))
        yield from _check(dict, path.index(index).child("annotations"), pod_set.get("annotations"))
        if not _is_integer(pod_set.get("replicas")):
            yield _not_a(path.index(index).child("replicas"), "integer")


def _is_integer(value: object) -> bool:
    """Return whether API servers take ``value`` for an integer: also 1.0."""
    if isinstance(value, float):
        return value.is_integer()
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _check(expected: type, path: Path, value: object) -> Iterator[FieldError]:
    if value is not None and not isinstance(value, expected):
        yield _not_a(path, _TYPES[expected])


def _not_a(path: Path, json_type: str) -> FieldError:
    return type_invalid(path, OMIT, f"must be of type {json_type}")
