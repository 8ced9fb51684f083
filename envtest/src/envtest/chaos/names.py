"""Names that differ in each run: which they are, and how they are written so that runs can be compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["GENERATED", "Names", "random_names"]

GENERATED: Final = "*"
"""Replaces the changing part of a name."""

Key = tuple[str, str, str]
"""Resource (``widgets.example.com``), namespace and name."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the reference run: ``stable`` ones, and the ``prefixes`` of changing ones (resource, prefix)."""

    stable: Collection[Key] = frozenset()
    prefixes: Collection[tuple[str, str]] = field(default_factory=tuple)

    def canonical(self, key: Key, generate_name: str = "") -> str:
        """Return the name to compare: with ``*`` in place of the part that changes."""
        resource, _, name = key
        if generate_name and name.startswith(generate_name):
            return generate_name + GENERATED
        if key in self.stable:
            return name
        matching = [
            prefix
            for of, prefix in self.prefixes
            if of == resource and prefix != name and name.startswith(prefix)
        ]
        return max(matching, key=len) + GENERATED if matching else name


def random_names(first: Iterable[Key], second: Iterable[Key]) -> set[tuple[str, str]]:
    """Return resource and prefix of the names that differ between two runs without faults.

    ``first`` and ``second`` are the keys that only one of the runs has. They are paired in order within each resource
    and namespace; names without a common prefix are not paired.
    """
    found: set[tuple[str, str]] = set()
    groups: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for number, keys in enumerate((first, second)):
        for resource, namespace, name in keys:
            groups.setdefault((resource, namespace), ([], []))[number].append(name)
    for (resource, _), (ours, theirs) in groups.items():
        for one, other in zip(sorted(ours), sorted(theirs), strict=False):
            prefix = _common_prefix(one, other)
            if prefix:
                found.add((resource, prefix))
    return found


def _common_prefix(one: str, other: str) -> str:
    length = next(
        (number for number, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        None,
    )
    return one[: min(len(one), len(other)) if length is None else length]
