"""Compares the state of a run with that of the reference run, and names each difference."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from envtest.apimachinery.object_diff import object_diff
from envtest.chaos.names import GENERATED, Key
from envtest.chaos.normal_form import Normalized, State

__all__ = ["Difference", "compare"]

MAX_DIFFERENCES = 50


@dataclass(frozen=True, slots=True)
class Difference:
    """One object that is not as in the reference run.

    ``kind`` is ``missing``, ``different``, ``duplicate`` (an object that the reference has, once more under another
    name), ``orphan`` (its owner does not exist, or the reference has deleted it by now) or ``unexpected``. The fields
    that differ are ``lines``.
    """

    kind: str
    resource: str
    namespace: str
    name: str
    lines: tuple[str, ...] = ()

    @property
    def object(self) -> str:
        """The object as text."""
        return f"{self.resource} {'/'.join(filter(None, (self.namespace, self.name)))}"


def compare(
    expected: State, found: State, *, earlier: Collection[Key] = frozenset()
) -> list[Difference]:
    """Return the differences of ``found`` from ``expected``, at most 50.

    ``earlier`` are the keys of objects that the reference run had in an earlier step. All states are normalized.
    """
    differences: list[Difference] = []
    for key in sorted(expected.objects.keys() | found.objects.keys()):
        wanted, actual = _unequal(expected.objects.get(key, ()), found.objects.get(key, ()))
        differences += _differences(key, wanted, actual, expected, earlier)
        if len(differences) >= MAX_DIFFERENCES:
            break
    return differences[:MAX_DIFFERENCES]


def _unequal(
    wanted: Collection[Normalized], actual: Collection[Normalized]
) -> tuple[list[Any], list[Normalized]]:
    """Return what remains of both after removing pairs of equal objects."""
    remaining = list(actual)
    missing = []
    for item in wanted:
        match = next((each for each in remaining if each.content == item.content), None)
        if match is None:
            missing.append(item)
        else:
            remaining.remove(match)
    return missing, remaining


def _differences(
    key: Key,
    wanted: list[Normalized],
    actual: list[Normalized],
    expected: State,
    earlier: Collection[Key],
) -> list[Difference]:
    resource, namespace, name = key
    found: list[Difference] = []
    while wanted and actual:
        one = wanted.pop()
        other = actual.pop()
        if other.content is None:
            found.append(Difference("missing", resource, namespace, name))
        elif one.content is None:
            found.append(Difference("orphan", resource, namespace, other.name))
        else:
            lines = tuple(object_diff(one.content, other.content))
            found.append(Difference("different", resource, namespace, name, lines))
    found += [
        Difference("missing", resource, namespace, name)
        for item in wanted
        if item.content is not None
    ]
    found += [
        Difference(_extra(key, item, expected, earlier), resource, namespace, item.name)
        for item in actual
        if item.content is not None
    ]
    return found


def _extra(key: Key, item: Normalized, expected: State, earlier: Collection[Key]) -> str:
    """Return what an object is that the reference does not have."""
    if item.owner_missing:
        return "orphan"
    if key[2].endswith(GENERATED) and key in expected.objects:
        return "duplicate"
    if key in earlier:
        return "orphan"
    same_content = any(
        _without_name(other.content) == _without_name(item.content)
        for other_key, others in expected.objects.items()
        if other_key[:2] == key[:2]
        for other in others
        if other.content is not None
    )
    return "duplicate" if same_content else "unexpected"


def _without_name(content: Any) -> Any:
    return {
        **content,
        "metadata": {key: value for key, value in content["metadata"].items() if key != "name"},
    }
