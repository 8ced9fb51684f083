"""Lists of custom resources with the type ``set`` or ``map``, as CEL compares and adds them: their order means nothing.

As in kube-apiserver (``values.go`` in ``k8s.io/apiserver/pkg/cel/common``), the first operand decides:
``self.ports == [2, 1]`` ignores the order, ``[2, 1] == self.ports`` does not.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import orjson

__all__ = ["MapList", "SetList", "UnorderedList", "plain_lists"]

_Equality: TypeAlias = Callable[[Any, Any], bool]


class UnorderedList(list[Any], metaclass=abc.ABCMeta):
    """A list whose items are found by their content instead of their position."""

    @abc.abstractmethod
    def equals(self, other: Sequence[Any], is_equal: _Equality) -> bool:
        """Report whether each item of ``other`` is in this list, and both have as many items."""

    @abc.abstractmethod
    def merged(self, other: Sequence[Any]) -> UnorderedList:
        """Return this list with the items of ``other`` that it does not have."""


class SetList(UnorderedList):
    """A list of different scalars."""

    def equals(self, other: Sequence[Any], is_equal: _Equality) -> bool:
        """See :meth:`UnorderedList.equals`. Times, durations and bytes are never equal, as in kube-apiserver."""
        if len(self) != len(other):
            return False
        known = set(map(_identity, self))
        return all(_identity(item) in known for item in other)

    def merged(self, other: Sequence[Any]) -> SetList:
        """See :meth:`UnorderedList.merged`."""
        items = SetList(self)
        known = set(map(_identity, self))
        for item in other:
            identity = _identity(item)
            if identity not in known:
                known.add(identity)
                items.append(item)
        return items


class MapList(UnorderedList):
    """A list of objects that differ in the fields ``keys``."""

    def __init__(self, items: Sequence[Any], keys: Sequence[str]) -> None:
        super().__init__(items)
        self._keys = keys

    def equals(self, other: Sequence[Any], is_equal: _Equality) -> bool:
        """See :meth:`UnorderedList.equals`."""
        if len(self) != len(other):
            return False
        known = {self._key(item): item for item in self}
        for item in other:
            key = self._key(item)
            if key not in known or not is_equal(known[key], item):
                return False
        return True

    def merged(self, other: Sequence[Any]) -> MapList:
        """See :meth:`UnorderedList.merged`; an item replaces that with the same keys."""
        items = {self._key(item): item for item in self}
        items.update((self._key(item), item) for item in other)
        return MapList(list(items.values()), self._keys)

    def _key(self, item: Any) -> Any:
        if not isinstance(item, dict):
            return object()
        return tuple(_identity(item.get(key)) for key in self._keys)


def plain_lists(value: Any) -> Any:
    """Return a value with plain lists and maps: the CEL library does not accept their subclasses inside of values."""
    if isinstance(value, dict):
        return {key: plain_lists(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_lists(item) for item in list.__iter__(value)]
    return value


def _identity(item: Any) -> Any:
    """Return what two equal items have in common; nothing has the identity of a time, a duration or bytes."""
    if isinstance(item, (list, dict)):
        return orjson.dumps(item, option=orjson.OPT_SORT_KEYS, default=repr)
    if item is None or isinstance(item, (bool, int, float, str)):
        return type(item), item
    return object()
