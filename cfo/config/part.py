"""The part of the objects in a cluster that an operator reconciles, by its namespaces and its label selector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

import msgspec

from cfo.runtime import LabelSelector

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration


class Part(msgspec.Struct, frozen=True):
    """The objects that an operator reconciles: those in ``namespaces`` (empty: all) whose labels match.

    ``operator`` is the namespace of the operator.
    """

    operator: str = ""
    namespaces: frozenset[str] = frozenset()
    selector: LabelSelector = LabelSelector()

    @classmethod
    def of(cls, configuration: OperatorConfiguration, operator: str) -> Self:
        """Return the part of the operator in namespace ``operator`` with this configuration."""
        watched = frozenset(configuration.watch_namespaces)
        return cls(operator, watched, LabelSelector.of(configuration.label_selector))

    def has_namespace(self, namespace: str) -> bool:
        """Return whether the operator reconciles objects in ``namespace``."""
        return not self.namespaces or namespace in self.namespaces

    def covers(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether the operator reconciles an object in ``namespace``.

        ``labels`` are those of the object; ``None`` for kinds to which the selector does not apply.
        """
        if not self.has_namespace(namespace):
            return False
        return labels is None or self.selector.matches(labels)

    @property
    def keys(self) -> list[str]:
        """The keys of the labels that decide what the operator reconciles."""
        return sorted({requirement.key for requirement in self.selector.requirements})


EVERYTHING: Final = Part()
"""The part of the only operator of a cluster."""
