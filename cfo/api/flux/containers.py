"""Which container of a MiniCluster runs Flux."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["is_runner", "runners"]


def runners(containers: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indexes of the containers that run Flux: a single container, or those with ``runFlux``.

    Exactly one does in a valid MiniCluster.
    """
    if len(containers) == 1:
        return [0]
    return [index for index, container in enumerate(containers) if container.get("runFlux")]


def is_runner(container: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether ``container``, one of ``containers``, runs Flux."""
    return len(containers) == 1 or bool(container.get("runFlux"))
