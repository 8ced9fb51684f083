"""Sets of field paths, in memory and in the ``fieldsV1`` encoding.

A path element is stored as its ``fieldsV1`` string in canonical form, so that equal elements are equal strings:
``f:<name>`` is a field or map key, ``k:<json object>`` an item of a list map by its keys, ``v:<json value>`` an item of
a set, ``i:<index>`` a position. A :class:`FieldSet` is a tree of elements: ``members`` belong to the set, ``children``
contain the members below. A child's membership does not depend on its parent's.

Sets are values: each operation returns a new set that can share subtrees with its operands, and only the code that
builds a set modifies it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

__all__ = [
    "FieldSet",
    "InvalidFields",
    "Path",
    "field_element",
    "format_path",
    "key_element",
    "value_element",
]

Path: TypeAlias = tuple[str, ...]
"""Path elements, from the root of an object."""

_ESCAPES: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))


class InvalidFields(ValueError):
    """Raised if the input is not valid ``fieldsV1``."""


def _json(value: Any) -> str:
    """Encode JSON as Go does: sorted keys, ``<>&`` escaped, whole floats without a fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    for char, escape in _ESCAPES:
        if char in text:
            text = text.replace(char, escape)
    return text.decode()


def field_element(name: str) -> str:
    """Return the element of a field or map key."""
    return f"f:{name}"


def value_element(value: Any) -> str:
    """Return the element of a set's item."""
    return f"v:{_json(value)}"


def key_element(keys: Mapping[str, Any]) -> str:
    """Return the element of a list map's item, from the values of its key fields."""
    try:
        return _cached_key_element(
            *[(name, value.__class__, value) for name, value in keys.items()]
        )
    except TypeError:  # a value is not hashable
        return _encode_keys(keys)


def _encode_keys(keys: Mapping[str, Any]) -> str:
    parts = (f"{_json(name)}:{_json(keys[name])}" for name in sorted(keys))
    return "k:{" + ",".join(parts) + "}"


@lru_cache(maxsize=65536)
def _cached_key_element(*keys: tuple[str, type, Any]) -> str:
    """Cache elements; the types in the cache key separate ``1`` from ``true``, which are equal in Python."""
    return _encode_keys({name: value for name, _, value in keys})


@lru_cache(maxsize=65536)
def _canonical(element: str) -> str | None:
    """Return the canonical form of an element from ``fieldsV1``; ``None`` for an unknown kind.

    Raises InvalidFields.
    """
    kind = element[:2]
    if kind == "f:":
        return element
    if len(element) < 2 or element[1] != ":":
        raise InvalidFields(f"missing colon: {element}")
    try:
        if kind == "v:":
            return value_element(orjson.loads(element[2:]))
        if kind == "k:":
            keys = orjson.loads(element[2:])
            if not isinstance(keys, dict):
                raise InvalidFields(f"not an object: {element}")
            return key_element(keys)
        if kind == "i:":
            return f"i:{int(element[2:])}"
    except ValueError as error:
        raise InvalidFields(f"{element}: {error}") from error
    return None


