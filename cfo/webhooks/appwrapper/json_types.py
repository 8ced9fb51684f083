"""Check that an AppWrapper has the counts and JSON types that the other modules of this package rely on.

API servers validate an object against its CRD before they call validating webhooks, but any pod can send requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from cfo.api.appwrapper.podsets import MAX_POD_SETS
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import MAX_ERRORS, OMIT, Path, invalid, too_many, type_invalid
from cfo.webhooks.shapes import Shape, items_of, mapping_of, mismatches

COMPONENTS: Final = Path("spec", "components")

MAX_COMPONENTS: Final = 100
"""The maximum number of components. For each kind in them, the API server is asked for permission; for each component,
the controller reads an object."""

_STRING: Final = Shape(str)
_OBJECT: Final = Shape(dict)
_METADATA: Final = {
    "name": _STRING,
    "generateName": _STRING,
    "namespace": _STRING,
    "labels": _OBJECT,
    "annotations": _OBJECT,
}
_POD_SET: Final = Shape(dict, {"path": _STRING, "annotations": _OBJECT, "replicas": Shape(int)}, required=True)
_COMPONENT: Final = Shape(
    dict,
    {
        # templates that are no objects are rejected with the other errors in them
        "template": Shape(object, {"metadata": Shape(object, _METADATA)}),
        "podSets": Shape(list, items=_POD_SET),
    },
    required=True,
)
_SPEC: Final = Shape(dict, {"components": Shape(list, items=_COMPONENT)})
_TYPES: Final[Mapping[type, str]] = {dict: "object", list: "array", str: "string", int: "integer"}


def count_errors(appwrapper: Object) -> list[FieldError]:
    """Return an error if ``appwrapper`` has more components or declared pod sets than are allowed. Reads no template.

    To be called before any other check of a new AppWrapper, whose work these counts bound.
    """
    components = items_of(mapping_of(appwrapper.get("spec")).get("components"))
    if len(components) > MAX_COMPONENTS:
        return [too_many(COMPONENTS, len(components), MAX_COMPONENTS)]
    declared = sum(len(items_of(mapping_of(component).get("podSets"))) for component in components)
    return [too_many_pod_sets(declared)] if declared > MAX_POD_SETS else []


def json_type_errors(appwrapper: Object) -> list[FieldError]:
    """Return the errors in the JSON types of ``appwrapper``. Of the templates, only the metadata is read."""
    return [
        type_invalid(f"spec{path}", OMIT, f"must be of type {_TYPES[expected]}")
        for path, _, expected in islice(mismatches(appwrapper.get("spec"), _SPEC), MAX_ERRORS + 1)
    ]


def too_many_pod_sets(count: int) -> FieldError:
    """Return the error for an AppWrapper with ``count`` pod sets."""
    return invalid(COMPONENTS, OMIT, f"components contains {count} podspecs; at most {MAX_POD_SETS} are allowed")
