"""The state that pages show, updated by changes of summaries; each change of a row is encoded once, for all pages.

What changed and when is kept within bounds: the phases of objects, and the order in which they wait in queues. The past
before the page was opened is known as far as the conditions of an object tell it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from cfo.api.reading import milliseconds
from cfo.runtime import GVK, NamespacedName
from cfo.summaries.changes import ChangeType, SummaryChange
from cfo.summaries.kind_view import KindView, PhaseChange
from cfo.summaries.repetitions import owner_of, without_problems_of
from cfo.summaries.summary import Summary, WarningEvent, kind_names

MAX_TRACKED: Final = 1_000
"""The maximum number of objects whose phases are kept."""
_MAX_CHANGES: Final = 32
_MAX_SAMPLES: Final = 120
_MAX_QUEUES: Final = 64
_MAX_WAITING: Final = 10

Sample = tuple[int, tuple[str, ...]]
"""The time in milliseconds, and the names of the first objects that wait from then on, in their order."""


class History:
    """The changes of the phase of each object, and the order in which objects wait in each queue, by uid."""

    def __init__(self) -> None:
        self._phases: OrderedDict[str, deque[PhaseChange]] = OrderedDict()
        self._orders: dict[str, deque[Sample]] = {}

    def record_phase(
        self, uid: str, now: int, state: str, level: str, past: Callable[[], Sequence[PhaseChange]]
    ) -> Sequence[PhaseChange]:
        """Record the state of the object at the time ``now``, and return the new changes.

        ``past`` returns the changes that are known of an object that is recorded for the first time.
        """
        known = self._phases.get(uid)
        if known is None:
            if len(self._phases) >= MAX_TRACKED:
                self._phases.popitem(last=False)
            known = deque(past(), _MAX_CHANGES)
            self._phases[uid] = known
            if not known or known[-1][1] != state:
                known.append((now, state, level))
            return list(known)
        if known[-1][1] == state and known[-1][2] == level:
            return []
        known.append((now, state, level))
        return [known[-1]]

    def record_order(self, uid: str, now: int, waiting: Sequence[str]) -> list[Sample]:
        """Record what waits in a queue at the time ``now``, and return the new sample, if the order has changed."""
        order = tuple(waiting[:_MAX_WAITING])
        samples = self._orders.get(uid)
        if samples is None:
            if len(self._orders) >= _MAX_QUEUES:
                return []
            samples = deque(maxlen=_MAX_SAMPLES)
            self._orders[uid] = samples
        if samples and samples[-1][1] == order:
            return []
        samples.append((now, order))
        return [samples[-1]]

    def forget(self, uid: str) -> None:
        """Forget an object that was deleted."""
        self._phases.pop(uid, None)
        self._orders.pop(uid, None)

    def snapshot(self) -> dict[str, Any]:
        """Return everything for a page that is opened now."""
        return {
            "phases": {uid: list(changes) for uid, changes in self._phases.items()},
            "orders": {uid: list(samples) for uid, samples in self._orders.items()},
        }


MAX_ROWS: Final = 10_000
"""The maximum number of objects on a page; objects that are created later are left out."""
MAX_EVENTS: Final = 200
"""The maximum number of Events on a page."""
MAX_OWNED: Final = 100
"""Of how many objects of one owner, the rows refer to its problems, and so change with them; others have all their
problems."""


def event_message(name: str, data: Mapping[str, Any]) -> bytes:
    """Return a server-sent event whose data is JSON, which contains no line break."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))


class _Waiting(NamedTuple):
    """An object that waits in a queue, in the order of the queue.

    The position in a status can be approximate, so objects of one position are in the order of their creation.
    """

    position: int
    created: str
    key: NamespacedName
    queue: str


_OF_OWNER: Final = "Problems that its owner has as well"
"""The title of the problems that the row of an object does not have."""

RelatedObjects = Callable[[GVK, NamespacedName], Mapping[str, Sequence[tuple[str, str]]]]
"""Returns what is shown of the pods and children of an object."""