def _value_order(value: Any) -> tuple[Any, ...]:
    """Return the sort key of a value: numbers, strings, booleans, lists, maps, null."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, str):
        return 1, value
    if isinstance(value, list):
        return 3, tuple(map(_value_order, value))
    return (4, _map_order(value)) if isinstance(value, dict) else (5,)


def _map_order(value: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((name, _value_order(value[name])) for name in sorted(value))


@lru_cache(maxsize=65536)
def _element_order(element: str) -> tuple[Any, ...]:
    """Return the sort key of an element: fields first, then items by key, by value and by index."""
    kind = element[0]
    content = element[2:]
    if kind == "f":
        return 0, content
    if kind == "i":
        return 3, int(content)
    return (
        (1, _map_order(orjson.loads(content)))
        if kind == "k"
        else (2, _value_order(orjson.loads(content)))
    )


def _ordered(elements: Iterable[str]) -> list[str]:
    """Sort elements in the order in which structured-merge-diff iterates over them."""
    names = sorted(elements)
    # not all are fields, whose order is that of strings
    if len(names) > 1 and not names[0][0] == "f" == names[-1][0]:
        names.sort(key=_element_order)
    return names


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return orjson.dumps(value).decode()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and math.fabs(value) < 1e21 else repr(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_format_value, value)) + "]"
    if isinstance(value, dict):
        return "".join(f"{name}={_format_value(item)}" for name, item in value.items())
    return str(value)


def format_element(element: str) -> str:
    """Format an element for messages: ``.name``, ``[port=80,protocol="TCP"]``, ``[="x"]``, ``[3]``."""
    content = element[2:]
    if element[0] == "f":
        return f".{content}"
    if element[0] == "i":
        return f"[{content}]"
    value = orjson.loads(content)
    if element[0] == "v":
        return f"[={_format_value(value)}]"
    return "[" + ",".join(f"{name}={_format_value(value[name])}" for name in sorted(value)) + "]"


def format_path(path: Path) -> str:
    """Format a path for messages: ``.spec.ports[port=80].name``."""
    return "".join(map(format_element, path))


class FieldSet:
    """A set of paths, as described in the module's docstring."""

    __slots__ = ("children", "members")

    def __init__(
        self, members: set[str] | None = None, children: dict[str, FieldSet] | None = None
    ) -> None:
        self.members: set[str] = set() if members is None else members
        self.children: dict[str, FieldSet] = {} if children is None else children

    @classmethod
    def of(cls, *paths: Path) -> FieldSet:
        """Return the set of the paths; empty paths are omitted, because a whole object has no owner."""
        fields = cls()
        for path in paths:
            fields.insert(path)
        return fields

    @classmethod
    def decode(cls, fields: Any) -> FieldSet:
        """Decode ``fieldsV1``. Raises InvalidFields."""
        if not isinstance(fields, dict):
            raise InvalidFields(f"expected an object, got {type(fields).__name__}")
        return _decode(fields)[0] or cls()

    def encode(self) -> dict[str, Any]:
        """Encode as ``fieldsV1``, with keys in kube-apiserver's order."""
        encoded: dict[str, Any] = {}
        children = self.children
        for element in _ordered(self.members | children.keys()):
            child = children.get(element)
            if not child:
                if element in self.members:
                    encoded[element] = {}
                continue
            encoded_child = child.encode()
            encoded[element] = (
                {".": {}, **encoded_child} if element in self.members else encoded_child
            )
        return encoded

    def insert(self, path: Path) -> None:
        """Add a path in place; only for code that builds the set."""
        if not path:
            return
        node = self
        for element in path[:-1]:
            child = node.children.get(element)
            if child is None:
                child = FieldSet()
                node.children[element] = child
            node = child
        node.members.add(path[-1])

    def has(self, path: Path) -> bool:
        """Report whether ``path`` is a member."""
        node = self
        for element in path[:-1]:
            child = node.children.get(element)
            if child is None:
                return False
            node = child
        return bool(path) and path[-1] in node.members

    def __bool__(self) -> bool:
        return bool(self.members) or any(self.children.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldSet):
            return NotImplemented
        return (
            self.members == other.members
            and self._nonempty_children() == other._nonempty_children()
        )

    __hash__ = None  # type: ignore[assignment]

    def _nonempty_children(self) -> dict[str, FieldSet]:
        return {element: child for element, child in self.children.items() if child}

    def __iter__(self) -> Iterator[Path]:
        """Iterate over all paths in order: the members of each node, then its children."""
        return self._walk(())

    def _walk(self, prefix: Path) -> Iterator[Path]:
        for element in _ordered(self.members):
            yield (*prefix, element)
        for element in _ordered(self.children):
            yield from self.children[element]._walk((*prefix, element))

    def __or__(self, other: FieldSet) -> FieldSet:
        """Return the union."""
        if not other.members and not other.children:
            return self
        if not self.members and not self.children:
            return other
        children = dict(self.children)
        for element, child in other.children.items():
            own_child = children.get(element)
            children[element] = child if own_child is None else own_child | child
        return FieldSet(self.members | other.members, children)

    def __and__(self, other: FieldSet) -> FieldSet:
        """Return the paths that are members of both sets."""
        children = {}
        for element, child in self.children.items():
            other_child = other.children.get(element)
            if other_child is not None:
                both = child & other_child
                if both:
                    children[element] = both
        return FieldSet(self.members & other.members, children)

    def __sub__(self, other: FieldSet) -> FieldSet:
        """Return the paths that are members of this set but not of ``other``; children of removed members stay."""
        if not other.members and not other.children:
            return self
        children = {}
        for element, child in self.children.items():
            other_child = other.children.get(element)
            rest = child if other_child is None else child - other_child
            if rest or other_child is None:
                children[element] = rest
        return FieldSet(self.members - other.members, children)

    def without(self, other: FieldSet) -> FieldSet:
        """Return the set without the members of ``other`` and everything below them."""
        children = {}
        for element, child in self.children.items():
            if element in other.members:
                continue
            other_child = other.children.get(element)
            rest = child if other_child is None else child.without(other_child)
            if rest or other_child is None:
                children[element] = rest
        return FieldSet(self.members - other.members, children)

    def __repr__(self) -> str:
        return "FieldSet(" + ", ".join(map(format_path, self)) + ")"


def _decode(fields: dict[str, Any]) -> tuple[FieldSet | None, bool]:
    """Return the set below a node, and whether the node itself is a member."""
    if not fields:
        return None, True
    found: FieldSet | None = None
    is_member = False
    for raw, children in fields.items():
        if raw == ".":
            is_member = True
            continue
        element = _canonical(raw)
        if element is None:
            continue
        if not isinstance(children, dict):
            raise InvalidFields(f"{raw}: expected an object")
        child, member = _decode(children)
        if found is None:
            found = FieldSet()
        if member:
            found.members.add(element)
        if child is not None:
            found.children[element] = child
    return found, is_member or found is None
