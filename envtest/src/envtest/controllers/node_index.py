"""The pods of each node, for controllers that act on all of them."""

from __future__ import annotations

import msgspec

from envtest.apimachinery.objects import NamespacedName
from envtest.storage import Record

__all__ = ["NodeIndex"]


class _Spec(msgspec.Struct):
    nodeName: str | None = None  # noqa: N815 - name of the JSON field


class _Pod(msgspec.Struct):
    spec: _Spec | None = None


_decoder = msgspec.json.Decoder(_Pod)


class NodeIndex:
    """The keys of pods by the name of their node."""

    def __init__(self) -> None:
        self._nodes: dict[NamespacedName, str] = {}
        self._pods: dict[str, set[NamespacedName]] = {}

    def update(self, record: Record, *, deleted: bool) -> str:
        """Index a pod; return the name of its node, or an empty string."""
        key = NamespacedName(record.namespace, record.name)
        node = "" if deleted else self._nodes.get(key, "")
        if not node and not deleted:
            spec = _decoder.decode(record.data).spec
            node = (spec.nodeName if spec is not None else "") or ""
        before = self._nodes.get(key, "")
        if before and before != node:
            del self._nodes[key]
            pods = self._pods[before]
            pods.discard(key)
            if not pods:
                del self._pods[before]
        if node and before != node:
            self._nodes[key] = node
            self._pods.setdefault(node, set()).add(key)
        return node or before

    def pods(self, node: str) -> set[NamespacedName]:
        """Return the keys of the pods of a node."""
        return self._pods.get(node, set())
