"""The normal form of a state: what two runs that end in the same state have in common.

Uids, revisions, times, assigned addresses and generated names differ in each run. They are masked. A field that differs
between two runs without faults is no property of the end state either: see :func:`unstable_fields`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from envtest.chaos.names import GENERATED, Key, Names, random_names

__all__ = [
    "Live",
    "Normalized",
    "Snapshot",
    "State",
    "mask",
    "normalize",
    "reference_names",
    "unstable_fields",
]

_LEFT_OUT: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "generateName",
    }
)
_ASSIGNED: Final = frozenset(
    {
        "clusterIP",
        "clusterIPs",
        "nodePort",
        "healthCheckNodePort",
        "podIP",
        "podIPs",
        "hostIP",
        "hostIPs",
    }
)
_UID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_MAX_DEPTH: Final = 60
_MAX_NAMES: Final = 500
"""Maximum number of generated names that are masked inside of strings."""


@dataclass(frozen=True, slots=True)
class Live:
    """An object as it is stored; ``content`` is ``None`` if the run deleted an object of the prepared state."""

    key: Key
    content: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects that differ from the prepared state, and the uids of all objects."""

    objects: Sequence[Live] = ()
    uids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Normalized:
    """An object in normal form. ``name`` is the name in this run; ``owner_missing``: none of its owners exists."""

    content: Any
    name: str = ""
    owner_missing: bool = False

    @property
    def bytes(self) -> bytes:
        """The content as bytes, equal for equal contents."""
        return orjson.dumps(self.content, option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True)
class State:
    """The objects by resource, namespace and canonical name; several if their names are generated."""

    objects: Mapping[Key, Sequence[Normalized]] = field(default_factory=dict)

    def names(self) -> Iterator[Key]:
        """Yield the keys with the actual names, without objects that were deleted."""
        for (resource, namespace, _), items in self.objects.items():
            for item in items:
                if item.content is not None:
                    yield resource, namespace, item.name


def normalize(snapshot: Snapshot, names: Names) -> State:
    """Return a snapshot in normal form."""
    objects = snapshot.objects
    canonical: dict[Key, str] = {}
    for each in objects:
        metadata = (each.content or {}).get("metadata") or {}
        canonical[each.key] = names.canonical(each.key, str(metadata.get("generateName") or ""))
    generated = {key[2]: name for key, name in canonical.items() if name != key[2]}
    masks = _Masks(dict(list(generated.items())[:_MAX_NAMES]))
    found: dict[Key, list[Normalized]] = {}
    for each in objects:
        resource, namespace, name = each.key
        item = Normalized(None, name)
        if each.content is not None:
            owners = [
                owner.get("uid") for owner in each.content["metadata"].get("ownerReferences") or ()
            ]
            missing = bool(owners) and snapshot.uids.isdisjoint(owners)
            item = Normalized(masks.object(each.content), name, missing)
        found.setdefault((resource, namespace, canonical[each.key]), []).append(item)
    return State(
        {key: sorted(items, key=lambda item: item.bytes) for key, items in sorted(found.items())}
    )


