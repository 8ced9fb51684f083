"""What a decision about an AppWrapper is made from, and what a decision is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cfo.controllers.appwrapper.components import Component, Seen
from cfo.controllers.appwrapper.pods import Pod
from cfo.controllers.appwrapper.settings import Settings
from cfo.controllers.appwrapper.status import Status
from cfo.runtime.events import EventType
from cfo.runtime.kinds import POD
from cfo.runtime.objects import GVK, NamespacedName, Object

__all__ = ["POD", "Decision", "Deletion", "LabelledPod", "Notice", "View"]


@dataclass(frozen=True, slots=True)
class LabelledPod:
    """A pod with the AppWrapper's label. ``ours``: it descends from it by owner uids, as far as was found out."""

    key: NamespacedName
    uid: str
    pod: Pod
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An AppWrapper, and what was seen of all that belongs to it, at ``now``.

    ``seen`` has an item for each component; ``unserved`` are the indexes of components whose kind is not served.
    ``no_execute`` are the resources, by node, that are not to be used there any more. ``awaits_admission``: it must
    not be deployed before its queue admits it.
    """

    wrapper: Object
    components: Sequence[Component]
    seen: Sequence[Seen | None]
    pods: Sequence[LabelledPod]
    settings: Settings
    now: datetime
    unserved: frozenset[int] = frozenset()
    no_execute: Mapping[str, frozenset[str]] = field(default_factory=dict)
    awaits_admission: bool = False

    @property
    def suspended(self) -> bool:
        """Whether the components should not exist now."""
        return bool((self.wrapper.get("spec") or {}).get("suspend"))

    def status(self) -> Status:
        """The status as it is, to be changed."""
        return Status(self.wrapper, self.now)


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event to record once the status is written."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object to delete: this very one (by uid). ``force``: without leaving its node any time."""

    gvk: GVK
    key: NamespacedName
    uid: str
    force: bool = False


@dataclass(slots=True, kw_only=True)
class Decision:
    """What is to be done: add the finalizer, write the status, delete objects, remove the finalizer; in this order.

    With ``create`` the missing components are created first, and what comes of that decides on the rest. ``deadline``:
    when to look again although nothing changed.
    """

    status: Status
    add_finalizer: bool = False
    remove_finalizer: bool = False
    create: bool = False
    deletions: list[Deletion] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    deadline: datetime | None = None

    def warn(self, reason: str, message: str) -> None:
        """Tells the user of something bad."""
        self.notices.append(Notice("Warning", reason, message))

    def tell(self, reason: str, message: str) -> None:
        """Tells the user of something worth knowing."""
        self.notices.append(Notice("Normal", reason, message))

    def look_again(self, at: datetime) -> None:
        """Asks for another look, at the earliest time that anybody asks for."""
        self.deadline = at if self.deadline is None else min(self.deadline, at)
