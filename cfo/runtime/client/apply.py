"""Detect server-side applies that would change nothing, from the cached object and its managedFields.

Server-side apply (KEP-555) is declarative: applying the same intent again changes nothing, but costs a request.
:func:`is_applied` detects such an apply in advance, from a cached object and the managedFields entry of our field
manager. If it cannot be sure, it returns false and the apply is sent. If the response then shows that nothing changed
(a default inside an atomic list, a quantity that the server formats differently), :class:`UnchangedApplies` remembers
the intent.

`fieldsV1`_ is a tree: ``f:name`` is a field, ``k:{...}`` is the element of a list map with these keys, ``v:...`` is an
element of a set, and ``.`` is the container itself in addition to its children. A node without children is a leaf and
owns everything below it: a scalar, an atomic list or map, an empty container.

.. _fieldsV1: https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import orjson

from cfo.runtime.objects.unstructured import Object

ABSENT_VERSION: Final = "1"
"""A resourceVersion that no stored object has, since etcd's first revision is 1 before anything is written.

The API server ignores it when an apply creates the object, and rejects the apply with a 409 when the object exists.
"""

_NEVER_OWNED = frozenset(
    [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "selfLink",
        "clusterName",
        "managedFields",
    ]
)
"""Metadata fields that no field manager owns (apimachinery's ``stripmeta.go``)."""


@dataclass(frozen=True, slots=True)
class ApplyIntent:
    """One server-side apply: the fields to own, the field manager that owns them, and the subresource."""

    desired: Mapping[str, Any]
    manager: str
    subresource: str = ""


def encode_string_data(obj: Object) -> Object:
    """Return a Secret with its ``stringData`` encoded into ``data``, and any other object unchanged."""
    strings = obj.get("stringData")
    if not strings or obj.get("kind") != "Secret" or obj.get("apiVersion") != "v1":
        return obj
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in strings.items()}
    rest = {name: value for name, value in obj.items() if name != "stringData"}
    return {**rest, "data": {**(obj.get("data") or {}), **encoded}}


