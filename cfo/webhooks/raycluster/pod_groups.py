"""The groups of a RayCluster, each with its pod template: the head group and the worker groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.runtime.objects.field import Path
from cfo.webhooks.raycluster.pod_additions import PodSpec

__all__ = ["HEAD_GROUP", "WORKER_GROUPS", "PodGroup", "pod_groups_by_key", "pod_groups_of"]

HEAD_GROUP = Path("spec", "headGroupSpec")
WORKER_GROUPS = Path("spec", "workerGroupSpecs")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One group. ``name`` is empty for the head group; ``pod`` is the pod spec of the group's template."""

    path: Path
    name: str
    is_head: bool
    pod: PodSpec

    @property
    def pod_path(self) -> Path:
        """The path of :attr:`pod`."""
        return self.path.child("template", "spec")

    @property
    def key(self) -> tuple[bool, str]:
        """Identifies the group in other versions of the RayCluster."""
        return self.is_head, self.name


def pod_groups_of(cluster: Mapping[str, Any]) -> list[PodGroup]:
    """Return the groups of ``cluster``, the head group first. Their pod specs are not copied."""
    return list(_groups(cluster.get("spec") or {}))


def pod_groups_by_key(groups: Iterable[PodGroup]) -> dict[tuple[bool, str], PodGroup]:
    """Return ``groups`` by :attr:`PodGroup.key`; of several groups with one name the first."""
    found: dict[tuple[bool, str], PodGroup] = {}
    for group in groups:
        found.setdefault(group.key, group)
    return found


def _groups(spec: Mapping[str, Any]) -> Iterator[PodGroup]:
    yield PodGroup(HEAD_GROUP, "", True, _pod(spec.get("headGroupSpec")))
    for at, group in enumerate(spec.get("workerGroupSpecs") or ()):
        yield PodGroup(WORKER_GROUPS.index(at), str(group.get("groupName") or f"#{at}"), False, _pod(group))


def _pod(group: Mapping[str, Any] | None) -> PodSpec:
    pod: PodSpec = ((group or {}).get("template") or {}).get("spec") or {}
    return pod
