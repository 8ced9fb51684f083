"""The pods of a namespace in one list, by the AppWrapper from which they descend, or may descend.

Uids prove from which AppWrapper a pod descends: that of the AppWrapper, if its owners lead there, or those that were
known before. The garbage collector may have deleted owners as well. So for AppWrappers that no longer exist, there are
hints: an owner that no longer exists, and the AppWrapper's label. Any user can create pods with all of these, so each
keeps quota only for a limited time (:mod:`.reservations`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from cfo.controllers.appwrapper.owners import Owner
from cfo.controllers.appwrapper.pods import time_or_none
from cfo.controllers.pod_lists import PodMeta


class LineageEnd(Enum):
    """Where the owners of a pod end."""

    WRAPPER = auto()
    """With an AppWrapper that exists."""
    LOST_WRAPPER = auto()
    """With an AppWrapper that no longer exists."""
    LOST = auto()
    """With an owner that no longer exists."""
    OTHER = auto()
    """With another object, or with one of a kind that the operator cannot read."""


class Lineage(msgspec.Struct, frozen=True):
    """The owners of a pod, from its controller on, and what the last of them is.

    ``read_in`` is the number of the list for which they were read.
    """

    end: LineageEnd
    owners: tuple[Owner, ...] = ()
    read_in: int = 0


NO_OWNER: Final = Lineage(LineageEnd.OTHER)


class OwnPod(NamedTuple):
    """A pod that descends from an AppWrapper: ``ancestor`` is the uid of its component, or that of the AppWrapper.

    ``owners`` are those between the two, if they prove that. ``child`` is the owner that the AppWrapper itself
    controls, if that is known.
    """

    pod: PodMeta
    ancestor: str
    owners: Sequence[Owner] = ()
    child: Owner | None = None


class _LostPod(msgspec.Struct, frozen=True):
    """A pod that has an owner which no longer exists."""

    created_at: datetime
    name: str


class ActivePods(msgspec.Struct):
    """The pods of one list that run, or can run, and those that have succeeded if the cache leaves out pods.

    ``by_uid`` has the pods by their uid, and by those of all owners that are known. ``succeeded`` are the uids of those
    that have succeeded. ``lineages`` are by the pod's controller. The others are hints: ``by_label`` has the name of a
    pod without proven AppWrapper by its label, ``lost`` the pods with an owner that no longer exists, ordered by
    creation, and ``unresolved``, by label (empty: none), the name of a pod whose owners are not known yet.
    """

    by_uid: dict[str, list[PodMeta]] = {}
    succeeded: set[str] = set()
    lineages: Mapping[Owner, Lineage] = {}
    by_label: dict[str, str] = {}
    lost: list[_LostPod] = []
    unresolved: dict[str, str] = {}

    def own_pods(self, ancestors: Mapping[str, str]) -> list[OwnPod]:
        """Return the pods that descend from an AppWrapper.

        ``ancestors`` maps uids that are known to the ancestor of pods that have them, or an owner with them: of the
        AppWrapper and its components, which are their own ancestors, and of former pods and owners.
        """
        found: dict[str, OwnPod] = {}
        for uid in ancestors:
            for pod in self.by_uid.get(uid, ()):
                if pod.uid not in found:
                    found[pod.uid] = self._own_pod(pod, ancestors)
        return list(found.values())

    def _own_pod(self, pod: PodMeta, ancestors: Mapping[str, str]) -> OwnPod:
        if pod.controller is None:
            return OwnPod(pod, ancestors[pod.uid])
        controller = Owner.of(pod.controller)
        lineage = self.lineages.get(controller)
        owners = lineage.owners if lineage is not None else (controller,)
        child = None
        is_of_wrapper = lineage is not None and lineage.end is LineageEnd.WRAPPER
        if is_of_wrapper and len(owners) > 1 and owners[-1].uid in ancestors:
            child = owners[-2]
        if pod.uid in ancestors:
            # Users can change the owners of a running pod, so these may be those of others.
            return OwnPod(pod, ancestors[pod.uid], child=child)
        known = next(number for number, owner in enumerate(owners) if owner.uid in ancestors)
        return OwnPod(pod, ancestors[owners[known].uid], owners[:known], child)

    def candidate(self, wrapper_name: str, earliest: datetime | None, latest: datetime) -> str:
        """Return the name of a pod that may descend from an AppWrapper; empty if none does.

        All pods of the AppWrapper were created between ``earliest``, if that is known, and ``latest``.
        """
        labelled = self.by_label.get(wrapper_name)
        if labelled:
            return labelled
        first = 0
        if earliest is not None:
            first = bisect_left(self.lost, earliest, key=lambda pod: pod.created_at)
        if first < len(self.lost) and self.lost[first].created_at <= latest:
            return self.lost[first].name
        return next(iter(self.unresolved.values()), "")

    def has_unknown_owners(self, wrapper_name: str) -> bool:
        """Return whether the owners of a pod with an AppWrapper's label are not known yet."""
        return wrapper_name in self.unresolved

    def add(self, pod: PodMeta, lineage: Lineage | None) -> None:
        """Add a pod that can run, with these owners; ``None``: they are not known yet."""
        self._add_uids(pod, lineage)
        if lineage is None:
            self.unresolved[pod.wrapper_label] = pod.name
            return
        if lineage.end in (LineageEnd.LOST, LineageEnd.LOST_WRAPPER):
            created_at = time_or_none(pod.creation_timestamp)
            if created_at is None:
                self.unresolved[pod.wrapper_label] = pod.name
            else:
                self.lost.append(_LostPod(created_at, pod.name))
        if lineage.end is not LineageEnd.WRAPPER and pod.wrapper_label:
            self.by_label[pod.wrapper_label] = pod.name

    def add_succeeded(self, pod: PodMeta, lineage: Lineage | None) -> None:
        """Add a pod that has succeeded, with these owners; ``None``: they are not known yet."""
        self.succeeded.add(pod.uid)
        self._add_uids(pod, lineage)

    def _add_uids(self, pod: PodMeta, lineage: Lineage | None) -> None:
        uids = {pod.uid}
        if pod.controller is not None:
            uids.add(pod.controller.uid)
        if lineage is not None:
            uids.update(owner.uid for owner in lineage.owners)
        for uid in uids:
            self.by_uid.setdefault(uid, []).append(pod)
