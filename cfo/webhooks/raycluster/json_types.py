"""The JSON types and the maximum numbers of entries of a RayCluster, checked before anything else reads it.

API servers call mutating webhooks with any object that fits into a request: 3 MB hold 35,000 worker groups, and what is
injected into each group is 25 times larger than the group. All other work of this package is linear in the counted
entries, so the limits bound it. A stored RayCluster that exceeds them is read when an update replaces it by one within
the limits, which is linear in its size (the API server stores at most 1.5 MB). The limits are far above what the API
server can store with entries of a usual size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from cfo.api.raycluster.cluster import pod_path
from cfo.api.reading import MAX_SPEC_VALUES, elements, has_more_values_than, mapping
from cfo.runtime import FieldError
from cfo.runtime.objects.field import MAX_ERRORS, OMIT, invalid, too_many, type_invalid
from cfo.webhooks.shapes import Shape, mismatches

MAX_WORKER_GROUPS: Final = 500

MAX_LIST: Final = 1000
"""The maximum number of entries in each list of a pod template: containers, init containers and volumes, and the
environment variables, volume mounts and words of the command of a container."""

MAX_ENTRIES: Final = 20_000
"""The maximum number of entries in these lists of all groups together."""

_POD_LISTS: Final = ("containers", "initContainers", "volumes")
_CONTAINER_LISTS: Final = ("env", "volumeMounts", "command")
_LISTS: Final = ", ".join([*_POD_LISTS, *_CONTAINER_LISTS])
_TOO_MANY_ENTRIES: Final = (
    f"the lists {_LISTS} of all groups must have at most {MAX_ENTRIES} entries together"
)


def _list_of(**fields: Shape) -> Shape:
    """Return the shape of a list of objects with these fields, and with a ``name`` if they have one."""
    item = Shape(dict, {"name": Shape(str, required=True), **fields}, required=True)
    return Shape(list, items=item)


_POD: Final = Shape(
    dict,
    {
        "serviceAccountName": Shape(str),
        "containers": _list_of(
            env=_list_of(),
            volumeMounts=_list_of(),
            ports=_list_of(),
            securityContext=Shape(dict, {"capabilities": Shape(dict, {"drop": Shape(list)})}),
        ),
        "initContainers": _list_of(command=Shape(list, items=Shape(str, required=True))),
        "volumes": _list_of(secret=Shape(dict, {"secretName": Shape(str)})),
    },
)
_TEMPLATE: Final = Shape(dict, {"spec": _POD})
_SERVICE: Final = Shape(dict, {"metadata": Shape(dict, {"name": Shape(str)})})
_SPEC: Final = Shape(
    dict,
    {
        "tlsOptions": Shape(dict),
        "authOptions": Shape(dict),
        "headGroupSpec": Shape(dict, {"template": _TEMPLATE, "headService": _SERVICE}),
        "workerGroupSpecs": _list_of(template=_TEMPLATE),
    },
)
_TYPES: Final[Mapping[type, str]] = {dict: "an object", list: "a list", str: "a string"}


def json_type_errors(cluster: Mapping[str, Any]) -> list[FieldError]:
    """Return an error for each field that this package reads and that has the wrong JSON type.

    If ``cluster`` exceeds a limit, return only the error for that.
    """
    errors = count_errors(cluster)
    if errors:
        return errors
    # One more than are reported, so that the report says that there are more.
    wrong = islice(mismatches(cluster.get("spec"), _SPEC), MAX_ERRORS + 1)
    return [
        type_invalid(f"spec{path}", value, f"must be {_TYPES[expected]}")
        for path, value, expected in wrong
    ]


def has_json_types(cluster: Mapping[str, Any]) -> bool:
    """Return whether all fields that this package reads have the right JSON types, regardless of the limits."""
    return next(mismatches(cluster.get("spec"), _SPEC), None) is None


def count_errors(cluster: Mapping[str, Any]) -> list[FieldError]:
    """Return an error if ``cluster`` exceeds a limit. Values of a wrong type have no entries.

    Counts no further than the limit, and returns only the first error.
    """
    spec = mapping(cluster.get("spec"))
    workers = elements(spec.get("workerGroupSpecs"))
    if len(workers) > MAX_WORKER_GROUPS:
        return [too_many("spec.workerGroupSpecs", len(workers), MAX_WORKER_GROUPS)]
    entries = 0
    groups = (spec.get("headGroupSpec"), *workers)
    for position, group in enumerate(groups, start=-1):
        template = mapping(mapping(group).get("template"))
        pod = mapping(template.get("spec"))
        for steps, count in _counts(pod):
            if count > MAX_LIST:
                return [too_many(pod_path(position, *steps), count, MAX_LIST)]
            entries += count
            if entries > MAX_ENTRIES:
                return [invalid("spec", OMIT, _TOO_MANY_ENTRIES)]
    if has_more_values_than(MAX_SPEC_VALUES, spec):
        return [invalid("spec", OMIT, f"must have at most {MAX_SPEC_VALUES} values, at all levels")]
    return []


def _counts(pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Yield the steps to each list in ``pod`` and its length, each before its items are read."""
    for field in _POD_LISTS:
        items = elements(pod.get(field))
        yield (field,), len(items)
        if field == "volumes":
            continue
        for at, item in enumerate(items):
            container = mapping(item)
            for name in _CONTAINER_LISTS:
                entries = elements(container.get(name))
                if entries:
                    yield (field, at, name), len(entries)
