"""The table of InferenceStacks in the overview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.runtime import GVK, Event, Manager, NamespacedName, Object, find_condition, key_of

__all__ = ["StackTables"]

_Rows = list[tuple[str, ...]]


class StackTables:
    """Watches the InferenceStacks through the cache of ``manager``, and calls ``on_event`` for each of their events."""

    kinds: Final = INFERENCE_STACKS
    """The kinds that settle: their objects become ready."""

    def __init__(self, manager: Manager, on_event: Callable[[Event], None]) -> None:
        self._informers = {gvk: manager.cache.informer(gvk) for gvk in self.kinds}
        for informer in self._informers.values():
            informer.add_handler(on_event)

    def unsettled_reason(self, gvk: GVK, key: NamespacedName) -> str:
        """Return why the InferenceStack ``key`` is not ready yet; empty if it is."""
        stack = self._informers[gvk].reader.get(key)
        if stack is None:
            return f"{gvk.kind} {key} is missing"
        ready = _condition(stack)
        return "" if ready.get("status") == "True" else f"{gvk.kind} {key} is not ready: {ready.get('reason') or 'new'}"

    def tables(self, events_about: Callable[[Object], list[str]]) -> Iterator[tuple[tuple[str, ...], _Rows]]:
        """Yield the columns and rows of the table if it has rows; ``events_about`` returns the Events of an object."""
        stacks = [stack for informer in self._informers.values() for stack in informer.reader.list()]
        if stacks:
            rows: _Rows = [
                (str(key_of(stack)), _state(stack), "\n".join(_applications(stack)), "\n".join(events_about(stack)))
                for stack in sorted(stacks, key=key_of)
            ]
            yield ("InferenceStack", "state", "applications", "events"), rows


def _status(stack: Object) -> Mapping[str, Any]:
    return stack.get("status") or {}


def _condition(stack: Object) -> Mapping[str, Any]:
    return find_condition(_status(stack).get("conditions"), "Ready") or {}


def _state(stack: Object) -> str:
    ready = _condition(stack)
    return "Ready" if ready.get("status") == "True" else str(ready.get("reason") or "")


def _applications(stack: Object) -> Iterator[str]:
    for application in _status(stack).get("applications") or ():
        pods = f"{application.get('readyReplicas', 0)} of {application.get('replicas', 0)} ready"
        yield f"{application['name']}: {application.get('model')}, {application.get('state')}, {pods}"
