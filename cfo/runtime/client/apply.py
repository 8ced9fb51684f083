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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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


def is_applied(intent: ApplyIntent, current: Mapping[str, Any], managers: Sequence[Mapping[str, Any]]) -> bool:
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
    desired_metadata, metadata = desired.get("metadata") or {}, current.get("metadata") or {}
    for precondition in ("uid", "resourceVersion"):
        if desired_metadata.get(precondition, metadata.get(precondition)) != metadata.get(precondition):
            return False
    owned = own_entries[0].get("fieldsV1") or {} if own_entries else {}  # managers that own nothing have no entry
    return _matches_fields(owned, _ownable_fields(desired), current)


def _ownable_fields(desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``desired`` that a manager owns after the apply."""
    metadata = {key: value for key, value in (desired.get("metadata") or {}).items() if key not in _NEVER_OWNED}
    fields = {key: value for key, value in desired.items() if key not in {"apiVersion", "kind", "metadata"}}
    return {**fields, "metadata": metadata} if metadata else fields


def _matches(owned: Mapping[str, Any], desired: Any, current: Any) -> bool:
    """Return whether ``owned`` is exactly the fields of ``desired``, and ``current`` has the same values there."""
    number = len(owned) - ("." in owned)
    if not number:
        # An empty container that we own but that is missing was omitted by the encoder (omitempty): if another client
        # had removed it, we would no longer own it.
        return _equal(desired, current) or (current is None and desired in ({}, []))
    if isinstance(desired, dict):
        return isinstance(current, dict) and _matches_fields(owned, desired, current)
    if not isinstance(desired, list) or not isinstance(current, list) or number != len(desired):
        return False
    children = owned.keys() - {"."}
    if all(child.startswith("v:") for child in children):
        return _matches_set(children, desired, current)
    if all(child.startswith("k:") for child in children):
        return _matches_elements(owned, desired, current)
    return False


def _matches_fields(owned: Mapping[str, Any], desired: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    if len(owned) - ("." in owned) != len(desired):
        return False  # an apply would remove a field that we no longer desire, or add one
    for name, value in desired.items():
        fields = owned.get(f"f:{name}")
        if fields is None or not _matches(fields, value, current.get(name)):
            return False
    return True


def _matches_set(children: set[str], desired: list[Any], current: list[Any]) -> bool:
    owned_values = [orjson.loads(child[2:]) for child in children]
    if not all(any(_equal(value, item) for value in owned_values) for item in desired):
        return False
    return _in_order([_position(current, partial(_equal, item)) for item in desired])


def _matches_elements(owned: Mapping[str, Any], desired: list[Any], current: list[Any]) -> bool:
    keys = {child: orjson.loads(child[2:]) for child in owned if child != "."}
    positions = []
    for item, child in _pair_with_keys(desired, keys):
        if child is None:
            return False  # we do not own the element yet
        position = _position(current, partial(_has_key, keys[child]))
        if position is None or not _matches(owned[child], item, current[position]):
            return False
        positions.append(position)
    return _in_order(positions)


def _pair_with_keys(desired: list[Any], keys: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, str | None]]:
    """Return each desired element with its owned key, or ``None`` if there is none.

    An element that omits a key with a default (a port without protocol) is owned under the defaulted key: it is paired
    with the only remaining key that is compatible with its fields.
    """
    remaining = dict(keys)
    pairs: dict[int, str | None] = {}
    for index, item in enumerate(desired):
        complete = [child for child, key in remaining.items() if _has_key(key, item)]
        if complete:
            pairs[index] = complete[0]
            del remaining[complete[0]]
    for index, item in enumerate(desired):
        if index not in pairs:
            compatible = [child for child, key in remaining.items() if _is_compatible(item, key)]
            pairs[index] = compatible[0] if len(compatible) == 1 else None
            if len(compatible) == 1:
                del remaining[compatible[0]]
    return [(item, pairs[index]) for index, item in enumerate(desired)]


def _has_key(key: Mapping[str, Any], item: Any) -> bool:
    return isinstance(item, dict) and all(name in item and _equal(item[name], value) for name, value in key.items())


def _is_compatible(item: Any, key: Mapping[str, Any]) -> bool:
    return isinstance(item, dict) and all(_equal(item.get(name, value), value) for name, value in key.items())


def _position(items: list[Any], matches: Callable[[Any], bool]) -> int | None:
    return next((index for index, item in enumerate(items) if matches(item)), None)


def _in_order(positions: Sequence[int | None]) -> bool:
    """Return whether all were found, in this order: an apply reorders the elements that it lists."""
    found = [position for position in positions if position is not None]
    return len(found) == len(positions) and all(one < next_ for one, next_ in pairwise(found))


def _equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: ``True`` is not 1 (but 1.0 is)."""
    if not isinstance(one, dict | list):
        return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
    # Equal encodings rule out differences in type, and orjson is faster than a Python loop.
    return bool(one == other) and (_encoded(one) == _encoded(other) or _strictly_equal(one, other))


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

    def contains(self, intent: ApplyIntent, current: Object, managers: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether ``intent`` is known to change nothing in this state of the object."""
        key = _key(intent, current)
        state = self._states.get(key)
        if state is None or state != _digest(_state(intent, current, managers)):
            return False  # the object has changed since, so that the apply may change it
        self._states.move_to_end(key)
        return True

    def remember(self, intent: ApplyIntent, current: Object, managers: Sequence[Mapping[str, Any]]) -> None:
        """Record that ``intent`` changed nothing in this state of the object."""
        key = _key(intent, current)
        self._states[key] = _digest(_state(intent, current, managers))
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)


def _key(intent: ApplyIntent, current: Object) -> tuple[str, bytes]:
    return str((current.get("metadata") or {}).get("uid")), _digest(intent)


def _state(intent: ApplyIntent, current: Object, managers: Sequence[Mapping[str, Any]]) -> list[Any]:
    metadata = {key: value for key, value in (current.get("metadata") or {}).items() if key != "resourceVersion"}
    state = {**current, "metadata": metadata}
    if "status" not in intent.desired:
        state.pop("status", None)
    return [state, [{key: value for key, value in entry.items() if key != "time"} for entry in managers]]


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(_encoded(value), digest_size=16).digest()