class PageState:
    """The rows of all objects, their history and their Events; times are in milliseconds since 1970."""

    def __init__(
        self, views: Mapping[GVK, KindView], related_objects: RelatedObjects = lambda gvk, key: {}
    ) -> None:
        self.views = views
        self._related_objects = related_objects
        self._rows: dict[str, bytes] = {}
        self._summaries: dict[str, Summary] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._queues: dict[str, NamespacedName] = {}
        self._owned: dict[str, dict[str, None]] = {}
        """The objects with problems by the uid of their owner: an ordered set, at most :data:`MAX_OWNED` for each."""
        self._kinds = kind_names(views)
        self._history = History()
        self.is_truncated = False

    def details(self, identity: str) -> Mapping[str, Any] | None:
        """Return what the page shows of an object that a user opens; ``None`` if it does not exist."""
        summary = self._summaries.get(identity)
        if summary is None:
            return None
        return {
            _OF_OWNER: self._problems_of_owner(identity, summary),
            **self._related_objects(summary.gvk, summary.key),
            **summary.details(),
        }

    def snapshot(self) -> dict[str, Any]:
        """Return everything for a page that is opened now."""
        events = [event for summary in self._summaries.values() for event in _events_of(summary)]
        events.sort(key=lambda event: -event["time"])
        sections = {view.section for view in self.views.values() if view.section is not None}
        return {
            "sections": sorted(sections, key=lambda section: section.position),
            "rows": [orjson.Fragment(row) for row in self._rows.values()],
            "events": events[:MAX_EVENTS],
            **self._history.snapshot(),
        }

    def apply(self, changes: Iterable[SummaryChange], now: int) -> dict[str, Any]:
        """Update the state at the time ``now``, and return what has changed; empty if a page shows nothing of it."""
        outdated: dict[str, None] = {}  # an ordered set: the objects whose rows may have changed
        removed: list[str] = []
        phases: dict[str, Any] = {}
        events: list[dict[str, Any]] = []
        is_queue_changed = False
        for change in changes:
            summary = change.summary
            identity = _identity_of(summary)
            before = self._summaries.get(identity)
            if change.type is ChangeType.REMOVED:
                if before is not None:
                    is_queue_changed |= identity in self._waiting
                    self._forget(identity)
                    removed.append(identity)
                    outdated.update(self._owned.get(identity, {}))
                continue
            if before is None and len(self._summaries) >= MAX_ROWS:
                self.is_truncated = True
                continue
            view = self.views[summary.gvk]
            self._summaries[identity] = summary
            is_queue_changed |= self._remember_queue(identity, summary)
            self._remember_owner(identity, before, summary)
            outdated[identity] = None
            if before is None or before.problems != summary.problems:
                outdated.update(self._owned.get(identity, {}))
            known = set(before.warnings) if before is not None else set()
            events += _events_of(summary, known)
            if view.past_phases is not None:
                past = partial(view.past_phases, summary)
                if new := self._history.record_phase(
                    identity, now, summary.state, summary.level.value, past
                ):
                    phases[identity] = new
        events = sorted(events, key=lambda event: -event["time"])[:MAX_EVENTS]
        rows = self._encode_rows(outdated)
        message = {"rows": rows, "removed": removed, "phases": phases, "events": events}
        if is_queue_changed:
            message["orders"] = self._record_orders(now)
        return {name: value for name, value in message.items() if value}

    def _encode_rows(self, identities: Iterable[str]) -> list[orjson.Fragment]:
        """Encode the rows of these objects, and return those that have changed."""
        changed = []
        for identity in identities:
            if identity not in self._summaries:
                continue
            # a copy, because orjson returns at least 4 kB of memory, of which a row is a tenth
            encoded = bytes(memoryview(orjson.dumps(row_of(self._listed(identity)))))
            if self._rows.get(identity) != encoded:
                self._rows[identity] = encoded
                changed.append(orjson.Fragment(encoded))
        return changed

    def _listed(self, identity: str) -> Summary:
        """Return the summary of an object without the problems that its owner has as well."""
        summary = self._summaries[identity]
        if identity not in self._owned.get(summary.owner, {}):
            return summary
        return without_problems_of(owner_of(summary, self._summaries), summary, self._kinds)

    def _problems_of_owner(self, identity: str, summary: Summary) -> list[tuple[str, str]]:
        """Return the problems of an object that its row does not have."""
        listed = self._listed(identity).problems
        return [(each.message, each.remedy) for each in summary.problems if each not in listed]

    def _remember_owner(self, identity: str, before: Summary | None, summary: Summary) -> None:
        """Remember of which owner the row of an object with problems depends."""
        if before is not None and before.owner != summary.owner:
            self._forget_owner(identity, before)
        if not summary.problems or not summary.owner:
            self._forget_owner(identity, summary)
            return
        owned = self._owned.setdefault(summary.owner, {})
        if len(owned) < MAX_OWNED:
            owned[identity] = None

    def _forget_owner(self, identity: str, summary: Summary) -> None:
        owned = self._owned.get(summary.owner, {})
        owned.pop(identity, None)
        if not owned:
            self._owned.pop(summary.owner, None)

    def _remember_queue(self, identity: str, summary: Summary) -> bool:
        """Remember what a row says about queues, and return whether it does."""
        row = summary.row
        if "quotas" in row:
            self._queues[identity] = summary.key
        elif row.get("queue"):
            self._waiting[identity] = _Waiting(
                row["position"] or sys.maxsize, summary.created, summary.key, row["queue"]
            )
        elif self._waiting.pop(identity, None) is None:
            return False
        return True

    def _forget(self, identity: str) -> None:
        self._history.forget(identity)
        self._forget_owner(identity, self._summaries[identity])
        for known in (self._rows, self._summaries, self._waiting, self._queues):
            known.pop(identity, None)

    def _record_orders(self, now: int) -> dict[str, Sequence[Any]]:
        """Record for each queue the names of what waits for it; with the namespace if it is not that of the queue."""
        names: dict[str, list[str]] = {identity: [] for identity in self._queues}
        identities = {str(key): identity for identity, key in self._queues.items()}
        for waiting in sorted(self._waiting.values()):
            identity = identities.get(waiting.queue)
            if identity is None:
                continue
            if waiting.key.namespace == self._queues[identity].namespace:
                names[identity].append(waiting.key.name)
            else:
                names[identity].append(str(waiting.key))
        found = {
            identity: self._history.record_order(identity, now, order)
            for identity, order in names.items()
        }
        return {identity: samples for identity, samples in found.items() if samples}