class _Masks:
    """Replaces the values that differ in each run; ``names`` maps generated names to canonical ones."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        longest_first = sorted(names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if names else None

    def object(self, obj: dict[str, Any]) -> dict[str, Any]:
        metadata = obj["metadata"]
        if "deletionTimestamp" in metadata:  # what else it contains does not matter any more
            named = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
            finalizers = sorted(metadata.get("finalizers") or ())
            head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
            return {
                **head,
                "metadata": {**named, "deletionTimestamp": "<set>", "finalizers": finalizers},
            }
        kept = {key: value for key, value in metadata.items() if key not in _LEFT_OUT}
        if "ownerReferences" in kept:
            kept["ownerReferences"] = sorted(
                (
                    {key: value for key, value in owner.items() if key != "uid"}
                    for owner in kept["ownerReferences"]
                ),
                key=_kind_and_name,
            )
        if "finalizers" in kept:
            kept["finalizers"] = sorted(kept["finalizers"])
        masked: dict[str, Any] = self._value({**obj, "metadata": kept}, 0)
        status = masked.get("status")
        if isinstance(status, dict):
            self._status(status, metadata.get("generation"))
        return masked

    def _status(self, status: dict[str, Any], generation: Any) -> None:
        conditions = status.get("conditions")
        if isinstance(conditions, list):
            status["conditions"] = sorted(conditions, key=_condition_type)
            for condition in status["conditions"]:
                _mask_generation(condition, generation)
        _mask_generation(status, generation)

    def _value(self, value: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            return "<deeply nested>"
        if isinstance(value, dict):
            return {
                self.text(key): "<assigned>" if key in _ASSIGNED else self._value(item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._value(item, depth + 1) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        text = _TIME.sub("<time>", _UID.sub("<uid>", text))
        return (
            self._pattern.sub(lambda match: self._names[match[0]], text) if self._pattern else text
        )


def _kind_and_name(owner: Mapping[str, Any]) -> tuple[str, str]:
    return str(owner.get("kind")), str(owner.get("name"))


def _condition_type(condition: Any) -> str:
    return str(condition.get("type")) if isinstance(condition, dict) else ""


def _mask_generation(status: Any, generation: Any) -> None:
    if isinstance(status, dict) and "observedGeneration" in status:
        status["observedGeneration"] = (
            "<current>" if status["observedGeneration"] == generation else "<outdated>"
        )


def reference_names(first: Sequence[State], second: Sequence[State]) -> Names:
    """Return the names of two runs without faults: those that both have, and the prefixes of the others."""
    ours = {key for state in first for key in state.names()}
    theirs = {key for state in second for key in state.names()}
    prefixes = random_names(ours - theirs, theirs - ours)
    generated = {
        (key[0], key[2].removesuffix(GENERATED))
        for state in first
        for key in state.objects
        if key[2].endswith(GENERATED)
    }
    return Names(frozenset(ours & theirs), tuple(sorted(prefixes | generated)))


Path = tuple[str, str]
"""A resource and a field, ``status.conditions[*].message``."""


def unstable_fields(first: State, second: State) -> set[Path]:
    """Return the fields that differ between two runs without faults; an empty field means the whole object."""
    found: set[Path] = set()
    for key in first.objects.keys() | second.objects.keys():
        ours = first.objects.get(key, ())
        theirs = second.objects.get(key, ())
        if len(ours) != len(theirs):
            found.add((f"{key[0]} {key[1]}/{key[2]}", ""))
            continue
        for one, other in zip(ours, theirs, strict=True):
            found |= {(key[0], path) for path in _different(one.content, other.content, "")}
    return found


def _different(one: Any, other: Any, path: str) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            below = f"{path}.{key}" if path else key
            yield from _different(one.get(key), other.get(key), below)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            yield from _different(left, right, f"{path}[*]")
    else:
        yield path


def mask(state: State, fields: Collection[Path]) -> State:
    """Return the state without ``fields``. A field of the resource ``*`` is left out of all objects."""
    if not fields:
        return state
    objects: dict[Key, Sequence[Normalized]] = {}
    for key, items in state.objects.items():
        if (f"{key[0]} {key[1]}/{key[2]}", "") in fields:
            continue
        paths = {path for resource, path in fields if path and resource in (key[0], "*")}
        masked = [
            Normalized(_without(item.content, "", paths), item.name, item.owner_missing)
            for item in items
        ]
        objects[key] = sorted(masked, key=lambda item: item.bytes) if paths else items
    return State(objects)


def _without(value: Any, path: str, paths: Collection[str]) -> Any:
    if path in paths:
        return "<unstable>"
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            below = f"{path}.{key}" if path else key
            masked = _without(item, below, paths)
            if masked != "<unstable>":
                kept[key] = masked
        return kept
    if isinstance(value, list):
        return [_without(item, f"{path}[*]", paths) for item in value]
    return value
