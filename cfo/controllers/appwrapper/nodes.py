"""What Autopilot, and Kubernetes itself, say of the nodes: which resources are not to be used there any more.

A resource is marked on a node by a label (so does Autopilot) or by a taint, with the key and value that
``autopilot.resourceTaints`` names for it. Marks are indexes of the informer, so that asking costs what is marked, not
what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cfo.config import AutopilotConfiguration
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.kinds import NODE
from cfo.runtime.predicate import Predicate

__all__ = ["NODE", "NodeHealth", "marked_resources"]


_NO_EXECUTE: Final = ("NoExecute",)
_INDEX: Final = "appwrapper-no-execute"


class _Taint(msgspec.Struct, gc=False):
    key: str = ""
    value: str = ""


class _Spec(msgspec.Struct, gc=False):
    taints: tuple[_Taint, ...] | None = None


class _Node(msgspec.Struct, gc=False):
    spec: _Spec | None = None


_decoder = msgspec.json.Decoder(_Node)


def marked_resources(entry: Entry, config: AutopilotConfiguration, effects: Iterable[str]) -> frozenset[str]:
    """The resources that are marked on the node with one of ``effects``."""
    wanted = frozenset(effects)
    spec = _decoder.decode(entry.raw).spec
    marks = set(entry.meta.labels.items())
    marks.update((taint.key, taint.value) for taint in (spec.taints if spec is not None else None) or ())
    return frozenset(
        resource
        for resource, taints in config.resource_taints.items()
        if any(taint.effect in wanted and (taint.key, taint.value) in marks for taint in taints)
    )


class NodeHealth:
    """Reads marks from the informer ``nodes``; without one (nodes are not monitored) nothing is marked."""

    def __init__(self, config: AutopilotConfiguration, nodes: Informer | None) -> None:
        self._config = config
        self._reader = nodes.add_index(_INDEX, self._no_execute_on).reader if nodes is not None else None

    def no_execute(self) -> Mapping[str, frozenset[str]]:
        """By node: the resources that pods must not go on using there."""
        found: dict[str, frozenset[str]] = {}
        if self._reader is not None:
            for resource in self._config.resource_taints:
                for key in self._reader.keys(_INDEX, resource):
                    found[key.name] = found.get(key.name, frozenset()) | {resource}
        return found

    @property
    def changed(self) -> Predicate:
        """Events of nodes on which something became, or is no longer, forbidden to use."""

        def predicate(event: Event) -> bool:
            old, new = event.old, event.new
            return (self._no_execute_on(old) if old else []) != (self._no_execute_on(new) if new else [])

        return predicate

    def _no_execute_on(self, entry: Entry) -> list[str]:
        return sorted(marked_resources(entry, self._config, _NO_EXECUTE))
