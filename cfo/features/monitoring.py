"""The alerts and panels that a feature adds to those of the operator, which :mod:`cfo.manifests` has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

__all__ = ["METRICS_SERVICE", "OBJECTS", "OWN", "Alert", "Panel", "counted", "merged"]

METRICS_SERVICE: Final = "codeflare-operator-manager-metrics"
"""The Service for the operator's metrics, which is also the value of their label ``job``."""

OWN: Final = f'job="{METRICS_SERVICE}"'
OBJECTS: Final = f"{{{OWN}}}"
"""The selector of metrics whose label ``namespace`` is the objects' namespace, not the operator's."""


class Alert(NamedTuple):
    """An alert: ``section`` is the one in docs/operations.md, ``after`` the operator's alert that it follows."""

    name: str
    expression: str
    duration: str
    severity: str
    summary: str
    section: str
    after: str = "CodeFlareOperatorInformerNotSynced"


class Panel(NamedTuple):
    """A panel: each query is an expression and a legend; ``after`` is the operator's panel that it follows."""

    name: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    after: str = "Requests to the API server"


def counted(name: str, metric: str, label: str, selector: str = OBJECTS, prefix: str = "") -> Panel:
    """Return a panel with the sum of ``metric`` for each value of ``label``; the legend is ``prefix`` and the value."""
    return Panel(name, "short", ((f"sum by ({label}) ({metric}{selector})", f"{prefix}{{{{{label}}}}}"),))


_Item = TypeVar("_Item", bound=Alert | Panel)


def merged(own: Sequence[_Item], added: Sequence[_Item]) -> list[_Item]:
    """Return ``own``, each followed by those of ``added`` that name it."""
    found: list[_Item] = []
    for each in own:
        found += [each, *(other for other in added if other.after == each.name)]
    return found