def is_applied(
    intent: ApplyIntent, current: Mapping[str, Any], managers: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether sending ``intent`` would leave ``current`` unchanged.

    ``managers`` are managedFields entries of ``current``, at least those of our field manager. The result is true if
    our entry (operation Apply, same subresource, same apiVersion as the desired object) owns exactly the desired
    fields, no more and no fewer, and the values are equal. Values below a leaf are compared deeply, so the desired
    object must contain the server's defaults inside atomic lists and maps. A ``uid`` or ``resourceVersion`` in the
    desired object must equal the one in ``current``.
    """
    desired = intent.desired
    own_entries = [
        entry
        for entry in managers
        if entry.get("manager") == intent.manager
        and entry.get("operation") == "Apply"
        and (entry.get("subresource") or "") == intent.subresource
    ]
    if len(own_entries) > 1 or desired.get("kind") != current.get("kind"):
        return False  # not what an API server stores: let it decide
    # Under another version, the fields can have other names: the apply converts the entry.
    if any(entry.get("apiVersion") != desired.get("apiVersion") for entry in own_entries):
        return False
    desired_metadata = desired.get("metadata") or {}
    metadata = current.get("metadata") or {}
    for precondition in ("uid", "resourceVersion"):
        value = metadata.get(precondition)
        if desired_metadata.get(precondition, value) != value:
            return False
    owned: Mapping[str, Any] = {}
    if own_entries:  # a manager that owns nothing has no entry
        owned = own_entries[0].get("fieldsV1") or {}
    return _matches_fields(owned, _ownable_fields(desired), current)


def _ownable_fields(desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``desired`` that a manager owns after the apply."""
    metadata = desired.get("metadata") or {}
    owned_metadata = {key: value for key, value in metadata.items() if key not in _NEVER_OWNED}
    fields = {
        key: value
        for key, value in desired.items()
        if key not in {"apiVersion", "kind", "metadata"}
    }
    if owned_metadata:
        fields["metadata"] = owned_metadata
    return fields


def _matches(owned: Mapping[str, Any], desired: Any, current: Any) -> bool:
    """Return whether ``owned`` is exactly the fields of ``desired``, and ``current`` has the same values there."""
    count = len(owned)
    if "." in owned:
        count -= 1
    if count == 0:
        # An empty container that we own but that is missing was omitted by the encoder (omitempty): if another client
        # had removed it, we would no longer own it.
        return _equal(desired, current) or (current is None and desired in ({}, []))
    if isinstance(desired, dict):
        return isinstance(current, dict) and _matches_fields(owned, desired, current)
    if not isinstance(desired, list) or not isinstance(current, list):
        return False
    if count != len(desired):
        return False
    children = owned.keys() - {"."}
    if all(child.startswith("v:") for child in children):
        return _matches_set(children, desired, current)
    if all(child.startswith("k:") for child in children):
        return _matches_elements(owned, desired, current)
    return False


def _matches_fields(
    owned: Mapping[str, Any], desired: Mapping[str, Any], current: Mapping[str, Any]
) -> bool:
    count = len(owned)
    if "." in owned:
        count -= 1
    if count != len(desired):
        return False  # an apply would remove a field that we no longer desire, or add one
    for name, value in desired.items():
        fields = owned.get(f"f:{name}")
        if fields is None or not _matches(fields, value, current.get(name)):
            return False
    return True


def _matches_set(children: set[str], desired: list[Any], current: list[Any]) -> bool:
    owned = {_hashable(orjson.loads(child[2:])) for child in children}
    items = [_hashable(item) for item in desired]
    if not owned.issuperset(items):
        return False
    return _in_order(_positions(items, map(_hashable, current)))


def _matches_elements(owned: Mapping[str, Any], desired: list[Any], current: list[Any]) -> bool:
    keys = {child: orjson.loads(child[2:]) for child in owned if child != "."}
    fields = next(iter(keys.values())).keys()
    if any(key.keys() != fields for key in keys.values()):
        return False  # keys of different fields are ambiguous: let the API server decide
    values = {child: _values(key, fields) for child, key in keys.items()}
    wanted = [_values(item, fields) for item in desired]
    if None in wanted:
        wanted = _completed(desired, keys, fields, wanted)
    positions = _positions(wanted, (_values(item, fields) for item in current))
    if not _in_order(positions):
        return False
    children = {value: child for child, value in values.items()}
    for item, value, position in zip(desired, wanted, positions, strict=True):
        child = children.pop(value, None)
        if child is None or position is None:
            return False  # we do not own the element yet, or there is none
        if not _matches(owned[child], item, current[position]):
            return False
    return True


def _completed(
    desired: list[Any],
    keys: Mapping[str, Mapping[str, Any]],
    fields: Collection[str],
    values: Sequence[object],
) -> list[object]:
    """Return the values of ``fields`` of each desired element; ``None`` if they are not known.

    An element that omits a key with a default (a port without protocol) is owned under the defaulted key: it has that
    of the only key that is compatible with its fields and that no other element has.
    """
    result = list(values)
    known = set(values)
    remaining = [key for key in keys.values() if _values(key, fields) not in known]
    compatible: dict[tuple[str, ...], dict[object, list[object]]] = {}
    for index, item in enumerate(desired):
        if values[index] is not None or not isinstance(item, dict):
            continue
        given = tuple(field for field in fields if field in item)
        if given not in compatible:
            found: dict[object, list[object]] = {}
            for key in remaining:
                found.setdefault(_values(key, given), []).append(_values(key, fields))
            compatible[given] = found
        candidates = compatible[given].get(_values(item, given), [])
        if len(candidates) == 1:
            result[index] = candidates[0]
    return result


def _values(item: Any, fields: Collection[str]) -> object:
    """Return the values of ``fields`` of an element, to compare and to hash; ``None`` if it has not all of them."""
    if not isinstance(item, dict):
        return None
    values = []
    for field in fields:
        if field not in item:
            return None
        values.append(_hashable(item[field]))
    return tuple(values)


def _hashable(value: Any) -> object:
    """Return a key that is equal for equal values, as :func:`_equal` compares them, except in containers: 1 and 1.0."""
    if isinstance(value, dict | list):
        return _encoded(value)
    return isinstance(value, bool), value


def _positions(wanted: Sequence[object], items: Iterable[object]) -> list[int | None]:
    """Return the first position of each of ``wanted`` in ``items``."""
    first: dict[object, int] = {}
    for position, item in enumerate(items):
        first.setdefault(item, position)
    return [first.get(item) for item in wanted]


def _in_order(positions: Sequence[int | None]) -> bool:
    """Return whether all were found, in this order: an apply reorders the elements that it lists."""
    found = [position for position in positions if position is not None]
    if len(found) < len(positions):
        return False
    return all(one < next_ for one, next_ in pairwise(found))


def _equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: ``True`` is not 1 (but 1.0 is)."""
    if not isinstance(one, dict | list):
        return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
    if one != other:
        return False
    # Equal encodings rule out differences in type, and orjson is faster than a Python loop.
    return _encoded(one) == _encoded(other) or _strictly_equal(one, other)


def _strictly_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_strictly_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_strictly_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


def _encoded(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


class UnchangedApplies:
    """Remembers applies whose responses showed that nothing changed.

    A remembered apply stays valid as long as the object is the same in everything that the apply can depend on: all
    fields except its resourceVersion and, unless the apply sets it, its status. ``size`` is the number of remembered
    applies; the least recently used are evicted first.
    """

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def contains(
        self, intent: ApplyIntent, current: Object, managers: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Return whether ``intent`` is known to change nothing in this state of the object."""
        key = _key(intent, current)
        state = self._states.get(key)
        if state is None or state != _digest(_state(intent, current, managers)):
            return False  # the object has changed since, so that the apply may change it
        self._states.move_to_end(key)
        return True

    def remember(
        self, intent: ApplyIntent, current: Object, managers: Sequence[Mapping[str, Any]]
    ) -> None:
        """Record that ``intent`` changed nothing in this state of the object."""
        key = _key(intent, current)
        self._states[key] = _digest(_state(intent, current, managers))
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)


def _key(intent: ApplyIntent, current: Object) -> tuple[str, bytes]:
    metadata = current.get("metadata") or {}
    return str(metadata.get("uid")), _digest(intent)


def _state(
    intent: ApplyIntent, current: Object, managers: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Return everything that the apply can depend on."""
    metadata = current.get("metadata") or {}
    state = {**current, "metadata": _without(metadata, "resourceVersion")}
    if "status" not in intent.desired:
        state.pop("status", None)
    return [state, [_without(entry, "time") for entry in managers]]


def _without(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(_encoded(value), digest_size=16).digest()
