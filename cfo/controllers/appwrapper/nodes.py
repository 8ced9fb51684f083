"""Resources on nodes that Autopilot or Kubernetes marks as unusable.

A resource is marked on a node by a label (as Autopilot does) or by a taint, with the key and value that
``autopilot.resourceTaints`` defines for it. The informer indexes the marks, so a query's cost depends on the number of
marked nodes, not on how many nodes exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cfo.config.appwrapper import AutopilotConfiguration
from cfo.runtime import Entry, Event, Informer, Predicate, Reader

_NO_EXECUTE: Final = ("NoExecute",)
_INDEX: Final = "appwrapper-no-execute"


class Taint(msgspec.Struct, gc=False):
    """A taint of a node; its effect is not used."""

    key: str = ""
    value: str = ""


class _NodeSpec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _NodeStatus(msgspec.Struct, frozen=True, gc=False):
    capacity: dict[str, str | int | float] = {}


class Node(msgspec.Struct, gc=False):
    """The fields of a node that the controllers use. Only kubelets and administrators write nodes, without nulls."""

    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


_decoder = msgspec.json.Decoder(Node)


def decode_node(entry: Entry) -> Node:
    """Decode the fields of a node that the controllers use."""
    return _decoder.decode(entry.raw)


def marked_resources(
    entry: Entry, config: AutopilotConfiguration, effects: Iterable[str]
) -> frozenset[str]:
    """Return the resources that are marked on the node with one of ``effects``."""
    effects = frozenset(effects)
    marks = set(entry.meta.labels.items())
    marks.update((taint.key, taint.value) for taint in decode_node(entry).spec.taints)
    return frozenset(
        resource
        for resource, taints in config.resource_taints.items()
        if any(taint.effect in effects and (taint.key, taint.value) in marks for taint in taints)
    )


class NodeHealth:
    """Reads marks from the informer ``nodes``; ``None`` means that nodes are not monitored, so nothing is marked."""

    def __init__(self, config: AutopilotConfiguration, nodes: Informer | None) -> None:
        self._config = config
        self._reader: Reader | None = None
        if nodes is not None:
            self._reader = nodes.add_index(_INDEX, self._no_execute_on).reader

    def no_execute(self) -> Mapping[str, frozenset[str]]:
        """Return, by node, the resources that running pods must not continue to use there."""
        found: dict[str, frozenset[str]] = {}
        if self._reader is not None:
            for resource in self._config.resource_taints:
                for key in self._reader.keys(_INDEX, resource):
                    found[key.name] = found.get(key.name, frozenset()) | {resource}
        return found

    @property
    def no_execute_changed(self) -> Predicate:
        """Passes events of nodes that change the resources which pods must not use there."""

        def predicate(event: Event) -> bool:
            return self._no_execute_on(event.old) != self._no_execute_on(event.new)

        return predicate

    def _no_execute_on(self, entry: Entry | None) -> list[str]:
        if entry is None:
            return []
        return sorted(marked_resources(entry, self._config, _NO_EXECUTE))
