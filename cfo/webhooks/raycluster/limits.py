"""The maximum numbers of groups and entries of a RayCluster, checked before anything else reads them.

API servers call mutating webhooks with any object that fits into a request: 3 MB hold 35,000 worker groups, and what is
injected into each group is 25 times larger than the group. All other work of this package is linear in the counted
entries, so these limits bound it. A stored RayCluster that exceeds them is read when an update replaces it by one
within the limits, which is linear in its size (the API server stores at most 1.5 MB). The limits are far above what the
API server can store with entries of a usual size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.runtime import FieldError
from cfo.runtime.objects.field import OMIT, Path, invalid, too_many
from cfo.webhooks.raycluster.pod_groups import HEAD_GROUP, WORKER_GROUPS

__all__ = ["MAX_ENTRIES", "MAX_LIST", "MAX_WORKER_GROUPS", "count_errors"]

MAX_WORKER_GROUPS: Final = 500

MAX_LIST: Final = 1000
"""The maximum number of entries in each list of a pod template: containers, init containers and volumes, and the
environment variables, volume mounts and words of the command of a container."""

MAX_ENTRIES: Final = 20_000
"""The maximum number of entries in these lists of all groups together."""

_POD_LISTS: Final = ("containers", "initContainers", "volumes")
_CONTAINER_LISTS: Final = ("env", "volumeMounts", "command")
_TOO_MANY_ENTRIES: Final = (
    f"the lists {', '.join((*_POD_LISTS, *_CONTAINER_LISTS))} of all groups must have at most {MAX_ENTRIES} entries "
    "together"
)


def count_errors(cluster: Mapping[str, Any]) -> list[FieldError]:
    """Return an error if ``cluster`` exceeds a limit. Values of a wrong type have no entries.

    Counts no further than the limit, and returns only the first error.
    """
    spec = _dict(cluster.get("spec"))
    workers = _list(spec.get("workerGroupSpecs"))
    if len(workers) > MAX_WORKER_GROUPS:
        return [too_many(WORKER_GROUPS, len(workers), MAX_WORKER_GROUPS)]
    entries = 0
    groups = [(HEAD_GROUP, spec.get("headGroupSpec"))]
    groups += [(WORKER_GROUPS.index(at), group) for at, group in enumerate(workers)]
    for path, group in groups:
        pod = _dict(_dict(_dict(group).get("template")).get("spec"))
        for list_path, count in _counts(path.child("template", "spec"), pod):
            if count > MAX_LIST:
                return [too_many(list_path, count, MAX_LIST)]
            entries += count
            if entries > MAX_ENTRIES:
                return [invalid(Path("spec"), OMIT, _TOO_MANY_ENTRIES)]
    return []


def _counts(path: Path, pod: Mapping[str, Any]) -> Iterator[tuple[Path, int]]:
    """Yield the path and length of each list in ``pod``, each before its items are read."""
    for field in _POD_LISTS:
        items = _list(pod.get(field))
        list_path = path.child(field)
        yield list_path, len(items)
        if field == "volumes":
            continue
        for at, item in enumerate(items):
            for name in _CONTAINER_LISTS:
                found = _list(_dict(item).get(name))
                if found:
                    yield list_path.index(at).child(name), len(found)


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
