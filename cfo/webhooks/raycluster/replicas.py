"""Warnings about numbers of workers that KubeRay accepts, but replaces by others.

KubeRay's CRD and validation accept any integers. Its controller runs ``replicas`` limited to the range from
``minReplicas`` (default 0) to ``maxReplicas`` (default unlimited) workers (``GetWorkerGroupDesiredReplicas``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from cfo.runtime import Object
from cfo.webhooks.raycluster.pod_groups import WORKER_GROUPS

__all__ = ["replica_warnings"]

_MAX_WARNINGS: Final = 10


def replica_warnings(cluster: Object, old: Object | None = None) -> list[str]:
    """Return the warnings about the worker groups of ``cluster``, at most 10, except those that ``old`` also has."""
    known = set(_all_warnings(old)) if old is not None else set[str]()
    return list(islice((warning for warning in _all_warnings(cluster) if warning not in known), _MAX_WARNINGS))


def _all_warnings(cluster: Object) -> Iterator[str]:
    for index, group in enumerate((cluster.get("spec") or {}).get("workerGroupSpecs") or ()):
        if isinstance(group, Mapping):
            for problem in _problems(group):
                yield f"{WORKER_GROUPS.index(index)}: {problem}"


def _problems(group: Mapping[str, Any]) -> Iterator[str]:
    replicas, least, most = (_integer(group.get(key)) for key in ("replicas", "minReplicas", "maxReplicas"))
    for name, value in (("minReplicas", least), ("maxReplicas", most)):
        if value is not None and value < 0:
            yield f"{name} is negative: {value}"
    lower = max(least or 0, 0)
    if most is not None and most >= 0 and lower > most:
        yield f"minReplicas ({lower}) is greater than maxReplicas ({most})"
    elif replicas is not None and replicas < lower:
        yield f"replicas is {replicas}, but KubeRay runs minReplicas: {lower}"
    elif replicas is not None and most is not None and replicas > most >= 0:
        yield f"replicas is {replicas}, but KubeRay runs maxReplicas: {most}"


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