def _identity_of(summary: Summary) -> str:
    """Return what identifies an object: its uid, or its kind and name if it has none."""
    return summary.uid or f"{summary.gvk}/{summary.key}"


def row_of(summary: Summary) -> dict[str, Any]:
    """Return the row of an object. Each page receives all rows, so a row has no conditions and no Events."""
    return {
        "id": _identity_of(summary),
        "kind": summary.gvk.kind,
        "group": summary.gvk.group,
        "namespace": summary.key.namespace,
        "name": summary.key.name,
        "state": summary.state,
        "level": summary.level.value,
        "ready": summary.ready,
        "created": milliseconds(summary.created),
        "facts": summary.facts,
        "problems": [(problem.message, problem.remedy) for problem in summary.problems],
        **summary.row,
    }


def _events_of(summary: Summary, known: Collection[WarningEvent] = ()) -> list[dict[str, Any]]:
    """Return the Warning Events about an object, without those that are ``known``."""
    return [
        {
            "id": f"{_identity_of(summary)}/{event.reason}/{event.message}",
            "time": milliseconds(event.last),
            "type": "Warning",
            "reason": event.reason,
            "note": event.message,
            "count": event.count,
            "kind": summary.gvk.kind,
            "group": summary.gvk.group,
            "namespace": summary.key.namespace,
            "name": summary.key.name,
        }
        for event in summary.warnings
        if event not in known
    ]
