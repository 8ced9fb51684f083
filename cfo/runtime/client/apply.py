"""Whether an apply would change anything, told from the object and its managedFields alone.

Server-side apply (KEP-555) is declarative: sending the same intent again changes nothing, and costs a request.
:func:`is_applied` tells that in advance, from a cached object and the entry that the API server keeps for our
field manager. When it cannot be sure it says no, and the apply is sent. Where the answer then shows that
nothing has changed (a default inside an atomic list, a quantity that the server writes differently),
:class:`Unchanged` remembers that.

`fieldsV1`_ is a tree: ``f:name`` is a field, ``k:{...}`` the element of a list map with these keys, ``v:...`` an
element of a set, ``.`` the thing itself beside its parts. A node without parts is a leaf, which owns everything
below it: a scalar, an atomic list or map, an empty container.

.. _fieldsV1: https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import orjson

from cfo.runtime.objects import Object

__all__ = ["Unchanged", "is_applied"]

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
"""Metadata that no manager owns (apimachinery's ``stripmeta.go``)."""


def is_applied(
    desired: Mapping[str, Any],
    current: Mapping[str, Any],
    managers: Sequence[Mapping[str, Any]],
    manager: str,
    subresource: str = "",
) -> bool:
    """Whether applying ``desired`` as ``manager`` would leave ``current`` as it is.

    ``managers`` are managedFields entries of ``current``, ours at least. True when our entry (operation Apply, this
    subresource, the apiVersion of ``desired``) owns exactly what ``desired`` sets, no field more or less, and
    the values are equal: below a leaf deeply, so that ``desired`` has to spell out what the server
    defaults inside an atomic. A ``uid`` or ``resourceVersion`` in ``desired`` must be that of ``current``.
    """
    ours = [
        entry
        for entry in managers
        if entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and (entry.get("subresource") or "") == subresource
    ]
    if len(ours) > 1 or desired.get("kind") != current.get("kind"):
        return False
    if any(entry.get("apiVersion") != desired.get("apiVersion") for entry in ours):
        return False
    wanted_metadata, metadata = desired.get("metadata") or {}, current.get("metadata") or {}
    for precondition in ("uid", "resourceVersion"):
        if wanted_metadata.get(precondition, metadata.get(precondition)) != metadata.get(precondition):
            return False
    owned = ours[0].get("fieldsV1") or {} if ours else {}  # who owns nothing has no entry
    return _holds_fields(owned, _ownable(desired), current)


def _ownable(desired: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``desired`` a manager comes to own."""
    metadata = {key: value for key, value in (desired.get("metadata") or {}).items() if key not in _NEVER_OWNED}
    fields = {key: value for key, value in desired.items() if key not in {"apiVersion", "kind", "metadata"}}
    return {**fields, "metadata": metadata} if metadata else fields


def _holds(owned: Mapping[str, Any], desired: Any, current: Any) -> bool:
    """Whether ``owned`` is exactly ``desired``'s fields, and ``current`` has ``desired``'s values there."""
    parts = owned.keys() - {"."}
    if not parts:
        # An empty container that we own and that is not there was left out by the encoder (omitempty):
        # had somebody removed it, we would not own it any more.
        return _equal(desired, current) or (current is None and desired in ({}, []))
    if isinstance(desired, Mapping):
        return isinstance(current, Mapping) and _holds_fields(owned, desired, current)
    if not isinstance(desired, list) or not isinstance(current, list) or len(parts) != len(desired):
        return False
    if all(part.startswith("v:") for part in parts):
        return _holds_set(parts, desired, current)
    if all(part.startswith("k:") for part in parts):
        return _holds_elements(owned, desired, current)
    return False


def _holds_fields(owned: Mapping[str, Any], desired: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    if owned.keys() - {"."} != {f"f:{name}" for name in desired}:
        return False
    return all(_holds(owned[f"f:{name}"], value, current.get(name)) for name, value in desired.items())


def _holds_set(parts: set[str], desired: list[Any], current: list[Any]) -> bool:
    values = [orjson.loads(part[2:]) for part in parts]
    if not all(any(_equal(value, wanted) for value in values) for wanted in desired):
        return False
    return _in_order([_position(current, partial(_equal, wanted)) for wanted in desired])


def _holds_elements(owned: Mapping[str, Any], desired: list[Any], current: list[Any]) -> bool:
    keys = {part: orjson.loads(part[2:]) for part in owned if part != "."}
    positions = []
    for wanted, part in _paired(desired, keys):
        if part is None:
            return False
        position = _position(current, partial(_has_key, keys[part]))
        if position is None or not _holds(owned[part], wanted, current[position]):
            return False
        positions.append(position)
    return _in_order(positions)


def _paired(desired: list[Any], keys: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, str | None]]:
    """Each desired element with the owned key that is its own, or ``None``.

    An element that leaves out a key with a default (a port without protocol) is owned under the
    defaulted key: it gets the only one left that agrees with what it says.
    """
    left = dict(keys)
    pairs: dict[int, str | None] = {}
    for index, wanted in enumerate(desired):
        whole = [part for part, key in left.items() if _has_key(key, wanted)]
        if whole:
            pairs[index] = whole[0]
            del left[whole[0]]
    for index, wanted in enumerate(desired):
        if index not in pairs:
            open_ = [part for part, key in left.items() if _agrees(wanted, key)]
            pairs[index] = open_[0] if len(open_) == 1 else None
            if len(open_) == 1:
                del left[open_[0]]
    return [(wanted, pairs[index]) for index, wanted in enumerate(desired)]


def _has_key(key: Mapping[str, Any], item: Any) -> bool:
    return isinstance(item, Mapping) and all(name in item and _equal(item[name], value) for name, value in key.items())


def _agrees(item: Any, key: Mapping[str, Any]) -> bool:
    return isinstance(item, Mapping) and all(_equal(item.get(name, value), value) for name, value in key.items())


def _position(items: list[Any], matches: Callable[[Any], bool]) -> int | None:
    return next((index for index, item in enumerate(items) if matches(item)), None)


def _in_order(positions: Sequence[int | None]) -> bool:
    """Whether all were found, in this order: an apply puts the elements that it names into its own order."""
    found = [position for position in positions if position is not None]
    return len(found) == len(positions) and all(one < next_ for one, next_ in pairwise(found))


def _equal(one: Any, other: Any) -> bool:
    """Equality of JSON values: ``True`` is not 1 (but 1.0 is)."""
    if bool(one != other):
        return False
    if isinstance(one, dict | list):  # equal but for such differences; the encoder sees them, and is faster than we
        return _encoded(one) == _encoded(other) or _strictly_equal(one, other)
    return isinstance(one, bool) == isinstance(other, bool)


def _strictly_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_strictly_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_strictly_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


def _encoded(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


class Unchanged:
    """Remembers applies whose answers showed that nothing had changed.

    One counts for as long as the object is the same in everything that it can depend on: all but
    its resourceVersion and, unless the apply is about it, its status. ``size`` applies are remembered,
    those that were asked about last.
    """

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def holds(self, apply: Mapping[str, Any], current: Object, managers: Sequence[Mapping[str, Any]]) -> bool:
        """Whether ``apply`` (``desired``, and whatever else makes it this apply) changed nothing on this state."""
        key = (str((current.get("metadata") or {}).get("uid")), _digest(apply))
        state = self._states.get(key)
        if state is None or state != _digest(_state(apply, current, managers)):
            return False
        self._states.move_to_end(key)
        return True

    def remember(self, apply: Mapping[str, Any], current: Object, managers: Sequence[Mapping[str, Any]]) -> None:
        """Notes that ``apply`` changed nothing on this state."""
        key = (str((current.get("metadata") or {}).get("uid")), _digest(apply))
        self._states[key] = _digest(_state(apply, current, managers))
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)


def _state(apply: Mapping[str, Any], current: Object, managers: Sequence[Mapping[str, Any]]) -> list[Any]:
    metadata = {key: value for key, value in (current.get("metadata") or {}).items() if key != "resourceVersion"}
    state = {**current, "metadata": metadata}
    if "status" not in apply["desired"]:
        state.pop("status", None)
    return [state, [{key: value for key, value in entry.items() if key != "time"} for entry in managers]]


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(_encoded(value), digest_size=16).digest()
