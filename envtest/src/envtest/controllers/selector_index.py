"""Finds the selectors that match an object, and the objects that match a selector, without comparing all of them.

Both are kept in buckets for one label of a namespace: an object is in the bucket for each of its labels, and a selector
in that for one label that it requires. Only selectors that require no label are compared with each object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from envtest.apimachinery.label_selectors import matches_label_selector

__all__ = ["SelectorIndex"]

T = TypeVar("T")


class _Item(NamedTuple, Generic[T]):
    labels: Mapping[str, str]
    value: T


class SelectorIndex(Generic[T]):
    """Selectors by (namespace, name), and objects by (namespace, name) with a value of type ``T`` for each."""

    def __init__(self) -> None:
        self._selectors: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._selector_buckets: dict[tuple[str, str, str], set[str]] = {}
        self._objects: dict[str, dict[str, _Item[T]]] = {}
        self._object_buckets: dict[tuple[str, str, str], set[str]] = {}

    def set_selector(self, namespace: str, name: str, selector: Mapping[str, Any] | None) -> None:
        """Add, replace or (``None``) remove a LabelSelector."""
        previous = self._selectors.pop((namespace, name), None)
        if previous is not None:
            _discard(self._selector_buckets, _bucket(namespace, previous), name)
        if selector is not None:
            self._selectors[namespace, name] = selector
            self._selector_buckets.setdefault(_bucket(namespace, selector), set()).add(name)

    def selector(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the selector of this name."""
        return self._selectors.get((namespace, name))

    def set_object(
        self, namespace: str, name: str, labels: Mapping[str, str], value: T | None
    ) -> None:
        """Add, replace or (``None``) remove an object."""
        objects = self._objects.setdefault(namespace, {})
        previous = objects.pop(name, None)
        if previous is not None:
            for pair in previous.labels.items():
                _discard(self._object_buckets, (namespace, *pair), name)
        if value is not None:
            objects[name] = _Item(labels, value)
            for pair in labels.items():
                self._object_buckets.setdefault((namespace, *pair), set()).add(name)
        elif not objects:
            del self._objects[namespace]

    def object(self, namespace: str, name: str) -> T | None:
        """Return the value of an object."""
        item = self._objects.get(namespace, {}).get(name)
        return None if item is None else item.value

    def labels(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the labels of an object that was added, or none."""
        item = self._objects.get(namespace, {}).get(name)
        return {} if item is None else item.labels

    def selectors_of(self, namespace: str, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield the names of the selectors that match ``labels``."""
        for key, value in (*labels.items(), ("", "")):
            for name in self._selector_buckets.get((namespace, key, value), ()):
                if matches_label_selector(self._selectors[namespace, name], labels):
                    yield name

    def objects_of(self, namespace: str, selector: Mapping[str, Any]) -> list[tuple[str, T]]:
        """Return names and values of the objects that match ``selector``, sorted by name."""
        objects = self._objects.get(namespace, {})
        key = _bucket(namespace, selector)
        names = self._object_buckets.get(key, ()) if key[1] else objects
        return [
            (name, objects[name].value)
            for name in sorted(names)
            if matches_label_selector(selector, objects[name].labels)
        ]


def _bucket(namespace: str, selector: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the bucket of a selector: that of one label that it requires, or of none."""
    for key, value in (selector.get("matchLabels") or {}).items():
        return namespace, key, value
    for expression in selector.get("matchExpressions") or ():
        values = expression.get("values") or []
        if expression.get("operator") == "In" and len(values) == 1:
            return namespace, expression["key"], values[0]
    return namespace, "", ""


def _discard(
    buckets: dict[tuple[str, str, str], set[str]], key: tuple[str, str, str], name: str
) -> None:
    names = buckets.get(key)
    if names is not None:
        names.discard(name)
        if not names:
            del buckets[key]
